import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import MuxUI
import Testing

/// `MuxPolicy.refetch`: when followed objects fetch again.
@Suite(.standard)
@MainActor
struct ObservedRefetchTests {
    private struct FetchFailed: Error {}

    private let clock = VirtualClock()
    private let repository: MuxRepository
    private let activity = AppActivity()

    init() { self.repository = MuxRepository(store: MemoryStore(), clock: self.clock) }

    private func policy(_ refetch: MuxPolicy.Refetch) -> MuxPolicy {
        MuxPolicy(timeToLive: .seconds(3600), fetchTimeout: .longest, refetch: refetch)
    }

    private func until(_ condition: () -> Bool) async { while !condition(), !Task.isCancelled { await Task.yield() } }

    /// Gives tasks time for a wrong effect.
    private func settle() async { for _ in 0..<200 { await Task.yield() } }

    // MARK: - Activation

    @Test func `SC-03 an activation during an earlier flight causes exactly one further fetch`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.gated(gate), .value(2), .value(3)])
        let number = Multiplexer<Int>(policy: self.policy(.init(onActivation: true)), repository: self.repository) {
            try await fetch()
        }
        let views = (0..<3).map { _ in number.observed(activity: self.activity) }
        let tasks = views.map { view in Task { await view.follow() } }
        await gate.waitForCall()
        await self.until { number.statistics.joins == 2 }
        self.activity.activated()
        self.activity.activated()
        await self.settle()
        #expect(fetch.callCount == 1)
        gate.open(returning: 1)
        await self.until { views.allSatisfy { $0.value == 2 } }
        await self.settle()
        #expect(fetch.callCount == 2)
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
    }

    @Test func `SC-03 an activation fetches a fresh value once for all views, if the policy says so`() async {
        for isWanted in [false, true] {
            let fetch = ScriptedFetch<Int>([.value(1), .value(2), .value(3)])
            let policy = self.policy(.init(onActivation: isWanted))
            let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
            let views = (0..<3).map { _ in number.observed(activity: self.activity) }
            let tasks = views.map { view in Task { await view.follow() } }
            await self.until { views.allSatisfy { $0.value == 1 } }
            self.activity.reconnected()
            self.activity.activated()
            if isWanted { await self.until { views.allSatisfy { $0.value == 2 } } }
            await self.settle()
            #expect(fetch.callCount == (isWanted ? 2 : 1))
            for task in tasks { task.cancel() }
            for task in tasks { await task.value }
            self.activity.activated()
            await self.settle()
            #expect(fetch.callCount == (isWanted ? 2 : 1), "nothing follows the value")
        }
    }

    @Test func `SC-03 a failed renewal is repeated after an activation and after a reconnection`() async {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed()), .failure(FetchFailed()), .value(3), .value(4)])
        let number = Multiplexer<Int>(policy: self.policy(.init()), repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.problem != nil }
        await self.settle()
        #expect(fetch.callCount == 1)
        self.activity.activated()
        await self.until { number.statistics.failures == 2 && number.occupancy.tasks == 0 }
        await self.settle()
        self.activity.reconnected()
        await self.until { observed.value == 3 }
        self.activity.reconnected()
        self.activity.activated()
        await self.settle()
        #expect(fetch.callCount == 3 && observed.problem == nil)
        view.cancel()
        await view.value
    }

    @Test func `SC-03 a stale value stays if the policy excludes its renewal`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2)])
        let policy = self.policy(.init(whenStale: false))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
        self.clock.advance(by: .seconds(3600))
        await self.until { observed.isStale }
        self.activity.activated()
        await self.settle()
        #expect(fetch.callCount == 1)
        view.cancel()
        await view.value
        let again = Task { await observed.follow() }
        await self.until { observed.value == 2 }
        again.cancel()
        await again.value
    }

    // MARK: - Reconnection

    @Test func `SC-03 a reconnection fetches 50 keys once each, at most six at a time`() async {
        let gate = Gate<Int>()
        let counts = Locked((running: 0, most: 0, calls: 0))
        let policy = self.policy(.init(onReconnection: true))
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.repository) { _ in
            counts.withLock {
                $0.running += 1
                $0.calls += 1
                $0.most = max($0.most, $0.running)
            }
            defer { counts.withLock { $0.running -= 1 } }
            return try await gate.pass()
        }
        for key in 0..<50 { map.store(0, key: key) }
        let views = (0..<50).map { map.observed(key: $0, activity: self.activity) }
        let tasks = (views + views).map { view in Task { await view.follow() } }
        await self.until { map.statistics.requests == 50 }
        await self.settle()
        #expect(counts.withLock { $0.calls } == 0)
        self.activity.reconnected()
        await self.until { counts.withLock { $0.running } == 6 }
        await self.settle()
        #expect(counts.withLock { $0.calls } == 6)
        gate.openForGood(returning: 1)
        await self.until { views.allSatisfy { $0.value == 1 } }
        await self.settle()
        #expect(counts.withLock { $0.calls } == 50 && counts.withLock { $0.most } <= 6)
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
    }

    @Test func `SC-03 the fetches after earlier fetches are bounded, too`() async {
        let (early, late) = (Gate<Int>(), Gate<Int>())
        let calls = Locked((early: 0, late: 0))
        let policy = self.policy(.init(onReconnection: true))
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.repository) { _ in
            let isEarly = calls.withLock { calls in
                guard calls.early < 50 else {
                    calls.late += 1
                    return false
                }
                calls.early += 1
                return true
            }
            return try await (isEarly ? early : late).pass()
        }
        let views = (0..<50).map { map.observed(key: $0, activity: self.activity) }
        let tasks = views.map { view in Task { await view.follow() } }
        await early.waitForCall(50)
        self.activity.reconnected()
        self.activity.activated()
        early.openForGood(returning: 1)
        await late.waitForCall(6)
        await self.until { views.allSatisfy { $0.value == 1 } }
        await self.settle()
        #expect(calls.withLock { $0 } == (50, 6))
        late.openForGood(returning: 2)
        await self.until { views.allSatisfy { $0.value == 2 } }
        await self.settle()
        #expect(calls.withLock { $0.late } == 50)
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
    }

    @Test func `SC-03 a reconnection during a request that then fails repeats the request`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.gated(gate), .value(2)])
        let number = Multiplexer<Int>(policy: self.policy(.init()), repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await gate.waitForCall()
        self.activity.reconnected()
        gate.fail(with: FetchFailed())
        await self.until { observed.value == 2 }
        #expect(observed.problem == nil)
        view.cancel()
        await view.value
    }

    @Test func `SC-03 a value that is stored just after an activation does not replace the fetch`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate), .value(4)])
        let policy = self.policy(.init(onActivation: true))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 }
        self.activity.activated()
        number.store(2)
        await gate.waitForCall()
        gate.open(returning: 3)
        await self.until { !observed.isLoading && number.occupancy.tasks == 0 }
        await self.settle()
        // The store fences a fetch that began before it.
        #expect(fetch.callCount == 2 && [2, 3].contains(observed.value))
        view.cancel()
        await view.value
    }

    @Test func `SC-03 a cleared value is not fetched by events and intervals`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2), .value(3)])
        let policy = self.policy(.init(every: .seconds(30), onActivation: true, onReconnection: true))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 && self.clock.sleeperCount == 2 }
        await self.repository.clearAll()
        self.activity.activated()
        self.activity.reconnected()
        await self.settle()
        for _ in 0..<3 {
            await self.until { self.clock.sleeperCount == 1 }
            self.clock.advance(by: .seconds(30))
            await self.settle()
        }
        #expect(fetch.callCount == 1)
        await observed.reload()
        await self.until { observed.value == 2 && self.clock.sleeperCount == 2 }
        self.activity.activated()
        await self.until { observed.value == 3 }
        view.cancel()
        await view.value
    }

    @Test func `SC-03 an activation during a fetch that a sign-out ends leads to no fetch`() async {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.gated(gate), .value(2), .value(3)])
        let policy = self.policy(.init(onActivation: true))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await gate.waitForCall()
        self.activity.activated()
        await self.repository.clearAll()
        await self.until { number.occupancy.tasks == 0 }
        await self.settle()
        #expect(fetch.callCount == 1 && observed.value == nil)
        await observed.reload()
        await self.until { observed.value == 2 }
        view.cancel()
        await view.value
    }

    // MARK: - Interval

    @Test func `SC-03 a value that is older than the interval is fetched at the beginning`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2)])
        let policy = self.policy(.init(every: .seconds(30)))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        _ = try await number.request()
        self.clock.advance(by: .seconds(60))
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 2 }
        view.cancel()
        await view.value
    }

    @Test func `SC-03 a followed value is fetched at an interval, and nothing is fetched without a follower`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2), .failure(FetchFailed()), .value(4), .value(5)])
        let policy = self.policy(.init(every: .seconds(30), onActivation: true, onReconnection: true))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        for call in 1...4 {
            await self.until { number.statistics.fetches == call && number.occupancy.tasks == 0 }
            // The timers of the lifetime and of the interval.
            await self.until { self.clock.sleeperCount == 2 && (call == 3) == (observed.problem != nil) }
            await self.settle()
            #expect(observed.value == (call == 3 ? 2 : call))
            self.clock.advance(by: .seconds(29))
            await self.settle()
            #expect(fetch.callCount == call)
            if call < 4 { self.clock.advance(by: .seconds(1)) }
        }
        view.cancel()
        await view.value
        await self.until { self.clock.sleeperCount == 0 }
        for _ in 0..<24 { self.clock.advance(by: .seconds(3600)) }
        self.activity.activated()
        self.activity.reconnected()
        await self.settle()
        #expect(fetch.callCount == 4 && number.watcherCount == 0)
    }

    @Test func `SC-03 a stored value begins a new interval`() async {
        let fetch = ScriptedFetch<Int>([.value(1), .value(3)])
        let policy = self.policy(.init(every: .seconds(30)))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 && self.clock.sleeperCount == 2 }
        self.clock.advance(by: .seconds(20))
        number.store(2)
        await self.until { observed.value == 2 }
        await self.settle()

        self.clock.advance(by: .seconds(10))
        await self.settle()
        self.clock.advance(by: .seconds(19))
        await self.settle()
        #expect(fetch.callCount == 1)
        self.clock.advance(by: .seconds(1))
        await self.until { observed.value == 3 }
        view.cancel()
        await view.value
    }

    @Test(arguments: [Duration.zero, .seconds(-1), .nanoseconds(1)])
    func `SC-03 an interval is at least one second`(_ interval: Duration) async {
        let fetch = ScriptedFetch<Int>(thereafter: .value(1))
        let policy = self.policy(.init(every: interval))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed(activity: self.activity)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 && self.clock.sleeperCount == 2 }
        await self.settle()
        self.clock.advance(by: .milliseconds(999))
        await self.settle()
        #expect(fetch.callCount == 1)
        self.clock.advance(by: .milliseconds(1))
        await fetch.waitForCall(2)
        view.cancel()
        await view.value
    }

    // MARK: - The system

    @Test func `SC-03 the end of the background is an activation, and the start of the app is not`() async {
        let center = NotificationCenter()
        let activity = AppActivity(observing: center) { _ in nil }
        for system in ["UI", "NS", "WK"] {
            let fetch = ScriptedFetch<Int>([.value(1), .value(2), .value(3)])
            let policy = self.policy(.init(onActivation: true))
            let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
            let observed = number.observed(activity: activity)
            let view = Task { await observed.follow() }
            await self.until { observed.value == 1 }
            let active = Notification.Name("\(system)ApplicationDidBecomeActiveNotification")
            let end = system == "NS" ? "DidResignActive" : "DidEnterBackground"
            center.post(name: active, object: nil)
            await self.settle()
            #expect(fetch.callCount == 1)
            center.post(name: Notification.Name("\(system)Application\(end)Notification"), object: nil)
            center.post(name: active, object: nil)
            await self.until { observed.value == 2 }
            center.post(name: active, object: nil)
            await self.settle()
            #expect(fetch.callCount == 2)
            view.cancel()
            await view.value
        }
    }

    @Test func `SC-03 the network is watched while a value is followed, and its return is a reconnection`() async {
        let watch = Locked<(@Sendable (Bool) -> Void)?>(nil)
        let starts = Locked(0)
        let activity = AppActivity(observing: NotificationCenter()) { changed in
            starts.withLock { $0 += 1 }
            watch.withLock { $0 = changed }
            return { watch.withLock { $0 = nil } }
        }
        let fetch = ScriptedFetch<Int>([.value(1), .value(2), .value(3)])
        let policy = self.policy(.init(onReconnection: true))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let views = [number.observed(activity: activity), number.observed(activity: activity)]
        #expect(watch.withLock { $0 == nil })
        let tasks = views.map { view in Task { await view.follow() } }
        await self.until { views.allSatisfy { $0.value == 1 } }
        let changed = watch.withLock { $0 }
        changed?(true)
        await self.settle()
        #expect(fetch.callCount == 1)
        changed?(false)
        changed?(true)
        await self.until { views.allSatisfy { $0.value == 2 } }
        changed?(true)
        await self.settle()
        #expect(fetch.callCount == 2 && starts.withLock { $0 } == 1)
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
        #expect(watch.withLock { $0 == nil })
    }
}
