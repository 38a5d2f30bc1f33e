import MuxKit

/// Hits on a thousand keys of two types, by one, two and ten tasks.
///
/// The map is bounded and counts statistics, which is the default.
enum MapHitGroup {
    private static let count = 1_000

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let numbers = Array(0..<self.count)
        let texts = numbers.map { "the key of number \($0)" }
        return try await self.rows(group, "Int", numbers, effort) + self.rows(group, "String", texts, effort)
    }

    private static func rows<Key: Hashable & Sendable>(
        _ group: String,
        _ type: String,
        _ keys: [Key],
        _ effort: Effort
    ) async throws -> [Row] {
        let locked = LockedDictionary<Key, Profile>()
        let plain = PlainCache<Key, Profile>()
        let map = MultiplexerMap<Key, Profile>(repository: MuxRepository(store: MemoryStore())) { _ in .sample }
        for key in keys {
            locked.set(.sample, for: key)
            await plain.set(.sample, for: key)
            _ = try await map.request(key: key)
        }
        var rows: [Row] = []
        for (tasks, goals) in [(1, [Goal.timesLimit(1.2)]), (2, [.timesLimit(1.2)]), (10, [.timesLimit(0.7)])] {
            var contest = Contest(rounds: effort.rounds(15))
            contest.add(repeating: 1_000) { count in
                try await inTasks(tasks, sharing: count) { task, share in
                    for step in 0..<share { consume(locked.fresh(keys[(task &* 100 &+ step) % Self.count])) }
                }
            }
            contest.add(repeating: 1_000) { count in
                try await inTasks(tasks, sharing: count) { task, share in
                    for step in 0..<share {
                        consume(try await map.request(key: keys[(task &* 100 &+ step) % Self.count]))
                    }
                }
            }
            contest.add(repeating: 1_000) { count in
                try await inTasks(tasks, sharing: count) { task, share in
                    for step in 0..<share { consume(await plain.value(keys[(task &* 100 &+ step) % Self.count])) }
                }
            }
            rows.append(
                Row(
                    group,
                    "\(type) keys, \(tasks == 1 ? "1 task" : "\(tasks) tasks")",
                    try await contest.play(),
                    figure: 1,
                    limit: ("lock, dictionary, coarse clock", 0),
                    instead: ("plain actor", 2),
                    goals: goals
                )
            )
        }
        let counts = try await CountedActor().counts { _ in
            for key in keys { consume(try await map.request(key: key)) }
        }
        return rows + .counted(group, "hits of \(type) keys", counts)
    }
}
