import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Tokens that are set while other tokens are in use.
@Suite(.standard)
struct TokenReplacementTests {
    private let executor = OrderedExecutor()
    private let tokens = UnreliableTokenStore()
    private let oauth: OAuthWorld
    /// Holds the replies to refreshes, from the first call after ``holdRefreshes()``.
    private let gate = Gate<Void>()

    init() {
        self.oauth = OAuthWorld(tokens: self.tokens, spawn: TaskLauncher(executor: self.executor))
    }

    private func holdRefreshes() {
        self.oauth.beforeRefreshReply.withLock { [gate] in $0 = { try await gate.pass() } }
    }

    /// A runner in a session of Alice with an expired access token.
    private func expiredRunner() async throws -> OAuthDependentRunner<String, String> {
        let runner = self.oauth.runner()
        _ = try await self.oauth.call(runner)
        self.oauth.server.expireAllAccessTokens()
        return runner
    }

    @Test func `B03 after a refresh token was set no call gets a token of the previous refresh token`() async throws {
        let runner = try await self.expiredRunner()
        let bob = try await self.oauth.server.signIn(user: "bob", password: "b")
        self.holdRefreshes()
        let waiting = Task { try await self.oauth.call(runner) }
        await self.gate.waitForCall(1)

        try await runner.set(refresh: bob.refresh)
        let after = Task { try await self.oauth.call(runner) }
        await self.gate.waitForCall(2)
        self.gate.open(1)
        self.executor.settle()
        self.gate.openForGood(returning: ())

        #expect(try await waiting.value == "bob", "who waits has it made with the new refresh token")
        #expect(try await after.value == "bob")
    }

    @Test func `B03 after a refresh token was set no call gets a failure of the previous token`() async throws {
        let runner = try await self.expiredRunner()
        let bob = try await self.oauth.server.signIn(user: "bob", password: "b")
        self.holdRefreshes()
        let waiting = Task { try await self.oauth.call(runner) }
        await self.gate.waitForCall(1)

        try await runner.set(refresh: bob.refresh)
        let after = Task { try await self.oauth.call(runner) }
        await self.gate.waitForCall(2)
        self.gate.fail(1, with: offline)
        self.executor.settle()
        self.gate.openForGood(returning: ())

        #expect(try await waiting.value == "bob")
        #expect(try await after.value == "bob")
    }

    @Test func `B06 a set access token is not replaced by the result of an earlier refresh`() async throws {
        let runner = try await self.expiredRunner()
        let bob = try await self.oauth.server.signIn(user: "bob", password: "b")
        self.holdRefreshes()
        let call = Task {
            try await runner.run { access -> RunResult<String> in
                self.oauth.server.authorize(access) == "bob" ? .output(access) : .badDependency
            }
        }
        await self.gate.waitForCall(1)

        runner.set(access: bob.access)
        #expect(try await call.value == bob.access)
        self.gate.openForGood(returning: ())
        self.executor.settle()

        #expect(try await self.oauth.call(runner) == "bob")
    }

    @Test func `B11 setting the refresh token that is in use does not lose its successor`() async throws {
        let runner = self.oauth.runner()
        let alice = try await self.oauth.server.signIn(user: "alice", password: "a")
        try await runner.set(refresh: alice.refresh)
        self.holdRefreshes()
        let call = Task { try await self.oauth.call(runner) }
        await self.gate.waitForCall(1)  // the server has rotated

        try await runner.set(refresh: alice.refresh)
        self.gate.openForGood(returning: ())

        #expect(try await call.value == "alice")
        self.oauth.server.expireAllAccessTokens()
        #expect(try await self.oauth.call(runner) == "alice")
        #expect(self.oauth.statistics.reusesDetected == 0)
    }

    @Test func `B11 a sign-out during a call of set ends the call`() async throws {
        let store = UnreliableStore()
        let gate = Gate<Void>()
        let runner = OAuthDependentRunner<String, String>(
            store: UnreliableTokenStore(),
            repository: MuxRepository(store: store),
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(refresh: "new") }
        )
        #expect(await runner.status != .signedIn)
        store.beforeEpoch.withLock { $0 = { try await gate.pass() } }
        let setting = Task { try await runner.set(refresh: "late") }
        await gate.waitForCall(1)
        store.beforeEpoch.withLock { $0 = {} }
        await runner.signOut()
        gate.openForGood(returning: ())

