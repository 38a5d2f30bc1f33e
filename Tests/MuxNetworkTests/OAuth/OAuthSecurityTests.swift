import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// The requirements of RFC 9700 and RFC 9207 for a client.
@Suite(.standard)
struct OAuthSecurityTests {
    private let client = OAuthClient(id: "app")
    private static let tokens = #"{"access_token":"a","token_type":"Bearer"}"#

    private func authorization(
        _ endpoint: String = "https://server.example.com/authorize",
        issuer: String? = nil,
        redirectURI: String = "https://client.example.com/cb",
        parameters: [String: String] = [:]
    ) throws -> OAuthAuthorization? {
        OAuthAuthorization(
            endpoint: try #require(URL(string: endpoint)),
            issuer: issuer,
            client: self.client,
            redirectURI: redirectURI,
            parameters: parameters
        )
    }

    /// The names and values of a query, repetitions included.
    private func pairs(_ url: URL?) -> [String] {
        (url?.query(percentEncoded: true) ?? "").split(separator: "&").map { String($0) }
    }

    // MARK: - The issuer

    private func code(_ query: String, issuer: String?) throws -> String {
        let authorization = try #require(try self.authorization(issuer: issuer))
        let text = "https://client.example.com/cb?state=\(authorization.state)&\(query)"
        return try authorization.code(from: #require(URL(string: text)))
    }

    @Test(arguments: [
        "code=a&iss=https%3A%2F%2Fserver.example.com", "iss=https://server.example.com&code=a",
    ])
    func `CO-35 a code of the expected issuer is accepted`(query: String) throws {
        #expect(try self.code(query, issuer: "https://server.example.com") == "a")
    }

    @Test(arguments: [
        "code=a", "code=a&iss=", "code=a&iss", "code=a&iss=https%3A%2F%2Fevil.example.com",
        "code=a&iss=https%3A%2F%2Fserver.example.com%2F", "code=a&iss=HTTPS%3A%2F%2Fserver.example.com",
        "code=a&iss=https%3A%2F%2Fserver.example.com%3A443",
        "code=a&iss=https%3A%2F%2Fserver.example.com&iss=https%3A%2F%2Fserver.example.com",
        "error=access_denied", "error=access_denied&iss=https%3A%2F%2Fevil.example.com",
    ])
    func `CO-35 a redirection of another issuer is refused by simple string comparison`(query: String) throws {
        #expect {
            try self.code(query, issuer: "https://server.example.com")
        } throws: {
            guard case .foreignRedirect(let fault)? = $0 as? OAuthError else { return false }
            let isRepeated = query.ranges(of: "iss=").count > 1
            return fault == (isRepeated ? .repeatedParameter : query.contains("iss") ? .otherIssuer : .missingIssuer)
        }
    }

