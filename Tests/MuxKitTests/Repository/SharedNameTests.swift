import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SharedNameTests {
    private let world = World()
    private let one: Multiplexer<Int>
    private let other: Multiplexer<Int>

    init() {
        self.one = Multiplexer(cacheKey: "Number", repository: self.world.repository) { 1 }
        self.other = Multiplexer(cacheKey: "Number", repository: self.world.repository) { 2 }
    }

    @Test(arguments: [true, false])
    func `RP-06 of two values with the same cacheKey the newer is on disk after a save`(isOtherNewer: Bool) async throws
    {
        let (older, newer) = isOtherNewer ? (self.one, self.other) : (self.other, self.one)
        older.store(1)
        self.world.clock.advance(by: .seconds(10))
        newer.store(2)

        let report = await self.world.repository.saveAll()

        #expect(report.saved == 1 && report.superseded == [MuxStoreKey(domain: "Number")])
        #expect(try await older.request() == 2)
        let next = self.world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 3 }
        #expect(await again.loadCachedValue() == 2)
    }

    @Test func `RP-06 a cleared value does not return from a multiplexer with the same cacheKey`() async throws {
        _ = try await self.other.request()

        await self.one.clear()
        await self.world.repository.saveAll()

        #expect(try await self.one.request() == 1)
    }

    @Test func `RP-06 a value cleared from disk is not unchanged for a multiplexer with the same cacheKey`()
        async throws
    {
        self.other.store(2)
        await self.other.save()

        await self.one.clear()

        #expect(await self.other.save().unchanged == 0)
        #expect(try await self.world.store.load(.init(domain: "Number")) == nil)
    }

    @Test func `RP-06 a cleared value does not return from a map with the same cacheKey`() async throws {
        let one = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        let other = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { -$0 }
        for key in 1...3 { _ = try await other.request(key: key) }

        await one.clear(key: 1)
        #expect(other.cachedValue(key: 1) == nil)
        #expect(other.cachedValue(key: 2) == -2)
        await one.clear()
        #expect(other.cachedValue(key: 2) == nil)
    }

    @Test func `RP-06 a cleared value does not return from a flight of another multiplexer`() async throws {
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(cacheKey: "Gated", repository: self.world.repository) { try await gate.pass() }
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { _ in
            try await gate.pass()
        }
        let callers = [Task { try await number.request() }, Task { try await map.request(key: 1) }]
        await gate.waitForCall(2)

        await Multiplexer<Int>(cacheKey: "Gated", repository: self.world.repository) { 0 }.clear()
        await MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }.clear(key: 1)
        gate.openForGood(returning: 5)

        for caller in callers { #expect(try await caller.value == 5) }
        #expect(number.cachedValue == nil)
        #expect(map.cachedValue(key: 1) == nil)
        #expect(await self.world.repository.saveAll().saved == 0)
    }

    @Test func `RP-06 a value that another multiplexer clears during a read of the cache does not return`() async throws
    {
        let store = UnreliableStore()
        let repository = MuxRepository(store: store, durability: .relaxed)
        let one = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { $0 }
        let other = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { -$0 }
        one.store(1, key: 1)
        #expect(await repository.saveAll().saved == 1)
        store.afterLoad.withLock { $0 = { _ = await one.clear(key: 1) } }

        #expect(await other.loadCachedValue(key: 1) == nil)
        #expect(other.cachedValue(key: 1) == nil)
    }

    @Test func `RP-06 a clear does not affect the values of a map with another cacheKey`() async throws {
        let one = MultiplexerMap<Int, Int>(cacheKey: "One", repository: self.world.repository) { $0 }
        let other = MultiplexerMap<Int, Int>(cacheKey: "Other", repository: self.world.repository) { $0 }
        for key in 1...2 { other.store(key, key: key) }
        await one.clear(key: 1)
        #expect(other.cachedValue(key: 1) == 1)
        await one.clear()
        #expect(other.cachedValue(key: 2) == 2)
    }
}
