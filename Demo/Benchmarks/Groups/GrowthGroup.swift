import Foundation
import MuxKit

/// Whether cost grows linearly with the number of entries.
enum GrowthGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let rounds = effort.isLong ? 7 : 1
        var rows = try await self.scaled(group, "hit in a map, per hit", [1_000, 10_000, 100_000], "keys", rounds) {
            try await self.hits($0)
        }
        rows += try await self.scaled(group, "storm, per caller", [100, 1_000, 10_000], "callers", rounds) { callers in
            try await self.repeated(10_000 / callers) { try await StormGroup.storm(callers) }
        }
        rows += try await self.scaled(group, "cold keys at once, per key", [100, 1_000, 10_000], "keys", rounds) {
            keys in
            try await self.repeated(10_000 / keys) { try await ManyKeysGroup.map(keys, 0) }
        }
        rows += try await self.scaled(group, "save, per entry", [100, 1_000, 10_000], "entries", rounds) {
            try await self.save($0)
        }
        rows += try await self.scaled(group, "first hit, per entry", [500, 5_000, 50_000], "on disk", rounds) { count in
            try await withFolder { folder in
                try await LoadGroup.fill(folder, count)
                return try await LoadGroup.firstHit(folder, count) / Double(count)
            }
        }
        rows += try await self.scaled(group, "sign-out, in all", [500, 5_000, 50_000], "on disk", rounds) {
            try await SignOutGroup.signOut($0)
        }
        return rows + self.memory(group)
    }

    /// The cost per entry at each scale, compared with the first scale.
    private static func scaled(
        _ group: String,
        _ name: String,
        _ scales: [Int],
        _ unit: String,
        _ rounds: Int,
        _ measure: @escaping (Int) async throws -> Double
    ) async throws -> [Row] {
        var contest = Contest(rounds: rounds)
        for scale in scales { contest.add { try await measure(scale) } }
        let outcome = try await contest.play()
        return scales.enumerated().map { index, scale in
            Row(
                group,
                "\(name): \(scale) \(unit)",
                outcome,
                figure: index,
                limit: ("at 1 ×", 0),
                goals: [.timesLimit(1.5)]
            )
        }
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

    /// The bytes per entry at each scale, compared with the first scale.
    private static func memory(_ group: String) -> [Row] {
        let counts = [3_000, 30_000, 300_000]
        let bytes = counts.map { count in
            // Several small maps, because the system allocates memory in pages.
            let maps = (0..<300_000 / count).map { _ in MemoryGroup.map(count) }
            let growth = MemoryGroup.growth {
                for map in maps { for key in 0..<count { map.store(key, key: key) } }
            }
            return growth.map { Double($0) / 300_000 }
        }
        return zip(counts, bytes).map { count, figure in
            Row(
                group,
                "memory of an entry: \(count) entries",
                unit: .bytes,
                figure: figure,
                limit: bytes[0].map { Row.Reference(name: "at 1 ×", value: $0, ratio: (figure ?? .nan) / $0) },
                goals: [.timesLimit(1.5)]
            )
        }
    }
}