        let error = await #expect(throws: RunnerError.self) { try await setting.value }
        #expect(error?.code == .signedOut)
        #expect(try await runner.run { $0 } == "new")
    }

    @Test func `B11 a late end of saving a set token does not undo a renewal`() async throws {
        let runner = self.oauth.runner()
        let alice = try await self.oauth.server.signIn(user: "alice", password: "a")
        self.tokens.afterSave.withLock { [gate] in $0 = { try? await gate.pass() } }
        let setting = Task { try await runner.set(refresh: alice.refresh) }
        await self.gate.waitForCall(1)

        let call = Task(executorPreference: self.executor) { try await self.oauth.call(runner) }
        self.executor.settle()
        #expect(self.oauth.statistics.refreshes == 0, "that a token is about to be sent has to be stored first")
        self.gate.openForGood(returning: ())

        try await setting.value
        #expect(try await call.value == "alice")
        let next = self.oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
        #expect(next.refreshes.withLock { $0 } == 0)
    }

    @Test func `B05 a refresh that waits for the store does not use a token set in the meantime`() async throws {
        let runner = try await self.expiredRunner()
        let alice = try await self.oauth.server.signIn(user: "alice", password: "a")
        let bob = try await self.oauth.server.signIn(user: "bob", password: "b")
        let saves = Locked(0)
        self.tokens.afterSave.withLock { [gate] in $0 = { if saves.next() == 1 { try? await gate.pass() } } }
        let setting = Task { try await runner.set(refresh: alice.refresh) }
        await self.gate.waitForCall(1)
        let call = Task(executorPreference: self.executor) { try await self.oauth.call(runner) }
        self.executor.settle()

        // The refreshes of both tokens wait until the first token is stored.
        let other = Task(executorPreference: self.executor) { try await runner.set(refresh: bob.refresh) }
        self.executor.settle()
        self.gate.open()

        try await setting.value
        try await other.value
        #expect(try await call.value == "bob")
        self.oauth.server.expireAllAccessTokens()
        #expect(try await self.oauth.call(runner) == "bob")
        #expect(self.oauth.statistics.reusesDetected == 0)
        #expect(self.oauth.signIns.withLock { $0 } == 1)
    }

    @Test func `B05 setting a refresh token cancels a running sign-in`() async throws {
        let signIn = ScriptedFetch<OAuthSignIn<String, String>>(
            thereafter: .computed { [gate] _ in
                try await gate.pass()
                return OAuthSignIn(access: "access", refresh: "refresh")
            }
        )
        let runner = OAuthDependentRunner<String, String>(
            repository: self.oauth.world.repository,
            refreshAccess: { _ in throw BadDependency() },
            signIn: { try await signIn() }
        )
        let call = Task(executorPreference: self.executor) { try await runner.run { .output($0) } }
        await self.gate.waitForCall(1)

        try await runner.set(refresh: "dead")
        self.executor.settle()

        #expect(signIn.endedCount == 1, "somebody is asked twice at once")
        #expect(signIn.runningCount == 1)
        self.gate.openForGood(returning: ())
        #expect(try await call.value == "access")
    }

    @Test(arguments: [false, true])
    func `B11 an access token that was set during a sign-in is renewed only after its refusal`(
        expires: Bool
    ) async throws {
        try await SeededExecutor.explore(expires ? 100 : 25) { schedule in
            let oauth = OAuthWorld(clock: schedule.clock)
            let gate = Gate<Void>()
            oauth.beforeSignInReply.withLock { $0 = { try await gate.pass(ignoringCancellation: true) } }
            let runner = oauth.runner(signInGivesAccess: true)
            try await withThrowingTaskGroup { group in
                for _ in 0..<schedule.draw(1..<4) {
                    group.addTask { try expect(try await oauth.call(runner) == "alice", "somebody else's token") }
                }
                await gate.waitForCall(1)
                let tokens = try await oauth.server.signIn(user: "alice", password: "a")
                try await runner.set(access: tokens.access, refresh: tokens.refresh)
                gate.open()
                if expires {
                    for _ in 0..<schedule.draw(0..<12) { await schedule.pause() }
                    oauth.server.expireAllAccessTokens()
                }
                try await group.waitForAll()
            }
            let refreshes = oauth.refreshes.withLock { $0 }
            try expect(refreshes <= (expires ? 1 : 0), "\(refreshes) refreshes")
            try expect(oauth.statistics.signIns == 2, "\(oauth.statistics.signIns) sign-ins")
        }
    }

    @Test func `B03 two pairs of tokens that are set concurrently are not mixed`() async throws {
        for _ in 0..<repetitions(500) {
            let runner = Self.echoingRunner()
            await withTaskGroup { group in
                for name in ["bob", "carol"] {
                    group.addTask { try? await runner.set(access: name, refresh: name) }
                }
            }
            try await Self.expectOnePair(runner)
        }
    }

    @Test func `D06 a pair of tokens that a sign-out overtakes is dropped completely`() async throws {
        for _ in 0..<repetitions(500) {
            let runner = Self.echoingRunner()
            let set = Task { try await runner.set(access: "bob", refresh: "bob") }
            await runner.signOut()
            _ = await set.result
            // Either both tokens are present, because the sign-out came first, or both are absent.
            try await Self.expectOnePair(runner)
        }
    }

    /// A runner whose access tokens equal the refresh tokens of their refreshes.
    private static func echoingRunner() -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            repository: World().repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(access: "alice", refresh: "alice") }
        )
    }

    /// Renews the access token to check that the access token belongs to the refresh token.
    private static func expectOnePair(
        _ runner: OAuthDependentRunner<String, String>,
        _ location: SourceLocation = #_sourceLocation
    ) async throws {
        let first = try await runner.run { .output($0) }
        var tries = 0
        let renewed = try await runner.run { access -> RunResult<String> in
            tries += 1
            return tries == 1 ? .badDependency : .output(access)
        }
        #expect(renewed == first, sourceLocation: location)
    }
}
