import MuxKit
import Synchronization

/// The cost of events, with and without an observer.
///
/// A build without events does not exist. Without an observer, an event costs a single test for `nil`. The
/// benchmark therefore compares a hit with a hit that contains an additional test.
enum EventsGroup {
    private final class Tally: MuxObserver {
        private let count = Atomic(0)
        func observe(_ event: MuxEvent) { self.count.add(1, ordering: .relaxed) }
    }

    private struct WithoutHits: MuxObserver {
        var observesHits: Bool { false }
        func observe(_ event: MuxEvent) {}
    }

    /// Hides the absence of an observer from the optimizer.
    private final class Holder: Sendable {
        let observer: (any MuxObserver)?
        init(_ observer: (any MuxObserver)?) { self.observer = observer }
    }

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let silent = try await self.multiplexer(observer: nil)
        let observed = try await self.multiplexer(observer: Tally())
        let choosy = try await self.multiplexer(observer: WithoutHits())
        let holder = Holder(effort.isLong && CommandLine.arguments.isEmpty ? Tally() : nil)
        var contest = Contest(rounds: effort.rounds(41))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await silent.request()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count {
                consume(try await silent.request())
                if let observer = holder.observer { observer.observe(MuxEvent(.hit)) }
            }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await observed.request()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await choosy.request()) }
        }
        let outcome = try await contest.play()
        return [
            Row(
                group,
                "off: with one more test for an observer",
                outcome,
                figure: 1,
                limit: ("the hit", 0),
                goals: [.timesLimit(1.02)]
            ),
            Row(group, "on: the observer counts", outcome, figure: 2, limit: ("off", 0), goals: [.atMost(200)]),
            Row(
                group,
                "on: the observer leaves out hits",
                outcome,
                figure: 3,
                limit: ("off", 0),
                goals: [.timesLimit(1.1)]
            ),
            try await self.making(group, effort),
        ]
    }

    /// Creates many multiplexers of a repository, with and without an observer.
    private static func making(_ group: String, _ effort: Effort) async throws -> Row {
        var contest = Contest(rounds: effort.rounds(5))
        for observer in [nil, Tally()] {
            contest.add {
                let repository = MuxRepository(store: MemoryStore(), observer: observer)
                return await Contest.nanoseconds {
                    consume((0..<4_000).map { _ in Multiplexer<Profile>(repository: repository) { .sample } })
                }
            }
        }
        return Row(
            group,
            "making 4,000 multiplexers with an observer",
            try await contest.play(),
            figure: 1,
            limit: ("without", 0),
            goals: [.atMost(150_000_000)]
        )
    }

    private static func multiplexer(observer: (any MuxObserver)?) async throws -> Multiplexer<Profile> {
        let repository = MuxRepository(store: MemoryStore(), observer: observer)
        let one = Multiplexer<Profile>(repository: repository) { .sample }
        _ = try await one.request()
        return one
    }
}
