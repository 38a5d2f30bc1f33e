import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RefusedTokenTests {
    @Test func `B04 after a refused refresh token a sign-in that gives an access token needs no refresh`() async throws
    {
        let oauth = OAuthWorld()
        let runner = oauth.runner(signInGivesAccess: true)
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()

        #expect(try await oauth.call(runner) == "alice")

        #expect(oauth.signIns.withLock { $0 } == 2)
        #expect(oauth.refreshes.withLock { $0 } == 1, "only the dead token was tried")
    }

    @Test func `B05 a refused refresh token is not sent again by every call until a sign-in`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()
        let before = oauth.statistics.refreshRequests
        oauth.beforeSignInReply.withLock { $0 = { throw FetchFailed() } }  // the user declines

        for _ in 0..<5 { await #expect(throws: RunnerError.self) { try await oauth.call(runner) } }

        #expect(oauth.statistics.refreshRequests - before == 1)
    }

    @Test func `D04 the release of a runner cancels no refresh that may have rotated`() async throws {
        let executor = OrderedExecutor()
        let oauth = OAuthWorld(spawn: TaskLauncher(executor: executor))
        let gate = Gate<Void>()
        weak var weakly: OAuthDependentRunner<String, String>?
        do {
            let runner = oauth.runner()
            weakly = runner
            _ = try await oauth.call(runner)
            oauth.server.expireAllAccessTokens()
            oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
            let caller = Task(executorPreference: executor) { [runner] in try await oauth.call(runner) }
            await gate.waitForCall(1)  // the server has rotated
            caller.cancel()
            await #expect(throws: CancellationError.self) { try await caller.value }
        }
        executor.settle()
        #expect(weakly == nil)
        #expect(gate.heldCount == 1, "the refresh was cancelled, and the rotated token with it")

        gate.openForGood(returning: ())
        executor.settle()

        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(next.signIns.withLock { $0 } == 0)
    }
}
