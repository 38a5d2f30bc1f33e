import Foundation
import MuxCompatibility
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Short-lived tokens, wrong clocks, and token servers that fail while the old token is valid.
@Suite(.standard)
struct ShortLivedTokenTests {
    /// A server whose access tokens end after `uses` uses; a refused token stays refused.
    private final class UsedUpServer: Sendable {
        struct State: Sendable {
            var usesLeft: [String: Int] = [:]
            var refresh = "r0"
            var number = 0
            var refreshes = 0
            var reuses = 0
        }

        let state = Locked(State())
        let uses: Int

        init(uses: Int) { self.uses = uses }

        func refreshed(_ token: String) throws -> OAuthRenewal<String, String> {
            try self.state.withLock { state in
                guard token == state.refresh else {
                    state.reuses += 1
                    throw BadDependency()
                }
                state.number += 1
                state.refreshes += 1
                state.refresh = "r\(state.number)"
                state.usesLeft["a\(state.number)"] = self.uses
                return OAuthRenewal(access: "a\(state.number)", refresh: state.refresh)
            }
        }

        func accepts(_ token: String) -> Bool {
            self.state.withLock { state in
                guard let left = state.usesLeft[token], left > 0 else { return false }
                state.usesLeft[token] = left - 1
                return true
            }
        }
    }

    private static func options(_ life: Duration) -> FakeOAuthServer.Configuration {
        var options = FakeOAuthServer.Configuration()
        options.accessLifetime = life
        return options
    }

