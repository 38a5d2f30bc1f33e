import Foundation
import MuxKit

/// Saves with all entries changed, and with a hundredth changed.
enum SaveGroup {
    private static let count = 10_000

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let articles = (0..<self.count).map { Article(id: $0) }
        return try await withFolder { folder in
            let journal = folder.appending(component: "journal")
            let repository = MuxRepository(directory: journal, byteLimit: nil)
            let map = MultiplexerMap<Int, Article>(
                cacheKey: "Articles",
                policy: MuxPolicy(maximumCount: self.count),
                repository: repository
            ) { Article(id: $0) }
            let files = try FilePerKey(folder.appending(component: "files"))
            let all = try await self.contest(effort.rounds(3), articles, files, map)
            let some = try await self.contest(effort.rounds(7), Array(articles.prefix(100)), files, map)
            var every = Contest(rounds: effort.rounds(2))
            every.add { try await self.save(articles.prefix(100), map) * 100 }
            every.add {
                // Extrapolated from a hundred files: all files would take longer than all other groups.
                try await Contest.nanoseconds { for article in articles.prefix(100) { try files.save(article) } } * 100
            }
            var erasing = Contest(rounds: effort.rounds(3))
            erasing.add {
                _ = try await self.save(articles.prefix(100), map)
                return await Contest.nanoseconds {
                    for article in articles.prefix(100) { consume(await map.clear(key: article.id)) }
                } / 100
            }
            return [
                Row(
                    group,
                    "clear(key:) of one among 10,000, with its value erased",
                    try await erasing.play(),
                    figure: 0,
                    goals: []
                ),
                Row(
                    group,
                    "10,000 dirty, per entry",
                    all,
                    figure: 1,
                    limit: ("encoding alone, one core", 0),
                    instead: ("encode, Data.write(.atomic)", 2),
                    goals: [.timesLimit(1.3), .timesBetter(10)]
                ),
                Row(
                    group,
                    "100 dirty among 10,000, in all",
                    try await every.play(),
                    figure: 0,
                    instead: ("10,000 files", 1),
                    goals: [.timesBetter(30)]
                ),
                Row(
                    group,
                    "100 dirty among 10,000, per entry",
                    some,
                    figure: 1,
                    limit: ("encoding alone, one core", 0),
                    instead: ("encode, Data.write(.atomic), of 100", 2),
                    goals: [.timesBetter(10)]
                ),
            ]
        }
    }

    /// Encoding alone, a map's save, and one file for each entry; nanoseconds per entry.
    private static func contest(
        _ rounds: Int,
        _ articles: [Article],
        _ files: FilePerKey,
        _ map: MultiplexerMap<Int, Article>
    ) async throws -> Outcome {
        var contest = Contest(rounds: rounds)
        contest.add(times: articles.count) { _ in
            let encoder = JSONEncoder()
            for article in articles { consume(try encoder.encode(article)) }
        }
        contest.add { try await self.save(articles[...], map) }
        contest.add(times: min(100, articles.count)) { count in
            for article in articles.prefix(count) { try files.save(article) }
        }
        return try await contest.play()
    }

    /// Stores `articles` again, and returns the nanoseconds per entry of the save.
    static func save(_ articles: ArraySlice<Article>, _ map: MultiplexerMap<Int, Article>) async throws -> Double {
        for article in articles { map.store(article, key: article.id) }
        let time = try await Contest.nanoseconds {
            let report = await map.save()
            guard report.saved == articles.count else { throw BenchmarkError.wrongResult("saved \(report.saved)") }
        }
        return time / Double(articles.count)
    }
}

/// The measured operation did not succeed.
enum BenchmarkError: Error {
    case wrongResult(String)
}
