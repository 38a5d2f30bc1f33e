import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Several runners that share a store, in one process and in several processes.
@Suite(.standard, .ownThreads)
struct SiblingTests {
    private let clock = VirtualClock()
    private let scratch = Scratch()
    private let tokens = InMemoryTokenStore()
    private let server: FakeOAuthServer

    init() { self.server = FakeOAuthServer(users: ["alice": "a", "bob": "b"], clock: self.clock) }

    private struct Sibling: Sendable {
        let runner: OAuthDependentRunner<String, String>
        let repository: MuxRepository
        let refreshes = Locked(0)
        let signIns = Locked(0)
        let gate = Locked<Gate<Void>?>(nil)
        let signInGate = Locked<Gate<Void>?>(nil)
        let events = EventTally()

        init(
            _ tests: SiblingTests,
            caches: any MuxStore,
            tokens: (any TokenStore)? = nil,
            repository: MuxRepository? = nil,
            freezing: (any MuxLease) -> any MuxLease = { $0 }
        ) {
            let (server, refreshes, signIns, gate) = (tests.server, self.refreshes, self.signIns, self.gate)
            let (clock, signInGate) = (tests.clock, self.signInGate)
            self.repository = repository ?? MuxRepository(store: caches, observer: self.events, clock: clock)
            self.runner = OAuthDependentRunner(
                store: tokens ?? tests.tokens,
                lease: freezing(
                    FileLease(
                        named: "lease",
                        directory: tests.scratch.folder,
                        fileSystem: POSIXFileSystem(),
                        wallTime: { World.start.addingTimeInterval(clock.now.offset.secondsValue) },
                        time: TimeSource(clock)
                    )
                ),
                repository: self.repository,
                refreshAccess: { refresh in
                    refreshes.withLock { $0 += 1 }
                    do {
                        let tokens = try await server.refresh(refresh)
                        try await gate.withLock { $0 }?.pass(ignoringCancellation: true)
                        return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
                    } catch FakeOAuthServer.Failure.invalidGrant {
                        throw BadDependency()
                    }
                },
                signIn: {
                    signIns.withLock { $0 += 1 }
                    let tokens = try await server.signIn(user: "alice", password: "a")
                    try await signInGate.withLock { $0 }?.pass(ignoringCancellation: true)
                    return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
                }
            )
        }

        func call(_ server: FakeOAuthServer) async throws -> String {
            try await self.runner.run { access in
                server.authorize(access).map { .output($0) } ?? .badDependency
            }
        }
    }

    private func siblings(sharingCaches: Bool = true) -> (Sibling, Sibling) {
        let caches = MemoryStore()
        let first = Sibling(self, caches: caches)
        return (first, Sibling(self, caches: sharingCaches ? caches : MemoryStore()))
    }

    @Test func `D05 tokens that are set after another process's sign-out survive a relaunch`() async throws {
        for signsInAgain in [false, true] {
            let caches = MemoryStore()
            let (app, widget) = (Sibling(self, caches: caches), Sibling(self, caches: caches))
            #expect(try await app.call(self.server) == "alice")
            #expect(try await widget.call(self.server) == "alice")
            await app.runner.signOut()
            if signsInAgain { _ = try await app.call(self.server) }

            try await widget.runner.set(refresh: self.server.signIn(user: "bob", password: "b").refresh)
            #expect(try await widget.call(self.server) == "bob")
            let later = Sibling(self, caches: caches)
            #expect(try await later.call(self.server) == "bob")
            #expect(later.signIns.withLock { $0 } == 0)
            await app.runner.signOut()
            await widget.runner.signOut()
        }
    }

    @Test func `D05 a sign-in after another process's sign-out survives a relaunch`() async throws {
        let caches = MemoryStore()
        let (app, widget) = (Sibling(self, caches: caches), Sibling(self, caches: caches))
        _ = await widget.runner.status
        #expect(try await app.call(self.server) == "alice")
        await app.runner.signOut()

        // The first call may report the sign-out.
        if (try? await widget.call(self.server)) == nil { _ = try await widget.call(self.server) }
        let later = Sibling(self, caches: caches)
        #expect(try await later.call(self.server) == "alice")
        #expect(later.signIns.withLock { $0 } == 0)
    }

