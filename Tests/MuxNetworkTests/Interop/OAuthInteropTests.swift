import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The OAuth client against django-oauth-toolkit with rotation and reuse protection.
@Suite(
    .standard,
    .enabled(if: Interop.oauth != nil, "Tests/Interop/run starts the server that this needs"),
    .serialized
)
struct OAuthInteropTests {
    private struct Redirection: Decodable { var location: String }
    private struct Me: Codable, Equatable { var user: String }

    private let base = Interop.oauth ?? URL(filePath: "/")
    private let transport = URLSessionTransport()

    private func endpoint(_ client: OAuthClient = OAuthClient(id: "public")) -> OAuthTokenEndpoint {
        OAuthTokenEndpoint(url: self.base.appending(path: "o/token/"), client: client, transport: self.transport)
    }

    /// Stands in for the browser and its user.
    private static func signIn(_ base: URL, _ endpoint: OAuthTokenEndpoint) async throws -> OAuthTokens {
        let authorization = try #require(
            OAuthAuthorization(
                endpoint: base.appending(path: "grant"),
                client: endpoint.client,
                redirectURI: "https://client.example.com/cb"
            )
        )
        let reply = try await URLSessionTransport().send(HTTPCall(url: authorization.url))
        let redirection = try JSONDecoder().decode(Redirection.self, from: reply.body)
        return try await endpoint.redeem(#require(URL(string: redirection.location)), of: authorization)
    }

    private func counts() async throws -> [String: Int] {
        let reply = try await self.transport.send(HTTPCall(url: self.base.appending(path: "counts")))
        return try JSONDecoder().decode([String: Int].self, from: reply.body)
    }

    /// The number of responses with the key `what` since `before`.
    private func count(_ what: String, since before: [String: Int]) async throws -> Int {
        try await self.counts()[what, default: 0] - before[what, default: 0]
    }

    /// How access tokens become invalid.
    enum Ending: CaseIterable {
        /// The server rejects the token.
        case refused
        /// The token expires by the client's clock.
        case byTheClock
    }

    @Test(arguments: Ending.allCases)
    func `O04 two hundred concurrent requests survive five expiries with one sign-in and no reuse`(
        ending: Ending
    ) async throws {
        let (base, signIns, clock) = (self.base, Locked(0), VirtualClock())
        let wallTime: @Sendable () -> Date = { Date().addingTimeInterval(clock.now.offset.secondsValue) }
        let endpoint = OAuthTokenEndpoint(
            url: base.appending(path: "o/token/"),
            client: OAuthClient(id: "public"),
            transport: self.transport
        ).with(wallTime: wallTime)
        let before = try await self.counts()
        let repository = MuxRepository(store: MemoryStore(), clock: clock, wallTime: wallTime)
        let runner = OAuthDependentRunner(endpoint: endpoint, repository: repository) {
            signIns.withLock { $0 += 1 }
            return try await Self.signIn(base, endpoint)
        }
        var configuration = HTTPClient.Configuration()
        configuration.wallTime = wallTime
        let client = HTTPClient(configuration: configuration, transport: self.transport, authenticator: runner)

        for round in 0...5 {
            if round > 0 {
                switch ending {
                case .refused: _ = try await self.transport.send(HTTPCall(url: base.appending(path: "expire")))
                case .byTheClock: clock.advance(by: .seconds(3600))
                }
            }
            let users = try await withThrowingTaskGroup(of: Me.self) { group in
                for _ in 0..<200 { group.addTask { try await client.output(of: GetFrom<Me>(base: base, path: "/me")) } }
                return try await group.reduce(into: [Me]()) { $0.append($1) }
            }
            #expect(users == [Me](repeating: Me(user: "alice"), count: 200))
        }

        #expect(signIns.withLock { $0 } == 1, "no sign-in after the first")
        #expect(try await self.count("/o/token/ authorization_code 200", since: before) == 1)
        #expect(try await self.count("/o/token/ refresh_token 200", since: before) == 5, "one refresh for each expiry")
        #expect(try await self.count("/o/token/ refresh_token 400", since: before) == 0, "no refresh token twice")
        #expect(try await self.count("/me 200", since: before) == 1_200)
        let refused = try await self.count("/me 401", since: before)
        #expect(ending == .refused ? refused >= 5 : refused == 0, "\(refused) refusals")
    }