    /// A runner that knows the lifetime of its tokens if `isTold`.
    private func runner(
        _ oauth: OAuthWorld,
        isTold: Bool = true,
        policy: RunnerPolicy = .onePerCall
    ) -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            store: oauth.tokens,
            repository: oauth.world.repository,
            policy: policy,
            refreshAccess: { refresh in
                do {
                    let tokens = try await oauth.server.refresh(refresh)
                    try await oauth.beforeRefreshReply.withLock { $0 }()
                    return OAuthRenewal(
                        access: tokens.access,
                        refresh: tokens.refresh,
                        accessLifetime: isTold ? tokens.expiresIn : nil
                    )
                } catch FakeOAuthServer.Failure.invalidGrant {
                    throw BadDependency()
                }
            },
            signIn: {
                let tokens = try await oauth.server.signIn(user: "alice", password: "a")
                return OAuthSignIn(
                    access: tokens.access,
                    refresh: tokens.refresh,
                    accessLifetime: isTold ? tokens.expiresIn : nil
                )
            }
        )
    }

    @Test(arguments: [1, 2, 33, 60], [true, false])
    func `CO-19 with tokens of a few seconds all of five hundred calls succeed`(seconds: Int, isTold: Bool) async throws
    {
        let oauth = OAuthWorld(Self.options(.seconds(seconds)))
        let runner = self.runner(oauth, isTold: isTold)
        var users: [String] = []
        for _ in 0..<250 {
            async let first = oauth.call(runner)
            async let second = oauth.call(runner)
            users += try await [first, second]
            oauth.world.clock.advance(by: .milliseconds(24))
        }

        #expect(users == Array(repeating: "alice", count: 500))
        #expect(oauth.statistics.signIns == 1)
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.refreshes <= (isTold ? 12 : 6) / seconds + 1, "the leeway is half the life at most")
        if isTold { #expect(oauth.statistics.refusals == 0, "all were renewed before their end") }
    }

    @Test(arguments: [1, 50])
    func `CO-19 with tokens that end after twenty uses all of two hundred calls succeed`(atATime width: Int)
        async throws
    {
        let server = UsedUpServer(uses: 20)
        let runner = OAuthDependentRunner<String, String>(
            repository: World().repository,
            refreshAccess: { try server.refreshed($0) },
            signIn: { OAuthSignIn(refresh: "r0") }
        )
        var count = 0
        for _ in 0..<(200 / width) {
            count += try await withThrowingTaskGroup { group in
                for _ in 0..<width {
                    group.addTask { try await runner.run { server.accepts($0) ? .output(1) : .badDependency } }
                }
                return try await group.reduce(0, +)
            }
        }
        #expect(count == 200)
        #expect(server.state.withLock { $0.refreshes } == 10)
        #expect(server.state.withLock { $0.reuses } == 0)
    }

    @Test func `CO-19 while renewals fail the old token is used until its end`() async throws {
        let oauth = OAuthWorld(Self.options(.seconds(60)))
        let runner = self.runner(oauth)
        #expect(try await oauth.call(runner) == "alice")
        oauth.server.failNextRefreshes(1_000, with: .unavailable)
        for _ in 0..<59 {
            #expect(try await oauth.call(runner) == "alice")
            oauth.world.clock.advance(by: .seconds(1))
        }
        oauth.world.clock.advance(by: .seconds(1))
        await #expect(throws: FakeOAuthServer.Failure.unavailable) { try await oauth.call(runner) }
    }

    @Test func `CO-19 a call waits for a hanging early renewal only while the old token stays usable`()
        async throws
    {
        let oauth = OAuthWorld(Self.options(.seconds(60)))
        let runner = self.runner(oauth)
        #expect(try await oauth.call(runner) == "alice")
        oauth.world.clock.advance(by: .seconds(40))
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass(ignoringCancellation: true) } }
        let call = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        await oauth.world.clock.waitForSleepers(3)
        oauth.world.clock.advance(by: .seconds(10))
        #expect(try await call.value == "alice")
        gate.openForGood(returning: ())
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.refreshRequests == 1)
    }

    @Test(arguments: [-600, -90, 90, 600])
    func `CO-19 calls succeed although the clock changes by minutes while the process runs`(seconds: Int) async throws {
        let oauth = OAuthWorld(Self.options(.seconds(300)))
        let runner = self.runner(oauth)
        #expect(try await oauth.call(runner) == "alice")
        let before = oauth.statistics.refreshRequests
        oauth.world.wallShift.withLock { $0 = .seconds(seconds) }
        for _ in 0..<26 {
            #expect(try await oauth.call(runner) == "alice")
            oauth.world.clock.advance(by: .seconds(10))
        }
        #expect(oauth.statistics.refusals == 0)
        #expect(oauth.statistics.refreshRequests == before, "the life of a token is measured, not read from a clock")
    }

    @Test(arguments: [-600, 600], [true, false])
    func `CO-19 calls succeed although the clock changes by minutes between two launches`(
        seconds: Int,
        isOnline: Bool
    ) async throws {
        let oauth = OAuthWorld(Self.options(.seconds(300)))
        #expect(try await oauth.call(self.runner(oauth)) == "alice")
        let next = oauth.relaunched(clock: oauth.world.clock)
        next.world.wallShift.withLock { $0 = .seconds(seconds) }
        if !isOnline { next.server.failNextRefreshes(1_000, with: .unavailable) }
        let runner = self.runner(next)
        for _ in 0..<29 {
            #expect(try await next.call(runner) == "alice")
            next.world.clock.advance(by: .seconds(10))
        }
        #expect(next.statistics.signIns == 1)
    }

    private struct Pass: ExpiringDependency, Codable {
        var number: Int
        var expiry: Date?
    }

    @Test func `CO-19 an access token that was set is not used after its end`() async throws {
        let world = World()
        let runner = OAuthDependentRunner<Pass, String>(
            repository: world.repository,
            refreshAccess: { _ in OAuthRenewal(access: Pass(number: 2, expiry: .distantFuture)) },
            signIn: { throw FetchFailed() }
        )
        try await runner.set(access: Pass(number: 1, expiry: World.start.addingTimeInterval(60)), refresh: "r")

        #expect(try await runner.run { .output($0.number) } == 1)
        try await runner.set(access: Pass(number: 1, expiry: World.start.addingTimeInterval(60)), refresh: "s")
        world.clock.advance(by: .seconds(300))
        #expect(try await runner.run { .output($0.number) } == 2)
    }

    @Test func `CO-19 an access token that had ended when set is renewed before its first use`() async throws {
        let fails = Locked(false)
        let runner = OAuthDependentRunner<Pass, String>(
            repository: World().repository,
            refreshAccess: { _ in
                if fails.withLock({ $0 }) { throw FetchFailed() }
                return OAuthRenewal(access: Pass(number: 2, expiry: .distantFuture))
            },
            signIn: { throw FetchFailed() }
        )
        let ended = Pass(number: 1, expiry: World.start.addingTimeInterval(-60))
        try await runner.set(access: ended, refresh: "r")
        #expect(try await runner.run { .output($0.number) } == 2)

        // The wall clock may be wrong: the token is used if the renewal fails.
        fails.withLock { $0 = true }
        try await runner.set(access: ended, refresh: "s")
        #expect(try await runner.run { .output($0.number) } == 1)
    }

    private struct ProfileService: OAuthService {
        var refresh = "s"
        var gate: Gate<Void>?

        func authorize() async throws -> OAuthSignIn<String, String> { OAuthSignIn(access: "a", refresh: "r") }

        func editProfile() async throws -> OAuthSignIn<String, String> {
            try await self.gate?.pass()
            return OAuthSignIn(access: "b", refresh: self.refresh, accessLifetime: .seconds(60))
        }

        func refresh(_ token: String) async throws -> OAuthRenewal<String, String> {
            OAuthRenewal(access: "of \(token)")
        }

        func logout() async throws {}
    }

    @Test(arguments: ["r", "s"])
    func `CO-19 an access token of an edited profile is not used after its lifetime`(refresh: String) async throws {
        let world = World()
        let account = OAuthAccount(ProfileService(refresh: refresh), repository: world.repository)
        try await account.authorize()
        try await account.editProfile()

        #expect(try await account.runner.run { .output($0) } == "b")
        world.clock.advance(by: .seconds(60))
        #expect(try await account.runner.run { .output($0) } == "of \(refresh)")
    }

    @Test func `D05 the tokens of an edited profile do not undo a sign-out during the edit`() async throws {
        let gate = Gate<Void>()
        let account = OAuthAccount(ProfileService(gate: gate), repository: World().repository)
        try await account.authorize()
        let edit = Task { try await account.editProfile() }
        await gate.waitForCall()
        try await account.logout()
        gate.open()

        let error = await #expect(throws: RunnerError.self) { try await edit.value }

        #expect(error?.code == .signedOut)
        #expect(await account.status == .signedOut)
    }

    @Test func `CO-19 a preset value that seems expired is used if its renewal fails`() async throws {
        let fails = Locked(true)
        let pass = Pass(number: 1, expiry: World.start.addingTimeInterval(-60))
        let wall: @Sendable () -> Date = { World.start }
        let clock = VirtualClock()
        let runner = DependentRunner(pass, clock: clock, wallTime: wall) { _ in
            if fails.withLock({ $0 }) { throw FetchFailed() }
            return .updatedDependency(Pass(number: 2, expiry: .distantFuture))
        }
        #expect(try await runner.run { .output($0.number) } == 1)
        fails.withLock { $0 = false }
        clock.advance(by: .seconds(1))
        #expect(try await runner.run { .output($0.number) } == 2)
    }
}
