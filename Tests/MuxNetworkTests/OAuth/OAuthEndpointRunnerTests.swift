import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The runner that renews its tokens at a token endpoint, against a server in memory.
@Suite(.standard)
struct OAuthEndpointRunnerTests {
    /// A token endpoint in memory that rotates refresh tokens, or responds with `trouble` if `trouble` is
    /// set.
    private final class Server: Sendable {
        struct State: Sendable {
            var number = 0
            var refresh = ""
            var trouble: HTTPReply?
            var refreshes = 0
            var reuses = 0
            var requests = 0
        }

        let state = Locked(State())

        func signIn() -> OAuthTokens {
            self.state.withLock { state in
                state.number += 1
                state.refresh = "r\(state.number)"
                return OAuthTokens(access: OAuthTokens.AccessToken("a\(state.number)"), refresh: state.refresh)
            }
        }

        var transport: ClosureTransport {
            ClosureTransport { call in
                let body = String(decoding: call.body?.data ?? Data(), as: UTF8.self)
                return self.state.withLock { state in
                    state.requests += 1
                    if let trouble = state.trouble { return trouble }
                    guard body.contains("refresh_token=\(state.refresh)&") else {
                        state.reuses += 1
                        return HTTPReply(status: 400, body: Data(#"{"error":"invalid_grant"}"#.utf8))
                    }
                    state.number += 1
                    state.refreshes += 1
                    state.refresh = "r\(state.number)"
                    let json =
                        #"{"access_token":"a\#(state.number)","token_type":"Bearer","refresh_token":"\#(state.refresh)"}"#
                    return HTTPReply(status: 200, body: Data(json.utf8))
                }
            }
        }
    }

    private let server = Server()
    private let signIns = Locked(0)
    private let clock = VirtualClock()
    private let repository: MuxRepository

    init() { self.repository = MuxRepository(store: MemoryStore(), clock: self.clock) }

    private func runner() throws -> OAuthDependentRunner<OAuthTokens.AccessToken, String> {
        let url = try #require(URL(string: "https://server.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"), transport: self.server.transport)
        let (server, signIns) = (self.server, self.signIns)
        return OAuthDependentRunner(endpoint: endpoint, repository: self.repository) {
            signIns.withLock { $0 += 1 }
            return server.signIn()
        }
    }

    @Test func `O03 rotation continues without a sign-in and a refusal leads to a sign-in`() async throws {
        let runner = try self.runner()
        var values: [String] = []
        for bad in ["a0", "a1", "a2"] {
            values.append(try await runner.run { $0.value == bad ? .badDependency : .output($0.value) })
        }
        #expect(values == ["a1", "a2", "a3"])
        #expect(self.signIns.withLock { $0 } == 1)
        #expect(self.server.state.withLock { $0.reuses } == 0)

        self.server.state.withLock { $0.refresh = "revoked" }
        #expect(try await runner.run { $0.value == "a3" ? .badDependency : .output($0.value) } == "a4")
        #expect(self.signIns.withLock { $0 } == 2)
    }

    @Test func `O03 only a refusal signs out`() async throws {
        let runner = try self.runner()
        _ = try await runner.run { .output($0.value) }
        let troubles: [(Int, String)] = [
            (503, #"{"error":"invalid_grant"}"#), (429, ""), (400, "<html>"), (401, #"{"error":"invalid_client"}"#),
            (200, "<html>Welcome to our hotel</html>"), (200, #"{"error":"incorrect_client_credentials"}"#), (302, ""),
        ]
        for (status, body) in troubles {
            self.server.state.withLock { $0.trouble = HTTPReply(status: status, body: Data(body.utf8)) }
            await #expect(throws: OAuthError.self, "\(status) \(body)") {
                try await runner.run { $0.value == "a1" ? .badDependency : .output($0.value) }
            }
            self.clock.advance(by: .seconds(60))
        }
        self.server.state.withLock { $0.trouble = nil }

        #expect(try await runner.run { $0.value == "a1" ? .badDependency : .output($0.value) } == "a2")
        #expect(self.signIns.withLock { $0 } == 1)
    }

    @Test(arguments: [
        (503, "60", 60.0), (503, "2.5", 2.5), (429, "60", 60), (403, "1.5", 1.5),
        (400, "Thu, 01 Jan 2037 00:00:00 GMT", 3600),
    ])
    func `WR-07 a token endpoint gets no request before its Retry-After has passed`(
        status: Int,
        retryAfter: String,
        seconds: Double
    ) async throws {
        let runner = try self.runner()
        _ = try await runner.run { .output($0.value) }
        let reply = HTTPReply(status: status, headers: ["Retry-After": retryAfter], body: Data("<html>".utf8))
        self.server.state.withLock { $0.trouble = reply }
        for _ in 0..<16 {
            let error = await #expect(throws: OAuthError.self) {
                try await runner.run { $0.value == "a1" ? .badDependency : .output($0.value) }
            }
            #expect(error?.isConnectivityFailure == true && error?.isBadDependency == false)
        }
        #expect(self.server.state.withLock { $0.requests } == 1)
        self.server.state.withLock { $0.trouble = nil }
        self.clock.advance(by: .seconds(seconds) - .milliseconds(1))
        await #expect(throws: OAuthError.self) {
            try await runner.run { $0.value == "a1" ? .badDependency : .output($0.value) }
        }
        #expect(self.server.state.withLock { $0.requests } == 1)
        self.clock.advance(by: .milliseconds(1))

        #expect(try await runner.run { $0.value == "a1" ? .badDependency : .output($0.value) } == "a2")
        #expect(self.signIns.withLock { $0 } == 1)
    }