    @Test(arguments: [1, 2])
    func `CO-19 five hundred requests succeed with tokens that live a second or two`(seconds: Int) async throws {
        func life(_ seconds: Int) async throws {
            let query = [URLQueryItem(name: "seconds", value: "\(seconds)")]
            _ = try await self.transport.send(
                HTTPCall(url: self.base.appending(path: "life").appending(queryItems: query))
            )
        }
        try await life(seconds)
        let (base, endpoint, signIns) = (self.base, self.endpoint(), Locked(0))
        let before = try await self.counts()
        let runner = OAuthDependentRunner(endpoint: endpoint, repository: MuxRepository(store: MemoryStore())) {
            signIns.withLock { $0 += 1 }
            return try await Self.signIn(base, endpoint)
        }
        let client = HTTPClient(transport: self.transport, authenticator: runner)
        let start = ContinuousClock.now
        var count = 0
        while count < 500 || start.duration(to: .now) < .seconds(6) {
            #expect(try await client.output(of: GetFrom<Me>(base: base, path: "/me")) == Me(user: "alice"))
            count += 1
        }
        try await life(3600)
        #expect(signIns.withLock { $0 } == 1)
        #expect(try await self.count("/o/token/ refresh_token 400", since: before) == 0, "no refresh token twice")
        #expect(try await self.count("/o/token/ refresh_token 200", since: before) >= 2)
    }

    @Test func `O04 the server detects the reuse of a refresh token and the refusal is a typed error`() async throws {
        let endpoint = self.endpoint()
        let first = try await Self.signIn(self.base, endpoint)
        let old = try #require(first.refresh)
        let second = try await endpoint.refresh(old)
        #expect(second.refresh != old && second.access != first.access)
        #expect(second.access.scopes == ["read"] && second.access.expiresAt != nil)

        for token in [old, try #require(second.refresh), "nonsense"] {
            await #expect { try await endpoint.refresh(token) } throws: { error in
                guard let error = error as? OAuthError, case .refused(let refusal) = error else { return false }
                return refusal.code == .invalidGrant && error.isBadDependency
            }
        }
    }

    @Test func `O04 a code is redeemed only with its PKCE verifier and only once`() async throws {
        let endpoint = self.endpoint()
        let authorization = try #require(
            OAuthAuthorization(
                endpoint: self.base.appending(path: "grant"),
                client: endpoint.client,
                redirectURI: "https://client.example.com/cb"
            )
        )
        let reply = try await self.transport.send(HTTPCall(url: authorization.url))
        let location = try JSONDecoder().decode(Redirection.self, from: reply.body).location
        let code = try authorization.code(from: #require(URL(string: location)))

        await #expect {
            try await endpoint.exchange(code: code, redirectURI: authorization.redirectURI, pkce: PKCE())
        } throws: { ($0 as? OAuthError)?.isBadDependency == true }
        let tokens = try await endpoint.exchange(
            code: code,
            redirectURI: authorization.redirectURI,
            pkce: authorization.pkce
        )
        #expect(tokens.refresh != nil)
        await #expect(throws: OAuthError.self) {
            try await endpoint.exchange(code: code, redirectURI: authorization.redirectURI, pkce: authorization.pkce)
        }
    }

    @Test func `O04 a client authenticates with its secret in the header or in the body`() async throws {
        let secret = "s3cr:t/+ é"
        for authentication in [OAuthClient.Authentication.header(secret: secret), .body(secret: secret)] {
            let machine = self.endpoint(OAuthClient(id: "machine", authentication: authentication))
            #expect(try await machine.clientCredentials(scopes: ["read"]).scopes == ["read"])
            let confidential = self.endpoint(OAuthClient(id: "confidential", authentication: authentication))
            let tokens = try await Self.signIn(self.base, confidential)
            #expect(try await confidential.refresh(#require(tokens.refresh)).refresh != nil)
        }
        let wrong = self.endpoint(OAuthClient(id: "machine", authentication: .header(secret: "wrong")))
        await #expect { try await wrong.clientCredentials() } throws: { error in
            guard let error = error as? OAuthError, case .refused(let refusal) = error else { return false }
            return refusal.code == .invalidClient && refusal.status == .unauthorized && !error.isBadDependency
        }
    }
}
