import Foundation
import MuxKit

/// Flights with the parts that the runtime provides: a task of a separate executor and with a task-local, which
/// begins in the caller's thread if the system can do so; a continuation; handlers of a cancellation and of an escalation.
///
/// Lacks everything else: a bound, lifetimes, fences, joining callers, time limits, statistics, events.
private final class SmallestFlights: Sendable {
    private final class Pool: TaskExecutor {
        func enqueue(_ job: consuming ExecutorJob) { globalConcurrentExecutor.enqueue(job) }
    }

    private struct State: Sendable {
        var values: [Int: Int] = [:]
        var waiting: [Int: CheckedContinuation<Int, Never>] = [:]
    }

    @TaskLocal private static var flight: Int?
    private static let pool = Pool()
    private let state = Locked(State())
    private let fetch: @Sendable (Int) async -> Int

    init(_ fetch: @escaping @Sendable (Int) async -> Int) { self.fetch = fetch }

    func value(_ key: Int) async -> Int {
        if let value = self.state.withLock({ $0.values[key] }) { return value }
        return await withTaskCancellationHandler {
            guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return await self.wait(key) }
            return await withTaskPriorityEscalationHandler {
                await self.wait(key)
            } onPriorityEscalated: { _, _ in
            }
        } onCancel: {
        }
    }

    private func wait(_ key: Int) async -> Int {
        await withCheckedContinuation { continuation in
            self.state.withLock { $0.waiting[key] = continuation }
            guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else {
                Task(executorPreference: Self.pool) { await Self.$flight.withValue(key) { await self.fly(key) } }
                return
            }
            Task.immediate(executorPreference: Self.pool) {
                await Self.$flight.withValue(key) { await self.fly(key) }
            }
        }
    }

    private func fly(_ key: Int) async {
        let value = await self.fetch(key)
        let waiter = self.state.withLock { state in
            state.values[key] = value
            return state.waiting.removeValue(forKey: key)
        }
        waiter?.resume(returning: value)
    }
}

/// Sequential requests for new keys with a fetch that returns at once.
enum ColdRequestGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        var contest = Contest(rounds: effort.rounds(11))
        contest.add(times: 2_000) { count in
            for key in 0..<count { consume(await Task { key }.value) }
        }
        contest.add(times: 2_000) { count in
            let map = MultiplexerMap<Int, Int>(repository: MuxRepository(store: MemoryStore())) { $0 }
            for key in 0..<count { consume(try await map.request(key: key)) }
        }
        contest.add(times: 2_000) { count in
            let cache = TaskCache<Int, Int> { $0 }
            for key in 0..<count { consume(try await cache.value(key)) }
        }
        contest.add(times: 2_000) { count in
            let flights = SmallestFlights { $0 }
            for key in 0..<count { consume(await flights.value(key)) }
        }
        let outcome = try await contest.play()
        let actor = ("actor of tasks", 2)
        return [
            Row(
                group,
                "per request",
                outcome,
                figure: 1,
                limit: ("a bare task, awaited", 0),
                instead: actor,
                goals: [.timesBetter(1 / 1.7)]
            ),
            Row(group, "the parts of a flight that the runtime provides", outcome, figure: 3, instead: actor),
            try await self.making(group),
            .count(group, "places left of 20,000 dropped multiplexers", try await self.placesLeft(), expected: 0),
            try await self.allocations(group, "allocations of a request", maximumCount: nil, atMost: 6),
            try await self.allocations(group, "the same with an eviction", maximumCount: 1_000, atMost: 7),
            .count(
                group,
                "fetches of 1,000 that begin on another thread",
                try await self.fetchesElsewhere(),
                expected: 0
            ),
        ]
    }

    /// Creates, requests and releases multiplexers of a repository that has as many other multiplexers.
    private static func making(_ group: String, count: Int = 20_000) async throws -> Row {
        var contest = Contest(rounds: 11)
        contest.add(times: count) { count in
            for key in 0..<count { consume(try await TaskCache<Int, Int> { $0 }.value(key)) }
        }
        let repository = MuxRepository(store: .none)
        let others = (0..<count).map { number in Multiplexer<Int>(repository: repository) { number } }
        contest.add(times: count) { count in
            for key in 0..<count { consume(try await Multiplexer<Int>(repository: repository) { key }.request()) }
        }
        let row = Row(
            group,
            "a multiplexer, made, requested and dropped",
            try await contest.play(),
            figure: 1,
            instead: ("actor of tasks", 0),
            goals: []
        )
        withExtendedLifetime(others) {}
        return row
    }

    private static func placesLeft() async throws -> Int {
        let repository = MuxRepository(store: .none)
        for key in 0..<20_000 { consume(try await Multiplexer<Int>(repository: repository) { key }.request()) }
        var all = (0..<20_000).map { number in Multiplexer<Int>(repository: repository) { number } }
        all.removeAll()
        return max(0, repository.participantPlaces - 64)
    }

    /// The allocations of a request: the minimum of several tries, because other threads may allocate.
    ///
    /// Storage that grows once in many requests adds less than a tenth of an allocation, and is rounded off.
    @concurrent private static func allocations(
        _ group: String,
        _ name: String,
        maximumCount: Int?,
        atMost most: Double
    ) async throws -> Row {
        var least: Int?
        for _ in 0..<5 {
            let policy = MuxPolicy(maximumCount: maximumCount)
            let map = MultiplexerMap<Int, Int>(policy: policy, repository: MuxRepository(store: MemoryStore())) { $0 }
            for key in 0..<2_000 { consume(try await map.request(key: key)) }
            let before = Allocations.begin()
            for key in 2_000..<3_000 { consume(try await map.request(key: key)) }
            guard let count = Allocations.end(since: before) else { break }
            least = min(count, least ?? .max)
        }
        return Row(
            group,
            name,
            unit: .count,
            figure: least.map { (Double($0) / 100).rounded() / 10 },
            goals: [.atMost(most)],
            isCount: true
        )
    }

    /// The number of fetches that begin on another thread; `nil` on systems without `Task.immediate`.
    @concurrent private static func fetchesElsewhere() async throws -> Int? {
        guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return nil }
        @Sendable func thread() -> ObjectIdentifier { ObjectIdentifier(Thread.current) }
        let map = MultiplexerMap<Int, ObjectIdentifier>(repository: MuxRepository(store: MemoryStore())) { _ in
            thread()
        }
        var count = 0
        for key in 0..<1_000 {
            let here = thread()
            if try await map.request(key: key) != here { count += 1 }
        }
        return count
    }
}
