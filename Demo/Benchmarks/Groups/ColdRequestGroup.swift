import MuxKit

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
        return [
            Row(
                group,
                "per request",
                try await contest.play(),
                figure: 1,
                limit: ("a bare task, awaited", 0),
                instead: ("actor of tasks", 2),
                goals: [.atMost(2_000)]
            )
        ]
    }
}