    @Test func `L01 a sibling's newer tokens are adopted without a request`() async throws {
        let (app, widget) = self.siblings()
        #expect(try await app.call(self.server) == "alice")
        #expect(try await widget.call(self.server) == "alice")
        self.server.expireAllAccessTokens()
        #expect(try await app.call(self.server) == "alice")

        #expect(try await widget.call(self.server) == "alice")

        #expect(app.signIns.withLock { $0 } == 1)
        #expect(widget.signIns.withLock { $0 } == 0)
        #expect(app.refreshes.withLock { $0 } == 1)
        #expect(widget.refreshes.withLock { $0 } == 0)
        #expect(self.server.statistics.reusesDetected == 0)
    }

    @Test func `L01 a call during a sibling's renewal waits and adopts the sibling's token`() async throws {
        let (app, widget) = self.siblings()
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        self.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        app.gate.withLock { $0 = gate }
        let first = Task { try await app.call(self.server) }
        await gate.waitForCall(1)
        // The first call sleeps for its time limits and the lease, the second call for the lease's end.
        await self.clock.waitForSleepers(2)
        let second = Task { try await widget.call(self.server) }
        await self.clock.waitForSleepers(3)
        gate.open()

        #expect(try await first.value == "alice")
        #expect(try await second.value == "alice")
        #expect(widget.refreshes.withLock { $0 } == 0)
        #expect(self.server.statistics.refreshRequests == 1)
    }

    @Test func `L01 siblings that all start without tokens make one sign-in`() async throws {
        let (app, widget) = self.siblings()
        async let first = app.call(self.server)
        async let second = widget.call(self.server)
        #expect(try await [first, second] == ["alice", "alice"])
        #expect(self.server.statistics.signIns == 1)
    }

    @Test func `B11 a refusal leads to no sign-in if a sibling has stored a newer token`() async throws {
        let (app, widget) = self.siblings()
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        self.server.expireAllAccessTokens()
        // The app's new tokens are stored before the widget's access token is refused.
        let gate = Gate<Void>()
        app.gate.withLock { $0 = gate }
        let first = Task { try await app.call(self.server) }
        await gate.waitForCall(1)
        #expect(self.server.statistics.refreshes == 1)
        gate.open()
        #expect(try await first.value == "alice")

        #expect(try await widget.call(self.server) == "alice")
        #expect(self.server.statistics.signIns == 1)
    }

    @Test(arguments: [true, false])
    func `D05 a sign-out in one process ends the session of the other processes`(sharingCaches: Bool) async throws {
        let (app, widget) = self.siblings(sharingCaches: sharingCaches)
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        let name = Multiplexer<String>(cacheKey: "Name", repository: widget.repository) { "Alice" }
        _ = try await name.request()
        await app.runner.signOut()
        self.server.expireAllAccessTokens()

        // The access token is refused, and no refresh token is left for a renewal.
        let error = await #expect(throws: RunnerError.self) { try await widget.call(self.server) }

        #expect(error?.code == .signedOut)
        #expect(widget.refreshes.withLock { $0 } == 0)
        #expect(name.cachedValue == nil)
        #expect(try await widget.call(self.server) == "alice")
        #expect(widget.signIns.withLock { $0 } == 1)
    }

    @Test func `FL-04 a session that another process has ended also ends in the shared store`() async throws {
        let store = MemorySharedStore()
        let service = Sibling(self, caches: MemoryStore(), repository: MuxRepository(sharedStore: store.connection()))
        let app = Sibling(self, caches: MemoryStore())
        _ = try await app.call(self.server)
        _ = try await service.call(self.server)
        let name = Multiplexer<String>(cacheKey: "Name", repository: service.repository) { "Alice" }
        _ = try await name.request()
        let other = store.connection()
        let (changes, names) = (other.changes(), [MuxShared.Name(MuxStoreKey(domain: "Name"))])
        #expect(try await other.load(names)[0] != nil)
        await app.runner.signOut()
        self.server.expireAllAccessTokens()

        await #expect(throws: RunnerError.self) { try await service.call(self.server) }

        for await change in changes where change == .invalidated(.everything) { break }
        #expect(try await other.load(names)[0] == nil)
    }