    @Test(arguments: [(503, ""), (500, "<html>"), (401, #"{"error":"invalid_client"}"#), (200, "<html>")])
    func `WR-07 a failing token endpoint gets few requests from a user's app and from a service`(
        status: Int,
        body: String
    ) async throws {
        self.server.state.withLock { $0.trouble = HTTPReply(status: status, body: Data(body.utf8)) }
        let url = try #require(URL(string: "https://server.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"), transport: self.server.transport)
        let service = DependentRunner<OAuthTokens.AccessToken>(clock: self.clock) { _ in
            .updatedDependency(try await endpoint.clientCredentials())
        }
        for _ in 0..<30 {
            await #expect(throws: OAuthError.self) { try await service.run { .output($0.value) } }
            self.clock.advance(by: .milliseconds(100))
        }
        #expect(self.server.state.withLock { $0.requests } == 3)

        let runner = try self.runner()
        for _ in 0..<30 {
            await #expect(throws: OAuthError.self) { try await runner.run { _ in .badDependency as RunResult<Int> } }
            self.clock.advance(by: .milliseconds(100))
        }
        #expect(self.server.state.withLock { $0.requests } == 6)
        #expect(self.signIns.withLock { $0 } == 1)
    }

    @Test func `AC-06 a sign-in at an endpoint receives its reason`() async throws {
        let url = try #require(URL(string: "https://server.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"), transport: self.server.transport)
        let reasons = Locked<[OAuthStatus.SignInReason]>([])
        let server = self.server
        let runner = OAuthDependentRunner(endpoint: endpoint, repository: self.repository) { reason in
            reasons.withLock { $0.append(reason) }
            return server.signIn()
        }
        #expect(await runner.status == .signedOut)
        _ = try await runner.run { .output($0.value) }
        self.server.state.withLock { $0.refresh = "revoked" }
        _ = try await runner.run { $0.value == "a1" ? .badDependency : .output($0.value) }

        #expect(reasons.withLock { $0 } == [.noTokens, .tokensRefused])
        #expect(await runner.status == .signedIn)
    }

    @Test func `O03 a sign-in without a refresh token is an error`() async throws {
        let url = try #require(URL(string: "https://server.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"), transport: self.server.transport)
        let runner = OAuthDependentRunner(endpoint: endpoint, repository: self.repository) {
            OAuthTokens(access: OAuthTokens.AccessToken("a"))
        }

        await #expect { try await runner.run { .output($0.value) } } throws: {
            guard case .signInFailed(OAuthError.noRefreshToken)? = $0 as? RunnerError else { return false }
            return true
        }
    }
}
