import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A map whose values cannot be written to disk.
@Suite(.standard)
struct UnwritableDiskTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let store = UnreliableStore()
    private let saves = Locked(0)
    private let executor = OrderedExecutor()
    private let world: World

    init() {
        self.world = World(store: self.store, spawn: TaskLauncher(executor: self.executor))
        let saves = self.saves
        self.store.beforeSave.withLock { $0 = { _ = saves.next() } }
    }

    private func map(_ policy: MuxPolicy) -> Map {
        Map(cacheKey: "Map", policy: policy, repository: self.world.repository) { $0 }
    }

    private func count(_ map: Map, _ keys: Range<Int>) -> Int { keys.count { map.cachedValue(key: $0) != nil } }

    @Test(arguments: ["saves", "saves and epochs", "loads"])
    func `CO-44 an unwritable disk does not suspend the count limit of a map`(failing: String) async throws {
        self.store.failsSaves.withLock { $0 = failing != "loads" }
        self.store.failsEpochs.withLock { $0 = failing == "saves and epochs" }
        self.store.failsLoads.withLock { $0 = failing == "loads" }
        let map = self.map(.init(maximumCount: 100))
        for key in 0..<1_000 {
            #expect(try await map.request(key: key) == key)
            self.executor.settle()
            // The earlier disk operations of the map end before this clear.
            await map.clear(key: -1)
            self.executor.settle()
            if key.isMultiple(of: 100) { #expect(self.count(map, 0..<1_000) <= 101) }
        }
        #expect(self.count(map, 0..<1_000) <= 100)
        // The map tries a save after 64 losses, and then after twice as many each time.
        // A save that fails as a whole is tried in parts, up to 64 of them.
        #expect(self.saves.withLock { $0 } <= 6 * 65, "it is tried ever more rarely")

        let lost = self.world.events.count(of: .evictedUnsaved)
        #expect(lost >= 900)
        let report = await map.save()
        #expect(report.evictedUnsaved == lost)
        #expect(await map.save().evictedUnsaved == 0, "it is said once")
        #expect(self.count(map, 0..<1_000) <= 100)
    }

    @Test func `CO-44 entries on disk that cannot be read do not suspend the count limit of a map`() async throws {
        self.store.isUnreadable.withLock { $0 = { $0.key.flatMap { Int($0) }?.isMultiple(of: 2) ?? false } }
        let map = self.map(.init(maximumCount: 10))
        // The map's own saves wait: a save of the map without a saved entry makes all entries evictable.
        self.executor.pause()
        for key in 0..<30 { map.store(-key, key: key) }
        // The first save can stop after eight consecutive failures.
        for _ in 0..<2 { await map.save() }
        #expect(self.count(map, 0..<30) <= 10)
        self.executor.resume()
        self.executor.settle()
        #expect(self.world.events.count(of: .evictedUnsaved) > 0)
        for key in stride(from: 1, to: 30, by: 2) { #expect(try await map.request(key: key) == -key) }
        #expect(map.statistics.fetches == 0, "the other entries are saved")
    }

    @Test func `CO-44 a hanging disk raises the count limit of a map by a bounded factor`() async throws {
        let gate = Gate<Void>()
        self.store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        let map = self.map(.init(maximumCount: 100))
        for key in 0..<2_500 { map.store(key, key: key) }
        await gate.waitForCall(1)
        #expect(self.count(map, 0..<2_500) <= 1_500)
        gate.openForGood(returning: ())
        await map.save()
        self.executor.settle()
        #expect(self.count(map, 0..<2_500) <= 100)
    }

    @Test func `CO-44 an older value on disk does not replace a value that was evicted unsaved`() async throws {
        let first = self.map(.init())
        for key in 0..<10 { first.store(1, key: key) }
        await first.save()
        self.store.failsSaves.withLock { $0 = true }
        let map = MultiplexerMap<Int, Int>(
            cacheKey: "Map",
            policy: .init(maximumCount: 1),
            repository: self.world.relaunched(spawn: TaskLauncher(executor: self.executor)).repository
        ) { _ in 3 }
        for key in 0..<10 {
            map.store(2, key: key)
            self.executor.settle()
            await map.clear(key: -1)
            self.executor.settle()
        }
        #expect(self.count(map, 0..<10) <= 1)
        for key in 0..<10 { #expect(try await map.request(key: key) != 1) }
    }

    @Test func `CO-44 a value that a clear of tags removed before its eviction does not return from disk`() async throws
    {
        let calls = Locked(0)
        let policy = MuxPolicy(maximumCount: 1)
        let map = Map(cacheKey: "Map", policy: policy, repository: self.world.repository) { _, _ in
            let call = calls.next()
            return Fetched(call, tags: call == 2 ? ["a"] : [])
        }
        _ = try await map.request(key: 0)
        await map.save()
        _ = try await map.reload(key: 0)
        self.store.failsSaves.withLock { $0 = true }
        await map.save()
        self.executor.settle()
        // The removed value stays in memory until the executor continues.
        self.executor.pause()
        let clear = Task { [repository = self.world.repository] in await repository.clear(tags: ["a"]) }
        await settled({ map.cachedValue(key: 0) }, when: { $0 == nil })
        map.store(7, key: 1)
        _ = await clear.value
        self.store.failsSaves.withLock { $0 = false }
        self.executor.resume()
        self.executor.settle()

        #expect(await map.loadCachedValue(key: 0) == nil)
        #expect(try await map.request(key: 0) == 3)
    }

    @Test func `CO-44 an unwritable disk does not suspend a cost limit`() async throws {
        self.store.failsSaves.withLock { $0 = true }
        let map = self.map(.init(maximumCost: .init(1_000) { (_: Int) in 10 }))
        for key in 0..<1_000 {
            #expect(try await map.request(key: key) == key)
            self.executor.settle()
            await map.clear(key: -1)
            self.executor.settle()
        }
        #expect(self.count(map, 0..<1_000) <= 100)
    }

    @Test func `CO-44 the remaining entries are saved when the disk is writable again`() async throws {
        self.store.failsSaves.withLock { $0 = true }
        let map = self.map(.init(maximumCount: 10))
        for key in 0..<100 {
            map.store(-key, key: key)
            self.executor.settle()
            await map.clear(key: -1)
            self.executor.settle()
        }
        #expect(self.count(map, 0..<100) == 10)
        self.store.failsSaves.withLock { $0 = false }
        #expect(await map.save().saved == 10)

        // From here on, no entry is evicted unsaved. The clock advances because the evictions of unsaved
        // entries are on disk as a date, and all values from before this date are stale.
        self.world.clock.advance(by: .seconds(1))
        for key in 1_000..<1_200 { map.store(-key, key: key) }
        self.executor.settle()
        await map.save()
        self.executor.settle()
        for key in 1_000..<1_200 { #expect(try await map.request(key: key) == -key) }
        #expect(map.statistics.fetches == 0)
    }
}
