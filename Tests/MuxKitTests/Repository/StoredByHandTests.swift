import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Explicitly stored values and existing entries on disk.
@Suite(.standard)
struct StoredByHandTests {
    private typealias Map = MultiplexerMap<String, Int>

    @Test func `CO-17 an entry of a later program version survives a store before any request`() async throws {
        let world = World()
        let later = MuxPolicy(schemaVersion: 2)
        let map = Map(cacheKey: "Map", policy: later, repository: world.repository) { _ in 1 }
        let number = Multiplexer<Int>(cacheKey: "Number", policy: later, repository: world.repository) { 1 }
        _ = try await (map.request(key: "a"), number.request())
        await world.repository.saveAll()

        let earlier = world.relaunched(after: .seconds(1))
        let mapBefore = Map(cacheKey: "Map", repository: earlier.repository) { _ in 0 }
        let numberBefore = Multiplexer<Int>(cacheKey: "Number", repository: earlier.repository) { 0 }
        mapBefore.store(7, key: "a")
        mapBefore.store(8, key: "b")
        numberBefore.store(7)
        #expect(await earlier.repository.saveAll().saved == 1, "what is nobody's")
        #expect(await earlier.repository.saveAll().saved == 0)
        #expect(try await (mapBefore.request(key: "a"), numberBefore.request()) == (7, 7), "in memory")

        let again = earlier.relaunched(after: .seconds(1))
        let mapAgain = Map(cacheKey: "Map", policy: later, repository: again.repository) { _ in 2 }
        let numberAgain = Multiplexer<Int>(cacheKey: "Number", policy: later, repository: again.repository) { 2 }
        #expect(try await (mapAgain.request(key: "a"), numberAgain.request()) == (1, 1))
    }

    @Test func `CO-17 an entry of a later program version survives a fetch after a failed read`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let later = Map(cacheKey: "Map", policy: .init(schemaVersion: 2), repository: world.repository) { _ in 1 }
        _ = try await later.request(key: "a")
        await later.save()

        let earlier = world.relaunched(after: .seconds(1))
        let map = Map(cacheKey: "Map", repository: earlier.repository) { _ in 7 }
        store.failsLoads.withLock { $0 = true }
        #expect(try await map.request(key: "a") == 7)
        store.failsLoads.withLock { $0 = false }
        #expect(await map.save().saved == 0)

        let again = earlier.relaunched(after: .seconds(1))
        let next = Map(cacheKey: "Map", policy: .init(schemaVersion: 2), repository: again.repository) { _ in 2 }
        #expect(try await next.request(key: "a") == 1)
    }

    @Test func `CO-17 a stored value is not saved if the disk cannot be read, and is saved the next time`() async throws
    {
        let store = UnreliableStore()
        let world = World(store: store)
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 0 }
        map.store(7, key: "a")
        store.failsLoads.withLock { $0 = true }
        let report = await map.save()
        #expect(!report.isComplete && report.saved == 0)
        store.failsLoads.withLock { $0 = false }
        #expect(await map.save().saved == 1)
    }

    @Test func `CO-17 a stored value is saved even if many other entries on disk cannot be read`() async throws {
        let store = UnreliableStore()
        store.isUnreadable.withLock { $0 = { $0.key?.hasPrefix("unreadable") ?? false } }
        let map = Map(cacheKey: "Map", repository: World(store: store).repository) { _ in 0 }
        for number in 0..<40 { map.store(number, key: "unreadable \(number)") }
        for number in 0..<5 { map.store(number, key: "readable \(number)") }
        var saved = 0
        // Each save reads at least eight other entries.
        for _ in 0..<6 { saved += await map.save().saved }
        #expect(saved == 5)
        let report = await map.save()
        #expect(report.failed.count == 40)
        #expect(report.failed.allSatisfy { $0.error is UnreliableStore.Failure })
    }

    @Test func `CO-17 a store if unchanged accepts an entry that cacheOnly read from disk`() async throws {
        let world = World()
        let first = Map(cacheKey: "Map", repository: world.repository) { _ in 1 }
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await (first.request(key: "a"), number.request())
        await world.repository.saveAll()

        let next = world.relaunched(after: .seconds(1))
        let map = Map(cacheKey: "Map", repository: next.repository) { _ in 2 }
        let numberAgain = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }
        let entry = try await map.requestEntry(key: "a", .cacheOnly)
        #expect(entry.source == .disk)
        #expect(map.store(entry.value + 10, key: "a", ifUnchangedSince: entry))
        #expect(!map.store(0, key: "a", ifUnchangedSince: entry))
        #expect(try await map.request(key: "a") == 11)
        let single = try await numberAgain.requestEntry(.cacheOnly)
        #expect(numberAgain.store(5, ifUnchangedSince: single))
    }

    @Test func `CO-17 an entry that is cleared during a cacheOnly read is not returned`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let first = Map(cacheKey: "Map", repository: world.repository) { _ in 1 }
        _ = try await first.request(key: "a")
        await first.save()
        let map = Map(cacheKey: "Map", repository: world.relaunched().repository) { _ in 2 }
        let gate = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let reader = Task { try await map.requestEntry(key: "a", .cacheOnly) }
        await gate.waitForCall(1)
        await map.clear(key: "a")
        gate.openForGood(returning: ())

        await #expect(throws: MuxError.notCached) { try await reader.value }
        #expect(map.cachedValue(key: "a") == nil)
        #expect(try await map.request(key: "a") == 2)
    }
}
