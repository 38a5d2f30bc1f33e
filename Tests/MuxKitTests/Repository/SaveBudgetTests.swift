import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SaveBudgetTests {
    private let store = UnreliableStore()
    private let gate = Gate<Void>()
    private let world: World

    init() {
        self.world = World(store: self.store)
        let gate = self.gate
        self.store.beforeSave.withLock { $0 = { try? await gate.pass() } }
    }

    @Test func `CO-45 a save returns at its limit, reports unsaved values, and continues in the background`()
        async throws
    {
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        for key in 0..<300 {
            map.store(key, key: key)
            self.world.clock.advance(by: .seconds(1))
        }
        let save = Task { await self.world.repository.saveAll(within: .seconds(1)) }
        await self.gate.waitForCall(1)
        self.gate.open(1)
        await self.gate.waitForCall(2)  // The newest 256 values are saved.
        await self.world.clock.waitForSleepers(1)

        self.world.clock.advance(by: .seconds(1))
        let report = await save.value

        #expect(report.saved == 256)
        #expect(report.leftOver == 44)
        #expect(report.leftOverNames.first == MuxStoreKey(domain: "Map", key: "43"))
        #expect(!report.isComplete)
        self.gate.openForGood(returning: ())
        let next = await self.world.repository.saveAll()
        #expect(next.unchanged == 300 && next.isComplete, "what was under way went on")
    }

    @Test func `CO-45 a save behind another save returns at its limit, and the next save writes the rest`()
        async throws
    {
        let one = Multiplexer<Int>(cacheKey: "One", repository: self.world.repository) { 1 }
        let other = Multiplexer<Int>(cacheKey: "Other", repository: self.world.repository) { 1 }
        one.store(1)
        let slow = Task { await one.save() }
        await self.gate.waitForCall(1)
        other.store(1)
        let quick = Task { await self.world.repository.saveAll(within: .seconds(1)) }
        await self.world.clock.waitForSleepers(1)

        self.world.clock.advance(by: .seconds(1))
        let report = await quick.value

        #expect(report.saved == 0)
        #expect(report.leftOver == 2)
        self.gate.openForGood(returning: ())
        #expect(await slow.value.saved == 1)
        let next = await self.world.repository.saveAll()
        #expect(next.saved == 1 && next.unchanged == 1)
    }

    @Test func `CO-45 a save that ends before its limit leaves no timer`() async throws {
        self.gate.openForGood(returning: ())
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        number.store(1)

        let report = await self.world.repository.saveAll(within: .seconds(1))

        #expect(report.saved == 1 && report.isComplete)
        // The timer ends asynchronously. A remaining timer would exceed the time limit of the suite.
        while self.world.clock.sleeperCount > 0 { await Task.yield() }
    }

    @Test func `CO-45 a limit of zero saves nothing and reports the unsaved values`() async throws {
        self.gate.openForGood(returning: ())
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        number.store(1)

        let report = await self.world.repository.saveAll(within: .zero)

        #expect(report.saved == 0 && report.leftOver == 1)
        #expect(await self.world.repository.saveAll().saved == 1)
    }
}
