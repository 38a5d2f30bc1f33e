import MuxKit
import Synchronization

/// Many callers of one key that nobody has yet.
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
            Row(
                group,
                "memory of a caller that waits, task and all",
                unit: .bytes,
                figure: bytes,
                limit: bareBytes.map {
                    Row.Reference(name: "bare parked continuations", value: $0, ratio: (bytes ?? .nan) / $0)
                },
                goals: [.atMost(2_600)]
            ),
            .count(
                group,
                "fetches of \(storms.load(ordering: .relaxed)) storms",
                fetches.load(ordering: .relaxed),
                expected: storms.load(ordering: .relaxed)
            ),
        ]
    }

    // MARK: - The whole

    /// The nanoseconds per caller of a storm, whose fetch takes a millisecond.
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

    /// The nanoseconds per caller until all have what they asked for.
    static func all(_ callers: Int, _ call: @escaping @Sendable () async throws -> Void) async throws -> Double {
        try await Contest.nanoseconds {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<callers { group.addTask { try await call() } }
                try await group.waitForAll()
            }
        } / Double(callers)
    }

    // MARK: - Waking up

    /// What was measured of callers that wait, once all of them did.
    struct Wait {
        var nanoseconds: Double
        var bytes: Double?
    }

    /// The moment at which the fetch is about to return, and what is allocated then.
    final class Landing: Sendable {
        private let state = Mutex<(moment: ContinuousClock.Instant, bytes: Int)?>(nil)
        private let start = Allocations.bytes

        func comes() { self.state.withLock { $0 = (.now, Allocations.bytes) } }

        func wait(_ callers: Int) -> Wait {
            let (moment, bytes) = self.state.withLock { $0 } ?? (.now, self.start)
            let growth = Allocations.isOn ? Double(bytes - self.start) / Double(callers) : nil
            return Wait(nanoseconds: moment.duration(to: .now).inNanoseconds / Double(callers), bytes: growth)
        }
    }

    private static func wakeUp(_ callers: Int, counts: Bool = false) async throws -> Wait {
        let arrivals = Arrivals(callers)
        let repository = MuxRepository(store: MemoryStore(), observer: arrivals)
        let counting = counts ? Allocations.begin() : nil
        defer { _ = Allocations.end(since: counting) }
        let landing = Landing()
        let map = MultiplexerMap<Int, Profile>(repository: repository) { _ in
            await arrivals.all()
            landing.comes()
            return .sample
        }
        _ = try await self.all(callers) { consume(try await map.request(key: 1)) }
        return landing.wait(callers)
    }

    static func bareWakeUp(_ callers: Int, counts: Bool = false) async throws -> Wait {
        let arrivals = Arrivals(callers)
        let counting = counts ? Allocations.begin() : nil
        defer { _ = Allocations.end(since: counting) }
        let landing = Landing()
        let parking = BareParking(parked: arrivals.add) {
            await arrivals.all()
            landing.comes()
            return .sample
        }
        _ = try await self.all(callers) { consume(try await parking.value()) }
        return landing.wait(callers)
    }
}
