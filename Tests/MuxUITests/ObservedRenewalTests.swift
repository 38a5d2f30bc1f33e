import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import MuxUI
import Testing

/// Requests of followed objects: what is fetched, and which failures are shown.
@Suite(.standard)
@MainActor
struct ObservedRenewalTests {
    private struct FetchFailed: Error {}

    private let clock = VirtualClock()
    private let repository: MuxRepository
    private let policy = MuxPolicy(timeToLive: .seconds(60), fetchTimeout: .longest)

    init() { self.repository = MuxRepository(store: MemoryStore(), clock: self.clock) }

    private func until(_ condition: () -> Bool) async { while !condition(), !Task.isCancelled { await Task.yield() } }

    /// Follows an object during `body`.
    private func following<Value>(_ observed: ObservedValue<Value>, _ body: () async throws -> Void) async rethrows {
        let view = Task { await observed.follow() }
        defer { view.cancel() }
        try await body()
        view.cancel()
        await view.value
    }

    // MARK: - Fences

    @Test func `SC-02 a refresh during the first fetch loses no value`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.gated(gate), .value(2)])
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            await fetch.waitForCall()
            number.refresh()
            await self.until { observed.value == 2 }
            #expect(!observed.isStale && observed.problem == nil)
        }
        gate.openForGood(returning: 1)
    }

    @Test func `SC-02 a refresh during a renewal, and another during its fetch, lead to a fresh value`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate), .gated(gate), .value(4)])
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
            self.clock.advance(by: .seconds(60))
            for call in [2, 3] {
                await fetch.waitForCall(call)
                number.refresh()
            }
            await self.until { observed.value == 4 }
            #expect(!observed.isStale && fetch.callCount == 4)
        }
        gate.openForGood(returning: 0)
    }

    @Test func `SC-02 a stored value that is refreshed in the same turn is renewed`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(3)])
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 }
            number.store(2)
            number.refresh()
            await self.until { observed.value == 3 }
            #expect(!observed.isStale)
        }
    }

    @Test func `SC-02 a cleared value is requested again after a refresh, not before`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2)])
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 }
            await number.clear()
            await self.until { observed.value == nil }
            for _ in 0..<200 { await Task.yield() }
            #expect(fetch.callCount == 1)
            number.refresh()
            await self.until { observed.value == 2 }
            #expect(fetch.callCount == 2)
        }
    }

    @Test func `SC-02 a renewal does not end with the fetch of another caller that leaves`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(timeToLive: .seconds(60), whenAbandoned: .cancel(linger: .zero), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
            let other = Task { try await number.request(.reload) }
            await gate.waitForCall()
            self.clock.advance(by: .seconds(60))
            await self.until { number.occupancy.waiters == 2 }
            other.cancel()
            _ = await other.result
            gate.open(returning: 2)
            await self.until { observed.value == 2 }
            #expect(fetch.callCount == 2)
        }
    }

    // MARK: - Failures

    @Test func `SC-02 the failure of the first fetch is shown`() async {
        for _ in 0..<100 {
            let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { throw FetchFailed() }
            let observed = number.observed()
            await self.following(observed) {
                await self.until { observed.problem != nil }
                #expect(observed.problem is FetchFailed)
            }
        }
    }

    @Test func `SC-02 a remembered failure is shown, and another view requests again`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed()), .value(2)])
        let policy = MuxPolicy(remembersFailure: { _ in .seconds(60) }, fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        await #expect(throws: FetchFailed.self) { try await number.request() }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.problem != nil }
            #expect(observed.problem is FetchFailed && fetch.callCount == 1)
            self.clock.advance(by: .seconds(60))
            await self.following(observed) { await self.until { observed.value == 2 } }
            #expect(observed.problem == nil)
        }
    }

    @Test func `SC-02 a pause after a failure delays the renewal, and does not prevent it`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .failure(URLError(.timedOut)), .value(3)])
        let policy = MuxPolicy(timeToLive: .seconds(60), errorBackoff: .seconds(10), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        _ = try await number.request()
        self.clock.advance(by: .seconds(60))
        #expect(try await number.requestEntry().staleReason == .fetchFailed)
        let observed = number.observed()
        await self.following(observed) {
            for _ in 0..<10 {
                await self.until { self.clock.sleeperCount == 1 }
                #expect(fetch.callCount == 2)
                self.clock.advance(by: .seconds(1))
            }
            await self.until { observed.value == 3 }
        }
    }

    @Test func `SC-02 a failed renewal is not repeated without an event`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .failure(FetchFailed()), .value(3)])
        let policy = MuxPolicy(timeToLive: .seconds(60), errorBackoff: .zero, fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
            self.clock.advance(by: .seconds(60))
            await self.until { observed.problem != nil && number.occupancy.tasks == 0 }
            for _ in 0..<5 {
                for _ in 0..<200 { await Task.yield() }
                self.clock.advance(by: .seconds(1))
            }
            for _ in 0..<200 { await Task.yield() }
            #expect(fetch.callCount == 2 && observed.value == 1)
        }
    }

    @Test func `SC-02 the end of a session is no problem`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.gated(gate)])
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(loadingDelay: .zero)
        await self.following(observed) {
            await self.until { observed.isLoading }
            await self.repository.clearAll()
            #expect(observed.problem == nil && observed.value == nil)
            await self.until { !observed.isLoading }
            for _ in 0..<200 { await Task.yield() }
            #expect(observed.problem == nil && observed.value == nil)
        }
        gate.openForGood(returning: 1)
    }

    // MARK: - Without a follower

    @Test func `SC-02 a reload without a follower shows the failure beside the old value`() async {
        let fetch = ScriptedFetch<Int>([.failure(URLError(.timedOut)), .failure(FetchFailed())])
        let map = MultiplexerMap<Int, Int>(policy: .init(maximumCount: 1), repository: self.repository) { _ in
            try await fetch()
        }
        map.store(1, key: 1)
        let observed = map.observed(key: 1)
        await observed.reload()
        #expect(observed.problem is URLError && observed.value == 1 && observed.isStale)
        map.store(2, key: 2)
        #expect(map.cachedEntry(key: 1) == nil)
        await observed.reload()
        #expect(observed.problem is FetchFailed && observed.value == 1)
        await self.until { map.followedCount == 0 }
        #expect(map.watcherCount == 0)
    }

    @Test func `SC-02 a sign-out removes the value of an object that nothing follows`() async {
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { throw FetchFailed() }
        number.store(1)
        let observed = number.observed()
        await observed.reload()
        #expect(observed.value == 1 && observed.problem is FetchFailed)
        await self.repository.clearAll()
        #expect(observed.value == nil && observed.entry == nil && observed.problem == nil && observed.age == nil)
    }

    @Test func `SC-02 a sign-out of another process removes the value, also of a screen that returns`() async {
        let store = MemoryStore()
        let here = MuxRepository(store: store, clock: self.clock)
        let elsewhere = MuxRepository(store: store, clock: self.clock)
        let fetch = ScriptedFetch<Int>([.value(1)], thereafter: .failure(FetchFailed()))
        let number = Multiplexer<Int>(policy: self.policy, repository: here) { try await fetch() }
        let other = Multiplexer<Int>(cacheKey: "Other", policy: self.policy, repository: here) { 3 }
        let observed = number.observed()
        await self.following(observed) { await self.until { observed.value == 1 } }
        #expect(observed.value == 1)
        await elsewhere.clearAll()
        _ = try? await other.request()
        await here.saveAll()
        #expect(observed.value == nil)
        await self.following(observed) {
            await self.until { observed.problem != nil }
            #expect(observed.value == nil)
        }
    }

    @Test func `SC-02 a followed object shows no value directly after a sign-out`() async {
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { 1 }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 }
            let isRemoved = await Task { @MainActor in
                await self.repository.clearAll()
                return observed.value == nil && observed.entry == nil && observed.age == nil
            }.value
            #expect(isRemoved)
        }
    }

    // MARK: - Requests

    @Test func `SC-02 a value that is fresh at the beginning is renewed at the end of its lifetime`() async {
        let fetch = ScriptedFetch<Int>([.value(2), .value(3)])
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { try await fetch() }
        number.store(1)
        let observed = number.observed()
        await self.following(observed) {
            await self.until { self.clock.sleeperCount == 1 }
            await self.following(observed) {
                for _ in 0..<200 { await Task.yield() }
                #expect(fetch.callCount == 0)
                for value in [2, 3] {
                    await self.until { self.clock.sleeperCount == 1 }
                    self.clock.advance(by: .seconds(60))
                    await self.until { observed.value == value && !observed.isStale }
                }
            }
        }
    }

    @Test func `SC-02 a value that another caller's response removes is removed from the screen`() async throws {
        let isKept = Locked(true)
        let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { _ in
            Fetched(isKept.withLock { $0 } ? 1 : 2, isKept: isKept.withLock { $0 })
        }
        let observed = number.observed()
        await self.following(observed) {
            await self.until { observed.value == 1 }
            isKept.withLock { $0 = false }
            #expect((try? await number.request(.reload)) == 2)
            await self.until { observed.value == nil }
            await observed.reload()
        }
    }

    @Test func `SC-02 a clear of another key changes neither an evicted value nor its age`() async {
        let map = MultiplexerMap<Int, Int>(policy: self.policy, repository: self.repository) { $0 }
        let observed = map.observed(key: 1)
        await self.following(observed) {
            await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
            self.clock.advance(by: .seconds(10))
            await map.clear(key: 2)
            #expect(observed.value == 1 && observed.age == .seconds(10))
            map.clearMemory()
            await map.clear(key: 2)
            #expect(observed.value == 1 && observed.age == .seconds(10))
        }
    }

    @Test func `SC-02 a value that memory does not keep is shown`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2)])
        let policy = MuxPolicy(timeToLive: .seconds(60), fetchTimeout: .longest, maximumCount: 0)
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.repository) { _ in try await fetch() }
        let observed = map.observed(key: 1)
        await self.following(observed) {
            await self.until { observed.value == 1 }
            map.refresh(key: 1)
            await self.until { observed.value == 2 }
        }
    }

    @Test func `SC-02 a stale value on disk is shown during the fetch`() async throws {
        let store = MemoryStore()
        let policy = MuxPolicy(timeToLive: .seconds(60), staleIfError: .seconds(3600), fetchTimeout: .longest)
        let first = MuxRepository(store: store, clock: self.clock)
        let saved = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: first) { 1 }
        _ = try await saved.request()
        _ = await first.saveAll()

        let gate = Gate<Int>()
        let second = MuxRepository(store: store, clock: self.clock, wallTime: { Date().addingTimeInterval(100) })
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: second) {
            try await gate.pass()
        }
        let observed = number.observed()
        await self.following(observed) {
            await gate.waitForCall()
            await self.until { observed.value == 1 }
            #expect(observed.isStale)
            gate.open(returning: 2)
            await self.until { observed.value == 2 }
            #expect(!observed.isStale)
        }
    }

    @Test func `SC-02 a short lifetime leads to at most one renewal a second`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .value(1))
        let policy = MuxPolicy(timeToLive: .milliseconds(10), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await self.following(observed) {
            for call in 1...5 {
                await fetch.waitForCall(call)
                // The timer of the lifetime, then the pause.
                await self.until { !observed.isStale && observed.value == 1 && self.clock.sleeperCount == 1 }
                self.clock.advance(by: .milliseconds(10))
                await self.until { observed.isStale && self.clock.sleeperCount == 1 }
                #expect(fetch.callCount == call)
                self.clock.advance(by: .milliseconds(990))
            }
        }
    }

    @Test func `SC-02 a view that follows as another leaves shows the value`() async {
        for _ in 0..<100 {
            let number = Multiplexer<Int>(policy: self.policy, repository: self.repository) { 1 }
            let observed = number.observed()
            let former = Task { await observed.follow() }
            await Task.yield()
            former.cancel()
            await self.following(observed) { await self.until { observed.value == 1 } }
            await former.value
            await self.until { number.followedCount == 0 }
            #expect(number.watcherCount == 0)
        }
    }
}