    @Test func `CO-35 an error of the expected issuer is a refusal with its code`() throws {
        #expect {
            try self.code("error=access_denied&iss=https%3A%2F%2Fa.example", issuer: "https://a.example")
        } throws: {
            guard case .refused(let refusal)? = $0 as? OAuthError else { return false }
            return refusal.code == .accessDenied
        }
    }

    @Test func `CO-35 a redirection needs no issuer without an expected issuer`() throws {
        #expect(try self.code("code=a", issuer: nil) == "a")
        #expect(try self.code("code=a&iss=https%3A%2F%2Fanybody.example.com", issuer: nil) == "a")
    }

    // MARK: - Endpoints

    private static let unsafeEndpoints = [
        "http://server.example.com/a", "http://localhost.example.com/a", "http://127.0.0.1.example.com/a",
        "ftp://server.example.com/a", "javascript:alert(1)", "javascript://localhost/%0aalert(1)",
        "javascript://server.example.com/%0aalert(1)", "data:text/html,x", "data://localhost/x", "file:///etc/passwd",
        "file://localhost/etc/passwd", "vbscript:x", "about:blank", "app:/authorize", "ws://localhost/a", "//a.com/b",
        "/authorize", "https:///authorize", "https://server.example.com/a#f",
    ]

    @Test(arguments: Self.unsafeEndpoints)
    func `CO-35 no user is sent to an insecure authorization endpoint`(endpoint: String) throws {
        #expect(try self.authorization(endpoint) == nil)
    }

    @Test(arguments: Self.unsafeEndpoints)
    func `CO-35 no token is requested from an insecure token endpoint`(endpoint: String) async throws {
        let transport = ClosureTransport { _ in HTTPReply(status: 200, body: Data(Self.tokens.utf8)) }
        let url = try #require(URL(string: endpoint))

        await #expect {
            try await OAuthTokenEndpoint(url: url, client: self.client, transport: transport).refresh("r")
        } throws: {
            guard case .insecureEndpoint? = $0 as? OAuthError else { return false }
            return true
        }
        #expect(transport.calls.isEmpty)
    }

    @Test(arguments: [
        "https://server.example.com/a", "HTTPS://SERVER.EXAMPLE.COM/a", "http://localhost:8080/a", "http://127.0.0.1/a",
        "http://[::1]:8080/a",
    ])
    func `CO-35 a user is sent to HTTPS and loopback endpoints`(endpoint: String) throws {
        #expect(try self.authorization(endpoint) != nil)
    }

    @Test(arguments: [
        "javascript:alert(1)", "javascript://localhost/%0a", "data:text/html,x", "vbscript:x", "file:///x",
        "about:blank",
        "blob:x", "http://client.example.com/cb", "https://client.example.com/cb#f", "https:///cb", "/cb", "cb", "",
    ])
    func `CO-35 no code is sent to an insecure redirect URI`(redirectURI: String) throws {
        #expect(try self.authorization(redirectURI: redirectURI) == nil)
    }

    @Test(arguments: [
        "https://client.example.com/cb", "http://127.0.0.1:51004/cb", "http://[::1]:51004/cb", "http://localhost/cb",
        "app:/cb", "com.example.app:/cb", "com.example.app://cb", "urn:ietf:wg:oauth:2.0:oob",
    ])
    func `CO-35 a code is sent to HTTPS, loopback and app redirect URIs`(redirectURI: String) throws {
        #expect(try self.authorization(redirectURI: redirectURI) != nil)
    }

    // MARK: - Parameters

    @Test func `CO-35 the authorization URL contains no parameter of the client twice`() throws {
        let query = "tenant=7&client_id=other&client%5Fid=another&state=fixed&a=1&a=%C3%A9&prompt=none&x"
        let authorization = try self.authorization(
            "https://server.example.com/authorize?\(query)",
            parameters: ["prompt": "login"]
        )

        let pairs = self.pairs(authorization?.url)

        #expect(
            Array(pairs.prefix(4)) == ["tenant=7", "a=1", "a=%C3%A9", "x"],
            "what is the endpoint's own stays as it is"
        )
        let names = pairs.dropFirst(4).map { String($0.prefix { $0 != "=" }) }
        #expect(Set(names).count == names.count)
        #expect(pairs.contains("client_id=app") && pairs.contains("prompt=login"))
    }

    @Test(arguments: [("?", ""), ("?client_id=x", ""), ("", ""), ("?a=1", "a=1&"), ("?a=1&", "a=1&")])
    func `CO-35 an empty query of the endpoint leaves no trace in the authorization URL`(own: String, expected: String)
        throws
    {
        let url = try self.authorization("https://server.example.com/authorize\(own)")?.url.absoluteString
        #expect(
            url?.hasPrefix("https://server.example.com/authorize?\(expected)response_type=code&client_id=app&") == true
        )
    }

    @Test func `CO-35 no parameter is in both the URL and the body of a token request`() async throws {
        let transport = ClosureTransport { _ in HTTPReply(status: 200, body: Data(Self.tokens.utf8)) }
        let url = try #require(URL(string: "https://server.example.com/token?p=policy&client_id=x&grant%5Ftype=y"))

        _ = try await OAuthTokenEndpoint(url: url, client: self.client, transport: transport).refresh("r")

        #expect(transport.calls.map(\.url.absoluteString) == ["https://server.example.com/token?p=policy"])
    }

    // MARK: - Transient failures

    private static let passing: [(Int, String)] =
        [200, 302, 400, 401, 403, 404, 500, 503].flatMap { status in
            ["temporarily_unavailable", "server_error"].map { (status, #"{"error":"\#($0)"}"#) }
        } + [(408, ""), (408, #"{"error":"invalid_grant"}"#), (408, "<html>"), (429, ""), (500, ""), (503, "busy")]

    @Test(arguments: Self.passing.indices)
    func `CO-35 a transient failure is retryable regardless of its status`(index: Int) async throws {
        let (status, body) = Self.passing[index]
        let transport = ClosureTransport { _ in
            HTTPReply(status: status, headers: ["Retry-After": "7"], body: Data(body.utf8))
        }
        let url = try #require(URL(string: "https://server.example.com/token"))

        let error = await #expect(throws: OAuthError.self) {
            try await OAuthTokenEndpoint(url: url, client: self.client, transport: transport).refresh("r")
        }

        guard case .unavailable(let found, .seconds(7))? = error else {
            Issue.record("\(status) \(body): \(error?.description ?? "")")
            return
        }
        #expect(found.code == status && error?.isConnectivityFailure == true && error?.isBadDependency == false)
        let advice = error?.retryAdvice
        #expect(advice == RetryAdvice(isTransient: true, retryAfter: .seconds(7)))
    }

    @Test(arguments: [
        (400, "invalid_client"), (400, "invalid_grant"), (401, "unauthorized_client"), (200, "invalid_scope"),
    ])
    func `CO-35 a permanent failure is not retryable`(status: Int, code: String) async throws {
        let transport = ClosureTransport { _ in HTTPReply(status: status, body: Data(#"{"error":"\#(code)"}"#.utf8)) }
        let url = try #require(URL(string: "https://server.example.com/token"))

        let error = await #expect(throws: OAuthError.self) {
            try await OAuthTokenEndpoint(url: url, client: self.client, transport: transport).refresh("r")
        }

        #expect(error?.isConnectivityFailure == false && error?.retryAdvice == .permanent)
    }

    @Test(arguments: [("temporarily_unavailable", true), ("server_error", true), ("access_denied", false)])
    func `CO-35 an error in a redirection may be transient`(code: String, isPassing: Bool) throws {
        let error = #expect(throws: OAuthError.self) { try self.code("error=\(code)", issuer: nil) }

        #expect(error?.isConnectivityFailure == isPassing)
        #expect(error?.retryAdvice == (isPassing ? .transient : .permanent))
        guard case .refused(let refusal)? = error else {
            Issue.record("the server's own words are lost")
            return
        }
        #expect(refusal.code.rawValue == code)
    }
}
