import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Test func `all callers get the one profile`() async throws {
    let clock = VirtualClock()
    let events = EventTally()
    let repository = MuxRepository(store: MemoryStore(), observer: events, clock: clock)
    let gate = Gate<String>()
    let profile = Multiplexer<String>(repository: repository) { try await gate.pass() }

    async let first = profile.request()
    await gate.waitForCall()  // the fetch has begun, and waits
    async let second = profile.request()
    await events.wait(for: .joined)  // the second caller waits for the first caller's fetch
    gate.open(returning: "Alice")

    let both = try await [first, second]
    #expect(both == ["Alice", "Alice"])
    #expect(gate.callCount == 1)

    clock.advance(by: .seconds(30 * 60))  // the value is stale now
    gate.openForGood(returning: "Bob")
    #expect(try await profile.request() == "Bob")
}

func testingLandingPage() {
    let clock = VirtualClock()
    let gate = Gate<String>()
    let repository = MuxRepository(store: MemoryStore(), clock: clock)
    let name = Multiplexer<String>(repository: repository) { try await gate.pass() }
    _ = name
}

@Suite(.standard(endsAtRest: false))
struct OurStoreTests {
    typealias OurStore = MemoryStore

    @Test func `our store obeys the rules`() async throws {
        try await MuxStoreConformance.run { OurStore() }
    }
}

@Suite(.standard(endsAtRest: false))
struct ServiceOnLoopbackTests {
    struct Note: Codable, Identifiable, Sendable {
        var id: Int
        var text: String
    }

    struct GetNotes: HTTPRequest {
        var service: HTTPEndpoint
        var endpoint: HTTPEndpoint { self.service.appending("/notes") }
        var method: HTTPMethod { .get }
        typealias Output = [Note]
    }

    @Test func `a session that the server revokes leads to one sign-in`() async throws {
        let clock = VirtualClock()
        var configuration = FakeOAuthServer.Configuration()
        configuration.accessLifetime = .seconds(60)
        let oauth = FakeOAuthServer(users: ["alice": "secret"], configuration: configuration, clock: clock)
        let backend = try LoopbackBackend(oauth: oauth, places: [Note]()) { request in
            guard request.method == "GET", request.path == "/notes" else { return nil }  // the backend responds
            guard oauth.authorize(request.bearerToken ?? "") != nil else {
                return .json(["error": "invalid_token"], status: 401)
            }
            return .json([Note(id: 1, text: "Milk")])
        }
        let url = try backend.goOnline()
        let app = OAuthClient(id: "app")
        let door = OAuthTokenEndpoint(url: url.appending(path: "sign-in"), client: app)
        let session = OAuthDependentRunner(
            endpoint: OAuthTokenEndpoint(url: url.appending(path: "token"), client: app),
            repository: MuxRepository(store: MemoryStore(), clock: clock),
            signIn: {
                try await door.tokens(grantType: "password", parameters: ["user": "alice", "password": "secret"])
            }
        )
        let client = HTTPClient(authenticator: session)
        let notes = try GetNotes(service: HTTPEndpoint(url))

        #expect(try await client.output(of: notes).count == 1)  // signs in
        clock.advance(by: .seconds(60))
        #expect(try await client.output(of: notes).count == 1)  // renews the access token
        oauth.revokeAllRefreshTokens()
        #expect(try await client.output(of: notes).count == 1)  // 401, then `invalid_grant`: signs in again
        let counts = oauth.statistics
        #expect(counts.signIns == 2 && counts.refreshes == 1 && counts.revocations == 1)
        await backend.goOffline()
    }
}
