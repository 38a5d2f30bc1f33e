import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct OAuthTests {
    @Test func `B01 a cold call makes one sign-in and one refresh before its task`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.signIns == 1)
        #expect(oauth.statistics.refreshes == 1)
    }

    @Test func `B02 S7 a refused refresh token causes one sign-in and one refresh for fifty callers`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()
        let before = oauth.statistics

        let users = try await withThrowingTaskGroup { group in
            for _ in 0..<50 { group.addTask { try await oauth.call(runner) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }

        #expect(users == Array(repeating: "alice", count: 50))
        #expect(oauth.statistics.signIns - before.signIns == 1)
        #expect(oauth.statistics.refreshes - before.refreshes == 1)
        #expect(oauth.statistics.refreshRequests - before.refreshRequests == 2, "the dead token was tried once")
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `B03 the access token is made again when the refresh token is replaced`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let bob = try await oauth.server.signIn(user: "bob", password: "b")

        try await runner.set(refresh: bob.refresh)

        #expect(try await oauth.call(runner) == "bob")
        #expect(oauth.signIns.withLock { $0 } == 1)
    }

    @Test func `B04 a sign-in that gives an access token needs no refresh`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner(signInGivesAccess: true)
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.signIns == 1)
        #expect(oauth.refreshes.withLock { $0 } == 0)
    }

    @Test func `B05 while the refresh token changes no call uses the old refresh token`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()
        let before = oauth.statistics
        let gate = Gate<Void>()
        oauth.beforeSignInReply.withLock { $0 = { try await gate.pass() } }

        // One caller's refresh is refused and leads to a sign-in. Other callers arrive during the sign-in.
        let callers = (0..<20).map { _ in Task { try await oauth.call(runner) } }
        await gate.waitForCall(1)
        let late = (0..<20).map { _ in Task { try await oauth.call(runner) } }
        gate.openForGood(returning: ())
        for caller in callers + late { #expect(try await caller.value == "alice") }

        #expect(oauth.statistics.signIns == 2, "two in all")
        #expect(oauth.statistics.refreshRequests - before.refreshRequests == 2, "the dead token was used once")
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `B05 a refresh token is used by one refresh at a time`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner(policy: .init(maximumUpdatesPerCall: 2))
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let starts = oauth.world.events.count(of: .updateStarted)
        let caller = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)

        // The caller gets and refuses this token, and requests a refresh during the first refresh.
        runner.set(access: "bad")
        await oauth.world.events.wait(for: .updateStarted, count: starts + 2)
        gate.openForGood(returning: ())

        #expect(try await caller.value == "alice")
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.signIns == 1)
    }

    @Test func `B05 a refresh that had to wait uses the refresh token that was set in the meantime`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner(policy: .init(maximumUpdatesPerCall: 2))
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let starts = oauth.world.events.count(of: .updateStarted)
        let caller = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        runner.set(access: "bad")
        await oauth.world.events.wait(for: .updateStarted, count: starts + 2)

        let bob = try await oauth.server.signIn(user: "bob", password: "b")
        try await runner.set(refresh: bob.refresh)
        gate.openForGood(returning: ())

        #expect(try await caller.value == "bob")
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.signIns.withLock { $0 } == 1)
    }

    @Test func `B06 a preset refresh token needs no sign-in`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let tokens = try await oauth.server.signIn(user: "bob", password: "b")
        try await runner.set(refresh: tokens.refresh)
        #expect(try await oauth.call(runner) == "bob")
        #expect(oauth.signIns.withLock { $0 } == 0)
        #expect(oauth.refreshes.withLock { $0 } == 1)
    }

    @Test func `B06 a preset access token needs neither a sign-in nor a refresh until its refusal`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let tokens = try await oauth.server.signIn(user: "bob", password: "b")
        runner.set(access: tokens.access)
        #expect(try await oauth.call(runner) == "bob")
        #expect(oauth.signIns.withLock { $0 } == 0)
        #expect(oauth.refreshes.withLock { $0 } == 0)
        oauth.server.expireAllAccessTokens()
        #expect(try await oauth.call(runner) == "alice", "now somebody has to sign in")
        #expect(oauth.signIns.withLock { $0 } == 1)
    }

    @Test func `B06 a preset of both layers needs neither a sign-in nor a refresh`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let tokens = try await oauth.server.signIn(user: "bob", password: "b")
        try await runner.set(access: tokens.access, refresh: tokens.refresh)
        #expect(try await oauth.call(runner) == "bob")
        #expect(oauth.signIns.withLock { $0 } == 0)
        #expect(oauth.refreshes.withLock { $0 } == 0)
    }

    @Test func `B06 an access token that is set after a sign-in is used`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        #expect(try await oauth.call(runner) == "alice")
        let tokens = try await oauth.server.signIn(user: "bob", password: "b")
        runner.set(access: tokens.access)
        #expect(try await oauth.call(runner) == "bob")
        #expect(oauth.refreshes.withLock { $0 } == 1)
    }

    @Test func `B08 two hundred calls over ten virtual seconds all succeed`() async throws {
        var options = FakeOAuthServer.Configuration()
        options.accessLifetime = .seconds(1)
        options.refreshLifetime = .seconds(4)
        let oauth = OAuthWorld(options)
        let runner = oauth.runner(policy: .init(maximumUpdatesPerCall: 1, maximumUpdatesPerWindow: nil))
        var successes = 0
        for step in 0..<100 {
            async let first = oauth.call(runner)
            async let second = oauth.call(runner)
            if try await (first, second) == ("alice", "alice") { successes += 2 }
            // A rare long pause also expires the refresh token.
            oauth.world.clock.advance(by: step.isMultiple(of: 33) ? .seconds(5) : .milliseconds(60))
        }
        #expect(successes == 200)
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.signIns > 1)
        #expect(oauth.statistics.refreshes > 5)
    }

    @Test func `C03 an unavailable token server never leads to a sign-in`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.failNextRefreshes(3, with: .unavailable)

        for _ in 0..<3 {
            await #expect(throws: FakeOAuthServer.Failure.unavailable) { try await oauth.call(runner) }
            oauth.world.clock.advance(by: .seconds(2))
        }
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.signIns == 1)
    }

    @Test func `C03 a refused sign-in does not persist`() async throws {
        let attempts = Locked(0)
        let runner = OAuthDependentRunner<String, String>(
            repository: World().repository,
            refreshAccess: { OAuthRenewal(access: "access of \($0)") },
            signIn: {
                // A wrong password, with the error of the HTTP layer.
                if attempts.next() == 1 { throw BadDependency() }
                return OAuthSignIn(refresh: "refresh")
            }
        )
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        guard case .signInFailed? = error else { return #expect(Bool(false), "\(error)") }
        #expect(try await runner.run { .output($0) } == "access of refresh")
    }

    @Test func `C03 all callers get the error of a sign-in as the cause of a sign-in failure`() async throws {
        struct OtherPerson: Error {}
        let gate = Gate<Void>()
        let runner = OAuthDependentRunner<String, String>(
            repository: World().repository,
            refreshAccess: { OAuthRenewal(access: "access of \($0)") },
            signIn: {
                try await gate.pass()
                throw OtherPerson()
            }
        )
        let calls = (0..<3).map { _ in Task { try await runner.run { .output($0) } } }
        await gate.waitForCall()
        gate.openForGood(returning: ())
        for call in calls {
            let error = await #expect(throws: RunnerError.self) { try await call.value }
            guard case .signInFailed(let cause)? = error else { return #expect(Bool(false), "\(error)") }
            #expect(cause is OtherPerson)
        }
    }

    @Test func `C03 an error of another runner inside a sign-in is a sign-in failure`() async throws {
        let other = DependentRunner<Int> { _ in .updatedDependency(1) }
        let runner = OAuthDependentRunner<String, String>(
            repository: World().repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: {
                try await other.run { _ in throw RunnerError.signedOut }
            }
        )
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        guard case .signInFailed(RunnerError.signedOut)? = error else { return #expect(Bool(false), "\(error)") }
    }

    @Test func `CO-26 a failed renewal is reported as failed although the previous token is used`() async throws {
        let tokens = InMemoryTokenStore()
        let events = EventTally()
        let isLater = Locked(false)
        func repository() -> MuxRepository {
            MuxRepository(store: MemoryStore(), observer: events, clock: VirtualClock()) {
                Date(timeIntervalSince1970: isLater.withLock { $0 } ? 2e9 : 1e9)
            }
        }
        let first = OAuthDependentRunner<String, String>(
            store: tokens,
            repository: repository(),
            refreshAccess: { _ in OAuthRenewal(access: "kept", accessLifetime: .seconds(60)) },
            signIn: { OAuthSignIn(refresh: "refresh") }
        )
        #expect(try await first.run { .output($0) } == "kept")
        await events.wait(for: .updated, count: 2)
        #expect(events.count(of: .updateFailed) == 0)
        isLater.withLock { $0 = true }

        let second = OAuthDependentRunner<String, String>(
            store: tokens,
            repository: repository(),
            refreshAccess: { _ in throw URLError(.notConnectedToInternet) },
            signIn: { throw CancellationError() }
        )
        #expect(try await second.run { .output($0) } == "kept")

        // Each update has one event, after its callers continue.
        await events.wait(for: .updateFailed)
        await events.wait(for: .updated, count: 3)
        #expect(events.count(of: .updateFailed) == 1)
        #expect(events.count(of: .updated) == 3, "two of the first launch, and the refresh token from the store")
    }

    @Test func `C08 S6 a server that refuses every token ends the call after one update in each layer`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ in RunResult<Int>.badDependency }
        }
        guard case .tooManyUpdates(1, _, _)? = error else { return #expect(Bool(false), "\(error)") }
        #expect(oauth.signIns.withLock { $0 } == 1)
        #expect(oauth.refreshes.withLock { $0 } == 2)
    }

    @Test func `D03 after the cancellation of all callers the next call uses their refresh`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let caller = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        caller.cancel()
        await #expect(throws: CancellationError.self) { try await caller.value }
        gate.openForGood(returning: ())
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.refreshRequests == 1)
    }

    @Test func `B11 a rotated refresh token is stored before a task gets the access token`() async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let stored = Locked<[String]>([])

        _ = try await runner.run { access in
            // After a crash at this point, the store contains the token of the task.
            stored.withLock { $0.append(String(decoding: (tokens.peek ?? Data()), as: UTF8.self)) }
            #expect(stored.withLock { $0.last?.contains(access) } == true)
            return oauth.server.authorize(access) == nil ? .badDependency : .output(access)
        }
        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `B11 a rotated token that could not be stored causes an error and is not used twice`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        // The intent to send the token can be stored, but the new tokens cannot be stored.
        oauth.beforeRefreshReply.withLock { $0 = { tokens.failsSaves.withLock { $0 = true } } }

        for _ in 0..<3 {
            let error = await #expect(throws: RunnerError.self) { try await oauth.call(runner) }
            guard case .tokensNotStored? = error else { return #expect(Bool(false), "\(error)") }
        }
        let requests = oauth.statistics.refreshRequests
        tokens.failsSaves.withLock { $0 = false }

        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.refreshRequests == requests, "what was there was stored and used")
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.signIns == 1)
    }

    @Test func `D09 a relaunch restores the session without a request`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let tokens = ProtectedFileTokenStore.protectedFile(named: "../session", directory: folder.url)
        let oauth = OAuthWorld(tokens: tokens)
        _ = try await oauth.call(oauth.runner())
        let before = oauth.statistics

        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(oauth.statistics.signIns == before.signIns)
        #expect(oauth.statistics.refreshRequests == before.refreshRequests)

        let files = folder.contents().keys
        #expect(files.contains { $0.hasPrefix("tokens/tokens-") && !$0.hasSuffix(".lock") })
        for file in files {
            let path = folder.url.appending(path: file).path
            let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
            #expect(mode == 0o600)
        }
        let mode =
            try FileManager.default.attributesOfItem(atPath: folder.url.appending(path: "tokens").path)[
                .posixPermissions
            ] as? Int
        #expect(mode == 0o700)
    }

    @Test func `D09 unreadable tokens do not count as absent`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        _ = try await oauth.call(oauth.runner())

        let next = oauth.relaunched()
        let runner = next.runner()
        tokens.failsLoads.withLock { $0 = true }
        let error = await #expect(throws: RunnerError.self) { try await next.call(runner) }
        guard case .tokensUnreadable? = error else { return #expect(Bool(false), "\(error)") }
        tokens.failsLoads.withLock { $0 = false }
        #expect(try await next.call(runner) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
    }

    @Test(arguments: [
        "", "garbage", "{}", #"{"session":-1}"#, #"{"session":0,"refresh":5}"#, "\u{0}",
        // Numbers without a successor.
        #"{"session":18446744073709551615}"#, #"{"session":18446744073709551615,"refresh":"old"}"#,
        #"{"session":0,"refresh":"old","serial":18446744073709551615}"#,
        #"{"session":99999999999999999999999,"refresh":"old"}"#,
        #"{"session":0,"refresh":"old","accessExpiry":1e999}"#,
        String(repeating: "[", count: 100_000),
    ])
    func `D09 an invalid token file leads to a sign-in`(content: String) async throws {
        let tokens = InMemoryTokenStore()
        await tokens.save(Data(content.utf8))
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 1)
        #expect(oauth.world.events.count(of: .storageFailed) == 1, "it is said once")
        #expect(await runner.signOut().isComplete)
        #expect(try await oauth.call(runner) == "alice")
        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
    }

    @Test(arguments: ["1e300", "-1e300", "0", "18446744073709551615"])
    func `D09 a stored token is restored with any value of its end`(date: String) async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let alice = try await oauth.server.signIn(user: "alice", password: "a")
        let record = #"{"session":0,"refresh":"\#(alice.refresh)","access":"\#(alice.access)","accessExpiry":\#(date)}"#
        await tokens.save(Data(record.utf8))
        let runner = oauth.runner()
        #expect(try await oauth.call(runner) == "alice")
        oauth.server.expireAllAccessTokens()
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 0)
    }

    @Test func `D09 a sign-out that an earlier process began is finished before any call succeeds`() async throws {
        let store = InMemoryTokenStore()
        await store.save(Data(#"{"session":5}"#.utf8))
        let oauth = OAuthWorld(tokens: store)
        let runner = oauth.runner()
        var events = runner.events.makeAsyncIterator()
        let name = Multiplexer<String>(cacheKey: "Name", repository: oauth.world.repository) { "Alice" }
        _ = try await name.request()

        let users = try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<20 { group.addTask { try await oauth.call(runner) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }

        #expect(users == Array(repeating: "alice", count: 20), "they signed out of nothing")
        #expect(oauth.statistics.signIns == 1)
        #expect(try await oauth.world.repository.currentEpoch() >= 5)
        #expect(name.cachedValue == nil, "what may be of the ended session is not kept")
        #expect(await events.next() == .updateStarted)
        #expect(await events.next() == .updated(epoch: 1), "nobody is told of a sign-out")
        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 0, "the tokens are of the session that is present")
    }

    @Test func `D09 tokens of a later session than in the emptied caches folder are restored`() async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let alice = try await oauth.server.signIn(user: "alice", password: "a")
        await tokens.save(Data(#"{"session":5,"refresh":"\#(alice.refresh)","access":"\#(alice.access)"}"#.utf8))
        #expect(try await oauth.call(oauth.runner()) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 0)
        #expect(try await oauth.world.repository.currentEpoch() == 5, "and the number with them")
    }

    @Test func `D09 a forced refresh also finishes a sign-out that an earlier process began`() async throws {
        let store = InMemoryTokenStore()
        await store.save(Data(#"{"session":5}"#.utf8))
        let oauth = OAuthWorld(tokens: store)
        let access = try await oauth.runner().renew()
        #expect(oauth.server.authorize(access) == "alice")
    }
}
