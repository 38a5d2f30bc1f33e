import MuxKit
import Synchronization

/// Many callers whose token is refused at the same time.
enum TokenGroup {
    private static let old = "a token that has expired, as tokens do"
    private static let new = "a token that the server has just made"

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let storms = Atomic(0)
        let updates = Atomic(0)
        var contest = Contest(rounds: effort.rounds(5))
        contest.add { try await StormGroup.bareStorm(StormGroup.callers) }
        contest.add {
            storms.add(1, ordering: .relaxed)
            return try await self.storm(StormGroup.callers) { updates.add(1, ordering: .relaxed) }
        }
        let whole = try await contest.play()

        var united = Contest(rounds: effort.rounds(5))
        united.add { try await StormGroup.bareWakeUp(StormGroup.callers).whole }
        united.add { try await self.united(StormGroup.callers) }
        let all = try await united.play()

        var wakeUps = Contest(rounds: effort.rounds(5))
        wakeUps.add { try await StormGroup.bareWakeUp(StormGroup.callers).nanoseconds }
        wakeUps.add { try await self.wakeUp(StormGroup.callers).nanoseconds }
        let woken = try await wakeUps.play()

        var resumptions = Contest(rounds: effort.rounds(5))
        resumptions.add { try await StormGroup.bareWakeUp(StormGroup.callers).resumed }
        resumptions.add { try await self.wakeUp(StormGroup.callers).resumed }
        let resumed = try await resumptions.play()
        let bytes = try await self.wakeUp(StormGroup.callers, counts: true).bytes
        let bareBytes = try await StormGroup.bareWakeUp(StormGroup.callers, counts: true).bytes
        return [
            Row(
                group,
                "the whole, update of 1 ms, per caller",
                whole,
                figure: 1,
                limit: ("bare parked continuations", 0),
                goals: [.timesLimit(2)]
            ),
            Row(
                group,
                "the whole, all with the old token, per caller",
                all,
                figure: 1,
                limit: ("bare parked continuations", 0),
                goals: [.timesLimit(2)]
            ),
            Row(
                group,
                "wake-up until all are resumed, per caller",
                resumed,
                figure: 1,
                limit: ("bare parked continuations", 0),
                goals: [.atMost(500)]
            ),
            Row(
                group,
                "wake-up until all have run, per caller",
                woken,
                figure: 1,
                limit: ("bare parked continuations", 0),
                goals: [.timesLimit(1.5)]
            ),
            StormGroup.memory(group, bytes, bare: bareBytes),
            .count(
                group,
                "updates of \(storms.load(ordering: .relaxed)) storms",
                updates.load(ordering: .relaxed),
                expected: storms.load(ordering: .relaxed)
            ),
        ]
    }

    /// The nanoseconds per caller of a storm whose update takes a millisecond.
    static func storm(_ callers: Int, updated: @escaping @Sendable () -> Void = {}) async throws -> Double {
        let runner = DependentRunner<String>(self.old) { _ in
            updated()
            try await Task.sleep(for: .milliseconds(1))
            return .updatedDependency(self.new)
        }
        return try await self.all(callers, runner)
    }

    /// The nanoseconds per caller of a storm whose update ends after every caller has been refused.
    private static func united(_ callers: Int) async throws -> Double {
        let refusals = Arrivals(callers)
        let runner = DependentRunner<String>(self.old) { _ in
            await refusals.all()
            return .updatedDependency(self.new)
        }
        return try await self.all(callers, runner, refused: refusals.add)
    }

    private static func wakeUp(_ callers: Int, counts: Bool = false) async throws -> StormGroup.Wait {
        let arrivals = Arrivals(callers)
        let counting = counts ? Allocations.begin() : nil
        defer { _ = Allocations.end(since: counting) }
        let landing = StormGroup.Landing(arrivals)
        let runner = DependentRunner<String>(self.old, observer: landing) { _ in
            await arrivals.all()
            landing.comes()
            return .updatedDependency(self.new)
        }
        // A late caller would receive the new token at once and never arrive. No caller is late, because the
        // update waits for all callers.
        let whole = try await self.all(callers, runner)
        return landing.wait(callers, whole: whole)
    }

    private static func all(
        _ callers: Int,
        _ runner: DependentRunner<String>,
        refused: @escaping @Sendable () -> Void = {}
    ) async throws -> Double {
        try await StormGroup.all(callers) {
            let length = try await runner.run { token -> RunResult<Int> in
                guard token != self.new else { return .output(token.utf8.count) }
                refused()
                return .badDependency
            }
            consume(length)
        }
    }
}
