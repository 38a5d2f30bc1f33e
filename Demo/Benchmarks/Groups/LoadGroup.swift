import Foundation
import MuxKit

/// The first hit of a large repository, and a load of an entire map.
enum LoadGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        [try await self.first(group, effort)] + (try await self.all(group, effort))
            + (try await self.hits(group, effort))
    }

    // MARK: - The first

    private static func first(_ group: String, _ effort: Effort) async throws -> Row {
        try await withFolder { folder in
            try await self.fill(folder, 50_000)
            let layout = JournalLayout(root: folder.path)
            let index = URL(filePath: FilePath.join(layout.journal, JournalLayout.indexName))
            var contest = Contest(rounds: effort.rounds(9))
            contest.add { try await Contest.nanoseconds { consume(try Data(contentsOf: index)) } }
            contest.add { try await self.firstHit(folder, 50_000) }
            return Row(
                group,
                "first hit among 50,000 on disk",
                try await contest.play(),
                figure: 1,
                limit: ("reading the index's bytes", 0),
                goals: [.atMost(3_000_000)]
            )
        }
    }

    /// Writes `count` small entries.
    static func fill(_ folder: URL, _ count: Int) async throws {
        let map = self.map(folder)
        for key in 0..<count { map.store(Profile(id: key, name: "Somebody of number \(key)"), key: key) }
        let report = await map.save()
        guard report.saved == count else { throw BenchmarkError.wrongResult("saved \(report.saved)") }
    }

    /// The time until a new repository serves a request from disk, in nanoseconds.
    static func firstHit(_ folder: URL, _ count: Int) async throws -> Double {
        try await Contest.nanoseconds {
            let value = try await self.map(folder).request(key: count / 2)
            guard value.id == count / 2 else { throw BenchmarkError.wrongResult("loaded \(value.id)") }
        }
    }

    /// A map with empty memory.
    ///
    /// A fetch returns a value that differs from every value on disk.
    private static func map(_ folder: URL) -> MultiplexerMap<Int, Profile> {
        MultiplexerMap<Int, Profile>(
            cacheKey: "Profiles",
            policy: MuxPolicy(maximumCount: nil),
            repository: MuxRepository(directory: folder, byteLimit: nil)
        ) { _ in Profile(id: -1, name: "") }
    }

    // MARK: - All

    private static func all(_ group: String, _ effort: Effort) async throws -> [Row] {
        let count = 10_000
        let articles = (0..<count).map { Article(id: $0) }
        return try await withFolder { folder in
            let files = try FilePerKey(folder.appending(component: "files"))
            for article in articles.prefix(300) { try files.save(article) }
            let journal = folder.appending(component: "journal")
            let entries = try articles.map { try self.entry($0) }
            try await JournalStore(directory: journal, byteLimit: nil).save(entries, durability: .relaxed)
            var contest = Contest(rounds: effort.rounds(3))
            let segment = URL(filePath: JournalLayout(root: journal.path).segment)
            contest.add(times: count) { _ in consume(try Data(contentsOf: segment)) }
            contest.add(times: count) { _ in
                let store = JournalStore(directory: journal, byteLimit: nil)
                for entry in entries { consume(try await store.load(entry.name)) }
            }
            contest.add(times: 300) { count in for key in 0..<count { consume(try files.data(key)) } }
            let names = entries.map(\.name)
            contest.add(times: count) { _ in
                consume(try await JournalStore(directory: journal, byteLimit: nil).load(names))
            }
            let outcome = try await contest.play()
            let rows = [
                ("10,000 of 1 KB, decoding aside, per entry", 1, []), ("the same by one call", 3, [Goal.atMost(4_000)]),
            ]
            return rows.map {
                Row(
                    group,
                    $0,
                    outcome,
                    figure: $1,
                    limit: ("reading the journal's bytes", 0),
                    instead: ("Data(contentsOf:) per key", 2),
                    goals: $2
                )
            }
        }
    }

    // MARK: - Hits

    /// A value of 1 KB that is quickly decoded.
    private struct Note: Codable, Sendable {
        var id: Int
        var text = String(repeating: "a line of text. ", count: 64)
    }

    /// Requests served from disk after a relaunch.
    private static func hits(_ group: String, _ effort: Effort) async throws -> [Row] {
        let count = 5_000
        return try await withFolder { folder in
            let files = try FilePerKey(folder.appending(component: "files"))
            for key in 0..<count { try JSONEncoder().encode(Note(id: key)).write(to: files.url(key)) }
            let journal = folder.appending(component: "journal")
            let map = self.notes(journal)
            for key in 0..<count { map.store(Note(id: key), key: key) }
            guard await map.save().saved == count else { throw BenchmarkError.wrongResult("not saved") }
            var contest = Contest(rounds: effort.rounds(5))
            contest.add(times: count) { count in
                for key in 0..<count { consume(try JSONDecoder().decode(Note.self, from: files.data(key))) }
            }
            contest.add(times: count) { count in
                let map = self.notes(journal)
                for key in 0..<count { consume(try await map.request(key: key)) }
            }
            contest.add(times: count) { count in
                consume(try await self.notes(journal).request(keys: 0..<count))
            }
            let outcome = try await contest.play()
            return [("a disk hit of 1 KB, one after another", 1), ("5,000 of them by one request, per key", 2)].map {
                Row(group, $0, outcome, figure: $1, limit: ("a file per key, decoded", 0), goals: [.timesLimit(1.1)])
            }
        }
    }

    /// A map of the values on disk.
    private static func notes(_ folder: URL) -> MultiplexerMap<Int, Note> {
        MultiplexerMap<Int, Note>(
            cacheKey: "Notes",
            policy: MuxPolicy(maximumCount: nil),
            repository: MuxRepository(directory: folder, byteLimit: nil)
        ) { throw BenchmarkError.wrongResult("fetched \($0)") }
    }

    static func entry(_ article: Article, _ text: Data? = nil) throws -> MuxStoredEntry {
        MuxStoredEntry(
            name: MuxStoreKey(domain: "Articles", key: String(article.id)),
            schemaVersion: 1,
            sessionEpoch: 0,
            fetchedAt: Date(timeIntervalSinceReferenceDate: 800_000_000),
            timeToLive: .seconds(1_800),
            payload: try text ?? JSONEncoder().encode(article)
        )
    }
}
