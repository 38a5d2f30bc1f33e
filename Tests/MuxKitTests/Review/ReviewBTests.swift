import Dispatch
import Foundation
import MuxKit
import MuxTesting
import Testing

/// A token store that can hold saves.
private struct SlowTokenStore: TokenStore {
    let memory = InMemoryTokenStore()
    let beforeSaveEnds = Guarded<@Sendable () async -> Void>({})

    func load() async throws -> Data? { await self.memory.load() }
    func save(_ data: Data) async throws {
        await self.memory.save(data)
        await self.beforeSaveEnds.withLock { $0 }()
    }
    func delete() async throws { await self.memory.delete() }
}

private struct BlockingObserver: MuxObserver {
    let onEvent: @Sendable (MuxEvent) -> Void
    func observe(_ event: MuxEvent) { self.onEvent(event) }
}

@Suite(.timeLimit(.minutes(1)), .serialized)
struct ReviewBTests {
    @Test func `RB01 a call after set must not get the token of the replaced refresh token`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let bob = try await oauth.server.signIn(user: "bob", password: "b")
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let waiting = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)

        try await runner.set(refresh: bob.refresh)
        let after = Task { try await oauth.call(runner) }
        await oauth.world.events.wait(for: .dependencyAwaited, count: 4)
        gate.openForGood(returning: ())

        #expect(try await waiting.value == "bob", "who waits has it made with the new refresh token")
        #expect(try await after.value == "bob", "set() had returned before this call began")
    }

    @Test func `RB01b a call after set must not get the failure of the replaced refresh token`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let bob = try await oauth.server.signIn(user: "bob", password: "b")
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let waiting = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        try await runner.set(refresh: bob.refresh)
        let after = Task { try await oauth.call(runner) }
        await oauth.world.events.wait(for: .dependencyAwaited, count: 4)
        gate.fail(1, with: offline)
        gate.openForGood(returning: ())
        _ = await waiting.result
        #expect(try await after.value == "bob")
    }

    @Test func `RB02 dropping the runner must not cancel a refresh that may have rotated`() async throws {
        let oauth = OAuthWorld()
        let gate = Gate<Void>()
        do {
            let runner = oauth.runner()
            _ = try await oauth.call(runner)
            oauth.server.expireAllAccessTokens()
            oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
            let caller = Task { [runner] in try await oauth.call(runner) }
            await gate.waitForCall(1)  // the server has rotated
            caller.cancel()
            await #expect(throws: CancellationError.self) { try await caller.value }
        }
        // The runner is gone, the update should not be.
        for _ in 0..<200 where gate.heldCount > 0 { try await Task.sleep(for: .milliseconds(2)) }
        #expect(gate.heldCount == 1, "the refresh was cancelled, and the rotated token with it")
        gate.openForGood(returning: ())
        try await Task.sleep(for: .milliseconds(100))

        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(next.signIns.withLock { $0 } == 0)
    }

    @Test func `RB03 B04 a combined sign-in after a dead refresh token needs no refresh`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner(signInGivesAccess: true)
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()
        let before = oauth.refreshes.withLock { $0 }
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.refreshes.withLock { $0 } - before == 1, "only the dead token was tried")
    }

    @Test func `RB04 a refused refresh token is not sent again by every call until somebody signs in`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        oauth.server.revokeAllRefreshTokens()
        let before = oauth.statistics.refreshRequests
        oauth.beforeSignInReply.withLock { $0 = { throw FetchFailed() } }  // dismissed
        for _ in 0..<5 { await #expect(throws: FetchFailed.self) { try await oauth.call(runner) } }
        #expect(oauth.statistics.refreshRequests - before == 1)
    }

    @Test func `RB05 signing out when nobody ever signed in is complete`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let tokens = ProtectedFileTokenStore(named: "s", directory: folder.url.appending(path: "not/there/yet"))
        let oauth = OAuthWorld(tokens: tokens)
        let report = await oauth.runner().signOut()
        #expect(report.isComplete, "\(report.failures)")
    }

    @Test func `RB06 the next start finishes the removal of the tokens`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        tokens.failsDeletes.withLock { $0 = true }  // or the process dies here
        await runner.signOut()
        tokens.failsDeletes.withLock { $0 = false }

        let next = oauth.relaunched()
        next.beforeSignInReply.withLock { $0 = { throw FetchFailed() } }  // the person does not want to
        await #expect(throws: FetchFailed.self) { try await next.call(next.runner()) }
        #expect(tokens.memory.peek == nil, "the old session's tokens are still on disk")
    }

    @Test func `RB07 tokens stored during a sign-out do not belong to the next session`() async throws {
        let tokens = UnreliableTokenStore()
        let entered = DispatchSemaphore(value: 0)
        let leave = DispatchSemaphore(value: 0)
        let store = MemoryStore()
        let observer = BlockingObserver { event in
            guard event.kind == .sessionEnded else { return }
            entered.signal()
            leave.wait()
        }
        let repository = MuxRepository(store: store, observer: observer)
        // Attached before the runner: its session ends first.
        let name = Multiplexer<String>(cacheKey: "Name", repository: repository) { "x" }
        let signIns = Guarded(0)
        @Sendable func runner(_ repository: MuxRepository) -> OAuthDependentRunner<String, String> {
            OAuthDependentRunner(
                store: tokens,
                repository: repository,
                refreshAccess: { OAuthRenewal(access: "access of \($0)") },
                signIn: {
                    signIns.withLock { $0 += 1 }
                    return OAuthSignIn(refresh: "new", access: "new")
                }
            )
        }
        let oauth = runner(repository)
        let signOut = Task { await oauth.signOut() }
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                entered.wait()
                continuation.resume()
            }
        }
        // The epoch is raised, the runner's session has not ended yet.  (On a thread of its own: one of the pool is blocked.)
        let stored = Task { try? await oauth.set(refresh: "old", access: "old") }
        for _ in 0..<100 where tokens.memory.peek == nil { try await Task.sleep(for: .milliseconds(2)) }
        tokens.failsDeletes.withLock { $0 = true }  // stands for a crash before the deletion
        leave.signal()
        _ = await signOut.value
        await stored.value
        _ = name

        let relaunched = runner(MuxRepository(store: store))
        #expect(try await relaunched.run { .output($0) } == "new", "the token of the session that was signed out")
        #expect(signIns.withLock { $0 } == 1)
    }

    @Test func `RB08 a folder that cannot be emptied does not keep everybody signed out`() async throws {
        let store = UnreliableStore()
        let oauth = OAuthWorld(store: store)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        store.failsEpochs.withLock { $0 = true }
        await runner.signOut()
        store.failsEpochs.withLock { $0 = false }
        store.failsRemovals.withLock { $0 = true }
        // The epoch can be raised durably again, so what is left on disk is void.
        await #expect(throws: Never.self) { _ = try await oauth.call(runner) }
    }

    @Test func `RB09 a store that ends late does not undo a renewal`() async throws {
        let tokens = SlowTokenStore()
        let world = World()
        let refreshes = Guarded(0)
        @Sendable func runner(_ world: World) -> OAuthDependentRunner<String, String> {
            OAuthDependentRunner(
                store: tokens,
                repository: world.repository,
                refreshAccess: {
                    refreshes.withLock { $0 += 1 }
                    return OAuthRenewal(access: "access of \($0)")
                },
                signIn: { throw FetchFailed() }
            )
        }
        let oauth = runner(world)
        let gate = Gate<Void>()
        tokens.beforeSaveEnds.withLock { $0 = { try? await gate.pass() } }
        let setting = Task { try await oauth.set(refresh: "r") }
        await gate.waitForCall(1)
        let call = Task { try await oauth.run { RunResult<String>.output($0) } }
        for _ in 0..<500 where refreshes.withLock({ $0 }) == 0 { try await Task.sleep(for: .milliseconds(1)) }
        try await Task.sleep(for: .milliseconds(50))  // the renewal is in memory and waits to be stored
        gate.openForGood(returning: ())
        try await setting.value
        #expect(try await call.value == "access of r")
        #expect(String(decoding: tokens.memory.peek ?? Data(), as: UTF8.self).contains("access of r"), "never stored")
        let next = runner(world.relaunched())
        #expect(try await next.run { RunResult<String>.output($0) } == "access of r")
        #expect(refreshes.withLock { $0 } == 1)
    }

    @Test func `RB10 setting the token that is being refreshed does not lose its successor`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let alice = try await oauth.server.signIn(user: "alice", password: "a")
        try await runner.set(refresh: alice.refresh)
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let call = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        try await runner.set(refresh: alice.refresh)
        gate.openForGood(returning: ())
        #expect(try await call.value == "alice")
        oauth.server.expireAllAccessTokens()
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `RB11 an access token that was set stays, whatever a refresh from before brings`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let bob = try await oauth.server.signIn(user: "bob", password: "b")
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let call = Task {
            try await runner.run { access -> RunResult<String> in
                guard oauth.server.authorize(access) == "bob" else { return .badDependency }
                return .output(access)
            }
        }
        await gate.waitForCall(1)
        runner.set(access: bob.access)
        #expect(try await call.value == bob.access)
        let before = oauth.world.events.count(of: .updateFailed) + oauth.world.events.count(of: .updated)
        gate.openForGood(returning: ())
        for _ in 0..<100
        where oauth.world.events.count(of: .updateFailed) + oauth.world.events.count(of: .updated) == before {
            try await Task.sleep(for: .milliseconds(1))
        }
        #expect(try await oauth.call(runner) == "bob")
    }

    @Test func `RB12 at most one sign-in runs, also after set`() async throws {
        let oauth = OAuthWorld()
        let running = Guarded(0)
        let most = Guarded(0)
        let gate = Gate<Void>()
        let runner = OAuthDependentRunner<String, String>(
            repository: oauth.world.repository,
            refreshAccess: { _ in throw BadDependency() },
            signIn: {
                let now = running.withLock {
                    $0 += 1
                    return $0
                }
                most.withLock { $0 = max($0, now) }
                defer { running.withLock { $0 -= 1 } }
                try await gate.pass()
                return OAuthSignIn(refresh: "r", access: "a")
            }
        )
        let call = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        try await runner.set(refresh: "dead")
        for _ in 0..<100 where gate.callCount < 2 { try await Task.sleep(for: .milliseconds(2)) }
        gate.openForGood(returning: ())
        #expect(try await call.value == "a")
        #expect(most.withLock { $0 } == 1)
    }

    @Test func `RB13 no secret is in a description`() {
        #expect(!"\(OAuthSignIn(refresh: "secret", access: "secret"))".contains("secret"))
        #expect(!"\(OAuthRenewal(access: "secret", refresh: "secret"))".contains("secret"))
        struct Quoting: Error { var token = "secret" }
        var text = ""
        dump(RunnerError.tokensNotStored(underlying: Quoting()), to: &text)
        #expect(!text.contains("secret"))
    }

    @Test func `RB14 after a refusal calls fail at once, as documented`() async throws {
        let runner = DependentRunner<Int>(1) { _ in .updateFailed }
        let runs = Guarded(0)
        for _ in 0..<3 {
            await #expect(throws: RunnerError.self) {
                try await runner.run { _ in
                    runs.withLock { $0 += 1 }
                    return RunResult<Int>.badDependency
                }
            }
        }
        #expect(runs.withLock { $0 } == 1)
    }

    @Test(.timeLimit(.minutes(1))) func `RB15 a run inside the update is an error, not a hang`() async throws {
        let runner = Guarded<DependentRunner<Int>?>(nil)
        let made = DependentRunner<Int> { _ in
            let inner = runner.withLock { $0 }
            _ = try await inner?.run { RunResult<Int>.output($0) }
            return .updatedDependency(1)
        }
        runner.withLock { $0 = made }
        let ended = Guarded(false)
        let call = Task {
            defer { ended.withLock { $0 = true } }
            return try await made.run { .output($0) }
        }
        for _ in 0..<200 where !ended.withLock({ $0 }) { try await Task.sleep(for: .milliseconds(5)) }
        #expect(ended.withLock { $0 }, "hangs for ever")
        made.reset()
        call.cancel()
        _ = await call.result
    }

    @Test func `RB16 two sets at once leave tokens that belong together`() async throws {
        var mixed = 0
        for _ in 0..<20000 {
            let world = World()
            let oauth = OAuthDependentRunner<String, String>(
                repository: world.repository,
                refreshAccess: { OAuthRenewal(access: $0) },
                signIn: { OAuthSignIn(refresh: "x", access: "x") }
            )
            await withTaskGroup { group in
                for name in ["bob", "carol"] {
                    group.addTask { try? await oauth.set(refresh: name, access: name) }
                }
            }
            let first = try await oauth.run { .output($0) }
            let tries = Guarded(0)
            let second = try await oauth.run { tries.next() == 1 ? .badDependency : .output($0) }
            if first != second { mixed += 1 }
        }
        #expect(mixed == 0)
    }

    @Test func `RB17 a set that a sign-out overtakes leaves nothing`() async throws {
        var left = 0
        for _ in 0..<8000 {
            let world = World()
            let signIns = Guarded(0)
            let oauth = OAuthDependentRunner<String, String>(
                repository: world.repository,
                refreshAccess: { OAuthRenewal(access: $0) },
                signIn: {
                    signIns.withLock { $0 += 1 }
                    return OAuthSignIn(refresh: "x", access: "x")
                }
            )
            let set = Task { try await oauth.set(refresh: "bob", access: "bob") }
            let out = Task { await oauth.signOut() }
            _ = await set.result
            _ = await out.value
            // Either bob is there with both tokens, or with none.
            let first = try await oauth.run { .output($0) }
            let tries = Guarded(0)
            let second = try await oauth.run { tries.next() == 1 ? .badDependency : .output($0) }
            if first != second { left += 1 }
        }
        #expect(left == 0)
    }
}
