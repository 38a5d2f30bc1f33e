import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A map that is full of unsaved entries.
@Suite(.standard)
struct WriteBackTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let store = UnreliableStore()
    private let saves = Locked(0)
    private let world: World

    init() {
        self.world = World(store: self.store)
        let saves = self.saves
        self.store.beforeSave.withLock { $0 = { _ = saves.next() } }
    }

    private func map(_ bound: Int) -> Map {
        Map(cacheKey: "Map", policy: .init(maximumCount: bound), repository: self.world.repository) { $0 }
    }

    private func count(_ map: Map) -> Int { (0..<1_000).count { map.cachedValue(key: $0) != nil } }

    @Test(arguments: [0, 1, 10])
    func `MX-24 unsaved entries beyond the limit are saved without a request, and the limit holds`(bound: Int)
        async throws
    {
        let map = self.map(bound)
        for key in 0..<100 { map.store(-key, key: key) }
        await self.world.events.wait(for: .evicted, count: 100 - bound)

        #expect(self.count(map) == bound)
        for key in 0..<100 { #expect(try await map.request(key: key) == -key) }
        #expect(map.statistics.fetches == 0)
    }

    @Test func `MX-24 after a refresh of everything the limit holds, and refreshed entries are stale`() async throws {
        let map = self.map(10)
        for key in 0..<10 { map.store(-key, key: key) }
        await map.save()
        map.refresh()
        #expect(self.count(map) == 10)
        self.world.clock.advance(by: .seconds(1))

        for key in 100..<110 { map.store(-key, key: key) }
        await self.world.events.wait(for: .evicted, count: 10)

        #expect(self.count(map) == 10)
        for key in 0..<10 { #expect(try await map.request(key: key) == key, "fetched") }
        for key in 100..<110 { #expect(try await map.request(key: key) == -key) }
    }

    @Test func `MX-24 no entry is saved without a request while there is room`() async throws {
        let map = self.map(10)
        for key in 0..<10 { map.store(-key, key: key) }
        for key in 0..<10 { map.store(key, key: key) }
        map.refresh()
        #expect(await map.save().saved == 10)
        #expect(self.saves.withLock { $0 } == 2, "that there was a refresh is written first")
    }

    @Test func `MX-07 a refresh during a save of the entry is not lost`() async throws {
        let gate = Gate<Void>()
        self.store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        number.store(5)
        let save = Task { await number.save() }
        await gate.waitForCall(1)
        number.refresh()
        gate.openForGood(returning: ())
        #expect(await save.value.saved == 1)
        #expect(await number.save().saved == 1)

        let next = self.world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }
        #expect(try await again.request() == 2)
    }

    @Test func `MX-25 a value that was refreshed, saved and dropped is not served stale`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let policy = MuxPolicy(staleWhileRevalidate: .seconds(1_000))
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: self.world.repository) {
            try await fetch()
        }
        _ = try await number.request()
        number.refresh()
        await number.save()
        number.clearMemory()
        #expect(number.cachedValue == nil)
        #expect(try await number.request() == 2)
    }

    @Test func `MX-24 a clear removes the mark of a refresh`() async throws {
        let map = self.map(10)
        map.refresh(key: 1)
        #expect(map.markCount == 1)
        await map.clear(key: 1)
        #expect(map.markCount == 0)
    }
}
