import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Replies of the token endpoints of large providers.
@Suite(.standard)
struct TokenReplyTests {
    private static let now = Date(timeIntervalSince1970: 1_767_225_600)

    /// The meaning of a reply to a refresh.
    private enum Verdict: Equatable {
        case tokens(lifetime: Double?, refresh: String?, scopes: [String]?)
        /// The refresh token is refused permanently.
        case refused
        /// A later attempt is possible, after the given seconds if the server names a time.
        case tryLater(Double?)
        /// The server refused for another reason, so no sign-in follows.
        case mistake
        case malformed
    }

    private struct Row: Sendable {
        var status: Int
        var headers: HTTPHeaders
        var body: String
        var verdict: Verdict

        init(_ status: Int, _ body: String, _ verdict: Verdict, headers: HTTPHeaders = [:]) {
            (self.status, self.headers, self.body, self.verdict) = (status, headers, body, verdict)
        }
    }

    private static func tokens(_ lifetime: Double?, _ refresh: String? = nil, _ scopes: [String]? = nil) -> Verdict {
        .tokens(lifetime: lifetime, refresh: refresh, scopes: scopes)
    }

    private static func outcome(_ row: Row) -> Verdict {
        let reply = HTTPReply(status: row.status, headers: row.headers, body: Data(row.body.utf8))
        do throws(OAuthError) {
            let tokens = try OAuthReply.tokens(reply, sentAt: self.now, now: self.now)
            let lifetime = tokens.access.expiresAt.map { $0.timeIntervalSince(self.now) }
            return .tokens(lifetime: lifetime, refresh: tokens.refresh, scopes: tokens.access.scopes)
        } catch {
            #expect(
                error.isBadDependency == { if case .refused(let it) = $0 { it.refusesGrant } else { false } }(error)
            )
            switch error {
            case .unavailable(_, let time): return .tryLater(time?.secondsValue)
            case .refused: return error.isBadDependency ? .refused : .mistake
            default: return .malformed
            }
        }
    }

    private static func check(_ rows: [Row]) {
        for row in rows { #expect(self.outcome(row) == row.verdict, "\(row.status) \(row.body)") }
    }

    @Test func `WR-05 token replies of large providers are parsed`() {
        Self.check([
            Row(
                200,
                #"{"access_token":"a","expires_in":14124,"refresh_token":"r","scope":["chat:read","chat:edit"],"token_type":"bearer"}"#,
                Self.tokens(14124, "r", ["chat:read", "chat:edit"])
            ),
            Row(
                200,
                #"{"access_token":"a","expires_in":5184000,"scope":"r_basic"}"#,
                Self.tokens(5_184_000, nil, ["r_basic"])
            ),
            Row(
                200,
                #"{"access_token":"a","scope":"write_products,read_orders"}"#,
                Self.tokens(nil, nil, ["write_products", "read_orders"])
            ),
            Row(200, #"{"access_token":"a","scope":""}"#, Self.tokens(nil, nil, [])),
            Row(200, #"{"access_token":"a","scope":[]}"#, Self.tokens(nil, nil, [])),
            Row(200, #"{"access_token":"a","scope":["x",5,null]}"#, Self.tokens(nil, nil, ["x"])),
            Row(200, #"{"access_token":"a","scope":{"x":true}}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","expires_in":7200,"token_type":"User Access Token"}"#, Self.tokens(7200)),
            Row(
                200,
                #"{"ok":true,"access_token":"xoxe-1","token_type":"bot","expires_in":43200,"refresh_token":"xoxe-2"}"#,
                Self.tokens(43_200, "xoxe-2")
            ),
            Row(200, #"{"access_token":"a","token_type":null}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","token_type":7}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","token_type":""}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","error":null,"error_description":""}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","error":"","ok":true}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","refresh_token":""}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","refresh_token":"  "}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","refresh_token":null}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","refresh_token":false}"#, Self.tokens(nil)),
            Row(200, #"{"access_token":"a","x":1e999,"y":[[[]]]}"#, Self.tokens(nil)),
        ])
    }

    @Test func `WR-05 a lifetime is parsed in every form, and a senseless lifetime is unknown`() {
        let forms: [(String, Double?)] = [
            ("3599", 3599), ("3599.5", 3599.5), (#""3599""#, 3599), (#""3599.0""#, 3599), (#"" 3599 ""#, 3599),
            (#""3.6e3""#, 3600), ("3.6e3", 3600), ("1e300", 2_147_483_648), (#""99999999999999999999""#, 2_147_483_648),
            ("-1", nil), (#""-1""#, nil), ("-3600.5", nil), ("0", nil), (#""""#, nil), (#"" ""#, nil), ("null", nil),
            ("true", nil), ("[]", nil), ("{}", nil), (#""soon""#, nil), (#""nan""#, nil), (#""infinity""#, nil),
            (#""0x10""#, nil), ("1e999", nil), (#""1e999""#, nil), (#""1.2.3""#, nil),
        ]
        Self.check(forms.map { Row(200, #"{"access_token":"a","expires_in":\#($0)}"#, Self.tokens($1)) })
    }

    @Test func `WR-05 a reply without a usable token is malformed`() {
        Self.check([
            Row(200, #"{"access_token":null,"token_type":"Bearer"}"#, .malformed),
            Row(200, #"{"access_token":["a"]}"#, .malformed),
            Row(200, #"{"access_token":" "}"#, .malformed),
            Row(200, #"{"status":"success","token":"a"}"#, .malformed),
            Row(200, #"{"access_token":"a","token_type":"DPoP"}"#, .malformed),
            Row(200, #"{"access_token":"a","token_type":"mac"}"#, .malformed),
            Row(200, #"{"access_token":"a","refresh_token":{"value":"r"}}"#, .malformed),
            Row(200, "access_token=a&token_type=bearer", .malformed),
            Row(200, "<html>Welcome</html>", .malformed),
            Row(302, #"{"access_token":"a"}"#, .malformed),
            Row(
                200,
                #"{"access_token":"a","x":\#(String(repeating: "[", count: 200))\#(String(repeating: "]", count: 200))}"#,
                .malformed
            ),
        ])
    }

    @Test func `WR-05 a refused refresh token is recognised in the formats of all providers`() {
        Self.check([
            // GitHub and Slack.
            Row(
                200,
                #"{"error":"bad_refresh_token","error_description":"The refresh token passed is incorrect or expired."}"#,
                .refused
            ),
            Row(200, #"{"ok":false,"error":"invalid_refresh_token"}"#, .refused),
            Row(200, #"{"ok":false,"error":"token_revoked"}"#, .refused),
            // Reddit.
            Row(400, #"{"message":"Bad Request","error":400}"#, .refused),
            Row(200, #"{"error":"invalid_grant"}"#, .refused),
            // Fitbit and Strava.
            Row(
                400,
                #"{"errors":[{"errorType":"invalid_grant","message":"Refresh token invalid: 4bf2. Visit https://dev.example.com"}],"success":false}"#,
                .refused
            ),
            Row(401, #"{"errors":[{"errorType":"expired_token","message":"x"}],"success":false}"#, .refused),
            Row(
                400,
                #"{"message":"Bad Request","errors":[{"resource":"RefreshToken","field":"refresh_token","code":"invalid"}]}"#,
                .refused
            ),
            // HubSpot.
            Row(
                400,
                #"{"status":"BAD_REFRESH_TOKEN","message":"missing or invalid refresh token","correlationId":"1"}"#,
                .refused
            ),
            Row(400, #"{"status":"EXPIRED_REFRESH_TOKEN","message":"x"}"#, .refused),
            // Twitch.
            Row(400, #"{"error":"Bad Request","status":400,"message":"Invalid refresh token"}"#, .refused),
            Row(401, #"{"error":"Unauthorized","status":401,"message":"Invalid refresh token"}"#, .refused),
            // Microsoft and OpenID Connect.
            Row(
                400,
                #"{"error":"interaction_required","error_description":"AADSTS50076: x","error_codes":[50076]}"#,
                .refused
            ),
            Row(400, #"{"error":"consent_required"}"#, .refused),
            Row(400, #"{"error":"login_required"}"#, .refused),
            Row(400, #"{"error":"invalid_grant","error_description":"AADSTS700082","suberror":"bad_token"}"#, .refused),
            // Auth0 and others.
            Row(403, #"{"error":"invalid_grant","error_description":"Unknown or invalid refresh token."}"#, .refused),
            Row(
                401,
                #"{"error":"invalid_token","error_description":"The token expired, was revoked, or the token ID is incorrect"}"#,
                .refused
            ),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"The refresh_token is invalid.","status":"error"}"#,
                .refused
            ),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"Value passed for the token was invalid."}"#,
                .refused
            ),
            Row(400, #"{"error":"INVALID_REFRESH_TOKEN"}"#, .refused),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"This request requires an active refresh_token"}"#,
                .refused
            ),
            Row(200, #"{"errcode":40030,"errmsg":"invalid refresh_token"}"#, .refused),
            Row(200, #"{"code":20037,"msg":"The refresh token passed has expired"}"#, .refused),
            Row(400, #"{"error":{"code":"invalid_grant","message":"x"}}"#, .refused),
            Row(400, #"{"error":{"code":400,"message":"The refresh token has expired"}}"#, .refused),
            Row(400, #"{"errors":["refresh token not found"]}"#, .refused),
            Row(404, #"{"code":"refresh_token_revoked"}"#, .refused),
            Row(400, #"{"message":"The refresh token is no longer valid"}"#, .refused),
            Row(400, #"{"message":"expired access/refresh token"}"#, .refused),
            Row(400, #"{"message":"This refresh token doesn’t exist."}"#, .refused),
            Row(401, #"{"message":"Refresh token was already used"}"#, .refused),
            Row(403, #"{"error":"invalid_grant"}"#, .refused, headers: ["Retry-After": "60"]),
        ])
    }

    @Test func `WR-05 a mistake of the app, a rate limit and a foreign page are no refusal`() {
        Self.check([
            Row(401, #"{"error":"invalid_client","error_description":"Invalid refresh token or client"}"#, .mistake),
            Row(400, #"{"error":"unauthorized_client","error_description":"Unknown refresh token"}"#, .mistake),
            Row(400, #"{"error":"unsupported_grant_type","error_description":"Bad refresh token grant"}"#, .mistake),
            Row(400, #"{"error":"invalid_scope","error_description":"Invalid refresh token scope"}"#, .mistake),
            Row(
                200,
                #"{"error":"incorrect_client_credentials","error_description":"The refresh token is invalid"}"#,
                .mistake
            ),
            Row(200, #"{"ok":false,"error":"bad_client_secret"}"#, .mistake),
            Row(400, #"{"error":"invalid_request","error_description":"refresh_token is required"}"#, .mistake),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"Invalid request: refresh_token parameter is missing"}"#,
                .mistake
            ),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"Refresh token grant type is invalid"}"#,
                .mistake
            ),
            Row(400, #"{"error":"invalid_request","error_description":"The refresh token is not expired"}"#, .mistake),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"Refresh tokens cannot be used here"}"#,
                .mistake
            ),
            Row(403, #"{"error":"access_denied","error_description":"The user is blocked"}"#, .mistake),
            // The code alone speaks of the limit.
            Row(403, #"{"error":"daily_limit_reached","message":"The refresh token is expired"}"#, .mistake),
            Row(400, #"{"error":"authorization_pending"}"#, .mistake),
            // "Refresh" is a verb, or the adjective belongs to another noun.
            Row(400, #"{"error":"bad_request","message":"Failed to refresh token: bad request"}"#, .mistake),
            Row(400, #"{"error":"server_fault","message":"Unable to refresh token: unknown error"}"#, .mistake),
            Row(400, #"{"error":"fault","message":"Could not refresh token due to expired certificate"}"#, .mistake),
            Row(400, #"{"error":"fault","message":"The refresh token call has an invalid client secret"}"#, .mistake),
            Row(
                400,
                #"{"error":"invalid_request","error_description":"The request is invalid: refresh_token parameter is missing"}"#,
                .mistake
            ),
            Row(
                400,
                #"{"error":{"message":"Error validating access token","type":"OAuthException","code":190}}"#,
                .mistake
            ),
            Row(400, #"{"timestamp":1,"status":400,"error":"Bad Request","path":"/token"}"#, .mistake),
            Row(
                400,
                #"{"error":"slow","error_description":"Too many requests with an invalid refresh token"}"#,
                .mistake
            ),
            Row(400, #"{"message":"Bad Request","error":400,"x":1}"#, .malformed),
            Row(400, #"{"message":"Bad Request"}"#, .malformed),
            Row(403, #"{"message":"Forbidden"}"#, .malformed),
            Row(404, "not found", .malformed),
            Row(400, "<html><body>Invalid refresh token</body></html>", .malformed),
            Row(200, "<html>The refresh token is invalid</html>", .malformed),
            Row(302, #"{"error":"invalid_grant"}"#, .malformed),
            Row(200, #"{"message":"Welcome"}"#, .malformed),
        ])
    }

    @Test func `WR-05 a reply of a busy server is transient and keeps its Retry-After`() {
        Self.check([
            Row(429, #"{"error":"slow_down"}"#, .tryLater(nil)),
            Row(429, #"{"error":"slow_down"}"#, .tryLater(7), headers: ["Retry-After": "7"]),
            Row(429, #"{"error":"invalid_grant"}"#, .tryLater(nil)),
            Row(400, #"{"error":"slow_down"}"#, .tryLater(5), headers: ["Retry-After": "5"]),
            Row(400, #"{"error":"temporarily_unavailable"}"#, .tryLater(nil)),
            Row(200, #"{"ok":false,"error":"ratelimited"}"#, .tryLater(1.5), headers: ["Retry-After": "1.5"]),
            Row(200, #"{"ok":false,"error":"internal_error"}"#, .tryLater(nil)),
            Row(503, #"{"error":"invalid_grant"}"#, .tryLater(nil)),
            Row(500, "<html>invalid_grant</html>", .tryLater(nil)),
            Row(502, "", .tryLater(2), headers: ["Retry-After": "2"]),
            Row(408, "", .tryLater(nil)),
            Row(425, "", .tryLater(nil)),
            Row(403, "<html>", .tryLater(60), headers: ["Retry-After": "60"]),
            Row(
                403,
                #"{"message":"You have exceeded a secondary rate limit"}"#,
                .tryLater(0.5),
                headers: ["Retry-After": "0.5"]
            ),
            Row(
                403,
                #"{"error":"quota","message":"Invalid refresh token: too many requests"}"#,
                .tryLater(9),
                headers: ["Retry-After": "9"]
            ),
            Row(401, #"{"error":"invalid_client"}"#, .mistake, headers: ["Retry-After": "9"]),
        ])
    }

    // MARK: - The endpoint

    private func endpoint(
        _ status: Int,
        _ body: String,
        _ interpretReply: @escaping @Sendable (HTTPResponse) throws -> OAuthTokens? = { _ in nil }
    ) throws -> OAuthTokenEndpoint {
        OAuthTokenEndpoint(
            url: try #require(URL(string: "https://server.example.com/token")),
            client: OAuthClient(id: "app"),
            transport: ClosureTransport { _ in HTTPReply(status: status, body: Data(body.utf8)) },
            interpretReply: interpretReply
        )
    }

    @Test func `WR-05 a hook converts an unknown reply into tokens or a refusal`() async throws {
        struct GraphError: Decodable {
            struct Content: Decodable { var code: Int }
            var error: Content
        }
        let hook: @Sendable (HTTPResponse) throws -> OAuthTokens? = { reply in
            if let error = try? JSONDecoder().decode(GraphError.self, from: reply.body), error.error.code == 190 {
                throw OAuthError.refused(OAuthError.Refusal(.invalidGrant, status: reply.status))
            }
            let text = String(decoding: reply.body, as: UTF8.self)
            guard text.hasPrefix("access_token=") else { return nil }
            return OAuthTokens(access: OAuthTokens.AccessToken(String(text.dropFirst(13))), refresh: "r2")
        }

        let tokens = try await self.endpoint(200, "access_token=a", hook).refresh("r")
        #expect(tokens.access.value == "a" && tokens.refresh == "r2")
        let refused = try self.endpoint(400, #"{"error":{"type":"OAuthException","code":190}}"#, hook)
        await #expect { try await refused.refresh("r") } throws: { ($0 as? OAuthError)?.isBadDependency == true }
        let other = try self.endpoint(400, #"{"error":{"type":"OAuthException","code":191}}"#, hook)
        await #expect { try await other.refresh("r") } throws: { ($0 as? OAuthError)?.isBadDependency == false }
        // Whatever the endpoint understands by itself stays as it is.
        #expect(try await self.endpoint(200, #"{"access_token":"b"}"#, hook).refresh("r").access.value == "b")

        let failing = try self.endpoint(200, #"{"access_token":"b"}"#) { _ in throw BadDependency() }
        await #expect(throws: BadDependency.self) { try await failing.refresh("r") }
    }

    @Test func `WR-05 no description quotes a token that an error code or a hook repeats`() async throws {
        let secret = "s3cr3t-refresh"
        let replies = [
            #"{"error":"Invalid refresh token \#(secret)"}"#,
            #"{"errors":[{"errorType":"invalid_grant","message":"Refresh token invalid: \#(secret). Visit us"}]}"#,
        ]
        for body in replies {
            do {
                _ = try await self.endpoint(400, body).refresh(secret)
                Issue.record("no error for \(body)")
            } catch {
                #expect((error as? OAuthError)?.isBadDependency == true)
                let text = "\(error) \(String(reflecting: error)) \(error.localizedDescription)"
                #expect(!text.contains(secret), "\(text)")
            }
        }
        let hooked = try self.endpoint(400, "no") { _ in
            throw OAuthError.refused(OAuthError.Refusal(.invalidGrant, explanation: "\(secret)!", status: 400))
        }
        await #expect { try await hooked.refresh(secret) } throws: { !"\($0)".contains(secret) }
    }

    @Test func `WR-05 a description contains the name of an authentication scheme, but no secret`() async throws {
        for (text, isShown) in [("Use Basic authentication.", true), ("Unknown: YXBwOnMzY3IzdA==", false)] {
            let body = Data(#"{"error":"invalid_client","error_description":"\#(text)"}"#.utf8)
            let endpoint = OAuthTokenEndpoint(
                url: try #require(URL(string: "https://server.example.com/token")),
                client: OAuthClient(id: "app", authentication: .header(secret: "s3cr3t")),
                transport: ClosureTransport { _ in HTTPReply(status: 400, body: body) }
            )
            await #expect { try await endpoint.refresh("r") } throws: { "\($0)".contains(text) == isShown }
        }
    }

    @Test func `WR-05 every field of a reply is stored with the token, also after a relaunch`() async throws {
        let body =
            #"{"access_token":"a","refresh_token":"r2","id_token":"e.y.J","instance_url":"https://eu.example.com","n":{"x":[1,2.5,null]}}"#
        let tokens = try await self.endpoint(200, body).refresh("r")

        #expect(tokens.fields["instance_url"] == .string("https://eu.example.com"))
        #expect(tokens.access.fields["id_token"] == .string("e.y.J"))
        #expect(tokens.fields["n"] == .object(["x": .array([.integer(1), .number(2.5), .null])]))
        #expect(tokens.fields["access_token"] == nil && tokens.fields["refresh_token"] == nil, "secrets are kept once")
        let coded = try JSONEncoder().encode(tokens.access)
        let decoded = try JSONDecoder().decode(OAuthTokens.AccessToken.self, from: coded)
        #expect(decoded == tokens.access && decoded.fields == tokens.fields)
        let former = Data(#"{"value":"a","scopes":["x"]}"#.utf8)
        #expect(
            try JSONDecoder().decode(OAuthTokens.AccessToken.self, from: former)
                == OAuthTokens.AccessToken("a", scopes: ["x"])
        )
        var text = "\(tokens) \(tokens.access)"
        dump(tokens, to: &text)
        #expect(!text.contains("e.y.J"))

        // A process stores them, the next one finds them without a request.
        let store = InMemoryTokenStore()
        let repository = MuxRepository(store: MemoryStore())
        let first = OAuthDependentRunner(endpoint: try self.endpoint(500, ""), store: store, repository: repository) {
            tokens
        }
        _ = try await first.run { .output($0.value) }
        let second = OAuthDependentRunner<OAuthTokens.AccessToken, String>(
            endpoint: try self.endpoint(500, ""),
            store: store,
            repository: repository
        ) { throw BadDependency() }
        let url = try await second.run { .output($0.fields["instance_url"]) }
        #expect(url == .string("https://eu.example.com"))
    }

    @Test func `WR-05 an empty refresh token keeps the previous refresh token`() async throws {
        let sent = Locked<[String]>([])
        let endpoint = OAuthTokenEndpoint(
            url: try #require(URL(string: "https://server.example.com/token")),
            client: OAuthClient(id: "app"),
            transport: ClosureTransport { call in
                let number = sent.withLock { sent in
                    sent.append(String(decoding: call.body?.data ?? Data(), as: UTF8.self))
                    return sent.count
                }
                return HTTPReply(status: 200, body: Data(#"{"access_token":"a\#(number)","refresh_token":""}"#.utf8))
            }
        )
        let runner = OAuthDependentRunner(endpoint: endpoint, repository: MuxRepository(store: MemoryStore())) {
            OAuthTokens(access: OAuthTokens.AccessToken("a0"), refresh: "r0")
        }

        for bad in ["a0", "a1"] {
            _ = try await runner.run { $0.value == bad ? .badDependency : .output(()) }
        }

        #expect(sent.withLock { $0 }.count == 2)
        #expect(sent.withLock { $0 }.allSatisfy { $0.contains("refresh_token=r0&") })
    }
}
