import Foundation
import MuxGRDB
import MuxKit

/// Compares the store in an SQLite database with the journal, the default store.
///
/// The stores take turns, so that a drift of the machine's speed affects both. The figures are medians.
@main
enum StoreBenchmark {
    private struct Profile: Codable, Sendable, Equatable {
        var id: Int
        var name: String
    }

    private struct WrongResult: Error { var text: String }

    private typealias Store = (name: String, repository: @Sendable (URL) throws -> MuxRepository)

    private static let stores: [Store] = [
        ("journal", { MuxRepository(directory: $0, byteLimit: nil) }),
        ("GRDB", { MuxRepository(store: try GRDBStore(url: $0.appending(component: "mux.sqlite"), byteLimit: .max)) }),
    ]
    private static let rounds = 5

    static func main() async throws {
        let tests: [(name: String, unit: Double, measure: (Store, URL) async throws -> Double)] = [
            ("save of 10,000 entries, per entry", 10_000, { try await self.save(10_000, $0, $1) }),
            ("save of 100 changed among 10,000, in all", 1, { try await self.change(100, $0, $1) }),
            ("load of one entry, of 1,000 in turn", 1_000, { try await self.load(1_000, $0, $1) }),
            ("load of 10,000 entries at once, per entry", 10_000, { try await self.prefetch(10_000, $0, $1) }),
            ("opening with 100,000 entries, and the first load", 1, { try await self.open(100_000, $0, $1) }),
        ]
        print(
            "microseconds; the medians of \(self.rounds) rounds".padding(toLength: 52, withPad: " ", startingAt: 0)
                + "journal       GRDB   GRDB / journal"
        )
        for test in tests {
            var figures: [[Double]] = [[], []]
            for _ in 0..<self.rounds {
                for (index, store) in self.stores.enumerated() {
                    let folder = FileManager.default.temporaryDirectory.appending(component: UUID().uuidString)
                    defer { try? FileManager.default.removeItem(at: folder) }
                    figures[index].append(try await test.measure(store, folder) / test.unit)
                }
            }
            let medians = figures.map { $0.sorted()[$0.count / 2] }
            let numbers = (medians + [medians[1] / medians[0]]).map { String(format: "%10.1f", $0) }
            print(test.name.padding(toLength: 50, withPad: " ", startingAt: 0) + numbers.joined(separator: " "))
        }
    }

    // MARK: - Tests

    private static func save(_ count: Int, _ store: Store, _ folder: URL) async throws -> Double {
        let map = self.map(try store.repository(folder))
        self.change(0..<count, map)
        return try await self.microseconds { try await self.save(map, count) }
    }

    private static func change(_ count: Int, _ store: Store, _ folder: URL) async throws -> Double {
        let map = self.map(try store.repository(folder))
        self.change(0..<10_000, map)
        try await self.save(map, 10_000)
        self.change(0..<count, map, revision: 1)
        return try await self.microseconds { try await self.save(map, count) }
    }

    private static func load(_ count: Int, _ store: Store, _ folder: URL) async throws -> Double {
        try await self.fill(10_000, store, folder)
        let map = self.map(try store.repository(folder))
        try await self.check(map, 0)
        return try await self.microseconds {
            for number in 1...count { try await self.check(map, number * 7_919 % 10_000) }
        }
    }

    private static func prefetch(_ count: Int, _ store: Store, _ folder: URL) async throws -> Double {
        try await self.fill(count + 1, store, folder)
        let map = self.map(try store.repository(folder))
        try await self.check(map, count)
        let time = try await self.microseconds { await map.prefetch(keys: 0..<count) }
        for key in [0, count / 2, count - 1] { try await self.check(map, key) }
        return time
    }

    private static func open(_ count: Int, _ store: Store, _ folder: URL) async throws -> Double {
        try await self.fill(count, store, folder)
        return try await self.microseconds {
            try await self.check(self.map(try store.repository(folder)), count / 2)
        }
    }

    // MARK: - Helpers

    /// A map with empty memory; a fetch returns a value that differs from each value in a store.
    private static func map(_ repository: MuxRepository) -> MultiplexerMap<Int, Profile> {
        MultiplexerMap(cacheKey: "Profiles", policy: MuxPolicy(maximumCount: nil), repository: repository) { _ in
            Profile(id: -1, name: "")
        }
    }

    private static func change(_ keys: Range<Int>, _ map: MultiplexerMap<Int, Profile>, revision: Int = 0) {
        for key in keys { map.store(Profile(id: key, name: "Somebody of number \(key), \(revision)"), key: key) }
    }

    private static func fill(_ count: Int, _ store: Store, _ folder: URL) async throws {
        let map = self.map(try store.repository(folder))
        self.change(0..<count, map)
        try await self.save(map, count)
    }

    private static func save(_ map: MultiplexerMap<Int, Profile>, _ count: Int) async throws {
        let report = await map.save()
        guard report.saved == count else { throw WrongResult(text: "saved \(report.saved) of \(count)") }
    }

    private static func check(_ map: MultiplexerMap<Int, Profile>, _ key: Int) async throws {
        let value = try await map.request(key: key)
        guard value.id == key else { throw WrongResult(text: "loaded \(value.id) for \(key)") }
    }

    private static func microseconds(_ body: () async throws -> Void) async throws -> Double {
        let start = ContinuousClock.now
        try await body()
        return (ContinuousClock.now - start) / .microseconds(1)
    }
}
