import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FakeOAuthServerTests {
    let clock = VirtualClock()

    private func server(_ change: (inout FakeOAuthServer.Configuration) -> Void = { _ in }) -> FakeOAuthServer {
        var configuration = FakeOAuthServer.Configuration()
        configuration.accessLifetime = .seconds(10)
        change(&configuration)
        return FakeOAuthServer(users: ["alice": "a", "bob": "b"], configuration: configuration, clock: self.clock)
    }

    @Test func `P-04 the fake OAuth server identifies the user of a token`() async throws {
        let server = self.server()
        let alice = try await server.signIn(user: "alice", password: "a")
        let bob = try await server.signIn(user: "bob", password: "b")

        #expect(server.authorize(alice.access) == "alice")
        #expect(server.authorize(bob.access) == "bob")
        #expect(server.authorize(bob.refresh) == nil)
        await #expect(throws: FakeOAuthServer.Failure.invalidCredentials) {
            try await server.signIn(user: "alice", password: "b")
        }
        #expect(server.statistics.signIns == 2 && server.statistics.refusedSignIns == 1)
        #expect(server.statistics.resourceHits == 2 && server.statistics.refusals == 1)
    }

    @Test func `P-04 access tokens expire on the virtual clock`() async throws {
        let server = self.server()
        let tokens = try await server.signIn(user: "alice", password: "a")

        self.clock.advance(by: .nanoseconds(9_999_999_999))
        #expect(server.authorize(tokens.access) == "alice")
        self.clock.advance(by: .nanoseconds(1))
        #expect(server.authorize(tokens.access) == nil)
    }

    @Test func `P-04 refresh tokens rotate, and a reuse revokes the entire family and no other family`() async throws {
        let server = self.server()
        let first = try await server.signIn(user: "alice", password: "a")
        let other = try await server.signIn(user: "alice", password: "a")
        let second = try await server.refresh(first.refresh)
        let third = try await server.refresh(second.refresh)
        #expect(Set([first.refresh, second.refresh, third.refresh]).count == 3)
        #expect(server.authorize(third.access) == "alice")

        await #expect(throws: FakeOAuthServer.Failure.invalidGrant) { try await server.refresh(first.refresh) }

        #expect(server.authorize(third.access) == nil)
        await #expect(throws: FakeOAuthServer.Failure.invalidGrant) { try await server.refresh(third.refresh) }
        #expect(server.authorize(other.access) == "alice")
        #expect(server.statistics.reusesDetected == 1 && server.statistics.revocations == 1)
        #expect(server.statistics.refreshRequests == 4 && server.statistics.refreshes == 2)
    }

    @Test func `P-04 a new access token ends the previous access token if the option is set`() async throws {
        let server = self.server { $0.newAccessTokenKillsPrevious = true }
        let first = try await server.signIn(user: "alice", password: "a")
        let bob = try await server.signIn(user: "bob", password: "b")

        let second = try await server.refresh(first.refresh)

        #expect(server.authorize(first.access) == nil)
        #expect(server.authorize(second.access) == "alice")
        #expect(server.authorize(bob.access) == "bob")
    }

    @Test func `P-04 refresh tokens can have a lifetime and can remain the same`() async throws {
        let server = self.server { configuration in
            configuration.rotatesRefreshTokens = false
            configuration.refreshLifetime = .seconds(100)
        }
        let tokens = try await server.signIn(user: "alice", password: "a")

        #expect(try await server.refresh(tokens.refresh).refresh == tokens.refresh)
        #expect(try await server.refresh(tokens.refresh).refresh == tokens.refresh)
        self.clock.advance(by: .seconds(100))
        await #expect(throws: FakeOAuthServer.Failure.invalidGrant) { try await server.refresh(tokens.refresh) }
        #expect(server.statistics.reusesDetected == 0)
    }

    @Test func `P-04 a test can expire or revoke tokens and can make refreshes fail`() async throws {
        let server = self.server()
        let first = try await server.signIn(user: "alice", password: "a")
        server.failNextRefreshes(2, with: .unavailable)
        for _ in 0..<2 {
            await #expect(throws: FakeOAuthServer.Failure.unavailable) { try await server.refresh(first.refresh) }
        }
        let second = try await server.refresh(first.refresh)

        server.expireAllAccessTokens()
        #expect(server.authorize(second.access) == nil)
        let third = try await server.refresh(second.refresh)
        server.revokeAllRefreshTokens()

        #expect(server.authorize(third.access) == nil)
        await #expect(throws: FakeOAuthServer.Failure.invalidGrant) { try await server.refresh(third.refresh) }
        #expect(server.statistics.revocations == 1 && server.statistics.reusesDetected == 0)
    }

    @Test func `P-04 a caller cancelled before the reply arrives loses its tokens`() async throws {
        let clock = self.clock
        let server = self.server { $0.replyLatency = .seconds(1) }
        let signIn = Task { try await server.signIn(user: "alice", password: "a") }
        await clock.waitForSleepers()
        clock.advance(by: .seconds(1))
        let tokens = try await signIn.value

        let lost = Task { try await server.refresh(tokens.refresh) }
        await clock.waitForSleepers()
        lost.cancel()

        await #expect(throws: CancellationError.self) { try await lost.value }
        #expect(server.statistics.refreshes == 1)
    }
}
