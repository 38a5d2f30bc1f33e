import Foundation
import MuxCompatibility
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The session status without a request or a sign-in, and refused refresh tokens.
@Suite(.standard, .ownThreads)
struct SessionStatusTests {
    private let scratch = Scratch(isInspected: false)

    /// A process of an app, with tokens in a file that other processes share.
    private func process(of oauth: OAuthWorld, caches: any MuxStore = MemoryStore()) -> OAuthWorld {
        let world = World(store: caches, clock: oauth.world.clock)
        return OAuthWorld(
            world: world,
            server: oauth.server,
            tokens: ProtectedFileTokenStore(named: "session", directory: self.scratch.folder)
        )
    }

    private func revoke(_ oauth: OAuthWorld) {
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()
    }

    private func refuseSignIns(_ oauth: OAuthWorld) {
        oauth.beforeSignInReply.withLock { $0 = { throw FetchFailed() } }
    }

    // MARK: - The status

    @Test func `AC-06 the status needs neither a request nor a sign-in, also after relaunches`() async throws {
        var oauth = OAuthWorld()
        var runner = oauth.runner()
        #expect(await runner.status == .signedOut)
        #expect(oauth.signIns.withLock { $0 } == 0)

        _ = try await oauth.call(runner)
        #expect(await runner.status == .signedIn)
        oauth.server.expireAllAccessTokens()
        let requests = oauth.statistics
        oauth = oauth.relaunched()
        runner = oauth.runner()
        #expect(await runner.status == .signedIn, "an access token that has expired can be renewed")
        #expect(oauth.statistics == requests && oauth.signIns.withLock { $0 } == 0)

        await runner.signOut()
        #expect(await runner.status == .signedOut)
        oauth = oauth.relaunched()
        runner = oauth.runner()
        #expect(await runner.status == .signedOut)
        #expect(oauth.statistics == requests && oauth.signIns.withLock { $0 } == 0)
    }

    @Test func `AC-06 unreadable tokens do not count as a sign-out`() async throws {
        let tokens = UnreliableTokenStore()
        var oauth = OAuthWorld(tokens: tokens)
        _ = try await oauth.call(oauth.runner())
        oauth = oauth.relaunched()
        let runner = oauth.runner()

        tokens.failsLoads.withLock { $0 = true }
        #expect(await runner.status == .unknown)
        tokens.failsLoads.withLock { $0 = false }
        #expect(await runner.status == .signedIn)

        _ = try await oauth.call(runner)
        tokens.failsLoads.withLock { $0 = true }
        #expect(await runner.status == .signedIn, "they are in memory")
        #expect(oauth.signIns.withLock { $0 } == 0)
    }

    @Test func `AC-06 tokens found before a sign-out are no session after the sign-out`() async throws {
        let tokens = UnreliableTokenStore()
        var oauth = OAuthWorld(tokens: tokens)
        _ = try await oauth.call(oauth.runner())
        oauth = oauth.relaunched()
        let runner = oauth.runner()
        tokens.afterLoad.withLock { afterLoad in
            afterLoad = {
                tokens.afterLoad.withLock { $0 = {} }
                await runner.signOut()
            }
        }

        #expect(await runner.status == .signedOut)
        #expect(await tokens.memory.load() == nil)
    }

    @Test func `AC-06 damaged tokens count as absent`() async throws {
        let tokens = UnreliableTokenStore()
        await tokens.memory.save(Data("{}x".utf8))

        #expect(await OAuthWorld(tokens: tokens).runner().status == .signedOut)
    }

    @Test func `AC-06 an access token without a refresh token is a session until it is refused`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let tokens = try await oauth.server.signIn(user: "alice", password: "a")
        runner.set(access: tokens.access)
        #expect(await runner.status == .signedIn)

        self.refuseSignIns(oauth)
        oauth.server.expireAllAccessTokens()
        await #expect(throws: RunnerError.self) { try await oauth.call(runner) }

