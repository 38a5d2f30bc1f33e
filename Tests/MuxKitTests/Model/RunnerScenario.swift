import MuxKit
import MuxTesting

/// Several workers on one runner, whose dependency turns bad at random, with checks during and after the run.
struct RunnerScenario: Sendable {
    private struct Server: Sendable {
        var last = 0
        /// Valid values.
        var good: Set<Int> = []
        /// Running updates, each with the number of begins and ends of resets and sets before the update.
        var updates: [Int: Int] = [:]
        var fences = 0
        var openFences = 0
        var violation: String?
        var refusals = 0
    }

    private let schedule: SeededExecutor
    private let runner: DependentRunner<Int>
    private let server = Locked(Server())
    private let ownsUpdate: Bool
    private let mayBeRefused: Bool

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        self.ownsUpdate = schedule.draw(0..<2) == 0
        let mayBeRefused = schedule.draw(0..<4) == 0
        self.mayBeRefused = mayBeRefused
        let mayBeLate = self.ownsUpdate && schedule.draw(0..<3) == 0
        let server = self.server
        var policy = RunnerPolicy(maximumUpdatesPerCall: 50, maximumUpdatesPerWindow: nil)
        if mayBeLate { policy.updateTimeout = .seconds(1) }
        self.runner =
            if self.ownsUpdate {
                DependentRunner(policy: policy, clock: schedule.clock) { refused in
                    try await Self.update(
                        refused,
                        server,
                        schedule,
                        mayBeRefused: mayBeRefused,
                        mayBeLate: mayBeLate
                    )
                }
            } else {
                DependentRunner(policy: policy, clock: schedule.clock)
            }
    }

    /// Runs the actions and the checks.
    func play() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<self.schedule.draw(2..<5) {
                group.addTask {
                    for _ in 0..<self.schedule.draw(1..<5) { try await self.act() }
                }
            }
            try await group.waitForAll()
        }
        try await self.schedule.clock.sleep(for: .seconds(1_000))
        if let violation = self.server.withLock({ $0.violation }) { throw Violation(violation) }
        try expect(self.runner.occupancy == (0, 0, 0), "not at rest: \(self.runner.occupancy)")
        // A set value is valid after any history.
        self.set()
        try await self.call(mustSucceed: true)
    }

    private static func update(
        _ refused: Int?,
        _ server: Locked<Server>,
        _ schedule: SeededExecutor,
        mayBeRefused: Bool,
        mayBeLate: Bool
    ) async throws -> UpdateResult<Int> {
        let number = server.withLock { server in
            server.last += 1
            if let refused, server.good.contains(refused) { server.violation = "\(refused) is replaced though good" }
            // A late update continues beside the next update.
            if !mayBeLate, server.updates.values.contains(server.fences), server.openFences == 0 {
                server.violation = "two updates run at once"
            }
            server.updates[server.last] = server.fences
            return server.last
        }
        defer { server.withLock { $0.updates[number] = nil } }
        for _ in 0..<schedule.draw(0..<3) { await schedule.pause() }
        if schedule.draw(0..<3) == 0 {
            do {
                try await schedule.clock.sleep(for: .seconds(1))
            } catch  where mayBeLate {}
        }
        switch schedule.draw(0..<6) {
        case 0: throw FetchFailed(call: number)
        case 1 where mayBeRefused:
            server.withLock { $0.refusals += 1 }
            return .updateFailed
        default:
            _ = server.withLock { $0.good.insert(number) }
            return .updatedDependency(number)
        }
    }

    private func act() async throws {
        switch self.schedule.draw(0..<10) {
        case 0: self.fence { self.runner.reset() }
        case 1: self.set()
        case 2...3: self.server.withLock { $0.good = [] }
        case 4...5:
            try await withThrowingTaskGroup { group in
                group.addTask { try await self.call() }
                for _ in 0..<self.schedule.draw(0..<6) { await self.schedule.pause() }
                group.cancelAll()
                try await group.waitForAll()
            }
        default: try await self.call()
        }
    }

    private func fence(_ body: () -> Void) {
        self.server.withLock { server in
            server.fences += 1
            server.openFences += 1
        }
        body()
        self.server.withLock { server in
            server.fences += 1
            server.openFences -= 1
        }
    }

    private func set() {
        let value = self.server.withLock { server in
            server.last += 1
            server.good.insert(server.last)
            return server.last
        }
        self.fence { self.runner.set(value) }
    }

    private func call(mustSucceed: Bool = false) async throws {
        var seen: [Int] = []
        let task: (Int) async throws -> RunResult<Int> = { value in
            guard seen.last != value else { throw Violation("\(value) is handed out again to who refused it") }
            guard seen.allSatisfy({ $0 < value }) else { throw Violation("\(value) is older than \(seen)") }
            seen.append(value)
            for _ in 0..<self.schedule.draw(0..<2) { await self.schedule.pause() }
            return self.server.withLock { $0.good.contains(value) ? .output(value) : .badDependency }
        }
        do {
            if self.ownsUpdate {
                _ = try await self.runner.run(task)
            } else {
                _ = try await self.runner.run(task) { refused in
                    try await Self.update(
                        refused,
                        self.server,
                        self.schedule,
                        mayBeRefused: self.mayBeRefused,
                        mayBeLate: false
                    )
                }
            }
        } catch is CancellationError {
            try expect(Task.isCancelled, "a caller that was not cancelled is told that it was")
        } catch let error as RunnerError where !mustSucceed {
            guard case .updateFailed = error else { return }
            try expect(self.server.withLock { $0.refusals } > 0, "an update that was not refused counts as refused")
        } catch is FetchFailed where !mustSucceed {
        }
    }
}
