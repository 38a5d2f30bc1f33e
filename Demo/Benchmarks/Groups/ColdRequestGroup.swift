import Foundation
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
                goals: [.timesBetter(1 / 1.5)]
            ),
            try await self.making(group),
            .count(group, "places left of 20,000 dropped multiplexers", try await self.placesLeft(), expected: 0),
            try await self.allocations(group, "allocations of a request", maximumCount: nil, atMost: 6),
            try await self.allocations(group, "the same with an eviction", maximumCount: 1_000, atMost: 7),
            .count(
                group,
                "fetches of 1,000 that begin on another thread",
                try await self.fetchesElsewhere(),
                expected: 0
            ),
        ]
    }

    /// Creates, requests and releases multiplexers of a repository that has as many other multiplexers.
    private static func making(_ group: String, count: Int = 20_000) async throws -> Row {
        var contest = Contest(rounds: 11)
        contest.add(times: count) { count in
            for key in 0..<count { consume(try await TaskCache<Int, Int> { $0 }.value(key)) }
        }
        let repository = MuxRepository(store: .none)
        let others = (0..<count).map { number in Multiplexer<Int>(repository: repository) { number } }
        contest.add(times: count) { count in
            for key in 0..<count { consume(try await Multiplexer<Int>(repository: repository) { key }.request()) }
        }
        let row = Row(
            group,
            "a multiplexer, made, requested and dropped",
            try await contest.play(),
            figure: 1,
            instead: ("actor of tasks", 0),
            goals: []
        )
        withExtendedLifetime(others) {}
        return row
    }

    private static func placesLeft() async throws -> Int {
        let repository = MuxRepository(store: .none)
        for key in 0..<20_000 { consume(try await Multiplexer<Int>(repository: repository) { key }.request()) }
        var all = (0..<20_000).map { number in Multiplexer<Int>(repository: repository) { number } }
        all.removeAll()
        return max(0, repository.participantPlaces - 64)
    }

    /// The allocations of a request: the minimum of several tries, because other threads may allocate.
    ///
    /// Storage that grows once in many requests adds less than a tenth of an allocation, and is rounded off.
    @concurrent private static func allocations(
        _ group: String,
        _ name: String,
        maximumCount: Int?,
        atMost most: Double
    ) async throws -> Row {
        var least: Int?
        for _ in 0..<5 {
            let policy = MuxPolicy(maximumCount: maximumCount)
            let map = MultiplexerMap<Int, Int>(policy: policy, repository: MuxRepository(store: MemoryStore())) { $0 }
            for key in 0..<2_000 { consume(try await map.request(key: key)) }
            let before = Allocations.begin()
            for key in 2_000..<3_000 { consume(try await map.request(key: key)) }
            guard let count = Allocations.end(since: before) else { break }
            least = min(count, least ?? .max)
        }
        return Row(
            group,
            name,
            unit: .count,
            figure: least.map { (Double($0) / 100).rounded() / 10 },
            goals: [.atMost(most)],
            isCount: true
        )
    }

    /// The number of fetches that begin on another thread; `nil` on systems without `Task.immediate`.
    @concurrent private static func fetchesElsewhere() async throws -> Int? {
        guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return nil }
        @Sendable func thread() -> ObjectIdentifier { ObjectIdentifier(Thread.current) }
        let map = MultiplexerMap<Int, ObjectIdentifier>(repository: MuxRepository(store: MemoryStore())) { _ in
            thread()
        }
        var count = 0
        for key in 0..<1_000 {
            let here = thread()
            if try await map.request(key: key) != here { count += 1 }
        }
        return count
    }
}
