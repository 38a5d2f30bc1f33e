import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SignOutRepairTests {
    private let store = UnreliableStore()
    private let world: World

    init() { self.world = World(store: self.store) }

    /// A multiplexer whose value is on disk.
    private func savedNumber() async throws -> Multiplexer<Int> {
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        return number
    }

    @Test func `RP-04 the next save finishes a failed sign-out, even without unsaved values`() async throws {
        let number = try await self.savedNumber()
        self.store.failsEpochs.withLock { $0 = true }
        self.store.failsRemovals.withLock { $0 = true }
        #expect(await self.world.repository.clearAll().isComplete == false)
        self.store.failsEpochs.withLock { $0 = false }
        self.store.failsRemovals.withLock { $0 = false }

        #expect(await self.world.repository.saveAll().isComplete)

        #expect(try await self.store.sessionEpoch() == 1)
        let next = Multiplexer<Int>(cacheKey: "Number", repository: self.world.relaunched().repository) { 2 }
        #expect(await next.loadCachedValue() == nil)
        #expect(number.cachedValue == nil)
    }

    @Test func `RP-04 the next save finishes a failed rise to the session of another component`() async throws {
        let number = try await self.savedNumber()
        try await self.store.raiseSessionEpoch(to: 1)
        self.store.beforeRaise.withLock { $0 = { throw UnreliableStore.Failure() } }
        let component = Multiplexer<Int>(repository: self.world.repository) { 1 }
        await #expect(throws: UnreliableStore.Failure.self) {
            try await self.world.repository.adoptSession(3, sparing: ObjectIdentifier(component))
        }
        self.store.beforeRaise.withLock { $0 = {} }

        #expect(await self.world.repository.saveAll().isComplete)

        #expect(try await self.store.sessionEpoch() == 3)
        #expect(number.cachedValue == nil)
    }

    @Test func `RP-04 a failed read of the session of another process ends no further session`() async throws {
        let number = try await self.savedNumber()
        // Another process signs out, and stores an entry of the next session.
        try await self.store.raiseSessionEpoch(to: 1)
        let entry = MuxStoredEntry(
            name: MuxStoreKey(domain: "Of the next session"),
            schemaVersion: 1,
            sessionEpoch: 1,
            fetchedAt: Date(timeIntervalSinceReferenceDate: 800_000_000),
            timeToLive: .seconds(1_000),
            payload: Data("1".utf8)
        )
        try await self.store.save([entry], durability: .full)
        let reads = Locked(0)
        self.store.beforeEpoch.withLock { $0 = { if reads.next() == 2 { throw UnreliableStore.Failure() } } }
        let component = Multiplexer<Int>(repository: self.world.repository) { 1 }
        await #expect(throws: UnreliableStore.Failure.self) {
            try await self.world.repository.adoptSession(1, sparing: ObjectIdentifier(component))
        }

        #expect(await self.world.repository.saveAll().isComplete)

        #expect(try await self.store.sessionEpoch() == 1)
        #expect(try await self.store.load(entry.name) != nil)
        #expect(number.cachedValue == nil)
    }

    @Test func `RP-04 each later save retries the removal of a sign-out until the removal succeeds`() async throws {
        _ = try await self.savedNumber()
        self.store.failsRemovals.withLock { $0 = true }
        #expect(await self.world.repository.clearAll().isComplete == false)

        #expect(await self.world.repository.saveAll().repairFailures.count == 1)
        self.store.failsRemovals.withLock { $0 = false }
        #expect(await self.world.repository.saveAll().isComplete)

        self.store.failsRemovals.withLock { $0 = true }
        #expect(await self.world.repository.saveAll().isComplete, "nothing is left to be removed")
    }

    @Test func `RP-04 a sign-out in a cancelled task is finished`() async throws {
        _ = try await self.savedNumber()
        self.store.heedsCancellation.withLock { $0 = true }

        let signOut = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return await self.world.repository.clearAll()
        }

        #expect(await signOut.value.isComplete)
        #expect(try await self.store.sessionEpoch() == 1)
    }

    @Test func `RP-04 a sign-out at the maximum session epoch is reported as a failure`() async throws {
        let number = try await self.savedNumber()
        try await self.store.raiseSessionEpoch(to: .max)

        let report = await self.world.repository.clearAll()

        #expect(report.failures.compactMap { $0 as? MuxError } == [.tooManySessions])
        #expect(number.cachedValue == nil)
    }

    @Test func `RP-04 a value that was read before a sign-out is not returned after the sign-out`() async throws {
        let number = Multiplexer<Slow>(cacheKey: "Slow", repository: self.world.repository) { Slow() }
        _ = try await number.request()
        await number.save()
        let next = self.world.relaunched()
        let again = Multiplexer<Slow>(cacheKey: "Slow", repository: next.repository) { Slow() }
        let reader = Task { await again.loadCachedValue() }
        await Slow.decoding.reached(1)

        await next.repository.clearAll()
        Slow.goOn.signal()

        #expect(await reader.value == nil)
    }
}

/// A value whose decoding blocks a thread outside the concurrency pool until the test signals.
private struct Slow: Codable, Sendable, Equatable {
    static let decoding = Tally()
    static let goOn = DispatchSemaphore(value: 0)

    var number = 1
    /// Data of this size is decoded on a Dispatch thread.
    var text = String(repeating: "x", count: 20_000)

    init() {}

    init(from decoder: any Decoder) throws {
        Self.decoding.add()
        Self.goOn.wait()
    }
}
