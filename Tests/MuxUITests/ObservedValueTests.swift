import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import MuxUI
import Observation
import Testing

/// Observed values: what a view sees of a multiplexer.
@Suite(.standard)
@MainActor
struct ObservedValueTests {
    private let clock = VirtualClock()
    private let repository: MuxRepository

    init() { self.repository = MuxRepository(store: MemoryStore(), clock: self.clock) }

    /// Counts the visible changes of an object, as a view would.
    @MainActor
    private final class Counter<Value: Sendable> {
        private(set) var count = 0
        private let object: ObservedValue<Value>

        init(_ object: ObservedValue<Value>) {
            self.object = object
            self.track()
        }

        private func track() {
            withObservationTracking {
                _ = (object.value == nil, object.entry == nil, object.isStale, object.isLoading, object.problem == nil)
            } onChange: { [weak self] in
                // Called before the change, on the main actor.
                MainActor.assumeIsolated {
                    self?.count += 1
                    Task { [weak self] in self?.track() }
                }
            }
        }
    }

    /// Records the values of `isLoading`, as a view would read them.
    @MainActor
    private final class LoadingLog {
        private(set) var values: [Bool] = []
        private let object: ObservedValue<Int>

        init(_ object: ObservedValue<Int>) {
            self.object = object
            self.track()
        }

        private func track() {
            let isLoading = withObservationTracking {
                self.object.isLoading
            } onChange: { [weak self] in
                Task { @MainActor in self?.track() }
            }
            if self.values.last != isLoading { self.values.append(isLoading) }
        }
    }

    private func until(_ condition: () -> Bool) async { while !condition(), !Task.isCancelled { await Task.yield() } }

    /// Runs all jobs of the main actor that are ready.
    private func settle() async { for _ in 0..<100 { await Task.yield() } }

    @Test func `SC-02 an object that nothing follows registers and starts nothing`() {
        let number = Multiplexer<Int>(repository: self.repository) { 1 }
        let map = MultiplexerMap<Int, Int>(repository: self.repository) { $0 }
        for key in 0..<100_000 { _ = (number.observed(), map.observed(key: key)) }
        #expect(number.watcherCount == 0 && map.watcherCount == 0)
        #expect(number.statistics.requests == 0 && map.statistics.requests == 0)
        #expect(self.clock.sleeperCount == 0)
    }

    @Test func `SC-02 the first frame shows the value in memory`() async {
        let number = Multiplexer<Int>(repository: self.repository) { 1 }
        #expect(number.observed().value == nil)
        number.store(7)
        let observed = number.observed()
        #expect(observed.value == 7 && observed.entry?.value == 7 && !observed.isStale && !observed.isLoading)
        self.clock.advance(by: .seconds(5))
        #expect(observed.age == .seconds(5))
        guard case .value(7) = observed.phase else {
            Issue.record("\(observed.phase)")
            return
        }
    }