        #expect(await runner.status == .signedOut)
    }

    @Test func `AC-06 a sign-in gets its reason`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        self.revoke(oauth)
        _ = try await oauth.call(runner)
        await runner.signOut()
        _ = try await oauth.call(runner)

        #expect(oauth.reasons.withLock { $0 } == [.noTokens, .tokensRefused, .noTokens])
    }

    @Test func `AC-06 an account has its runner's status, and its service gets the sign-in reason`() async throws {
        struct Service: OAuthService {
            let reasons: Locked<[OAuthStatus.SignInReason]>

            func authorize() async throws -> OAuthSignIn<String, String> { OAuthSignIn(access: "a", refresh: "r") }
            func authorize(because reason: OAuthStatus.SignInReason) async throws -> OAuthSignIn<String, String> {
                self.reasons.withLock { $0.append(reason) }
                return try await self.authorize()
            }
            func editProfile() async throws -> OAuthSignIn<String, String> { try await self.authorize() }
            func refresh(_ token: String) async throws -> OAuthRenewal<String, String> { throw BadDependency() }
            func logout() async throws {}
        }
        let reasons = Locked<[OAuthStatus.SignInReason]>([])
        let account = OAuthAccount(Service(reasons: reasons), repository: World().repository)
        var statuses = account.statuses.makeAsyncIterator()
        #expect(await statuses.next() == .signedOut)

        try await account.authorize()
        #expect(await account.status == .signedIn)
        #expect(await statuses.next() == .signedIn)
        try await account.logout()
        #expect(await account.status == .signedOut)
        #expect(await statuses.next() == .signedOut)
        #expect(reasons.withLock { $0 } == [.noTokens])
    }

    // MARK: - Changes

    @Test func `AC-06 changes of the status are reported in order, and end with the runner`() async throws {
        let oauth = OAuthWorld()
        var runner: OAuthDependentRunner<String, String>? = oauth.runner()
        let statuses = try #require(runner).statuses
        var iterator = statuses.makeAsyncIterator()
        var seen = [await iterator.next()]

        _ = try await oauth.call(#require(runner))
        seen.append(await iterator.next())
        self.revoke(oauth)
        self.refuseSignIns(oauth)
        await #expect(throws: RunnerError.self) { try await oauth.call(#require(runner)) }
        seen.append(await iterator.next())
        oauth.beforeSignInReply.withLock { $0 = {} }
        _ = try await oauth.call(#require(runner))
        seen.append(await iterator.next())
        await oauth.world.repository.clearAll()
        seen.append(await iterator.next())
        runner = nil
        seen.append(await iterator.next())

        #expect(seen == [.signedOut, .signedIn, .signedOut, .signedIn, .signedOut, nil])
        var late = statuses.makeAsyncIterator()
        #expect(await late.next() == nil)
    }

    @Test func `AC-06 an idle observer of the status ends with its task or with the runner`() async throws {
        let oauth = self.process(of: OAuthWorld())
        var runner: OAuthDependentRunner<String, String>? = oauth.runner()
        let statuses = try #require(runner).statuses
        let (began, beginnings) = AsyncStream.makeStream(of: OAuthStatus.self)
        let consumers = (0..<2).map { _ in
            Task {
                for await status in statuses { beginnings.yield(status) }
            }
        }
        var iterator = began.makeAsyncIterator()
        for _ in consumers { #expect(await iterator.next() == .signedOut) }

        consumers[0].cancel()
        await consumers[0].value
        runner = nil
        await consumers[1].value
    }

    // MARK: - Several processes

    @Test func `AC-06 a sign-in and a sign-out of another process are reported at once`() async throws {
        let world = OAuthWorld()
        let (app, widget) = (self.process(of: world), self.process(of: world))
        let (appRunner, widgetRunner) = (app.runner(), widget.runner())
        var statuses = widgetRunner.statuses.makeAsyncIterator()
        #expect(await statuses.next() == .signedOut)

        _ = try await app.call(appRunner)
        #expect(await statuses.next() == .signedIn)
        _ = try await widget.call(widgetRunner)
        await appRunner.signOut()
        #expect(await statuses.next() == .signedOut, "though it has tokens in memory")
        #expect(await widgetRunner.status == .signedOut)

        #expect(widget.signIns.withLock { $0 } == 0 && widget.refreshes.withLock { $0 } == 0)
        // The session has ended in this process, too: its tokens are not used any more.
        self.refuseSignIns(widget)
        await #expect(throws: RunnerError.self) { try await widget.call(widgetRunner) }
    }

    @Test func `AC-06 a sign-out of a process without tokens ends the session of other processes`() async throws {
        let caches = MemoryStore()
        let world = OAuthWorld()
        let app = self.process(of: world, caches: caches)
        let runner = app.runner()
        _ = try await app.call(runner)

        await MuxRepository(store: caches).clearAll()

        #expect(await runner.status == .signedOut)
        #expect(app.signIns.withLock { $0 } == 1)
    }

    @Test func `AC-06 a sign-out during a look-up of the status does not end the next session`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = OAuthDependentRunner<String, String>(
            store: tokens,
            lease: FileLease(named: "lease", directory: self.scratch.folder),
            repository: oauth.world.repository,
            refreshAccess: { _ in throw BadDependency() },
            signIn: { OAuthSignIn(access: "a", refresh: "r") }
        )
        _ = try await runner.run { .output($0) }
        let repository = oauth.world.repository
        let isFirst = Locked(true)
        tokens.beforeLoad.withLock { action in
            action = {
                guard
                    isFirst.withLock({ isFirst in
                        defer { isFirst = false }
                        return isFirst
                    })
                else { return }
                await repository.clearAll()
                try? await runner.set(access: "a2", refresh: "r2")
            }
        }

        #expect(await runner.status == .signedIn)
        #expect(try await runner.run { .output($0) } == "a2")
    }

    // MARK: - Refused tokens

    @Test func `WR-05 a refused refresh token is sent once, also after relaunches`() async throws {
        var oauth = OAuthWorld()
        var runner = oauth.runner()
        _ = try await oauth.call(runner)
        self.revoke(oauth)
        let before = oauth.statistics.refreshRequests
        for _ in 0..<3 {
            self.refuseSignIns(oauth)
            for _ in 0..<3 { await #expect(throws: RunnerError.self) { try await oauth.call(runner) } }
            #expect(await runner.status == .signedOut)
            #expect(oauth.reasons.withLock { $0 }.suffix(3) == [.tokensRefused, .tokensRefused, .tokensRefused])
            oauth = oauth.relaunched()
            runner = oauth.runner()
            #expect(await runner.status == .signedOut)
        }
        #expect(oauth.statistics.refreshRequests - before == 1)
        let stored = String(decoding: try #require(try await oauth.tokens.load()), as: UTF8.self)
        #expect(!stored.contains("refresh-") && !stored.contains("access-"), "what is void is not kept")

        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 1)
        oauth = oauth.relaunched()
        #expect(await oauth.runner().status == .signedIn)
    }

    @Test func `WR-05 a refresh token that was refused in one process is not sent by another process`() async throws {
        let world = OAuthWorld()
        let (app, widget) = (self.process(of: world), self.process(of: world))
        let (appRunner, widgetRunner) = (app.runner(), widget.runner())
        _ = try await app.call(appRunner)
        _ = try await widget.call(widgetRunner)
        self.revoke(app)
        self.refuseSignIns(app)
        await #expect(throws: RunnerError.self) { try await app.call(appRunner) }
        #expect(app.refreshes.withLock { $0 } == 2, "one was refused")

        #expect(await widgetRunner.status == .signedOut)
        #expect(try await widget.call(widgetRunner) == "alice")

        #expect(widget.refreshes.withLock { $0 } == 1, "with the refresh token of its own sign-in")
        #expect(widget.reasons.withLock { $0 } == [.tokensRefused])
        // The other process adopts the tokens of that sign-in.
        #expect(try await app.call(appRunner) == "alice")
        #expect(app.refreshes.withLock { $0 } == 2 && app.statistics.reusesDetected == 0)
    }

    @Test func `WR-05 a sign-out after a refusal is reported to the other processes`() async throws {
        let world = OAuthWorld()
        let (app, widget) = (self.process(of: world), self.process(of: world))
        let (appRunner, widgetRunner) = (app.runner(), widget.runner())
        _ = try await app.call(appRunner)
        _ = try await widget.call(widgetRunner)
        self.revoke(app)
        self.refuseSignIns(app)
        await #expect(throws: RunnerError.self) { try await app.call(appRunner) }
        await appRunner.signOut()

        let error = await #expect(throws: RunnerError.self) { try await widget.call(widgetRunner) }

        #expect(error?.code == .signedOut)
        #expect(widget.refreshes.withLock { $0 } == 0)
    }

    @Test func `WR-05 a refused refresh token that the app sets again is tried again`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let stored = String(decoding: try #require(try await oauth.tokens.load()), as: UTF8.self)
        let refresh = String(try #require(stored.split(separator: "\"").first { $0.hasPrefix("refresh-") }))
        self.revoke(oauth)
        self.refuseSignIns(oauth)
        await #expect(throws: RunnerError.self) { try await oauth.call(runner) }
        let before = oauth.statistics.refreshRequests

        try await runner.set(refresh: refresh)
        #expect(await runner.status == .signedIn)
        await #expect(throws: RunnerError.self) { try await oauth.call(runner) }

        #expect(oauth.statistics.refreshRequests - before == 1)
        #expect(await runner.status == .signedOut)
    }

    @Test func `WR-05 a refusal that cannot be stored is remembered by this process`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        self.revoke(oauth)
        self.refuseSignIns(oauth)
        let before = oauth.statistics.refreshRequests
        // The intent of the exchange is stored, and the disk is full at the refusal.
        let saves = Locked(0)
        tokens.afterSave.withLock { action in
            action = {
                if saves.withLock({
                    $0 += 1
                    return $0
                }) == 1 {
                    tokens.failsSaves.withLock { $0 = true }
                }
            }
        }

        for _ in 0..<4 { await #expect(throws: RunnerError.self) { try await oauth.call(runner) } }

        #expect(oauth.statistics.refreshRequests - before == 1)
        #expect(await runner.status == .signedOut)
    }

    @Test func `WR-05 an empty refresh token of a refresh keeps the previous refresh token`() async throws {
        let sent = Locked<[String]>([])
        let runner = OAuthDependentRunner<String, String>(
            repository: World().repository,
            refreshAccess: { refresh in
                let count = sent.withLock { sent in
                    sent.append(refresh)
                    return sent.count
                }
                return OAuthRenewal(access: "a\(count)", refresh: "")
            },
            signIn: { OAuthSignIn(access: "a0", refresh: "r0") }
        )
        for bad in ["a0", "a1"] { _ = try await runner.run { $0 == bad ? .badDependency : .output(()) } }

        #expect(sent.withLock { $0 } == ["r0", "r0"])
    }
}
