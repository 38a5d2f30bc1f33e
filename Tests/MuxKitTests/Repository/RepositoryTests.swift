import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RepositoryTests {
    @Test func `RP-01 each repository has its own folder`() async throws {
        let folders = [TemporaryFolder(), TemporaryFolder()]
        defer { for folder in folders { folder.remove() } }
        for (index, folder) in folders.enumerated() {
            let repository = MuxRepository(directory: folder.url)
            let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { index }
            _ = try await number.request()
            #expect(await repository.saveAll().saved == 1)
        }

        for (index, folder) in folders.enumerated() {
            let fetch = ScriptedFetch<Int>()
            let repository = MuxRepository(directory: folder.url)
            let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { try await fetch() }
            #expect(try await number.request() == index)
        }
        await MuxRepository(directory: folders[0].url).clearAll()
        let other = MuxRepository(directory: folders[1].url)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: other) { -1 }
        #expect(try await number.request() == 1)
    }

    @Test func `RP-02 registering is synchronous, chainable, idempotent, and retains`() async throws {
        let world = World()
        weak var weakly: Multiplexer<Int>?
        do {
            let number = Multiplexer<Int>(repository: world.repository) { 1 }.register().register()
            _ = try await number.request()
            weakly = number
        }
        #expect(weakly != nil)

        // A registered multiplexer without a cache key takes part in a sign-out.
        await world.repository.clearAll()
        #expect(weakly?.cachedValue == nil)
        weakly?.unregister()
        weakly?.unregister()
        #expect(weakly == nil)
    }

    @Test func `RP-02 one unregistration undoes any number of registrations`() {
        let world = World()
        weak var weakly: Multiplexer<Int>?
        do {
            weakly = Multiplexer<Int>(repository: world.repository) { 1 }.register().register()
        }
        #expect(weakly != nil)
        weakly?.unregister()
        #expect(weakly == nil)
    }

    @Test func `RP-02 a multiplexer with a cache key takes part while alive, registered or not`() async throws {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor))
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        #expect(await world.repository.saveAll().saved == 1)
        number.register().unregister()
        number.store(2)
        #expect(await world.repository.saveAll().saved == 1)
        await world.repository.clearAll()
        #expect(number.cachedValue == nil)

        weak var weakly: Multiplexer<Int>?
        do {
            let other = Multiplexer<Int>(cacheKey: "Other", repository: world.repository) { 1 }
            _ = try await other.request()
            weakly = other
        }
        #expect(weakly == nil, "not retained")
        executor.settle()
        #expect(await world.repository.saveAll().saved == 0)
    }

    @Test func `RP-03 a save writes only changed values, and the report counts the written values`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        for key in 0..<100 { _ = try await map.request(key: key) }
        _ = try await number.request()

        let first = await world.repository.saveAll()
        #expect(first.saved == 101)
        #expect(first.isComplete)
        map.store(-1, key: 7)
        let second = await world.repository.saveAll()
        #expect(second.saved == 1)
        #expect(second.unchanged == 100)
        let third = await world.repository.saveAll()
        #expect(third.saved == 0)
    }

    @Test func `RP-03 a value that cannot be encoded is reported and does not affect other values`() async throws {
        let world = World()
        let map = MultiplexerMap<String, Double>(cacheKey: "Map", repository: world.repository) { key in
            key == "bad" ? .nan : 1
        }
        _ = try await map.request(key: "good")
        _ = try await map.request(key: "bad")

        let report = await world.repository.saveAll()

        #expect(report.saved == 1)
        #expect(report.failed.map(\.name) == [MuxStoreKey(domain: "Map", key: "bad")])
        #expect(report.failed.first?.error is EncodingError)
        #expect(map.cachedValue(key: "bad")?.isNaN == true)
    }

    @Test func `RP-03 a value that failed to save stays dirty and is written by the next save`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()

        store.failsSaves.withLock { $0 = true }
        let report = await world.repository.saveAll()
        #expect(report.saved == 0)
        #expect(report.failed.first?.error is UnreliableStore.Failure)
        store.failsSaves.withLock { $0 = false }
        #expect(await world.repository.saveAll().saved == 1)
    }

    @Test func `RP-03 the newest values are saved first, and values beyond the budget are left over`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 0..<600 {
            _ = try await map.request(key: key)
            world.clock.advance(by: .seconds(1))
        }
        let portions = Locked(0)
        store.beforeSave.withLock { $0 = { if portions.next() == 2 { world.clock.advance(by: .seconds(1)) } } }

        let report = await world.repository.saveAll(within: .milliseconds(500))

        // A write in progress continues after the limit.
        #expect(report.saved == 256 || report.saved == 512)
        #expect(report.saved + report.leftOver == 600)
        #expect(report.leftOverNames.last == MuxStoreKey(domain: "Map", key: "0"))
        #expect(await world.repository.saveAll().saved == 88)
        #expect(portions.withLock { $0 } == 3)
        #expect(try await store.load(.init(domain: "Map", key: "0")) != nil)
    }

    @Test func `RP-03 a value that changes during a save is saved by the next save`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        store.beforeSave.withLock { $0 = { number.store(2) } }

        #expect(await world.repository.saveAll().saved == 1)
        store.beforeSave.withLock { $0 = {} }
        #expect(await world.repository.saveAll().saved == 1)
        #expect(try await store.load(.init(domain: "Number"))?.payload == Data("2".utf8))
    }

    /// A value that runs a closure of the test during its encoding.
    private struct Watched: Codable, Sendable {
        static let whileEncoding = Locked<@Sendable () -> Void>({})
        var number: Int

        init(_ number: Int) { self.number = number }

        init(from decoder: any Decoder) throws { self.number = try Int(from: decoder) }

        func encode(to encoder: any Encoder) throws {
            Self.whileEncoding.withLock { $0 }()
            try self.number.encode(to: encoder)
        }
    }

    @Test func `RP-03 a value that is replaced during its encoding is left over, not written`() async throws {
        let world = World()
        let value = Multiplexer<Watched>(cacheKey: "Value", repository: world.repository) { Watched(1) }
        _ = try await value.request()
        Watched.whileEncoding.withLock { $0 = { value.store(Watched(2)) } }

        let report = await world.repository.saveAll()

        #expect(report.saved == 0)
        #expect(report.leftOver == 1)
        #expect(!report.isComplete)
        #expect(try await world.store.load(.init(domain: "Value")) == nil)
        Watched.whileEncoding.withLock { $0 = {} }
        #expect(await world.repository.saveAll().saved == 1)
        #expect(try await world.store.load(.init(domain: "Value"))?.payload == Data("2".utf8))
    }

    @Test func `RP-03 a save that began before a clear leaves no entry after the clear`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        let saving = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await saving.pass() } }
        let save = Task { await world.repository.saveAll() }
        await saving.waitForCall(1)

        let clear = Task { await number.clear() }
        saving.openForGood(returning: ())
        _ = await save.value
        #expect(await clear.value.isComplete)

        #expect(try await store.load(.init(domain: "Number")) == nil)
    }

    @Test func `DK-06 a relaunch within the time to live fetches nothing`() async throws {
        let world = World()
        let policy = MuxPolicy(timeToLive: .seconds(100))
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: world.repository) { 1 }
        _ = try await number.request()
        world.clock.advance(by: .seconds(40))
        await world.repository.saveAll()

        let next = world.relaunched(after: .seconds(50))
        let fetch = ScriptedFetch<Int>(thereafter: .value(2))
        let again = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: next.repository) {
            try await fetch()
        }
        let entry = try await again.requestEntry()
        #expect(entry.value == 1)
        #expect(entry.source == .disk)
        #expect(entry.age == .seconds(90))
        #expect(fetch.callCount == 0)
        #expect(again.statistics.diskHits == 1)
        next.clock.advance(by: .seconds(10))
        #expect(try await again.request() == 2)
    }

    @Test func `DK-06 a clock that was set back makes an entry stale, not immortal`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await world.repository.saveAll()

        let next = world.relaunched(after: .seconds(-1_000))
        let fetch = ScriptedFetch<Int>([.failure(offline), .value(2)])
        let policy = MuxPolicy(errorBackoff: .zero)
        let again = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: next.repository) {
            try await fetch()
        }
        #expect(try await again.request() == 1, "it is still a safety net")
        #expect(try await again.request() == 2)
    }

    @Test func `DK-06 an entry from disk keeps its age when the entry is saved again`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        _ = try await map.request(key: 1)
        await world.repository.saveAll()

        let next = world.relaunched(after: .seconds(60))
        let again = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: next.repository) { $0 }
        _ = try await again.request(key: 1)
        #expect(await next.repository.saveAll().unchanged == 1)
        let stored = try #require(try await world.store.load(.init(domain: "Map", key: "1")))
        #expect(stored.fetchedAt == World.start)
    }

    @Test func `DK-06 an entry of another schema version or another type is a miss`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await world.repository.saveAll()

        let text = Multiplexer<String>(cacheKey: "Number", repository: world.relaunched().repository) { "fetched" }
        #expect(try await text.request() == "fetched")
        let policy = MuxPolicy(schemaVersion: 2)
        let newer = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: world.relaunched().repository) {
            2
        }
        #expect(try await newer.request() == 2)
    }

    @Test func `DK-06 a failed load from disk is a miss`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        store.failsLoads.withLock { $0 = true }

        #expect(try await number.request() == 1)
        #expect(world.events.count(of: .loadFailed) == 1)
    }

    @Test func `RP-01 DK-07 a repository keeps its folder within the byte limit`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let repository = MuxRepository(directory: folder.url, byteLimit: 20_000, durability: .relaxed)
        let texts = MultiplexerMap<Int, String>(cacheKey: "Texts", repository: repository) {
            String(repeating: "\($0 % 10)", count: 1_000)
        }
        for key in 0..<100 { _ = try await texts.request(key: key) }
        let report = await repository.saveAll()
        #expect(report.saved > 5 && report.saved + report.failed.count == 100)
        let size = folder.contents().values.reduce(0) { $0 + $1.count }
        #expect(size > 5_000 && size <= 20_000)
    }
}
