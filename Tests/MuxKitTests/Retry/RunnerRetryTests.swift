import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RunnerRetryTests {
    private let calls = Locked(0)
    private var policy: RunnerPolicy {
        var policy = RunnerPolicy()
        policy.retry = .immediate(maxAttempts: 3)
        return policy
    }

    /// Fails twice, then returns a token.
    @Sendable private func token() throws -> UpdateResult<String> {
        let call = self.calls.next()
        guard call > 2 else { throw Flaky(call: call) }
        return .updatedDependency("token")
    }

    @Test func `E01 an update that fails twice is one update for all waiters`() async throws {
        let events = EventTally()
        let runner = DependentRunner<String>(policy: self.policy, observer: events) { _ in try self.token() }

        let callers = (0..<10).map { _ in Task { try await runner.run { RunResult.output($0) } } }

        for caller in callers { #expect(try await caller.value == "token") }
        #expect(self.calls.withLock { $0 } == 3)
        #expect(events.count(of: .updateStarted) == 1)
        await runner.expectAtRest()
    }

    @Test func `E01 a caller's own update is attempted again, too`() async throws {
        let runner = DependentRunner<String>(policy: self.policy)

        let output = try await runner.run {
            RunResult.output($0)
        } update: { _ in
            try self.token()
        }

        #expect(output == "token")
        #expect(self.calls.withLock { $0 } == 3)
        await runner.expectAtRest()
    }

    @Test func `E01 callers get the error of the last attempt of an update`() async {
        let runner = DependentRunner<String>(policy: self.policy) { _ in throw Flaky(call: self.calls.next()) }

        await #expect(throws: Flaky(call: 3)) { try await runner.run { RunResult.output($0) } }
    }

    @Test func `E06 a refusal is not repeated`() async {
        let runner = DependentRunner<String>(policy: self.policy) { _ in
            _ = self.calls.next()
            throw BadDependency()
        }

        await #expect(throws: RunnerError.self) { try await runner.run { RunResult.output($0) } }

        #expect(self.calls.withLock { $0 } == 1)
    }

    @Test func `E01 without a retry policy an update is made once`() async {
        let runner = DependentRunner<String> { _ in throw Flaky(call: self.calls.next()) }

        await #expect(throws: Flaky(call: 1)) { try await runner.run { RunResult.output($0) } }
    }

    @Test func `E11 a refresh is retried, and a sign-in and a possibly completed refresh are not`()
        async throws
    {
        let signIns = Locked(0)
        let isUnsafe = Locked(false)
        let oauth = OAuthDependentRunner<String, String>(
            repository: World().repository,
            policy: self.policy,
            refreshAccess: { _ in
                if isUnsafe.withLock({ $0 }) { throw Advised(RetryAdvice(isTransient: true, isRepeatable: false)) }
                _ = try self.token()
                return OAuthRenewal(access: "access")
            },
            signIn: {
                guard signIns.next() > 1 else { throw Flaky() }
                return OAuthSignIn(refresh: "refresh")
            }
        )

        await #expect(throws: RunnerError.self) { try await oauth.run { RunResult.output($0) } }
        #expect(signIns.withLock { $0 } == 1)

        #expect(try await oauth.run { RunResult.output($0) } == "access")
        #expect(self.calls.withLock { $0 } == 3)

        isUnsafe.withLock { $0 = true }
        await #expect(throws: Advised.self) { try await oauth.run { _ in RunResult<Int>.badDependency } }
        #expect(self.calls.withLock { $0 } == 3)
    }
}
