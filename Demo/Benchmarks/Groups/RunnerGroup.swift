import MuxKit

/// A call whose dependency is there and good, and whose work is nothing.
enum RunnerGroup {
    private static let token = "a token, such as servers hand out by the million"

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let locked = LockedValue(self.token)
        let plain = PlainCache<Int, String>()
        await plain.set(self.token, for: 0)
        let runner = DependentRunner<String>(self.token) { _ in .updateFailed }
        var contest = Contest(rounds: effort.rounds(25))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(locked.fresh()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await runner.run { .output($0) }) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(await plain.value(0)) }
        }
        let row = Row(
            group,
            "the task returns at once",
            try await contest.play(),
            figure: 1,
            limit: ("lock, copy, coarse clock", 0),
            instead: ("plain actor", 2),
            goals: [.atMost(60), .timesBetter(15)]
        )
        let counts = try await CountedActor().counts { _ in
            for _ in 0..<1_000 { consume(try await runner.run { .output($0) }) }
        }
        return [row] + .counted(group, "calls", counts)
    }
}
