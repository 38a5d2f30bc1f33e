import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// `states`: the entry, a running fetch and the last failure, for a screen.
@Suite(.standard(minutes: 60))
struct StatesTests {
    private let world = World()

    /// A state in a form that is equal to another state with the same content.
    private struct Seen: Equatable, CustomStringConvertible {
        var value: Int?
        var isStale = false
        var isLoading = false
        var hasFailed = false

        init(_ value: Int?, isStale: Bool = false, isLoading: Bool = false, hasFailed: Bool = false) {
            (self.value, self.isStale, self.isLoading, self.hasFailed) = (value, isStale, isLoading, hasFailed)
        }

        init?(of state: MuxState<Int>?) {
            guard let state else { return nil }
            self.init(
                state.entry?.value,
                isStale: state.isStale,
                isLoading: state.isLoading,
                hasFailed: state.failure != nil
            )
        }

        var description: String {
            [
                self.value.map { "\($0)" } ?? "nothing", self.isStale ? "stale" : nil, self.isLoading ? "loading" : nil,
                self.hasFailed ? "failed" : nil,
            ].compactMap { $0 }.joined(separator: " ")
        }
    }

    @Test func `SC-01 the last state is the state at rest in every tested order`() async throws {
        let count = try await SeededExecutor.explore(1_000) { try await StatesScenario($0).play() }
        print("SC-01: \(count) schedules of states")
    }

    @Test func `SC-01 states follow a fetch, the end of its lifetime, a failed renewal and a success`() async throws {
        let gates = [Gate<Int>(), Gate<Int>(), Gate<Int>()]
        let fetch = ScriptedFetch<Int>(gates.map { .gated($0) })
        let policy = MuxPolicy(timeToLive: .seconds(60), staleWhileRevalidate: .seconds(600), errorBackoff: .zero)
        let number = Multiplexer(policy: policy, repository: self.world.repository) { try await fetch() }
        var states = number.states.makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(nil))

        let first = Task { try await number.request() }
        #expect(Seen(of: await states.next()) == Seen(nil, isLoading: true))
        await gates[0].waitForCall()
        gates[0].open(returning: 1)
        #expect(Seen(of: await states.next()) == Seen(1))
        #expect(try await first.value == 1)

