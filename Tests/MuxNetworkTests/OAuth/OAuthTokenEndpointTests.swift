import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct OAuthTokenEndpointTests {
    private static let now = Date(timeIntervalSince1970: 1_767_225_600)
    private static let example = """
        {"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"Bearer","expires_in":3600,\
        "refresh_token":"tGzv3JOkF0XG5Qx2TlKWIA","example_parameter":"example_value"}
        """

    private func endpoint(
        _ transport: any HTTPTransport,
        as client: OAuthClient = OAuthClient(id: "s6BhdRkqt3"),
        url: String = "https://server.example.com/token"
    ) throws -> OAuthTokenEndpoint {
        OAuthTokenEndpoint(url: try #require(URL(string: url)), client: client, transport: transport)
            .with(wallTime: { Self.now })
    }

    private static func reply(_ status: Int = 200, _ body: String = example, _ headers: HTTPHeaders = [:])
        -> HTTPReply
    {
        HTTPReply(status: status, headers: headers, body: Data(body.utf8))
    }

    private func fields(_ call: HTTPCall?) -> [String: String] {
        let body = String(decoding: call?.body?.data ?? Data(), as: UTF8.self)
        let pairs = body.split(separator: "&").map { $0.split(separator: "=", omittingEmptySubsequences: false) }
        return Dictionary(pairs.map { (PercentEncoding.decode($0[0]), PercentEncoding.decode($0[1])) }) {
            "\($0)|\($1)"
        }
    }

    // MARK: - Requests

    @Test func `O01 a code is exchanged with its redirect URI and its verifier`() async throws {
        let transport = ClosureTransport { _ in Self.reply() }
        let pkce = PKCE()

        let tokens = try await self.endpoint(transport)
            .exchange(code: "Sp lx+OB&=é", redirectURI: "https://client.example.com/cb", pkce: pkce)

        #expect(tokens.access.value == "2YotnFZFEjr1zCsicMWpAA")
        #expect(tokens.access.expiresAt == Self.now.addingTimeInterval(3600))
        #expect(tokens.refresh == "tGzv3JOkF0XG5Qx2TlKWIA")
        let call = try #require(transport.calls.first)
        #expect(call.method == "POST" && transport.calls.count == 1)
        #expect(call.headers["Content-Type"] == "application/x-www-form-urlencoded")
        #expect(call.headers["Accept"] == "application/json")
        #expect(
            self.fields(call) == [
                "grant_type": "authorization_code", "code": "Sp lx+OB&=é", "client_id": "s6BhdRkqt3",
                "redirect_uri": "https://client.example.com/cb", "code_verifier": pkce.verifier,
            ]
        )
    }

    @Test func `O01 a refresh token is exchanged`() async throws {
        let transport = ClosureTransport { _ in Self.reply() }
        let endpoint = try self.endpoint(transport)

        _ = try await endpoint.refresh("tGzv")
        _ = try await endpoint.refresh("tGzv", scopes: ["a", "b"])

        #expect(
            transport.calls.map(self.fields) == [
                ["grant_type": "refresh_token", "refresh_token": "tGzv", "client_id": "s6BhdRkqt3"],
                ["grant_type": "refresh_token", "refresh_token": "tGzv", "client_id": "s6BhdRkqt3", "scope": "a b"],
            ]
        )
    }

    @Test func `O01 the app gets a token by client credentials`() async throws {
        let transport = ClosureTransport { _ in
            Self.reply(200, #"{"access_token":"x","token_type":"bearer","expires_in":60,"scope":"read write"}"#)
        }
        let client = OAuthClient(id: "app", authentication: .header(secret: "secret"))

        let token = try await self.endpoint(transport, as: client).clientCredentials(scopes: ["read"])

        #expect(
            token
                == OAuthTokens.AccessToken("x", expiresAt: Self.now.addingTimeInterval(60), scopes: ["read", "write"])
        )
        #expect(self.fields(transport.calls.first) == ["grant_type": "client_credentials", "scope": "read"])
    }

    @Test func `O01 another grant type is possible`() async throws {
        let transport = ClosureTransport { _ in Self.reply() }

        _ = try await self.endpoint(transport).tokens(grantType: "urn:x", parameters: ["assertion": "a"])

        #expect(
            self.fields(transport.calls.first) == ["grant_type": "urn:x", "assertion": "a", "client_id": "s6BhdRkqt3"]
        )
    }

    @Test func `O01 the client authenticates in the header or in the body`() async throws {
        let transport = ClosureTransport { _ in Self.reply() }
        let header = OAuthClient(id: "s6BhdRkqt3", authentication: .header(secret: "gX1fBat3bV"))
        let odd = OAuthClient(id: "a:b c", authentication: .header(secret: "p%é"))
        let body = OAuthClient(id: "s6BhdRkqt3", authentication: .body(secret: "7Fjfp0ZBr1KtDRbnfVdmIw"))

        for client in [header, odd, body] { _ = try await self.endpoint(transport, as: client).refresh("r") }

        // RFC 6749, section 2.3.1.
        #expect(transport.calls[0].headers["Authorization"] == "Basic czZCaGRSa3F0MzpnWDFmQmF0M2JW")
        #expect(self.fields(transport.calls[0]) == ["grant_type": "refresh_token", "refresh_token": "r"])
        let encoded = Data("a%3Ab%20c:p%25%C3%A9".utf8).base64EncodedString()
        #expect(transport.calls[1].headers["Authorization"] == "Basic \(encoded)", "both halves are form-encoded first")
        #expect(transport.calls[2].headers["Authorization"] == nil)
        #expect(self.fields(transport.calls[2])["client_secret"] == "7Fjfp0ZBr1KtDRbnfVdmIw")
        #expect(self.fields(transport.calls[2])["client_id"] == "s6BhdRkqt3")
    }

    @Test(arguments: [
        "http://server.example.com/token", "ftp://server.example.com/token", "/token", "https://server.example.com/t#f",
        "http://127.0.0.1.example.com/token", "http://localhost.example.com/token", "http://127.example.com/token",
        "http://127.0.0.1.2/token", "http://127.0.0.x/token", "http://128.0.0.1/token", "http://127.0.0.1/token#f",
    ])
    func `O01 tokens are not sent without TLS`(url: String) async throws {
        let transport = ClosureTransport { _ in Self.reply() }

        await #expect { try await self.endpoint(transport, url: url).refresh("r") } throws: {
            guard case .insecureEndpoint? = $0 as? OAuthError else { return false }
            return true
        }
        #expect(transport.calls.isEmpty)
    }

    @Test(arguments: [
        "http://127.0.0.1:80/t", "http://127.9.8.7/t", "http://localhost/t", "http://[::1]:8080/t",
        "HTTPS://EXAMPLE.COM/t",
    ])
    func `O01 tokens are sent to loopback addresses and over TLS`(url: String) async throws {
        let transport = ClosureTransport { _ in Self.reply() }

        _ = try await self.endpoint(transport, url: url).refresh("r")

        #expect(transport.calls.count == 1)
    }

    @Test func `O01 a repeated parameter is refused`() async throws {
        let transport = ClosureTransport { _ in Self.reply() }

        for name in ["grant_type", "client_id"] {
            await #expect(throws: OAuthError.self) {
                try await self.endpoint(transport).tokens(grantType: "x", parameters: [name: "y"])
            }
        }
        #expect(transport.calls.isEmpty)
    }

    @Test func `O01 a token endpoint works on a real socket`() async throws {
        let server = LoopbackServer { request in
            guard request.fields["code"] == "good", request.header("Authorization") == "Basic YTpi" else {
                return .json(["error": "invalid_grant", "error_description": "no"], status: 400)
            }
            return LoopbackServer.Response(headers: ["Content-Type": "application/json"], body: Data(Self.example.utf8))
        }
        let url = try server.start().appending(path: "token")
        let client = OAuthClient(id: "a", authentication: .header(secret: "b"))
        let endpoint = OAuthTokenEndpoint(url: url, client: client)

        #expect(try await endpoint.exchange(code: "good").refresh == "tGzv3JOkF0XG5Qx2TlKWIA")
        await #expect { try await endpoint.exchange(code: "bad") } throws: {
            guard case .refused(let refusal)? = $0 as? OAuthError else { return false }
            return refusal == OAuthError.Refusal(.invalidGrant, explanation: "no", status: 400)
        }
        await server.stop()
        await #expect { try await endpoint.exchange(code: "good") } throws: {
            ($0 as? OAuthError)?.isConnectivityFailure == true
        }
    }

    // MARK: - Responses

    /// The class of a response.
    private enum Outcome: Equatable {
        case tokens
        /// The refresh token is refused, and a new sign-in follows.
        case refusal
        /// Another attempt may succeed, and stale values are usable meanwhile.
        case transient
        /// An error that leaves the session unchanged.
        case error
    }

    private static let answers: [(Int, String, Outcome)] = [
        (200, example, .tokens),
        (201, example, .tokens),
        (200, #"{"access_token":"x","token_type":"bEARER"}"#, .tokens),
        (
            200, #"{"access_token":"x","token_type":"Bearer","refresh_token":null,"scope":null,"expires_in":null}"#,
            .tokens
        ),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":"3600"}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":1e300}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":0,"x":[{"y":null}]}"#, .tokens),
        (400, #"{"error":"invalid_grant"}"#, .refusal),
        (401, #"{"error":"invalid_grant","error_description":"expired"}"#, .refusal),
        (403, #"{"error":"invalid_grant","error_description":7,"error_uri":[]}"#, .refusal),
        // A 429 or 5xx status is transient, although the body is a refusal.
        (500, #"{"error":"invalid_grant"}"#, .transient),
        (503, #"{"error":"invalid_grant"}"#, .transient),
        (429, #"{"error":"invalid_grant"}"#, .transient),
        (200, #"{"error":"invalid_grant"}"#, .refusal),
        (302, #"{"error":"invalid_grant"}"#, .error),
        (304, "", .error),
        (429, "", .transient),
        (500, "<html>", .transient),
        (502, "", .transient),
        (503, "", .transient),
        (504, "", .transient),
        (599, "", .transient),
        (600, "", .error),
        (0, "", .error),
        (400, #"{"error":"invalid_client"}"#, .error),
        (401, #"{"error":"invalid_client"}"#, .error),
        (400, #"{"error":"invalid_request"}"#, .error),
        (400, #"{"error":"unauthorized_client"}"#, .error),
        (400, #"{"error":"unsupported_grant_type"}"#, .error),
        (400, #"{"error":"invalid_scope"}"#, .error),
        (400, #"{"error":"INVALID_GRANT"}"#, .refusal),
        (400, #"{"error":"invalid_grant "}"#, .refusal),
        (400, #"{"error":["invalid_grant"]}"#, .refusal),
        (400, #"{"error":""}"#, .error),
        (400, #"{"error":null}"#, .error),
        (400, #"{"error":"invalid_grant\n"}"#, .error),
        (400, #"{"error_description":"invalid_grant"}"#, .error),
        (400, #"["invalid_grant"]"#, .error),
        (400, #""invalid_grant""#, .error),
        (400, "error=invalid_grant", .error),
        (400, "", .error),
        (400, "<html><body>invalid_grant</body></html>", .error),
        (401, "", .error),
        (403, "<html>Welcome to our hotel</html>", .error),
        (404, "not found", .error),
        (200, "", .error),
        (200, "<html>Welcome to our hotel</html>", .error),
        (200, "{}", .error),
        (200, "[]", .error),
        (200, "null", .error),
        (200, #"{"access_token":"x"}"#, .tokens),
        (200, #"{"token_type":"Bearer"}"#, .error),
        (200, #"{"access_token":"","token_type":"Bearer"}"#, .error),
        (200, #"{"access_token":7,"token_type":"Bearer"}"#, .error),
        (200, #"{"access_token":"a\nb","token_type":"Bearer"}"#, .error),
        (200, #"{"access_token":"é","token_type":"Bearer"}"#, .error),
        (200, #"{"access_token":"x","token_type":"mac"}"#, .error),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":-1}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":"soon"}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":"-5"}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","expires_in":true}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","refresh_token":""}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer","refresh_token":5}"#, .error),
        (200, #"{"access_token":"x","token_type":"Bearer","refresh_token":"a\r\n"}"#, .error),
        (200, #"{"access_token":"x","token_type":"Bearer","scope":5}"#, .tokens),
        (200, #"{"access_token":"x","token_type":"Bearer""#, .error),
    ]

    private static func outcome(_ result: Result<OAuthTokens, any Error>) -> Outcome {
        switch result {
        case .success: return .tokens
        case .failure(let error as OAuthError):
            if error.isBadDependency { return .refusal }
            return error.isConnectivityFailure ? .transient : .error
        case .failure: return .error
        }
    }

    @Test(arguments: Self.answers.indices)
    func `O03 a response becomes tokens, a refusal, a transient error or another error`(index: Int) async throws {
        let (status, body, expected) = Self.answers[index]
        let transport = ClosureTransport { _ in Self.reply(status, body) }
        let result: Result<OAuthTokens, any Error>
        do {
            result = .success(try await self.endpoint(transport).refresh("r"))
        } catch {
            result = .failure(error)
        }

        #expect(Self.outcome(result) == expected, "\(status) \(body)")
        if case .failure(let error) = result { #expect(error is OAuthError) }
    }

    @Test func `O03 a lost network is transient and a cancellation is a CancellationError`() async throws {
        let transport = ClosureTransport { _ in throw HTTPError.transport(.timedOut(after: .seconds(1))) }
        await #expect { try await self.endpoint(transport).refresh("r") } throws: { error in
            guard let error = error as? OAuthError, case .transport = error else { return false }
            return error.isConnectivityFailure && !error.isBadDependency
        }

        let cancelling = ClosureTransport { _ in throw CancellationError() }
        await #expect(throws: CancellationError.self) { try await self.endpoint(cancelling).refresh("r") }
    }

    @Test func `O03 the error contains the server's Retry-After`() async throws {
        for (text, expected) in [
            ("7", .seconds(7)), ("Thu, 01 Jan 2026 00:01:00 GMT", .seconds(60)), ("soon", nil), ("-1", nil),
            ("Wed, 31 Dec 2025 23:59:59 GMT", .zero),
        ] as [(String, Duration?)] {
            let transport = ClosureTransport { _ in Self.reply(503, "", ["Retry-After": text]) }
            await #expect { try await self.endpoint(transport).refresh("r") } throws: { error in
                guard case .unavailable(503, let time)? = error as? OAuthError else { return false }
                return time == expected
            }
        }
    }

    @Test func `O01 the lifetime of a token starts at the request and not at the response`() async throws {
        let now = Locked(Self.now)
        let transport = ClosureTransport { _ in
            now.withLock { $0 += 100 }
            return Self.reply()
        }
        let endpoint = OAuthTokenEndpoint(
            url: try #require(URL(string: "https://server.example.com/token")),
            client: OAuthClient(id: "a"),
            transport: transport
        ).with(wallTime: { now.withLock { $0 } })
        let tokens = try await endpoint.refresh("r")

        #expect(tokens.access.expiresAt == Self.now.addingTimeInterval(3600))
    }

    @Test func `O03 no description contains a secret`() async throws {
        let secret = "s3cr3t"
        for (status, body) in [
            (400, #"{"error":"invalid_grant","error_description":"\#(secret)","error_uri":"\#(secret)"}"#),
            (200, #"{"access_token":"\#(secret)","token_type":"mac"}"#), (503, secret),
        ] {
            let client = OAuthClient(id: "a", authentication: .body(secret: secret))
            let endpoint = try self.endpoint(ClosureTransport { _ in Self.reply(status, body) }, as: client)
            do {
                _ = try await endpoint.refresh(secret)
                Issue.record("no error")
            } catch {
                var text = "\(error) \(String(reflecting: error)) \(error.localizedDescription) \(endpoint) \(client)"
                dump(error, to: &text)
                dump(endpoint, to: &text)
                dump(client.authentication, to: &text)
                text += "\(client.authentication)\(OAuthClient.Authentication.header(secret: secret))"
                #expect(!text.contains(secret), "\(text)")
            }
        }
        // A server may quote the secret that it decoded from the header.
        let body = #"{"error":"invalid_client","error_description":"no client with \#(secret)"}"#
        let client = OAuthClient(id: "a", authentication: .header(secret: secret))
        let quoting = try self.endpoint(ClosureTransport { _ in Self.reply(401, body) }, as: client)
        await #expect {
            try await quoting.refresh("r")
        } throws: {
            !"\($0) \(String(reflecting: $0)) \($0.localizedDescription)".contains(secret)
        }
        var text = ""
        dump(OAuthTokens(access: OAuthTokens.AccessToken(secret), refresh: secret), to: &text)
        #expect(!text.contains(secret))
    }

    @Test func `O03 arbitrary responses never trap and never end a session by mistake`() {
        let pieces = [
            "{", "}", "[", "]", "\"", ":", ",", "access_token", "token_type", "Bearer", "expires_in", "refresh_token",
            "error",
            "invalid_grant", "null", "1e999", "-0", "\\u0000", "\\", "é", "\u{0}", "true", "3600", " ",
        ]
        let bodies = [Self.example, #"{"error":"invalid_grant"}"#]
        for seed in 0..<4_000 as Range<UInt64> {
            var random = SplitMix64(state: seed)
            var bytes = Array((bodies.randomElement(using: &random) ?? "").utf8)
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let place = Int.random(in: 0..<max(bytes.count, 1), using: &random)
                switch Int.random(in: 0...3, using: &random) {
                case 0:
                    bytes.insert(
                        contentsOf: (pieces.randomElement(using: &random) ?? "").utf8,
                        at: min(place, bytes.count)
                    )
                case 1 where !bytes.isEmpty: bytes[place] ^= 1 << UInt8.random(in: 0...7, using: &random)
                case 2: bytes.removeLast(bytes.count / 2)
                default: if !bytes.isEmpty { bytes.remove(at: place) }
                }
            }
            let status = [200, 400, 401, 429, 500, 302, -1, Int.max].randomElement(using: &random) ?? 0
            do throws(OAuthError) {
                _ = try OAuthReply.tokens(HTTPReply(status: status, body: Data(bytes)), sentAt: Self.now, now: Self.now)
                #expect(status == 200)
            } catch {
                if error.isBadDependency {
                    #expect([200, 400, 401].contains(status))
                    let text = String(decoding: bytes, as: UTF8.self)
                    #expect(text.contains("invalid_grant"), "seed \(seed)")
                }
            }
        }
    }

    @Test func `O03 a response of many megabytes or of many levels is malformed`() {
        let deep = String(repeating: "{\"a\":", count: 100_000)
        let large =
            "{\"access_token\":\"\(String(repeating: "x", count: OAuthReply.maximumSize))\",\"token_type\":\"Bearer\"}"
        for body in [deep, large, "{\"error\":\"invalid_grant\",\"x\":\(deep)"] {
            for status in [200, 400] {
                #expect(throws: OAuthError.self) {
                    try OAuthReply.tokens(Self.reply(status, body), sentAt: Self.now, now: Self.now)
                }
            }
        }
    }
}