    @Test func `SC-02 a followed object loads the value, and shows each change once`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .failure(FetchFailed()), .value(3)])
        let number = Multiplexer<Int>(repository: self.repository) { try await fetch() }
        let observed = number.observed()
        let counter = Counter(observed)
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 }
        await self.settle()
        #expect(counter.count == 1, "the value, without a visible fetch")

        number.store(2)
        await self.until { observed.value == 2 }
        await self.settle()
        #expect(counter.count == 2)

        number.store(2)
        await self.settle()
        #expect(counter.count == 2, "an equal value is no visible change")

        await observed.reload()
        await self.until { observed.problem != nil }
        #expect(observed.problem is FetchFailed && observed.value == 2)

        await observed.reload()
        await self.until { observed.value == 3 }
        #expect(observed.problem == nil && !observed.isStale)
        view.cancel()
        await view.value
    }

    @Test func `SC-02 all properties change in one turn of the main actor`() async throws {
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: self.repository) { try await gate.pass() }
        let observed = number.observed(loadingDelay: .zero)
        let view = Task { await observed.follow() }
        await self.until { observed.isLoading }
        #expect(observed.value == nil)
        guard case .loading = observed.phase else {
            Issue.record("\(observed.phase)")
            return
        }
        let seen = Locked<[String]>([])
        let watch = Task {
            while observed.value == nil || observed.isLoading {
                seen.withLock { $0.append("\(observed.value ?? 0) \(observed.isLoading)") }
                await Task.yield()
            }
        }
        await gate.waitForCall()
        gate.open(returning: 1)
        await watch.value
        #expect(Set(seen.withLock { $0 }) == ["0 true"])
        view.cancel()
        await view.value
    }

    @Test func `SC-02 two views share one watcher, and nothing is left after the last view`() async throws {
        let number = Multiplexer<Int>(repository: self.repository) { 1 }
        weak var weakObserved: ObservedValue<Int>?
        do {
            let observed = number.observed()
            weakObserved = observed
            let views = [Task { await observed.follow() }, Task { await observed.follow() }]
            await self.until { observed.value == 1 }
            #expect(number.watcherCount == 1)
            views[0].cancel()
            await views[0].value
            number.store(2)
            await self.until { observed.value == 2 }
            #expect(number.watcherCount == 1)
            views[1].cancel()
            await views[1].value
        }
        await self.until { number.watcherCount == 0 && number.followedCount == 0 && weakObserved == nil }
        #expect(number.followedCount == 0)
        #expect(weakObserved == nil)
    }

    @Test func `SC-02 an object can be followed again`() async throws {
        let number = Multiplexer<Int>(repository: self.repository) { 1 }
        let observed = number.observed()
        for value in [5, 6] {
            let view = Task { await observed.follow() }
            await self.until { number.watcherCount == 1 && observed.value != nil }
            number.store(value)
            await self.until { observed.value == value }
            view.cancel()
            await view.value
            await self.until { number.watcherCount == 0 }
        }
        number.store(9)
        await self.settle()
        #expect(observed.value == 6, "without a follower the object keeps its value")
    }

    @Test func `SC-02 replaced values are released outside the main actor`() async throws {
        let releases = Locked<[Bool]>([])
        let mainQueue = DispatchSpecificKey<Bool>()
        DispatchQueue.main.setSpecific(key: mainQueue, value: true)
        defer { DispatchQueue.main.setSpecific(key: mainQueue, value: nil) }
        final class Picture: Sendable {
            let releases: Locked<[Bool]>
            let mainQueue: DispatchSpecificKey<Bool>
            init(_ releases: Locked<[Bool]>, _ mainQueue: DispatchSpecificKey<Bool>) {
                self.releases = releases
                self.mainQueue = mainQueue
            }
            deinit {
                let isMain = DispatchQueue.getSpecific(key: self.mainQueue) ?? false
                self.releases.withLock { $0.append(isMain) }
            }
        }
        _ = Picture(releases, mainQueue)
        #expect(releases.withLock { $0.removeLast() }, "the main queue is recognised")
        let pictures = Multiplexer<Picture>(repository: self.repository) { Picture(releases, mainQueue) }
        let observed = pictures.observed()
        let view = Task { await observed.follow() }
        await self.until { observed.value != nil }
        for _ in 0..<20 {
            let former = observed.entry?.age
            await Task.detached { pictures.store(Picture(releases, mainQueue)) }.value
            _ = former
            await self.settle()
        }
        await self.until { releases.withLock { $0.count } >= 20 }
        #expect(releases.withLock { $0 }.allSatisfy { !$0 })
        view.cancel()
        await view.value
    }

    @Test func `SC-02 a value that becomes stale is renewed while it is followed, and only then`() async throws {
        let calls = Locked(0)
        let policy = MuxPolicy(timeToLive: .seconds(60), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) {
            calls.withLock { calls in
                calls += 1
                return calls
            }
        }
        let observed = number.observed()
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
        self.clock.advance(by: .seconds(60))
        await self.until { observed.value == 2 && !observed.isStale }
        number.refresh()
        await self.until { observed.value == 3 && !observed.isStale }
        view.cancel()
        await view.value
        self.clock.advance(by: .seconds(24 * 60 * 60))
        await self.settle()
        #expect(calls.withLock { $0 } == 3)
    }

    @Test func `SC-02 a value without a lifetime is fetched once, not again and again`() async throws {
        let calls = Locked(0)
        let number = Multiplexer<Int>(policy: .init(timeToLive: .zero), repository: self.repository) {
            calls.withLock { calls in
                calls += 1
                return calls
            }
        }
        let observed = number.observed()
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 }
        await self.settle()
        #expect(calls.withLock { $0 } == 1)
        #expect(observed.isStale)
        view.cancel()
        await view.value
    }

    @Test func `SC-07 a clear of tags removes the value from the screen, and a refresh fetches it again`() async throws
    {
        let calls = Locked(0)
        let map = MultiplexerMap<Int, Int>(repository: self.repository) { key, _ in
            let count = calls.withLock { calls in
                calls += 1
                return calls
            }
            return Fetched(count, tags: ["key:\(key)"])
        }
        let (observed, other) = (map.observed(key: 1), map.observed(key: 2))
        let views = [Task { await observed.follow() }, Task { await other.follow() }]
        await self.until { observed.value != nil && other.value != nil }
        let (former, otherValue) = (try #require(observed.value), other.value)
        self.repository.refresh(tags: ["key:1"])
        await self.until { observed.value.map { $0 > former } ?? false }
        #expect(other.value == otherValue)
        for view in views {
            view.cancel()
            await view.value
        }
        await self.repository.clear(tags: ["key:1"])
        #expect(observed.value == nil, "without a view, too")
        #expect(other.value == otherValue)
    }

    @Test func `SC-02 a sign-out removes the value from the screen, and is no problem`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let number = Multiplexer<Int>(repository: self.repository) { try await fetch() }
        let observed = number.observed()
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 }
        let pull = Task { await observed.reload() }
        await gate.waitForCall()
        // The view's renewal can start the fetch before the pull waits for it.
        await self.until { number.occupancy.waiters == 2 }
        await self.repository.clearAll()
        await self.until { observed.value == nil }
        gate.openForGood(returning: 2)
        await pull.value
        await self.settle()
        #expect(observed.value == nil && observed.problem == nil, "\(String(describing: observed.problem))")
        view.cancel()
        await view.value
    }

    @Test func `SC-08 a change is visible in every view at once, and no change of another session is`() async throws {
        let fetch = ScriptedFetch<Int>([.value(1), .value(5), .value(7)])
        let number = Multiplexer<Int>(repository: self.repository) { try await fetch() }
        let views = [number.observed(), number.observed()]
        let tasks = views.map { view in Task { await view.follow() } }
        await self.until { views.allSatisfy { $0.value == 1 } }
        let counter = Counter(views[0])
        let change = number.change { $0 += 1 }
        await self.until { views.allSatisfy { $0.value == 2 } }
        #expect(views.allSatisfy { !$0.isStale && !$0.isLoading && $0.problem == nil } && fetch.callCount == 1)
        change.commit()
        await self.until { views.allSatisfy { $0.value == 5 } }
        await self.settle()
        #expect(fetch.callCount == 2, "one fetch after the last change")
        #expect(counter.count <= 3, "the change, its end, the server's value")

        let last = number.change { $0 += 1 }
        await self.until { views.allSatisfy { $0.value == 6 } }
        await self.repository.clearAll()
        number.store(10)
        await self.until { views.allSatisfy { $0.value == 10 } }
        last.undo()
        await self.settle()
        #expect(views.allSatisfy { $0.value == 10 } && fetch.callCount == 2)
        for task in tasks { task.cancel() }
        for task in tasks { await task.value }
    }

    @Test func `SC-02 screens show the latest value in every order of jobs of the main actor and of others`()
        async throws
    {
        var checks = 0
        let count = try await SeededExecutor.exploreWithMainActor(400) { schedule in
            let scenario = ScreenScenario(schedule)
            try await scenario.play()
            checks += scenario.checkCount
        }
        #expect(checks > count)
        print("SC-02: \(count) schedules, \(checks) checks of screens")
    }

    @Test func `SC-02 a reload without a follower shows its outcome`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed()), .value(2), .failure(MuxError.sessionEnded)])
        let number = Multiplexer<Int>(repository: self.repository) { try await fetch() }
        let observed = number.observed()
        await observed.reload()
        #expect(observed.problem is FetchFailed)
        guard case .failure = observed.phase else {
            Issue.record("\(observed.phase)")
            return
        }
        await observed.reload()
        #expect(observed.value == 2 && observed.problem == nil)
        await observed.reload()
        #expect(observed.problem == nil)
    }

    @Test func `SC-04 a pull whose task SwiftUI cancels shows its value`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 }
        let pull = Task { await observed.reload() }
        await gate.waitForCall()
        pull.cancel()
        await pull.value
        gate.open(returning: 2)
        await self.until { observed.value == 2 }
        #expect(observed.problem == nil)
        view.cancel()
        await view.value
    }

    @Test(arguments: [(100, 0), (1_000, 2)])
    func `SC-05 a fetch becomes visible after the loading delay`(milliseconds: Int, changes: Int) async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(timeToLive: .seconds(10_000), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.repository) { try await fetch() }
        let observed = number.observed()
        let view = Task { await observed.follow() }
        await self.until { observed.value == 1 && self.clock.sleeperCount == 1 }
        let seen = LoadingLog(observed)
        let request = Task { try await number.request(.reload) }
        await gate.waitForCall()
        await self.until { self.clock.sleeperCount == 2 }  // the loading delay, and the lifetime
        for _ in 0..<milliseconds / 50 {
            self.clock.advance(by: .milliseconds(50))
            await self.settle()
        }
        gate.open(returning: 2)
        #expect(try await request.value == 2)
        await self.until { observed.value == 2 }
        await self.settle()
        #expect(seen.values.count - 1 == changes)
        #expect(!observed.isLoading)
        view.cancel()
        await view.value
    }
}

private struct FetchFailed: Error {}