        self.world.clock.advance(by: .seconds(60))
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true))

        #expect(try await number.request() == 1, "the renewal runs in the background")
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true, isLoading: true))
        await gates[1].waitForCall()
        gates[1].fail(with: FetchFailed())
        let failed = await states.next()
        #expect(Seen(of: failed) == Seen(1, isStale: true, hasFailed: true))
        #expect(failed?.failure is FetchFailed)

        let second = Task { try await number.reload() }
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true, isLoading: true, hasFailed: true))
        await gates[2].waitForCall()
        gates[2].open(returning: 3)
        #expect(Seen(of: await states.next()) == Seen(3))
        #expect(try await second.value == 3)
    }

    @Test func `SC-01 refresh, store and clear are changes, and a store or a clear ends a failure`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed()), .failure(FetchFailed())])
        let map = MultiplexerMap<String, Int>(repository: self.world.repository) { _ in try await fetch() }
        var states = map.states(key: "a").makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(nil))
        map.store(1, key: "a")
        #expect(Seen(of: await states.next()) == Seen(1))
        map.store(1, key: "b")
        map.refresh(key: "a")
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true))

        await #expect(throws: FetchFailed.self) { try await map.request(key: "a") }
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true, hasFailed: true))
        map.store(2, key: "a")
        #expect(Seen(of: await states.next()) == Seen(2))
        map.refresh()
        #expect(Seen(of: await states.next()) == Seen(2, isStale: true))
        await #expect(throws: FetchFailed.self) { try await map.request(key: "a") }
        #expect(Seen(of: await states.next()) == Seen(2, isStale: true, hasFailed: true))
        await map.clear(key: "a")
        #expect(Seen(of: await states.next()) == Seen(nil))
    }

    @Test func `SC-01 a fetch beyond its time limit is a failure at once, even if the fetch goes on`() async throws {
        let gate = Gate<Int>()
        let policy = MuxPolicy(fetchTimeout: .seconds(5))
        let number = Multiplexer(policy: policy, repository: self.world.repository) { try await gate.pass() }
        var states = number.states.makeAsyncIterator()
        _ = await states.next()
        let request = Task { try await number.request() }
        #expect(Seen(of: await states.next()) == Seen(nil, isLoading: true))
        await self.world.clock.waitForSleepers()
        self.world.clock.advance(by: .seconds(5))
        let late = await states.next()
        #expect(Seen(of: late) == Seen(nil, hasFailed: true))
        #expect(late?.failure as? MuxError == .timedOut(after: .seconds(5)))
        await #expect(throws: MuxError.self) { try await request.value }
        gate.open(returning: 1)
    }

    @Test func `SC-01 a sign-out is a state without an entry, and no late result follows`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let number = Multiplexer(repository: self.world.repository) { try await fetch() }
        _ = try await number.request()
        var states = number.states.makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(1))
        let reload = Task { try await number.reload() }
        await gate.waitForCall()
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true, isLoading: true))
        await self.world.repository.clearAll()
        #expect(Seen(of: await states.next()) == Seen(nil))
        gate.openForGood(returning: 2)
        await #expect(throws: (any Error).self) { try await reload.value }
        number.store(3)
        #expect(Seen(of: await states.next()) == Seen(3), "the value of the former user is not shown between")
    }

    @Test func `SC-01 an entry that leaves memory stays in the states until a newer change of the entry`() async throws
    {
        let fetch = ScriptedFetch<Int>([.value(1), .value(2)])
        let number = Multiplexer(cacheKey: "number", repository: self.world.repository) { try await fetch() }
        _ = try await number.request()
        await number.save()
        var states = number.states.makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(1))
        self.world.repository.clearMemory()
        #expect(number.cachedValue == nil)
        number.refresh()
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true))
        #expect(try await number.request() == 2)
        #expect(Seen(of: await states.next()) == Seen(2))
        await number.save()
        self.world.repository.clearMemory()
        self.world.clock.advance(by: .seconds(30 * 60))
        #expect(Seen(of: await states.next()) == Seen(2, isStale: true))
        await number.clear()
        #expect(Seen(of: await states.next()) == Seen(nil))
    }

    @Test func `SC-01 a refresh or a clear concerns an entry that has left memory`() async throws {
        let map = MultiplexerMap<String, Int>(cacheKey: "map", repository: self.world.repository) { _ in 1 }
        let other = MultiplexerMap<String, Int>(cacheKey: "map", repository: self.world.repository) { _ in 1 }
        _ = try await map.request(key: "a")
        await map.save()
        var states = map.states(key: "a").makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(1))
        self.world.repository.clearMemory()
        map.refresh()
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true))
        await map.save()
        await other.clear(key: "a")
        #expect(Seen(of: await states.next()) == Seen(nil))
    }

    @Test func `SC-01 an entry in memory only that is evicted and refreshed stays stale after a save`() async throws {
        let policy = MuxPolicy(maximumCount: 1)
        let map = MultiplexerMap<String, Int>(policy: policy, repository: self.world.repository) { _ in 1 }
        _ = try await map.request(key: "a")
        var states = map.states(key: "a").makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(1))
        _ = try await map.request(key: "b")
        #expect(map.cachedValue(key: "a") == nil)
        map.refresh(key: "a")
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true))
        self.world.clock.advance(by: .seconds(1))
        _ = try await map.request(key: "a")
        #expect(Seen(of: await states.next()) == Seen(1))
    }

    @Test func `SC-01 an entry becomes stale at a lifetime of a fraction of a nanosecond`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(1) / 3, fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { 1 }
        _ = try await number.request()
        var states = number.states.makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(1))
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advanceToNextDeadline()
        #expect(Seen(of: await states.next()) == Seen(1, isStale: true))
    }

    @Test func `SC-01 a value from disk ends the failure of an earlier fetch`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed())])
        let number = Multiplexer<Int>(cacheKey: "number", repository: self.world.repository) { try await fetch() }
        var states = number.states.makeAsyncIterator()
        _ = await states.next()
        await #expect(throws: FetchFailed.self) { try await number.request() }
        #expect(Seen(of: await states.next()) == Seen(nil, hasFailed: true))
        let other = Multiplexer<Int>(cacheKey: "number", repository: self.world.repository) { 2 }
        _ = try await other.request()
        await other.save()
        #expect(try await number.request() == 2)
        #expect(Seen(of: await states.next()) == Seen(2))
    }

    @Test func `SC-01 a slow consumer gets the newest state`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        var states = number.states.makeAsyncIterator()
        _ = await states.next()
        for value in 1...10_000 { number.store(value) }
        #expect(Seen(of: await states.next()) == Seen(10_000))
        number.store(10_001)
        #expect(Seen(of: await states.next()) == Seen(10_001))
    }

    @Test func `SC-01 without a consumer no timer runs and nothing is followed`() async throws {
        let policy = MuxPolicy(fetchTimeout: .longest)  // no timer for a deadline
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { 1 }
        _ = try await number.request()
        #expect(self.world.clock.sleeperCount == 0)
        let follower = Task { for await _ in number.states {} }
        await self.world.clock.waitForSleepers(1)
        #expect(number.watcherCount == 1)
        follower.cancel()
        await follower.value
        #expect(number.watcherCount == 0)
        while self.world.clock.sleeperCount > 0 { await Task.yield() }
        number.refresh()
        _ = try await number.request()
        #expect(self.world.clock.sleeperCount == 0)
    }

    @Test func `SC-01 failures are recorded only while the key has a consumer`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { throw FetchFailed() }
        for _ in 0..<2 {
            var states = number.states.makeAsyncIterator()
            #expect(Seen(of: await states.next()) == Seen(nil))
        }
        await #expect(throws: FetchFailed.self) { try await number.request() }

        var states = number.states.makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(nil), "an earlier failure")
        await #expect(throws: FetchFailed.self) { try await number.reload() }
        var state = await states.next()
        while let present = state, present.failure == nil { state = await states.next() }
        #expect(Seen(of: state) == Seen(nil, hasFailed: true))
    }

    @Test func `SC-01 states end with their multiplexer and do not retain it`() async throws {
        var number: Multiplexer<Int>? = Multiplexer<Int>(repository: self.world.repository) { 1 }
        weak var weakNumber: Multiplexer<Int>?
        weakNumber = number
        var states = try #require(number?.states.makeAsyncIterator())
        _ = try await number?.request()
        #expect(Seen(of: await states.next()) == Seen(1))
        number = nil
        #expect(weakNumber == nil)
        #expect(await states.next() == nil)
    }

    @Test func `SC-01 a key that is not equal to itself has one empty state`() async throws {
        let map = MultiplexerMap<Double, Int>(repository: self.world.repository) { _ in 1 }
        var states = map.states(key: .nan).makeAsyncIterator()
        #expect(Seen(of: await states.next()) == Seen(nil))
        #expect(await states.next() == nil)
        #expect(map.watcherCount == 0)
    }
}

