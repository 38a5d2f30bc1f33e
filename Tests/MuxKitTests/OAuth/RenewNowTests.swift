import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A forced renewal makes exactly one request to the token server.
@Suite(.standard)
struct RenewNowTests {
    /// The situation before the renewal.
    enum Moment: CaseIterable, Sendable {
        case atAnyTime
        case afterARelaunch
        case afterARelaunchWithAnEndedToken
        case afterSettingBoth
        case afterSettingAnAccessToken
        case afterSettingTheSame
        case afterAFailure
    }

    @Test(arguments: Moment.allCases, [true, false])
    func `CO-22 renew makes one request to the token server`(moment: Moment, rotates: Bool) async throws {
        var options = FakeOAuthServer.Configuration()
        options.rotatesRefreshTokens = rotates
        var oauth = OAuthWorld(options)
        var policy = RunnerPolicy.onePerCall
        policy.coolDown = .seconds(60)
        var runner = oauth.runner(policy: policy)
        _ = try await oauth.call(runner)
        let old = try await runner.run { .output($0) }
        switch moment {
        case .atAnyTime: break
        case .afterARelaunchWithAnEndedToken:
            oauth.server.expireAllAccessTokens()
            fallthrough
        case .afterARelaunch:
            oauth = oauth.relaunched()
            runner = oauth.runner(policy: policy)
        case .afterSettingBoth:
            let bob = try await oauth.server.signIn(user: "bob", password: "b")
            try await runner.set(access: bob.access, refresh: bob.refresh)
        case .afterSettingAnAccessToken: runner.set(access: old)
        case .afterSettingTheSame:
            let stored = String(decoding: try #require(try await oauth.tokens.load()), as: UTF8.self)
            let refresh = try #require(stored.split(separator: "\"").first { $0.hasPrefix("refresh-") })
            try await runner.set(access: old, refresh: String(refresh))
        case .afterAFailure:
            oauth.server.failNextRefreshes(1, with: .unavailable)
            await #expect(throws: FakeOAuthServer.Failure.unavailable) { try await runner.renew() }
        }
        let before = oauth.statistics

        let access = try await runner.renew()

        #expect(oauth.statistics.refreshRequests - before.refreshRequests == 1)
        #expect(oauth.statistics.signIns == before.signIns)
        #expect(access != old)
        #expect(oauth.server.authorize(access) == (moment == .afterSettingBoth ? "bob" : "alice"))
        #expect(try await runner.run { .output($0) } == access)
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `CO-22 concurrent renewals during a relaunch make one request`()
        async throws
    {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        _ = try await oauth.call(oauth.runner())
        let next = oauth.relaunched()
        let runner = next.runner()
        let gate = Gate<Void>()
        tokens.beforeLoad.withLock { $0 = { try? await gate.pass() } }
        let call = Task { try await next.call(runner) }
        await gate.waitForCall(1)
        // The renewals wait for an update that will find the token in the store.
        let awaited = next.world.events.count(of: .dependencyAwaited)
        let renewals = (0..<5).map { _ in Task { try await runner.renew() } }
        await next.world.events.wait(for: .dependencyAwaited, count: awaited + 5)
        gate.openForGood(returning: ())

        #expect(try await call.value == "alice")
        var renewed: Set<String> = []
        for renewal in renewals { renewed.insert(try await renewal.value) }
        #expect(renewed.count == 1)
        #expect(next.statistics.refreshRequests == 2)
    }

    @Test func `CO-22 without tokens a sign-in that returns both tokens serves as the renewal`() async throws {
        let oauth = OAuthWorld()
        let access = try await oauth.runner(signInGivesAccess: true).renew()
        #expect(oauth.server.authorize(access) == "alice")
        #expect(oauth.statistics.signIns == 1)
        #expect(oauth.statistics.refreshRequests == 0)
    }
}
