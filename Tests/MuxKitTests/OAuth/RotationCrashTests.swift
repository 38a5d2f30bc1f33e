#if compiler(>=6.3) && (os(macOS) || os(Linux))
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A process that is killed during the exchange of a refresh token, and the next launch.
@Suite(.standard, .ownThreads)
struct RotationCrashTests {
    /// The step at which the process is killed.
    enum Step: String, CaseIterable, Sendable {
        case beforeIntent, afterIntent, beforeSending, afterReply, beforeStoring, afterStoring, inTask

        /// Whether the server has exchanged the token, but the store does not contain the new tokens.
        var isLost: Bool { self == .afterReply || self == .beforeStoring }
        /// Whether the store contains the intent to send a token.
        var isAnnounced: Bool { self == .afterIntent || self == .beforeSending || self.isLost }
    }

    /// A store that kills the process before or after one of its saves.
    private struct KillingStore: TokenStore {
        let base: ProtectedFileTokenStore
        let step: Step
        let saves = Locked(0)

        var lease: (any MuxLease)? { self.base.lease }

        func load() async throws -> Data? { try await self.base.load() }

        func save(_ data: Data) async throws {
            let count = self.saves.next()
            if count == 1, self.step == .beforeIntent { raise(SIGKILL) }
            if count == 2, self.step == .beforeStoring { raise(SIGKILL) }
            try await self.base.save(data)
            if count == 1, self.step == .afterIntent { raise(SIGKILL) }
            if count == 2, self.step == .afterStoring { raise(SIGKILL) }
        }

        func remove() async throws { try await self.base.remove() }
    }

    private static func work(_ step: Step, _ path: String, _ port: Int) async throws {
        var app = ProcessApp(path, port: port)
        app.beforeSend = { if step == .beforeSending { raise(SIGKILL) } }
        app.afterReply = { if step == .afterReply { raise(SIGKILL) } }
        var policy = RunnerPolicy.onePerCall
        policy.leaseDuration = .milliseconds(100)
        let runner = app.runner(store: KillingStore(base: app.store, step: step), policy: policy)
        let refused = Locked(0)
        _ = try await runner.run { access -> RunResult<Bool> in
            guard refused.next() > 1 else { return .badDependency }
            raise(SIGKILL)
            return .output(true)
        }
    }

    private func killed(_ step: Step, _ options: FakeOAuthServer.Configuration) async throws -> (ProcessServer, Scratch)
    {
        let scratch = Scratch()
        let server = try ProcessServer(options)
        let path = scratch.folder.path
        let port = server.port
        let app = ProcessApp(path, port: port)
        #expect(try await app.me(app.runner()))
        server.oauth.expireAllAccessTokens()
        let name = step.rawValue
        await #expect(processExitsWith: .signal(SIGKILL)) {
            [path = path as String, port = port as Int, name = name as String] in
            try await Self.work(try #require(Step(rawValue: name)), path, port)
        }
        return (server, scratch)
    }

    @Test(arguments: Step.allCases)
    func `L04 B11 after a crash at any step of a rotation only a confirmed refusal leads to a sign-in`(
        step: Step
    ) async throws {
        let (server, scratch) = try await self.killed(step, FakeOAuthServer.Configuration())
        let before = server.statistics

        let next = ProcessApp(scratch.folder.path, port: server.port)
        #expect(try await next.me(next.runner()))

        #expect(next.events.count(of: .updateInterrupted) == (step.isAnnounced ? 1 : 0))
        #expect(next.signIns.withLock { $0 } == (step.isLost ? 1 : 0), "only where the server has exchanged it")
        #expect(server.statistics.reusesDetected == (step.isLost ? 1 : 0))
        let isStored = step == .afterStoring || step == .inTask
        let requests = server.statistics.refreshRequests - before.refreshRequests
        #expect(requests == (isStored ? 0 : 1), "what was stored needs no request")
        await server.backend.goOffline()
    }

    @Test(arguments: Step.allCases)
    func `L04 after a crash at any step no sign-in follows if the server forgives a lost reply`(
        step: Step
    ) async throws {
        var options = FakeOAuthServer.Configuration()
        options.forgivesLostReplies = true
        let (server, scratch) = try await self.killed(step, options)

        let next = ProcessApp(scratch.folder.path, port: server.port)
        #expect(try await next.me(next.runner()))

        #expect(next.signIns.withLock { $0 } == 0)
        #expect(server.statistics.revocations == 0)
        await server.backend.goOffline()
    }

    @Test func `B11 no task gets an access token before its token pair is durable`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        let saves = Locked(0)
        // The first save contains the intent to send the token, the second save contains the new pair.
        tokens.afterSave.withLock { $0 = { if saves.next() == 2 { try? await gate.pass() } } }
        let seen = Locked<[String]>([])
        let call = Task {
            try await runner.run { access -> RunResult<String> in
                seen.withLock { $0.append(access) }
                return oauth.server.authorize(access).map { .output($0) } ?? .badDependency
            }
        }
        await gate.waitForCall(1)
        #expect(seen.withLock { $0.count } == 1)
        gate.open()
        #expect(try await call.value == "alice")
        #expect(seen.withLock { $0.count } == 2)
    }

    @Test func `B11 with rotation a token is not sent if its intent cannot be stored`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let before = oauth.statistics.refreshRequests
        tokens.failsSaves.withLock { $0 = true }

        let error = await #expect(throws: RunnerError.self) { try await oauth.call(runner) }
        #expect(error?.code == .tokensNotStored)
        #expect(oauth.statistics.refreshRequests == before)

        // The same applies after a relaunch, because the store contains the fact of the rotation.
        let next = oauth.relaunched()
        let nextRunner = next.runner()
        await #expect(throws: RunnerError.self) { try await next.call(nextRunner) }
        #expect(oauth.statistics.refreshRequests == before)
        tokens.failsSaves.withLock { $0 = false }
        #expect(try await next.call(nextRunner) == "alice")
        #expect(oauth.statistics.signIns == 1)
    }

    @Test func `B11 a server that has rotated a token once is expected to rotate again`() async throws {
        let tokens = UnreliableTokenStore()
        let sent = Locked(0)
        let runner = OAuthDependentRunner<Int, String>(
            store: tokens,
            repository: World().repository,
            refreshAccess: { _ in
                let count = sent.next()
                return OAuthRenewal(access: count, refresh: count == 1 ? "second" : nil)
            },
            signIn: { OAuthSignIn(refresh: "first") }
        )
        #expect(try await runner.run { .output($0) } == 1)
        #expect(try await runner.renew() == 2)
        tokens.failsSaves.withLock { $0 = true }
        let error = await #expect(throws: RunnerError.self) { try await runner.renew() }
        #expect(error?.code == .tokensNotStored)
        #expect(sent.withLock { $0 } == 2)
    }

    @Test func `B11 without rotation a failing store stops no refresh`() async throws {
        var options = FakeOAuthServer.Configuration()
        options.rotatesRefreshTokens = false
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(options, tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        tokens.failsSaves.withLock { $0 = true }
        #expect(try await oauth.call(runner) == "alice")
    }
}
#endif
