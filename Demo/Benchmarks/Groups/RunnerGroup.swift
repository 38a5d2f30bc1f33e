import MuxKit

/// A call with a valid dependency and no work.
enum RunnerGroup {
    private static let token = "a token, such as servers hand out by the million"

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let locked = LockedValue(self.token)
        let plain = PlainCache<Int, String>()
        await plain.set(self.token, for: 0)
        let runner = DependentRunner<String>(self.token) { _ in .updateFailed }
        let oauth = OAuthDependentRunner<String, String>(
            repository: MuxRepository(store: MemoryStore()),
            refreshAccess: { _ in OAuthRenewal(access: self.token) },
            signIn: { OAuthSignIn(access: self.token, refresh: "") }
        )
        _ = try await oauth.run { .output($0) }
        var contest = Contest(rounds: effort.rounds(25))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(locked.fresh()) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await runner.run { .output($0) }) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await oauth.run { .output($0) }) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(await plain.value(0)) }
        }
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await runner.run { $0 }) }
        }
        let outcome = try await contest.play()
        func row(_ name: String, _ figure: Int) -> Row {
            Row(
                group,
                name,
                outcome,
                figure: figure,
                limit: ("lock, copy, coarse clock", 0),
                instead: ("plain actor", 3),
                goals: [.atMost(60)]
            )
        }
        let onMainActor = try await self.onMainActor(group, locked, plain, runner, effort)
        let counts = try await CountedActor().counts { _ in
            for _ in 0..<1_000 { consume(try await runner.run { .output($0) }) }
        }
        let oauthCounts = try await CountedActor().counts { _ in
            for _ in 0..<1_000 { consume(try await oauth.run { .output($0) }) }
        }
        let rows = [
            row("the task returns at once", 1), row("the same, the task returns its output alone", 4),
            row("the same with two layers, OAuth", 2), onMainActor,
        ]
        return rows + .counted(group, "calls", counts) + .counted(group, "calls, OAuth", oauthCounts)
    }

    /// Calls from the main actor, like most calls of an app.
    ///
    /// From there, a call of another actor passes two queues.
    private static func onMainActor(
        _ group: String,
        _ locked: LockedValue<String>,
        _ plain: PlainCache<Int, String>,
        _ runner: DependentRunner<String>,
        _ effort: Effort
    ) async throws -> Row {
        var contest = Contest(rounds: effort.rounds(15))
        contest.add(repeating: 1_000) { @MainActor count in
            for _ in 0..<count { consume(locked.fresh()) }
        }
        contest.add(repeating: 1_000) { @MainActor count in
            for _ in 0..<count { consume(try await runner.run { .output($0) }) }
        }
        contest.add(repeating: 100) { @MainActor count in
            for _ in 0..<count { consume(await plain.value(0)) }
        }
        return Row(
            group,
            "caller on the main actor",
            try await contest.play(),
            figure: 1,
            limit: ("lock, copy, coarse clock", 0),
            instead: ("plain actor", 2),
            goals: [.timesBetter(15)]
        )
    }
}