/// Several workers change the entries of one map, and consumers follow its keys.
private struct StatesScenario: Sendable {
    private let schedule: SeededExecutor
    private let world: World
    private let map: MultiplexerMap<Int, Int>
    private let backend: ScheduledBackend
    private static let keys = 0..<2

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        let world = World(clock: schedule.clock)
        let policy = MuxPolicy(
            timeToLive: .seconds(schedule.draw(1..<30)),
            staleWhileRevalidate: .seconds(schedule.draw(0..<2) * 10),
            errorBackoff: .seconds(schedule.draw(0..<2)),
            whenAbandoned: [.finish, .cancel(linger: .zero), .cancel(linger: .seconds(2))][schedule.draw(0..<3)],
            fetchTimeout: .seconds([5, 600][schedule.draw(0..<2)]),
            maximumCount: [1, 100][schedule.draw(0..<2)]
        )
        let backend = ScheduledBackend(schedule, timeout: policy.fetchTimeout)
        self.world = world
        self.backend = backend
        self.map =
            schedule.draw(0..<2) == 0
            ? MultiplexerMap(policy: policy, repository: world.repository) { try await backend.fetch($0) }
            : MultiplexerMap(cacheKey: "Map", policy: policy, repository: world.repository) {
                try await backend.fetch($0)
            }
    }

    func play() async throws {
        let seen = Locked<[Int: MuxState<Int>]>([:])
        let faults = Locked<[String]>([])
        try await withThrowingTaskGroup { group in
            for key in Self.keys {
                group.addTask {
                    do {
                        try await self.follow(key, seen)
                    } catch {
                        faults.withLock { $0.append("\(error)") }
                    }
                }
            }
            try await withThrowingTaskGroup { workers in
                for _ in 0..<self.schedule.draw(2..<4) {
                    workers.addTask { for _ in 0..<self.schedule.draw(1..<6) { try await self.act() } }
                }
                try await workers.waitForAll()
            }
            // Fetches without callers end, and entries become stale, within this time.
            try await self.schedule.clock.sleep(for: .seconds(1_000))
            for fault in faults.withLock({ $0 }) { throw Violation(fault) }
            for key in Self.keys { try await self.checkRest(key, seen.withLock { $0[key] }) }
            group.cancelAll()
            try await group.waitForAll()
        }
        try expect(self.map.watcherCount == 0, "\(self.map.watcherCount) watchers are left")
    }

    private func follow(_ key: Int, _ seen: Locked<[Int: MuxState<Int>]>) async throws {
        var states = self.map.states(key: key).makeAsyncIterator()
        while true {
            let floors = self.backend.floors(key)
            guard let state = await states.next() else { return }
            let former = seen.withLock { seen in
                defer { seen[key] = state }
                return seen[key]
            }
            if let entry = state.entry {
                let floor = entry.isStale ? floors.any : floors.fresh
                try expect(entry.value > floor, "key \(key): \(entry.value) is older than a fence at \(floor)")
            }
            let isEqual =
                former.map {
                    $0.entry?.revision == state.entry?.revision && $0.isStale == state.isStale
                        && $0.isLoading == state.isLoading && ($0.failure == nil) == (state.failure == nil)
                } ?? false
            // Two failures in a row are two states; an entry that is read from disk again is another entry.
            try expect(!isEqual || state.failure != nil, "two equal states of key \(key): \(state)")
            for _ in 0..<self.schedule.draw(0..<3) { await self.schedule.pause() }
        }
    }

    private func checkRest(_ key: Int, _ last: MuxState<Int>?) async throws {
        var states = self.map.states(key: key).makeAsyncIterator()
        let rest = await states.next()
        let text = "key \(key): \(String(describing: last)), at rest \(String(describing: rest))"
        if let value = self.map.cachedValue(key: key) {
            try expect(last?.entry?.value == value && rest?.entry?.value == value, text)
        } else if let value = last?.entry?.value {
            try expect(value > self.backend.floors(key).any, text)
        }
        try expect(last?.failureNumber == rest?.failureNumber, text)
        try expect(last?.isLoading == false && last?.isStale == (last?.entry != nil), text)
    }

    private func act() async throws {
        let key = self.schedule.draw(Self.keys)
        switch self.schedule.draw(0..<12) {
        case 0: await self.backend.fence(key..<key + 1, keepsStale: true) { _ in self.map.refresh(key: key) }
        case 1: await self.backend.fence(key..<key + 1) { self.map.store($0, key: key) }
        case 2:
            let ends = self.schedule.draw(0..<2) == 0
            await self.backend.fence(key..<key + 1) { _ in await self.map.clear(key: key, endingRequests: ends) }
        case 3: await self.backend.fence(Self.keys, keepsStale: true) { _ in self.map.refresh() }
        case 4: await self.backend.fence(Self.keys) { _ in await self.world.repository.clearAll() }
        case 5: await self.backend.fence(Self.keys) { _ in await self.map.clear() }
        case 6: try await self.schedule.clock.sleep(for: .seconds(self.schedule.draw(1..<20)))
        case 7:
            await self.world.repository.saveAll()
            if self.schedule.draw(0..<2) == 0 { self.world.repository.clearMemory() }
        case 8, 9:
            await withTaskGroup { group in
                group.addTask { _ = try? await self.map.request(key: key) }
                for _ in 0..<self.schedule.draw(0..<6) { await self.schedule.pause() }
                group.cancelAll()
            }
        case 10:
            await self.backend.fence(key..<key + 1, keepsStale: true) { _ in _ = try? await self.map.reload(key: key) }
        default: _ = try? await self.map.request(key: key)
        }
    }
}
