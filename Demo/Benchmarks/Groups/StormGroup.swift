import MuxKit
import Synchronization

/// Many concurrent callers of one missing key.
enum StormGroup {
    static let callers = 10_000

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let storms = Atomic(0)
        let fetches = Atomic(0)
        var contest = Contest(rounds: effort.rounds(5))
        contest.add { try await self.bareStorm(self.callers) }
        contest.add {
            storms.add(1, ordering: .relaxed)
            return try await self.storm(self.callers) { fetches.add(1, ordering: .relaxed) }
        }
        contest.add { try await self.taskStorm(self.callers) }
        let whole = try await contest.play()

        var wakeUps = Contest(rounds: effort.rounds(5))
        wakeUps.add { try await self.bareWakeUp(self.callers).nanoseconds }
        wakeUps.add { try await self.wakeUp(self.callers).nanoseconds }
        let woken = try await wakeUps.play()
        let bytes = try await self.wakeUp(self.callers, counts: true).bytes
        let bareBytes = try await self.bareWakeUp(self.callers, counts: true).bytes
        return [
            Row(
                group,
                "the whole, fetch of 1 ms, per caller",
                whole,
                figure: 1,
                limit: ("bare parked continuations", 0),
                instead: ("actor of tasks", 2),
                goals: [.timesLimit(1.4)]
            ),
            Row(
                group,
                "wake-up, per caller",
                woken,
                figure: 1,
                limit: ("bare parked continuations", 0),
                goals: [.timesLimit(1.5)]
            ),
            self.memory(group, bytes, bare: bareBytes, isCount: true),
            .count(
                group,
                "fetches of \(storms.load(ordering: .relaxed)) storms",
                fetches.load(ordering: .relaxed),
                expected: storms.load(ordering: .relaxed)
            ),
        ]
    }

    /// The memory of a waiting caller; a task has one block of memory at its creation, and a second block
    /// doubles the memory.
    static func memory(_ group: String, _ bytes: Double?, bare: Double?, isCount: Bool = false) -> Row {
        Row(
            group,
            "memory of a caller that waits, task and all",
            unit: .bytes,
            figure: bytes,
            limit: bare.map {
                Row.Reference(name: "bare parked continuations", value: $0, ratio: (bytes ?? .nan) / $0)
            },
            goals: [.timesLimit(1.2)],
            isCount: isCount
        )
    }

    // MARK: - The whole

    /// The nanoseconds per caller of a storm whose fetch takes a millisecond.
    static func storm(_ callers: Int, fetched: @escaping @Sendable () -> Void = {}) async throws -> Double {
        let map = MultiplexerMap<Int, Profile>(repository: MuxRepository(store: MemoryStore())) { _ in
            fetched()
            try await Task.sleep(for: .milliseconds(1))
            return .sample
        }
        return try await self.all(callers) { consume(try await map.request(key: 1)) }
    }

    static func bareStorm(_ callers: Int) async throws -> Double {
        let parking = BareParking {
            try? await Task.sleep(for: .milliseconds(1))
            return .sample
        }
        return try await self.all(callers) { consume(try await parking.value()) }
    }

    private static func taskStorm(_ callers: Int) async throws -> Double {
        let cache = TaskCache<Int, Profile> { _ in
            try await Task.sleep(for: .milliseconds(1))
            return .sample
        }
        return try await self.all(callers) { consume(try await cache.value(1)) }
    }

    /// The nanoseconds per caller until every caller has a value.
    ///
    /// The calls are not in a task group: the removal of a child visits all older running children (Swift
    /// 6.3.1), and would be most of the measurement.
    static func all(_ callers: Int, _ call: @escaping @Sendable () async throws -> Void) async throws -> Double {
        let departures = Arrivals(callers)
        let failure = Locked<(any Error)?>(nil)
        let nanoseconds = await Contest.nanoseconds {
            for _ in 0..<callers {
                Task {
                    do {
                        try await call()
                        departures.add()
                    } catch {
                        failure.withLock { $0 = error }
                        departures.giveUp()
                    }
                }
            }
            await departures.all()
        }
        if let error = failure.withLock({ $0 }) { throw error }
        return nanoseconds / Double(callers)
    }

    // MARK: - Waking up

    /// Measurements of callers that all wait before the fetch returns.
    struct Wait {
        /// The nanoseconds per caller from the return of the fetch until all callers have been resumed.
        var resumed: Double
        /// The nanoseconds per caller from the return of the fetch until the last caller has returned.
        var nanoseconds: Double
        /// The nanoseconds per caller from the first request until the last caller has returned.
        var whole: Double
        var bytes: Double?
    }

    /// The time and the allocated bytes just before the fetch returns.
    final class Landing: MuxObserver {
        private struct State {
            var comes: ContinuousClock.Instant?
            var resumedAt: ContinuousClock.Instant?
            var bytes = 0
        }

        private let state = Mutex(State())
        private let start = Allocations.bytes
        private let arrivals: Arrivals

        init(_ arrivals: Arrivals) { self.arrivals = arrivals }

        func comes() {
            self.state.withLock { state in
                state.bytes = Allocations.bytes
                state.comes = .now
            }
        }

        /// Records the time at which all callers have resumed.
        func recordResumption() { self.state.withLock { $0.resumedAt = .now } }

        func observe(_ event: MuxEvent) {
            self.arrivals.observe(event)
            if case .updated = event.kind { self.recordResumption() }
        }

        func wait(_ callers: Int, whole: Double) -> Wait {
            let now = ContinuousClock.now
            let state = self.state.withLock { $0 }
            let comes = state.comes ?? now
            let perCaller = { (end: ContinuousClock.Instant) in comes.duration(to: end).inNanoseconds / Double(callers)
            }
            return Wait(
                resumed: perCaller(state.resumedAt ?? now),
                nanoseconds: perCaller(now),
                whole: whole,
                bytes: Allocations.isOn ? Double(state.bytes - self.start) / Double(callers) : nil
            )
        }
    }

    private static func wakeUp(_ callers: Int, counts: Bool = false) async throws -> Wait {
        let arrivals = Arrivals(callers)
        let repository = MuxRepository(store: MemoryStore(), observer: arrivals)
        let counting = counts ? Allocations.begin() : nil
        defer { _ = Allocations.end(since: counting) }
        let landing = Landing(arrivals)
        let map = MultiplexerMap<Int, Profile>(repository: repository) { _ in
            await arrivals.all()
            landing.comes()
            return .sample
        }
        let whole = try await self.all(callers) { consume(try await map.request(key: 1)) }
        return landing.wait(callers, whole: whole)
    }

    static func bareWakeUp(_ callers: Int, counts: Bool = false) async throws -> Wait {
        let arrivals = Arrivals(callers)
        let counting = counts ? Allocations.begin() : nil
        defer { _ = Allocations.end(since: counting) }
        let landing = Landing(arrivals)
        let parking = BareParking(parked: arrivals.add, resumed: landing.recordResumption) {
            await arrivals.all()
            landing.comes()
            return .sample
        }
        let whole = try await self.all(callers) { consume(try await parking.value()) }
        return landing.wait(callers, whole: whole)
    }
}
