import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The time-out of updates that ignore their cancellation.
@Suite(.standard)
struct UpdateTimeoutTests {
    private static var policy: RunnerPolicy {
        var policy = RunnerPolicy.onePerCall
        policy.updateTimeout = .seconds(5)
        return policy
    }

    private func timesOut<Output: Sendable>(_ call: Task<Output, any Error>) async {
        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .updateTimedOut)
    }

    @Test(arguments: [true, false])
    func `CO-23 a refresh that ignores its cancellation blocks no caller, and its tokens are kept`(
        rotates: Bool
    ) async throws {
        var options = FakeOAuthServer.Configuration()
        options.rotatesRefreshTokens = rotates
        let oauth = OAuthWorld(options)
        let runner = oauth.runner(policy: Self.policy)
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass(ignoringCancellation: true) } }

        let events = oauth.world.events
        let former = events.count(of: .dependencyAwaited)
        let calls = (0..<3).map { _ in Task { try await oauth.call(runner) } }
        await gate.waitForCall(1)
        await events.wait(for: .dependencyAwaited, count: former + 3)
        await oauth.world.clock.waitForSleepers(2)
        oauth.world.clock.advance(by: .seconds(5))
        for call in calls { await self.timesOut(call) }

        // The next call waits for the running refresh, at most for the time-out.
        let starts = oauth.world.events.count(of: .updateStarted)
        let next = Task { try await oauth.call(runner) }
        await oauth.world.events.wait(for: .updateStarted, count: starts + 1)
        await oauth.world.clock.waitForSleepers(1)
        oauth.world.clock.advance(by: .seconds(5))
        await self.timesOut(next)
        #expect(gate.callCount == 1)

        gate.openForGood(returning: ())
        #expect(try await oauth.call(runner) == "alice")
        if rotates { #expect(oauth.statistics.refreshRequests == 2) }
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.signIns == 1)
    }

    @Test func `CO-23 a value that arrives after the update's time-out is kept`() async throws {
        let clock = VirtualClock()
        let events = EventTally()
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(policy: Self.policy, observer: events, clock: clock) { _ in
            .updatedDependency(try await gate.pass(ignoringCancellation: true))
        }
        let call = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        await clock.waitForSleepers(1)
        clock.advance(by: .seconds(5))
        await self.timesOut(call)

        gate.open(returning: 7)
        await events.wait(for: .updated)
        #expect(try await runner.run { .output($0) } == 7)
        #expect(gate.callCount == 1)
    }

    @Test(arguments: [true, false])
    func `CO-23 a late value that arrives before the next update prevents this update`(ownsUpdate: Bool) async throws {
        try await SeededExecutor.explore(ownsUpdate ? 500 : 50) { schedule in
            let gate = Gate<Int>()
            let update: @Sendable (Int?) async throws -> UpdateResult<Int> = { refused in
                try expect(refused == nil, "a value that nobody has refused is replaced")
                return .updatedDependency(try await gate.pass(ignoringCancellation: true))
            }
            let runner =
                ownsUpdate
                ? DependentRunner<Int>(policy: Self.policy, clock: schedule.clock, update: update)
                : DependentRunner<Int>(policy: Self.policy, clock: schedule.clock)
            let call: @Sendable () async throws -> Int = {
                guard !ownsUpdate else { return try await runner.run { .output($0) } }
                return try await runner.run({ .output($0) }, update: update)
            }
            try await withThrowingTaskGroup { group in
                group.addTask {
                    do {
                        let value = try await call()
                        // A caller with an update closure waits for its end and gets its value.
                        try expect(!ownsUpdate && [7, 8].contains(value), "the update is in time")
                    } catch RunnerError.updateTimedOut where ownsUpdate {}
                }
                await gate.waitForCall(1)
                try await schedule.clock.sleep(for: .seconds(6))
                group.addTask { try expect([7, 8].contains(try await call()), "a value from nowhere") }
                for _ in 0..<schedule.draw(0..<4) { await schedule.pause() }
                gate.open(1, returning: 7)
                gate.open(2, returning: 8)
                try await group.waitForAll()
            }
        }
    }

    @Test func `CO-23 a late value is dropped if another value was set in the meantime`() async throws {
        let clock = VirtualClock()
        let events = EventTally()
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(policy: Self.policy, observer: events, clock: clock) { _ in
            .updatedDependency(try await gate.pass(ignoringCancellation: true))
        }
        let call = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        await clock.waitForSleepers(1)
        clock.advance(by: .seconds(5))
        await self.timesOut(call)
        runner.set(1)
        gate.open(returning: 7)
        await events.wait(for: .updated)
        #expect(try await runner.run { .output($0) } == 1)
    }

    @Test func `CO-23 a waiter of another caller's update closure leaves at the time-out`() async throws {
        let clock = VirtualClock()
        let events = EventTally()
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(policy: Self.policy, observer: events, clock: clock)
        let leader = Task {
            try await runner.run {
                .output($0)
            } update: { _ in
                .updatedDependency(try await gate.pass(ignoringCancellation: true))
            }
        }
        await gate.waitForCall(1)
        let waiter = Task {
            try await runner.run {
                .output($0)
            } update: { _ in
                .updatedDependency(0)
            }
        }
        await events.wait(for: .dependencyAwaited)
        await clock.waitForSleepers(1)
        clock.advance(by: .seconds(5))
        await self.timesOut(waiter)

        gate.open(returning: 7)
        #expect(try await leader.value == 7, "a success is a success")
        #expect(try await runner.run { .output($0) } == 7)
        await runner.expectAtRest()
    }

    @Test func `CO-23 a refresh that requests a token from its own runner fails at once`() async throws {
        let holder = Locked<OAuthDependentRunner<String, String>?>(nil)
        let runner = OAuthDependentRunner<String, String>(
            repository: World().repository,
            refreshAccess: { _ in
                guard let runner = holder.withLock({ $0 }) else { throw FetchFailed() }
                let access = try await runner.run { .output($0) }
                return OAuthRenewal(access: access)
            },
            signIn: { OAuthSignIn(refresh: "refresh") }
        )
        holder.withLock { $0 = runner }
        defer { holder.withLock { $0 = nil } }
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.code == .wouldDeadlock)
    }
}
