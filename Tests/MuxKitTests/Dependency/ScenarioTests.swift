import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Alice and Bob share one client.
///
/// At the server, each new access token invalidates the previous access token.
@Suite(.standard)
struct ScenarioTests {
    /// A server that accepts the newest token only.
    final class Server: Sendable {
        private let newest: Locked<Int>

        init(_ token: Int) { self.newest = Locked(token) }

        var updates: Int { self.newest.withLock { $0 } - 1 }

        func accepts(_ token: Int) -> Bool { self.newest.withLock { $0 == token } }

        func newToken() -> Int {
            self.newest.withLock { newest in
                newest += 1
                return newest
            }
        }
    }

    @Test func `S1 without the runner each refresh invalidates the other user's token, for ever`() {
        let server = Server(2)
        var alice = 1
        var bob = 1
        for _ in 0..<1_000 {
            #expect(!server.accepts(alice))
            alice = server.newToken()
            // Bob gets a 401 and refreshes before Alice uses her new token.
            #expect(!server.accepts(bob))
            bob = server.newToken()
            #expect(!server.accepts(alice), "Alice's token is dead before she used it")
            alice = 0
        }
        #expect(server.updates == 2_001)
    }

    @Test func `S2 A07 a refusal during an update leads to no second update`() async throws {
        let events = EventTally()
        let server = Server(2)
        let gate = Gate<Void>()
        let runner = DependentRunner<Int>(1, observer: events) { _ in
            try await gate.pass()
            return .updatedDependency(server.newToken())
        }
        let call: @Sendable () async throws -> Int = {
            try await runner.run { server.accepts($0) ? .output($0) : .badDependency }
        }

        let alice = Task { try await call() }
        await gate.waitForCall(1)
        let bob = Task { try await call() }
        await events.wait(for: .dependencyAwaited, count: 2)
        gate.open()

        #expect(try await alice.value == 3)
        #expect(try await bob.value == 3)
        #expect(gate.callCount == 1)
        await runner.expectAtRest()
    }

    @Test func `S2 A07 a hundred callers that fail together make one update`() async throws {
        let events = EventTally()
        let server = Server(2)
        let gate = Gate<Void>()
        let runner = DependentRunner<Int>(1, observer: events) { _ in
            try await gate.pass()
            return .updatedDependency(server.newToken())
        }
        let tokens = try await withThrowingTaskGroup { group in
            for _ in 0..<100 {
                group.addTask { try await runner.run { server.accepts($0) ? .output($0) : .badDependency } }
            }
            await events.wait(for: .dependencyAwaited, count: 100)
            gate.open()
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(tokens == Array(repeating: 3, count: 100))
        #expect(gate.callCount == 1)
    }

    @Test func `S3 without epochs a late refusal updates again and invalidates the new token`() {
        let server = Server(2)
        var token = 1
        // Alice gets a 401 for token 1 and updates.
        #expect(!server.accepts(token))
        token = server.newToken()
        let alice = token
        // Bob's 401 for token 1 arrives now. The client does not know the failed token and updates again.
        token = server.newToken()
        #expect(!server.accepts(alice), "token 3 is dead before Alice used it")
        #expect(server.updates == 3)
    }

    @Test func `S4 A06 a late refusal carries its epoch and gets the new token at once`() async throws {
        let server = Server(2)
        let updates = Locked(0)
        let runner = DependentRunner<Int>(1) { _ in
            updates.withLock { $0 += 1 }
            return .updatedDependency(server.newToken())
        }
        let late = Gate<Void>()
        let bob = Task {
            try await runner.run { token in
                if token == 1 { try await late.pass() }
                return server.accepts(token) ? .output(token) : .badDependency
            }
        }
        await late.waitForCall(1)

        let alice = try await runner.run { server.accepts($0) ? .output($0) : .badDependency }
        late.open()

        #expect(alice == 3)
        #expect(try await bob.value == 3)
        #expect(updates.withLock { $0 } == 1)
        #expect(server.accepts(alice))
    }

    @Test func `S5 without limits a server that refuses every token gets requests for ever`() async throws {
        let updates = Locked(0)
        let stop = Gate<Void>()
        let runner = DependentRunner<Int>(0, policy: .init(maximumUpdatesPerCall: .max, maximumUpdatesPerWindow: nil)) {
            failed in
            if updates.next() == 10_000 { try await stop.pass() }
            return .updatedDependency((failed ?? 0) + 1)
        }
        let caller = Task { try await runner.run { _ in RunResult<Int>.badDependency } }
        await stop.waitForCall(1)
        caller.cancel()
        await #expect(throws: CancellationError.self) { try await caller.value }
        stop.open()
        #expect(updates.withLock { $0 } == 10_000)
    }

    @Test func `S6 with limits the call ends with an error that has the count, the time and the cause`() async throws {
        let clock = VirtualClock()
        let runner = DependentRunner<Int>(0, policy: .init(maximumUpdatesPerCall: 3), clock: clock) { failed in
            clock.advance(by: .seconds(2))
            return .updatedDependency((failed ?? 0) + 1)
        }
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ -> RunResult<Int> in throw BadDependency() }
        }
        guard case .tooManyUpdates(count: 3, elapsed: .seconds(6), underlying: let cause)? = error else {
            return #expect(Bool(false), "\(error)")
        }
        #expect(cause is BadDependency)
    }

    @Test func `S7 a refused refresh leads to one sign-in for all callers, and all callers resume`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.revokeAllRefreshTokens()

        let users = try await withThrowingTaskGroup { group in
            for _ in 0..<20 { group.addTask { try await oauth.call(runner) } }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }

        #expect(users == ["alice"])
        #expect(oauth.statistics.signIns == 2)
        #expect(oauth.statistics.refreshes == 2)
    }
}
