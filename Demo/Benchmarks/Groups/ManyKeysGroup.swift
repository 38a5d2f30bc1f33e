import MuxKit

/// Concurrent requests for many cold keys, one task each.
enum ManyKeysGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        var rows: [Row] = []
        for (name, milliseconds, goals) in [
            ("fetch of 1 ms, per key", 1, [Goal.timesLimit(2.5), .timesBetter(1 / 1.5)]),
            ("fetch returns at once, per key", 0, [.timesLimit(5)]),
        ] {
            var contest = Contest(rounds: effort.rounds(5))
            contest.add { try await self.bare(10_000, milliseconds) }
            contest.add { try await self.map(10_000, milliseconds) }
            contest.add { try await self.tasks(10_000, milliseconds) }
            rows.append(
                Row(
                    group,
                    name,
                    try await contest.play(),
                    figure: 1,
                    limit: ("bare tasks that fetch", 0),
                    instead: ("actor of tasks", 2),
                    goals: goals
                )
            )
        }
        return rows + [try await self.together(group, effort)] + (try await self.cached(group, effort))
    }

    /// One request for 100,000 keys.
    private static func together(_ group: String, _ effort: Effort) async throws -> Row {
        let keys = 100_000
        var contest = Contest(rounds: effort.rounds(2))
        contest.add { try await self.group(keys) }
        contest.add {
            let map = self.unbounded(milliseconds: 1)
            return try await Contest.nanoseconds { consume(try await map.request(keys: 0..<keys)) }
        }
        return Row(
            group,
            "100,000 keys by one request, fetch of 1 ms",
            try await contest.play(),
            figure: 1,
            limit: ("a group of tasks", 0),
            goals: [.atMost(800_000_000)]
        )
    }

    /// The growth of resident memory by such a request, and the same request with all values in memory.
    private static func cached(_ group: String, _ effort: Effort) async throws -> [Row] {
        let keys = 100_000
        let map = self.unbounded(milliseconds: 1)
        Allocations.trim()
        let before = Allocations.residentBytes
        consume(try await map.request(keys: 0..<keys))
        let growth = before.flatMap { before in Allocations.residentBytes.map { Double($0 - before) } }
        var contest = Contest(rounds: effort.rounds(5))
        contest.add { try await Contest.nanoseconds { consume(try await map.request(keys: 0..<keys)) } }
        return [
            Row(group, "resident growth by such a request", unit: .bytes, figure: growth, goals: [.atMost(200e6)]),
            Row(group, "the same, all in memory", try await contest.play(), figure: 0, goals: [.atMost(50_000_000)]),
        ]
    }

    private static func unbounded(milliseconds: Int) -> MultiplexerMap<Int, Int> {
        MultiplexerMap(policy: MuxPolicy(maximumCount: nil), repository: MuxRepository(store: MemoryStore())) { key in
            try await Task.sleep(for: .milliseconds(milliseconds))
            return key
        }
    }

    /// The nanoseconds of a task group with a task for each key.
    private static func group(_ keys: Int) async throws -> Double {
        try await Contest.nanoseconds {
            let values = try await withThrowingTaskGroup(of: (Int, Int).self) { group in
                for key in 0..<keys {
                    group.addTask {
                        try await Task.sleep(for: .milliseconds(1))
                        return (key, key)
                    }
                }
                return try await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
            }
            consume(values)
        }
    }

    @Sendable private static func fetch(_ milliseconds: Int) async throws -> Profile {
        if milliseconds > 0 { try await Task.sleep(for: .milliseconds(milliseconds)) }
        return .sample
    }

    static func map(_ keys: Int, _ milliseconds: Int) async throws -> Double {
        let map = MultiplexerMap<Int, Profile>(repository: MuxRepository(store: MemoryStore())) { _ in
            try await self.fetch(milliseconds)
        }
        return try await self.all(keys) { consume(try await map.request(key: $0)) }
    }

    private static func bare(_ keys: Int, _ milliseconds: Int) async throws -> Double {
        try await self.all(keys) { _ in consume(try await self.fetch(milliseconds)) }
    }

    private static func tasks(_ keys: Int, _ milliseconds: Int) async throws -> Double {
        let cache = TaskCache<Int, Profile> { _ in try await self.fetch(milliseconds) }
        return try await self.all(keys) { consume(try await cache.value($0)) }
    }

    /// The nanoseconds per key until all requests have returned.
    private static func all(_ keys: Int, _ call: @escaping @Sendable (Int) async throws -> Void) async throws -> Double
    {
        try await Contest.nanoseconds {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for key in 0..<keys { group.addTask { try await call(key) } }
                try await group.waitForAll()
            }
        } / Double(keys)
    }
}
