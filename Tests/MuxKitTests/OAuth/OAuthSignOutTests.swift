import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct OAuthSignOutTests {
    private func expectSignedOut<Success>(
        _ task: Task<Success, any Error>,
        _ location: SourceLocation = #_sourceLocation
    ) async {
        let error = await #expect(throws: RunnerError.self, sourceLocation: location) { try await task.value }
        guard case .signedOut? = error else {
            return #expect(Bool(false), "\(String(describing: error))", sourceLocation: location)
        }
    }

    @Test func `D05 a sign-out during a refresh takes effect at once`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass(ignoringCancellation: true) } }
        let callers = (0..<10).map { _ in Task { try await oauth.call(runner) } }
        await gate.waitForCall(1)
        // The layer above waits, too.
        await oauth.world.events.wait(for: .dependencyAwaited, count: 11)

        let report = await runner.signOut()

        #expect(report.isComplete)
        #expect(gate.heldCount == 1, "the refresh has not ended")
        for caller in callers { await self.expectSignedOut(caller) }
        gate.openForGood(returning: ())
    }

    @Test func `D06 the late tokens of an old session are dropped and the new session's tokens stay`() async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass(ignoringCancellation: true) } }
        let old = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        await runner.signOut()
        await self.expectSignedOut(old)

        let new = Task { try await oauth.call(runner) }
        await gate.waitForCall(2)
        gate.open(2)
        #expect(try await new.value == "alice")
        let record = tokens.peek
        gate.open(1)
        // The old refresh gets its tokens. The next call must use the tokens of the new session.
        oauth.server.expireAllAccessTokens()
        gate.openForGood(returning: ())
        #expect(try await oauth.call(runner) == "alice")

        #expect(record != nil)
        #expect(oauth.statistics.signIns == 2)
        #expect(oauth.statistics.reusesDetected == 0)
        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
    }

    @Test func `D06 a sign-in that ends after a sign-out is dropped`() async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        let gate = Gate<Void>()
        oauth.beforeSignInReply.withLock { $0 = { try await gate.pass(ignoringCancellation: true) } }
        let old = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        await runner.signOut()
        await self.expectSignedOut(old)
        gate.open(1)
        gate.openForGood(returning: ())

        #expect(tokens.peek == nil)
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.signIns == 2)
    }

    @Test func `D06 a sign-out in progress does not remove the tokens of a new sign-in`() async throws {
        let store = UnreliableStore()
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens, store: store)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let removing = Gate<Void>()
        store.beforeRemoval.withLock { $0 = { try? await removing.pass() } }
        let signOut = Task { await runner.signOut() }
        await removing.waitForCall(1)

        #expect(try await oauth.call(runner) == "alice")
        removing.openForGood(returning: ())
        #expect(await signOut.value.isComplete)

        #expect(oauth.statistics.signIns == 2)
        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
    }

    @Test func `D07 a late refusal after a sign-out starts no sign-in`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let reply = Gate<Void>()
        let late = Task {
            try await runner.run { _ in
                try await reply.pass()
                return RunResult<Int>.badDependency
            }
        }
        await reply.waitForCall(1)

        await runner.signOut()
        reply.open()

        await self.expectSignedOut(late)
        #expect(oauth.signIns.withLock { $0 } == 1)
        #expect(oauth.refreshes.withLock { $0 } == 1)
    }

    @Test func `D05 after a sign-out whose writes failed this process restores no tokens`() async throws {
        let store = UnreliableStore()
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens, store: store)
        let runner = oauth.runner(signInGivesAccess: true)
        _ = try await oauth.call(runner)
        store.failsEpochs.withLock { $0 = true }
        tokens.failsSaves.withLock { $0 = true }
        tokens.failsDeletes.withLock { $0 = true }
        #expect(await !runner.signOut().isComplete)

        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 2)
    }

    @Test func `D07 a sign-out while the store is being read starts no sign-in`() async throws {
        let executor = OrderedExecutor()
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens, spawn: TaskLauncher(executor: executor))
        let runner = oauth.runner()
        let gate = Gate<Void>()
        let loads = Locked(0)
        tokens.beforeLoad.withLock {
            $0 = { if loads.next() == 1 { try? await gate.pass(ignoringCancellation: true) } }
        }
        let call = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)

        await runner.signOut()
        await self.expectSignedOut(call)
        gate.open()
        executor.settle()

        #expect(oauth.signIns.withLock { $0 } == 0)
    }

    /// Blocks the second update, the sign-in, until the first report of the session's end.
    private struct Interposed: MuxObserver {
        let executor: OrderedExecutor
        let updates = Locked(0)
        let hasBegun = Tally()
        let isOver = DispatchSemaphore(value: 0)

        func observe(_ event: MuxEvent) {
            if event.kind == .updateStarted, self.updates.next() == 2 {
                self.hasBegun.add()
                self.isOver.wait()
            }
            guard event.kind == .sessionEnded else { return }
            self.isOver.signal()
            self.executor.settle()
        }
    }

    @Test func `D07 a sign-in that has only just begun does not run for an ended session`() async throws {
        let executor = OrderedExecutor()
        let observer = Interposed(executor: executor)
        let world = World(spawn: TaskLauncher(executor: executor), observer: observer)
        // The first participant to learn of the session's end.
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { "Alice" }
        let signIns = Locked(0)
        let runner = OAuthDependentRunner<String, String>(
            repository: world.repository,
            refreshAccess: { OAuthRenewal(access: "access of \($0)") },
            signIn: {
                _ = signIns.next()
                return OAuthSignIn(access: "access", refresh: "refresh")
            }
        )
        let call = Task { try await runner.run { .output($0) } }
        await observer.hasBegun.reached(1)

        await runner.signOut()

        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .signedOut)
        #expect(signIns.withLock { $0 } == 0)
        #expect(name.cachedValue == nil)
    }

    @Test func `D11 A20 a sign-out is reported once`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        var events = runner.events.makeAsyncIterator()
        _ = try await oauth.call(runner)
        await runner.signOut()
        _ = try await oauth.call(runner)
        await oauth.world.repository.clearAll()
        _ = try await oauth.call(runner)
        var seen: [String] = []
        while seen.count < 8, let event = await events.next() {
            if case .updated = event { seen.append("updated") } else { seen.append("\(event)") }
        }
        let session = ["updateStarted", "updated"]
        #expect(seen == session + ["signedOut"] + session + ["signedOut"] + session)
    }

    @Test func `D11 a sign-out clears the cached resources too and removes the tokens`() async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        let name = Multiplexer<String>(cacheKey: "Name", dependency: runner, repository: oauth.world.repository) {
            oauth.server.authorize($0) ?? "nobody"
        }
        #expect(try await name.request() == "alice")
        await oauth.world.repository.saveAll()
        #expect(tokens.peek != nil)

        await runner.signOut()

        #expect(name.cachedValue == nil)
        #expect(try await oauth.world.store.load(.init(domain: "Name")) == nil)
        #expect(tokens.peek == nil)
        #expect(oauth.world.events.count(of: .sessionEnded) == 1, "once")
    }

    @Test func `D11 clearing the repository signs the runner out`() async throws {
        let tokens = InMemoryTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)

        await oauth.world.repository.clearAll()

        #expect(tokens.peek == nil)
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.signIns == 2)
    }

    @Test func `D11 user B never sees anything of user A`() async throws {
        let oauth = OAuthWorld()
        let user = Locked("alice")
        let runner = OAuthDependentRunner<String, String>(
            repository: oauth.world.repository,
            refreshAccess: { refresh in
                let tokens = try await oauth.server.refresh(refresh)
                return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
            },
            signIn: {
                let name = user.withLock { $0 }
                let tokens = try await oauth.server.signIn(user: name, password: String(name.prefix(1)))
                return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
            }
        )
        let gate = Gate<Void>()
        let name = Multiplexer<String>(cacheKey: "Name", dependency: runner, repository: oauth.world.repository) {
            let name = oauth.server.authorize($0) ?? "nobody"
            try await gate.pass(ignoringCancellation: true)
            return name
        }
        let alice = Task { try await name.request() }
        await gate.waitForCall(1)

        await runner.signOut()
        user.withLock { $0 = "bob" }
        gate.openForGood(returning: ())

        await #expect(throws: MuxError.sessionEnded) { try await alice.value }
        #expect(try await name.request() == "bob")
        await oauth.world.repository.saveAll()
        let stored = try await oauth.world.store.load(.init(domain: "Name"))
        #expect(stored?.payload == Data("\"bob\"".utf8))
    }

    /// Runs closures during a sign-out, while the participants end the session one after another.
    private final class Bystander: SessionParticipant {
        private let asks: @Sendable () -> Void
        private let leaves: @Sendable () -> Void

        init(asks: @escaping @Sendable () -> Void = {}, leaves: @escaping @Sendable () -> Void = {}) {
            self.asks = asks
            self.leaves = leaves
        }

        func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
            self.asks()
            return self.leaves
        }
    }

    @Test func `D11 a request during a sign-out does not fetch with a token of the old session`()
        async throws
    {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor))
        let user = Locked("alice")
        let account = Later<OAuthDependentRunner<String, String>>()
        // Created before the runner, like a global whose closure is the first use of another file's global.
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) {
            try await account().run { .output($0) }
        }
        let bystander = Bystander(asks: {
            Task(executorPreference: executor) { _ = try? await name.request() }
            executor.settle()
        })
        world.repository.attach(bystander)
        let runner = OAuthDependentRunner<String, String>(
            repository: world.repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: {
                let user = user.withLock { $0 }
                return OAuthSignIn(access: user, refresh: user)
            }
        )
        account.set(runner)
        #expect(try await name.request() == "alice")
        user.withLock { $0 = "bob" }

        await runner.signOut()

        #expect(name.cachedValue != "alice")
        #expect(try await name.request() == "bob")
    }

    @Test func `D11 a request during a sign-out does not use values of the old session`()
        async throws
    {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor))
        let user = Locked("alice")
        let source = Later<Multiplexer<String>>()
        let greeting = Multiplexer<String>(cacheKey: "Greeting", repository: world.repository) {
            "Hello \(try await source().request())"
        }
        let bystander = Bystander(asks: {
            Task(executorPreference: executor) { _ = try? await greeting.request() }
            executor.settle()
        })
        world.repository.attach(bystander)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { user.withLock { $0 } }
        source.set(name)
        #expect(try await greeting.request() == "Hello alice")
        user.withLock { $0 = "bob" }

        await world.repository.clearAll()

        #expect(greeting.cachedValue != "Hello alice")
        #expect(try await greeting.request() == "Hello bob")
        #expect(world.events.count(of: .sessionEnded) == 2, "once each")
    }

    @Test func `D05 a fetch that waits for a token is cancelled before it gets the sign-out error`() async throws {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor))
        let gate = Gate<Void>()
        let bystander = Bystander(leaves: { executor.settle() })
        world.repository.attach(bystander)
        let runner = OAuthDependentRunner<String, String>(
            repository: world.repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: {
                try await gate.pass(ignoringCancellation: true)
                return OAuthSignIn(access: "alice", refresh: "alice")
            }
        )
        let goesOn = Locked<Bool?>(nil)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { () async throws -> String in
            _ = try? await runner.run { access -> RunResult<String> in .output(access) }
            goesOn.withLock { $0 = !Task.isCancelled }
            throw FetchFailed()
        }
        // The call runs on the executor, so the fetch begins after the caller has recorded the task to
        // cancel. Otherwise the fetch may reach the gate earlier, and is cancelled only after the sign-out
        // error.
        let call = Task(executorPreference: executor) { try await name.request() }
        await gate.waitForCall(1)

        await runner.signOut()

        await #expect(throws: MuxError.sessionEnded) { try await call.value }
        executor.settle()
        #expect(goesOn.withLock { $0 } == false)
        gate.openForGood(returning: ())
    }

    @Test func `D05 tokens that could not be removed are not restored`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        tokens.failsDeletes.withLock { $0 = true }

        #expect(await runner.signOut().failures.count == 1)

        #expect(tokens.memory.peek != nil)
        let next = oauth.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 1, "the record is of an earlier session")
    }

    @Test func `D11 a dependency makes token and resource fetches single-flight, and both are cached`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let fetches = Locked(0)
        let places = MultiplexerMap<Int, String>(
            cacheKey: "Places",
            dependency: runner,
            repository: oauth.world.repository
        ) { id, access in
            fetches.withLock { $0 += 1 }
            guard let user = oauth.server.authorize(access) else { throw BadDependency() }
            return "\(user) \(id)"
        }

        try await withThrowingTaskGroup { group in
            for caller in 0..<500 { group.addTask { _ = try await places.request(key: caller % 50) } }
            try await group.waitForAll()
        }
        #expect(fetches.withLock { $0 } == 50)
        #expect(oauth.statistics.signIns == 1)
        #expect(oauth.statistics.refreshes == 1)

        // All tokens expire at once and cause one refresh.
        oauth.server.expireAllAccessTokens()
        places.refresh()
        try await withThrowingTaskGroup { group in
            for caller in 0..<500 { group.addTask { _ = try await places.request(key: caller % 50) } }
            try await group.waitForAll()
        }
        #expect(oauth.statistics.refreshes == 2)
        #expect(oauth.statistics.signIns == 1)
        await places.expectAtRest()
    }

    @Test func `D10 an unreferenced runner is released`() async throws {
        let oauth = OAuthWorld()
        weak var weakly: OAuthDependentRunner<String, String>?
        do {
            let runner = oauth.runner()
            _ = try await oauth.call(runner)
            weakly = runner
        }
        #expect(weakly == nil)
        await oauth.world.repository.clearAll()
    }
}