    @Test func `D06 a sign-out does not remove tokens that a sibling stored for the next session`() async throws {
        let caches = UnreliableStore()
        let (app, widget) = (Sibling(self, caches: caches), Sibling(self, caches: caches))
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        // Runs after the session has ended everywhere, and before its tokens are removed.
        caches.beforeRemoval.withLock { action in
            action = {
                caches.beforeRemoval.withLock { $0 = {} }
                self.server.expireAllAccessTokens()
                await #expect(throws: RunnerError.self) { try await widget.call(self.server) }
                await #expect(throws: Never.self) { try await widget.call(self.server) }
            }
        }

        await app.runner.signOut()

        #expect(widget.signIns.withLock { $0 } == 1)
        let next = Sibling(self, caches: caches)
        #expect(try await next.call(self.server) == "alice")
        #expect(next.signIns.withLock { $0 } == 0)
    }

    @Test func `B11 a sign-in does not overwrite tokens that were set in the meantime`() async throws {
        let (app, widget) = self.siblings()
        let gate = Gate<Void>()
        app.signInGate.withLock { $0 = gate }
        let call = Task { try await app.call(self.server) }
        await gate.waitForCall(1)
        let tokens = try await self.server.signIn(user: "alice", password: "a")
        try await app.runner.set(access: tokens.access, refresh: tokens.refresh)

        gate.open()

        #expect(try await call.value == "alice")
        self.server.expireAllAccessTokens()
        #expect(try await app.call(self.server) == "alice")
        #expect(app.refreshes.withLock { $0 } == 1)
        #expect(try await widget.call(self.server) == "alice")
        #expect(widget.signIns.withLock { $0 } == 0)
        #expect(self.server.statistics.signIns == 2)
        let stored = String(decoding: try #require(self.tokens.peek), as: UTF8.self)
        #expect(!stored.contains(tokens.refresh), "its successor is")
    }

    @Test func `B11 a sign-in replaces tokens that a sibling set during the sign-in`() async throws {
        let (app, widget) = self.siblings()
        let gate = Gate<Void>()
        app.signInGate.withLock { $0 = gate }
        let call = Task { try await app.call(self.server) }
        await gate.waitForCall(1)
        try await widget.runner.set(refresh: self.server.signIn(user: "bob", password: "b").refresh)
        gate.open()
        #expect(try await call.value == "alice")

        self.server.expireAllAccessTokens()
        #expect(try await widget.call(self.server) == "alice", "the record of the sign-in has a greater number")
        #expect(try await app.call(self.server) == "alice")
    }

    @Test(arguments: [false, true])
    func `B11 tokens that were set replace a sibling's newer tokens`(areSetDuringRenewal: Bool) async throws {
        let (app, widget) = self.siblings()
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        self.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        widget.gate.withLock { $0 = gate }
        let call = Task { try await widget.call(self.server) }
        await gate.waitForCall(1)
        if !areSetDuringRenewal { _ = await (gate.openForGood(returning: ()), call.result) }
        try await app.runner.set(refresh: self.server.signIn(user: "bob", password: "b").refresh)
        gate.openForGood(returning: ())
        _ = try await call.value
        self.server.expireAllAccessTokens()
        #expect(try await widget.call(self.server) == "bob")
        #expect(try await app.call(self.server) == "bob")
    }

    @Test func `B11 a failed refresh does not count as interrupted in its own process`() async throws {
        let (app, widget) = self.siblings()
        _ = try await app.call(self.server)
        self.server.expireAllAccessTokens()
        self.server.failNextRefreshes(with: .unavailable)
        await #expect(throws: FakeOAuthServer.Failure.self) { try await app.call(self.server) }

        #expect(try await app.call(self.server) == "alice")

        #expect(app.events.count(of: .updateInterrupted) == 0)
        // In another process, the failed refresh counts as interrupted.
        self.server.expireAllAccessTokens()
        self.server.failNextRefreshes(with: .unavailable)
        await #expect(throws: FakeOAuthServer.Failure.self) { try await app.call(self.server) }
        #expect(try await widget.call(self.server) == "alice")
        #expect(widget.events.count(of: .updateInterrupted) == 1)
    }

    @Test func `D06 the next session of a sibling is adopted`() async throws {
        let (app, widget) = self.siblings()
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        await app.runner.signOut()
        self.server.expireAllAccessTokens()
        _ = try await app.call(self.server)

        await #expect(throws: RunnerError.self) { try await widget.call(self.server) }
        #expect(try await widget.call(self.server) == "alice")

        #expect(widget.signIns.withLock { $0 } == 0)
        #expect(self.server.statistics.reusesDetected == 0)
    }

    @Test func `D05 a sign-out in another process just before a refresh is not overwritten`() async throws {
        let tokens = UnreliableTokenStore(memory: self.tokens)
        let app = Sibling(self, caches: MemoryStore(), tokens: tokens)
        _ = try await app.call(self.server)
        self.server.expireAllAccessTokens()
        let loads = Locked(0)
        tokens.beforeLoad.withLock { [memory = self.tokens] in
            // The second load follows the check for a sibling's tokens, and precedes the save of the
            // intent to send the token.
            $0 = { if loads.next() == 2 { await memory.save(Data(#"{"session":9}"#.utf8)) } }
        }

        let error = await #expect(throws: RunnerError.self) { try await app.call(self.server) }

        #expect(error?.code == .signedOut)
        #expect(app.refreshes.withLock { $0 } == 0)
        #expect(self.tokens.peek == Data(#"{"session":9}"#.utf8))
    }

    @Test func `D09 damaged tokens on disk do not count as a sign-out`() async throws {
        let (app, _) = self.siblings()
        _ = try await app.call(self.server)
        self.server.expireAllAccessTokens()
        await self.tokens.save(Data("damaged".utf8))

        #expect(try await app.call(self.server) == "alice")

        #expect(app.signIns.withLock { $0 } == 1)
        #expect(self.server.statistics.reusesDetected == 0)
    }

    // MARK: - A process that is suspended for longer than its lease

    /// A lease whose second `take` waits until `thawed` is open.
    private struct FrozenLease: MuxLease {
        let base: any MuxLease
        let takes: Locked<Int>
        let thawed: Gate<Void>

        func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
            if self.takes.next() == 2 { try? await self.thawed.pass(ignoringCancellation: true) }
            return try await self.base.take(as: owner, for: duration)
        }

        func giveBack(_ term: MuxLeaseTerm) async throws { try await self.base.giveBack(term) }
        func wait(for term: MuxLeaseTerm) async throws { try await self.base.wait(for: term) }
    }

    /// A runner with a frozen lease, the gate of the lease, and the counter that arms the lease.
    private func frozen(
        _ caches: any MuxStore,
        _ tokens: (any TokenStore)? = nil
    ) -> (Sibling, thawed: Gate<Void>, takes: Locked<Int>) {
        let (thawed, takes) = (Gate<Void>(), Locked(10))
        let sibling = Sibling(self, caches: caches, tokens: tokens) {
            FrozenLease(base: $0, takes: takes, thawed: thawed)
        }
        return (sibling, thawed, takes)
    }

    @Test func `L01 a process that was suspended before a refresh checks for a sibling's tokens again`() async throws {
        let caches = MemoryStore()
        let tokens = UnreliableTokenStore(memory: self.tokens)
        let (app, thawed, takes) = self.frozen(caches, tokens)
        let widget = Sibling(self, caches: caches)
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        self.server.expireAllAccessTokens()
        takes.withLock { $0 = 0 }
        let saves = Locked(0)
        tokens.afterSave.withLock { [clock, server] in
            $0 = {
                // The app has just saved the intent to send its token.
                guard saves.next() == 1 else { return }
                clock.advance(by: .seconds(20))
                #expect((try? await widget.call(server)) == "alice")
                thawed.openForGood(returning: ())
            }
        }

        #expect(try await app.call(self.server) == "alice")

        #expect(app.refreshes.withLock { $0 } == 0, "the widget has done it")
        #expect(widget.refreshes.withLock { $0 } == 1)
        #expect(self.server.statistics.reusesDetected == 0)
        #expect(self.server.statistics.signIns == 1)
    }

    @Test func `L01 a process that was suspended during a refresh does not replace a newer session`() async throws {
        let caches = MemoryStore()
        let (app, thawed, takes) = self.frozen(caches)
        let widget = Sibling(self, caches: caches)
        _ = try await app.call(self.server)
        _ = try await widget.call(self.server)
        self.server.expireAllAccessTokens()
        takes.withLock { $0 = 0 }
        let reply = Gate<Void>()
        app.gate.withLock { $0 = reply }
        let call = Task { try await app.call(self.server) }
        await reply.waitForCall(1)
        await self.clock.waitForSleepers(2)
        // The server detects the widget's refresh as a reuse, and the widget signs in.
        self.clock.advance(by: .seconds(20))
        #expect(try await widget.call(self.server) == "alice")
        #expect(widget.signIns.withLock { $0 } == 1)
        thawed.openForGood(returning: ())
        app.gate.withLock { $0 = nil }
        reply.openForGood(returning: ())

        #expect(try await call.value == "alice")
        self.server.expireAllAccessTokens()
        #expect(try await app.call(self.server) == "alice")
        #expect(try await widget.call(self.server) == "alice")
        #expect(self.server.statistics.signIns == 2, "the first one, and the widget's")
        #expect(self.server.statistics.reusesDetected == 1)
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    // MARK: - Processes

    private static let children = 8
    private static let requests = 50

    /// Runs eight processes with the same expired token and fifty requests each.
    private func runChildren(_ path: String, _ port: Int, lease: Int) async {
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<Self.children {
                group.addTask {
                    await #expect(processExitsWith: .success) {
                        [path = path as String, port = port as Int, lease = lease as Int] in
                        let app = ProcessApp(path, port: port)
                        var policy = RunnerPolicy.onePerCall
                        policy.leaseDuration = .milliseconds(lease)
                        let runner = app.runner(policy: policy)
                        try await withThrowingTaskGroup(of: Bool.self) { group in
                            for _ in 0..<Self.requests { group.addTask { try await app.me(runner) } }
                            for try await isDone in group { #expect(isDone) }
                        }
                        #expect(app.signIns.withLock { $0 } == 0)
                    }
                }
            }
        }
    }

    private func signedIn(_ app: ProcessApp, _ server: ProcessServer) async throws {
        #expect(try await app.me(app.runner()))
        server.oauth.expireAllAccessTokens()
    }

    @Test func `L01 eight processes with fifty requests each on one expired token make one refresh`() async throws {
        let refused = Locked<LoopbackServer?>(nil)
        let server = try ProcessServer(beforeToken: {
            // The refresh waits until every request of every process was refused.
            await refused.withLock { $0 }?.waitForRequest("GET /me", count: 1 + Self.children * Self.requests)
        })
        let app = ProcessApp(self.scratch.folder.path, port: server.port)
        try await self.signedIn(app, server)
        refused.withLock { $0 = server.backend.server }

        await self.runChildren(self.scratch.folder.path, server.port, lease: 10_000)

        #expect(server.statistics.refreshRequests == 1)
        #expect(server.statistics.revocations == 0)
        #expect(server.statistics.reusesDetected == 0)
        #expect(server.statistics.signIns == 1)
        #expect(server.statistics.refusals == Self.children * Self.requests)
        await server.backend.goOffline()
    }

    @Test func `L02 eight processes continue after the holder of the lease was killed`() async throws {
        let server = try ProcessServer()
        let path = self.scratch.folder.path
        let port = server.port
        let app = ProcessApp(path, port: port)
        try await self.signedIn(app, server)
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, port = port as Int] in
            var app = ProcessApp(path, port: port)
            app.beforeSend = { raise(SIGKILL) }
            var policy = RunnerPolicy.onePerCall
            policy.leaseDuration = .milliseconds(4_000)
            _ = try await app.me(app.runner(policy: policy))
        }
        #expect(server.statistics.refreshRequests == 0)

        await self.runChildren(path, port, lease: 4_000)

        #expect(server.statistics.refreshRequests == 1)
        #expect(server.statistics.revocations == 0)
        #expect(server.statistics.signIns == 1)
        await server.backend.goOffline()
    }

    @Test func `L02 after the holder's death other processes wait for the lease's duration only`() async throws {
        let path = self.scratch.folder.path
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String] in
            let lease = FileLease(
                named: "lease",
                directory: URL(filePath: path, directoryHint: .isDirectory),
                fileSystem: POSIXFileSystem(),
                wallTime: { World.start }
            )
            let holder = LeaseHolder(
                lease,
                owner: "dead",
                duration: .seconds(10),
                time: TimeSource(ContinuousClock())
            )
            try await holder.run { _ = raise(SIGKILL) }
        }
        let (app, _) = self.siblings()
        let call = Task { try await app.call(self.server) }
        await self.clock.waitForSleepers(1)
        #expect(app.signIns.withLock { $0 } == 0)

        self.clock.advance(by: .seconds(10))

        #expect(try await call.value == "alice")
    }
    #endif
}
