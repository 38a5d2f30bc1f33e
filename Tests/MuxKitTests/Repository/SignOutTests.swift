import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SignOutTests {
    @Test func `RP-04 a sign-out leaves nothing in memory or on disk`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let repository = MuxRepository(directory: folder.url)
        let secret = Multiplexer<String>(cacheKey: "Secret", repository: repository) { "of Alice" }
        let map = MultiplexerMap<Int, String>(cacheKey: "Map", repository: repository) { "of Alice \($0)" }
        _ = try await secret.request()
        _ = try await map.request(key: 1)
        await repository.saveAll()
        // The entry of a deallocated multiplexer, which this process never uses again.
        do {
            let gone = Multiplexer<String>(cacheKey: "Gone", repository: repository) { "of Alice, gone" }
            _ = try await gone.request()
            await gone.save()
        }
        #expect(folder.contents().values.contains { $0.range(of: Data("Alice".utf8)) != nil })

        let report = await repository.clearAll()

        #expect(report.isComplete)
        #expect(secret.cachedValue == nil)
        #expect(map.cachedValue(key: 1) == nil)
        #expect(await map.loadCachedValue(key: 1) == nil)
        #expect(!folder.contents().values.contains { $0.range(of: Data("Alice".utf8)) != nil })
        let later = Multiplexer<String>(cacheKey: "Gone", repository: MuxRepository(directory: folder.url)) { "new" }
        #expect(try await later.request() == "new")
    }

    /// Remembers the announced ends of sessions, as an outbox does in its log.
    private final class Log: SessionParticipant {
        let epoch = Locked<UInt64>(0)

        func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void { {} }
        func lastSession() async -> UInt64 { self.epoch.withLock { $0 } }
        func sessionWillEnd(before epoch: UInt64) async throws { self.epoch.withLock { $0 = max($0, epoch) } }
    }

    @Test func `RP-04 a sign-out that is completed later has the number that it announced`() async throws {
        let store = UnreliableStore()
        let repository = MuxRepository(store: store)
        let log = Log()
        repository.attach(log)
        store.beforeRaise.withLock { $0 = { throw UnreliableStore.Failure() } }
        for _ in 0..<3 { #expect(await !repository.clearAll().isComplete) }
        let announced = log.epoch.withLock { $0 }
        #expect(announced == 3)

        store.beforeRaise.withLock { $0 = {} }
        #expect(await repository.saveAll().isComplete)

        #expect(try await store.sessionEpoch() == announced)
    }

    @Test func `RP-04 waiting callers get sessionEnded and their fetches are cancelled`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }.register()
        let callers = (0..<10).map { _ in Task { try await number.request() } }
        await world.events.wait(for: .joined, count: 9)
        await gate.waitForCall(1)

        await world.repository.clearAll()

        for caller in callers { await #expect(throws: MuxError.sessionEnded) { try await caller.value } }
        await fetch.waitForEnd(1)
        await world.events.wait(for: .fetchFailed)
        await number.expectAtRest()
        number.unregister()
    }

    @Test func `RP-04 a caller that gets sessionEnded finds no value of the session in any multiplexer`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let first = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }.register()
        // The crowd lengthens the sign-out between `first` and `last`.
        let crowd = (0..<500).map { number in
            Multiplexer<Int>(cacheKey: "Of the crowd \(number)", repository: world.repository) { number }
        }
        let last = Multiplexer<Int>(cacheKey: "Last", repository: world.repository) { 1 }
        for multiplexer in crowd { multiplexer.store(1) }
        last.store(1)
        let caller = Task { () -> Int? in
            _ = try? await first.request()
            return last.cachedValue
        }
        await gate.waitForCall(1)

        await world.repository.clearAll()

        #expect(await caller.value == nil)
        withExtendedLifetime(crowd) {}
        first.unregister()
    }

    @Test func `RP-04 a fetch of the old session is never kept, and does not delay the new session`() async throws {
        let world = World()
        let gate = Gate<String>()
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) {
            try await gate.pass(ignoringCancellation: true)
        }
        let alice = Task { try await name.request() }
        await gate.waitForCall(1)

        await world.repository.clearAll()
        let bob = Task { try await name.request() }
        await gate.waitForCall(2)
        gate.open(2, returning: "Bob")
        #expect(try await bob.value == "Bob")
        gate.open(1, returning: "Alice")
        await world.events.wait(for: .fenceDropped)

        await #expect(throws: MuxError.sessionEnded) { try await alice.value }
        #expect(name.cachedValue == "Bob")
        await world.repository.saveAll()
        #expect(try await world.store.load(.init(domain: "Name"))?.payload == Data("\"Bob\"".utf8))
        await name.expectAtRest()
    }

    @Test func `RP-04 a load of the old session is never kept`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { "Alice" }
        _ = try await name.request()
        await world.repository.saveAll()

        let next = world.relaunched()
        let loading = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await loading.pass(ignoringCancellation: true) } }
        let again = Multiplexer<String>(cacheKey: "Name", repository: next.repository) { "Bob" }
        let alice = Task { try await again.request() }
        await loading.waitForCall(1)
        await next.repository.clearAll()
        loading.openForGood(returning: ())

        await #expect(throws: MuxError.sessionEnded) { try await alice.value }
        #expect(try await again.request() == "Bob")
    }

    @Test func `RP-04 a read that began before a sign-out finds nothing`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { "Alice" }
        _ = try await name.request()
        await world.repository.saveAll()

        let next = world.relaunched()
        let loading = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await loading.pass() } }
        let again = Multiplexer<String>(cacheKey: "Name", repository: next.repository) { "Bob" }
        let read = Task { await again.loadCachedValue() }
        await loading.waitForCall(1)
        await next.repository.clearAll()
        loading.openForGood(returning: ())

        #expect(await read.value == nil)
    }

    @Test func `RP-04 a sign-out removes the entries of a running save`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { "Alice" }
        _ = try await name.request()
        let saving = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await saving.pass() } }
        let save = Task { await world.repository.saveAll() }
        await saving.waitForCall(1)

        let signOut = Task { await world.repository.clearAll() }
        saving.openForGood(returning: ())
        _ = await save.value
        #expect(await signOut.value.isComplete)

        #expect(try await store.load(.init(domain: "Name")) == nil)
    }

    @Test func `RP-04 a failed raise of the session epoch hides the disk until the raise succeeds`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { "Alice" }
        _ = try await name.request()
        await world.repository.saveAll()

        store.failsEpochs.withLock { $0 = true }
        store.failsRemovals.withLock { $0 = true }
        #expect(await world.repository.clearAll().failures.count == 2)
        #expect(name.cachedValue == nil)
        #expect(await name.loadCachedValue() == nil)
        name.store("Bob")
        #expect(await world.repository.saveAll().failed.count == 1)

        store.failsEpochs.withLock { $0 = false }
        store.failsRemovals.withLock { $0 = false }
        #expect(await world.repository.saveAll().saved == 1)
        #expect(try await store.sessionEpoch() == 1)
        #expect(try await store.load(.init(domain: "Name"))?.payload == Data("\"Bob\"".utf8))
    }

    @Test func `RP-04 the session epoch only grows`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        for expected in 1...3 {
            await MuxRepository(directory: folder.url).clearAll()
            #expect(try await JournalStore(directory: folder.url).sessionEpoch() == UInt64(expected))
        }
    }

    @Test func `RP-05 after a kill during a sign-out the next process reads no value of an ended session`()
        async throws
    {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let kept = TemporaryFolder()
        defer { kept.remove() }
        let repository = MuxRepository(directory: kept.url)
        let map = MultiplexerMap<Int, String>(cacheKey: "Map", repository: repository) { "of Alice \($0)" }
        for key in 0..<20 { _ = try await map.request(key: key) }
        await repository.saveAll()

        var step = 0
        var hasReturned = false
        while !hasReturned {
            step += 1
            folder.remove()
            try FileManager.default.copyItem(at: kept.url, to: folder.url)
            // From this call on, the file system fails, as for a process that is killed at this call.
            let system = RecordingFileSystem { [step] call, _ in
                call == step ? .fail(after: 0, POSIXFileSystem.ioError) : nil
            }
            let dying = MuxRepository(store: JournalStore(StoreFolder(folder.url), fileSystem: system))
            hasReturned = await dying.clearAll().isComplete

            let next = MuxRepository(directory: folder.url)
            let isOver = try await JournalStore(directory: folder.url).sessionEpoch() == 1
            let again = MultiplexerMap<Int, String>(cacheKey: "Map", repository: next) { _ in "new" }
            for key in 0..<20 {
                let expected = isOver ? "new" : "of Alice \(key)"
                #expect(try await again.request(key: key) == expected, "killed at call \(step)")
            }
            if isOver {
                let hasTraces = folder.contents().values.contains { $0.range(of: Data("Alice".utf8)) != nil }
                #expect(!hasTraces, "killed at call \(step)")
            }
        }
        #expect(step > 5)
    }
}
