import Foundation
import MuxKit
import MuxTesting

/// Several workers on one signed-in app and a server that may rotate refresh tokens, with checks of invariants.
struct OAuthScenario: Sendable {
    private let schedule: SeededExecutor
    private let world: OAuthWorld
    private let runner: OAuthDependentRunner<String, String>
    private let signOuts = Locked(0)
    private let revocations = Locked(0)
    /// Counts one for each set, and one more for tokens that were invalid on arrival.
    private let sets = Locked(0)

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        var options = FakeOAuthServer.Configuration()
        options.accessLifetime = .seconds([5, 300][schedule.draw(0..<2)])
        options.rotatesRefreshTokens = schedule.draw(0..<4) > 0
        options.newAccessTokenKillsPrevious = schedule.draw(0..<3) == 0
        options.latency = .seconds(schedule.draw(0..<3))
        options.replyLatency = .seconds(schedule.draw(0..<3))
        self.world = OAuthWorld(options, clock: schedule.clock)
        self.runner = self.world.runner(
            policy: .init(maximumUpdatesPerWindow: nil),
            signInGivesAccess: schedule.draw(0..<2) == 0
        )
    }

    /// Runs the actions and the checks.
    func play() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<self.schedule.draw(2..<5) {
                group.addTask {
                    for _ in 0..<self.schedule.draw(1..<4) { try await self.act() }
                }
            }
            try await group.waitForAll()
        }
        try await self.schedule.clock.sleep(for: .seconds(1_000))
        let statistics = self.world.statistics
        // A refresh token is used once. The server detects a client that loses or reuses a rotated token.
        try expect(statistics.reusesDetected == 0, "a refresh token was used twice: \(statistics)")
        let ends = self.signOuts.withLock { $0 } + self.revocations.withLock { $0 } + self.sets.withLock { $0 }
        try expect(statistics.signIns <= 1 + ends, "a sign-in for nothing: \(statistics)")
        try await self.checkRelaunch()
    }

    /// The next process continues the session of this process, and has no session after a sign-out.
    private func checkRelaunch() async throws {
        // The pending failures of the server occur now.
        for _ in 0..<12 {
            self.world.server.expireAllAccessTokens()
            if try await self.call() { break }
            // A failure starts a pause, during which no request is sent.
            try await self.schedule.clock.sleep(for: FailurePause.longest)
        }
        try await self.call(mustSucceed: true)
        let signIns = self.world.statistics.signIns
        let next = self.world.relaunched(clock: self.schedule.clock)
        let user = try await next.call(next.runner())
        try expect(user == "alice" && next.statistics.signIns == signIns, "the relaunched app signs in again")
        await self.runner.signOut()
        let stored = try await self.world.tokens.load()
        try expect(stored == nil, "tokens are left after a sign-out")
        try expect(next.statistics.reusesDetected == 0, "the relaunched app used a spent token")
    }

    private func act() async throws {
        switch self.schedule.draw(0..<13) {
        case 0:
            self.signOuts.withLock { $0 += 1 }
            await self.runner.signOut()
        case 1...2: self.world.server.expireAllAccessTokens()
        case 3:
            self.revocations.withLock { $0 += 1 }
            self.world.server.revokeAllRefreshTokens()
        case 4: self.world.server.failNextRefreshes(with: .unavailable)
        case 12: try await self.set()
        case 5...7:
            try await withThrowingTaskGroup { group in
                group.addTask { try await self.call() }
                for _ in 0..<self.schedule.draw(0..<8) { await self.schedule.pause() }
                group.cancelAll()
                try await group.waitForAll()
            }
        default: try await self.call()
        }
    }

    /// Sets tokens that were obtained outside of the runner.
    private func set() async throws {
        self.sets.withLock { $0 += 1 }
        let tokens = try await self.world.server.signIn(user: "alice", password: "a")
        if self.world.server.authorize(tokens.access) == nil { self.sets.withLock { $0 += 1 } }
        do {
            try await self.runner.set(
                access: self.schedule.draw(0..<2) == 0 ? tokens.access : nil,
                refresh: tokens.refresh
            )
        } catch RunnerError.signedOut {
            try expect(self.signOuts.withLock { $0 } > 0, "signed out by nobody")
        }
    }

    /// Makes a call and returns whether the call succeeded.
    @discardableResult
    private func call(mustSucceed: Bool = false) async throws -> Bool {
        do {
            let user = try await self.world.call(self.runner)
            try expect(user == "alice", "somebody else's")
            return true
        } catch is CancellationError {
            try expect(Task.isCancelled, "a caller that was not cancelled is told that it was")
        } catch RunnerError.signedOut where !mustSucceed {
            try expect(self.signOuts.withLock { $0 } > 0, "signed out by nobody")
        } catch is FakeOAuthServer.Failure where !mustSucceed {
        } catch RunnerError.tooManyUpdates where !mustSucceed {
        }
        return false
    }
}
