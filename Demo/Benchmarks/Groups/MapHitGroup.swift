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
            + self.tagged(group, effort)
    }

    /// Hits of values with tags, compared with values without tags.
    private static func tagged(_ group: String, _ effort: Effort) async throws -> [Row] {
        let repository = MuxRepository(store: MemoryStore())
        let plain = MultiplexerMap<Int, Profile>(repository: repository) { _ in .sample }
        let tagged = MultiplexerMap<Int, Profile>(repository: repository) { key, _ in
            Fetched(.sample, tags: ["all", "key \(key)"])
        }
        for key in 0..<self.count {
            _ = try await plain.request(key: key)
            _ = try await tagged.request(key: key)
        }
        // After a change of another tag, the first hit of each value checks the tags.
        repository.refresh(tags: ["none"])
        let counts = try await CountedActor().counts { _ in
            for key in 0..<self.count { consume(try await tagged.request(key: key)) }
        }
        var contest = Contest(rounds: effort.rounds(15))
        for map in [plain, tagged] {
            contest.add(repeating: 1_000) { count in
                for step in 0..<count { consume(try await map.request(key: step % Self.count)) }
            }
        }
        let outcome = try await contest.play()
        let limit = ("a value without tags", 0)
        return [Row(group, "values with tags, 1 task", outcome, figure: 1, limit: limit, goals: [.timesLimit(1.2)])]
            + .counted(group, "first hits after a change of a tag", counts)
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
