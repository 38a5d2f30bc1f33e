import Foundation
import MuxKit

/// Whether a hundred times as many cost a hundred times as much, and no more.
enum GrowthGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let rounds = effort.isLong ? 7 : 1
        var rows = [
            try await self.row(group, "hit in a map of 1,000 keys, per hit", [1_000, 10_000, 100_000], rounds) { keys in
                try await self.hits(keys)
            },
            try await self.row(group, "storm of 100 callers, per caller", [100, 1_000, 10_000], rounds) { callers in
                try await self.repeated(10_000 / callers) { try await StormGroup.storm(callers) }
            },
            try await self.row(group, "100 cold keys at once, per key", [100, 1_000, 10_000], rounds) { keys in
                try await self.repeated(10_000 / keys) { try await ManyKeysGroup.map(keys, 0) }
            },
            try await self.row(group, "save of 100 entries, per entry", [100, 1_000, 10_000], rounds) { count in
                try await self.save(count)
            },
            try await self.row(group, "first hit among 500 on disk, per entry", [500, 5_000, 50_000], rounds) { count in
                try await withFolder { folder in
                    try await LoadGroup.fill(folder, count)
                    return try await LoadGroup.firstHit(folder, count) / Double(count)
                }
            },
            try await self.row(group, "sign-out with 500 on disk, in all", [500, 5_000, 50_000], rounds) { count in
                try await SignOutGroup.signOut(count)
            },
        ]
        rows.append(self.memory(group))
        return rows
    }

    /// The cost of one at the last scale beside that at the first; the middle one is in the name.
    private static func row(
        _ group: String,
        _ name: String,
        _ scales: [Int],
        _ rounds: Int,
        _ measure: @escaping (Int) async throws -> Double
    ) async throws -> Row {
        var contest = Contest(rounds: rounds)
        for scale in scales { contest.add { try await measure(scale) } }
        let outcome = try await contest.play()
        let middle = Text.number(outcome.ratio(of: 1, to: 0))
        return Row(
            group,
            name,
            outcome,
            figure: 2,
            limit: ("at 1 ×; \(middle) × at 10 ×", 0),
            goals: [.timesLimit(1.5)]
        )
    }

    private static func repeated(_ times: Int, _ measure: () async throws -> Double) async throws -> Double {
        var sum = 0.0
        for _ in 0..<times { sum += try await measure() }
        return sum / Double(times)
    }

    private static func hits(_ keys: Int) async throws -> Double {
        let map = MemoryGroup.map(keys)
        for key in 0..<keys { map.store(key, key: key) }
        return try await Contest.nanoseconds {
            for step in 0..<20_000 { consume(try await map.request(key: step &* 7_919 % keys)) }
        } / 20_000
    }

    private static func save(_ count: Int) async throws -> Double {
        let articles = (0..<count).map { Article(id: $0) }
        return try await withFolder { folder in
            let map = MultiplexerMap<Int, Article>(
                cacheKey: "Articles",
                policy: MuxPolicy(maximumCount: nil),
                repository: MuxRepository(directory: folder, byteLimit: nil)
            ) { Article(id: $0) }
            return try await SaveGroup.save(articles[...], map)
        }
    }

    /// Bytes of an entry among a million, beside that among ten thousand.
    private static func memory(_ group: String) -> Row {
        let bytes = [3_000, 30_000, 300_000].map { count in
            // Many of the small ones, for what is occupied comes in whole pages.
            let maps = (0..<300_000 / count).map { _ in MemoryGroup.map(count) }
            let growth = MemoryGroup.growth {
                for map in maps { for key in 0..<count { map.store(key, key: key) } }
            }
            return growth.map { Double($0) / 300_000 }
        }
        let limit = bytes[0].map { first in
            let middle = bytes[1].map { Text.number($0 / first) } ?? "?"
            return Row.Reference(
                name: "at 1 ×; \(middle) × at 10 ×",
                value: first,
                ratio: (bytes[2] ?? .nan) / first
            )
        }
        return Row(
            group,
            "memory of an entry of 3,000",
            unit: .bytes,
            figure: bytes[2],
            limit: limit,
            goals: [.timesLimit(1.5)]
        )
    }
}
