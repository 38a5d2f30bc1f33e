import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A client with a token lifetime of seconds, and with a token server that fails at times.
@Suite(.standard)
struct TokenRenewalTests {
    /// A token server and a server that accepts the tokens, in virtual time.
    private final class Servers: Sendable {
        let clock = VirtualClock()
        let oauth: FakeOAuthServer
        let signIns = Locked(0)
        /// The next responses of the token server, in place of tokens.
        let trouble = Locked<[HTTPReply]>([])
        /// The error of the device's wall clock.
        let wallShift = Locked(TimeInterval.zero)

        init(_ life: Duration) {
            var configuration = FakeOAuthServer.Configuration()
            configuration.accessLifetime = life
            self.oauth = FakeOAuthServer(users: ["alice": "a"], configuration: configuration, clock: self.clock)
        }

        var wallTime: @Sendable () -> Date {
            { [clock, wallShift] in
                Date(timeIntervalSince1970: 1e9 + clock.now.offset.secondsValue + wallShift.withLock { $0 })
            }
        }

        private var tokenTransport: ClosureTransport {
            ClosureTransport { call in
                let trouble = self.trouble.withLock { $0.isEmpty ? nil : $0.removeFirst() }
                if let trouble { return trouble }
                let body = String(decoding: call.body?.data ?? Data(), as: UTF8.self)
                let field = body.split(separator: "&").first { $0.hasPrefix("refresh_token=") }
                do {
                    let tokens = try await self.oauth.refresh(String(field?.dropFirst("refresh_token=".count) ?? ""))
                    let seconds = tokens.expiresIn.components.seconds
                    return .json(
                        """
                        {"access_token":"\(tokens.access)","token_type":"Bearer","expires_in":\(seconds),
                        "refresh_token":"\(tokens.refresh)"}
                        """
                    )
                } catch {
                    return .json(#"{"error":"invalid_grant"}"#, status: 400)
                }
            }
        }

        var transport: ClosureTransport {
            ClosureTransport { call in
                let token = call.headers["Authorization"]?.dropFirst("Bearer ".count) ?? ""
                let user = self.oauth.authorize(String(token))
                return .json("\"\(user ?? "")\"", status: user == nil ? 401 : 200)
            }
        }

        func runner() throws -> OAuthDependentRunner<OAuthTokens.AccessToken, String> {
            let endpoint = OAuthTokenEndpoint(
                url: try #require(URL(string: "https://server.example.com/token")),
                client: OAuthClient(id: "app"),
                transport: self.tokenTransport
            ).with(wallTime: self.wallTime)
            let repository = MuxRepository(store: MemoryStore(), clock: self.clock, wallTime: self.wallTime)
            return OAuthDependentRunner(endpoint: endpoint, repository: repository) {
                self.signIns.withLock { $0 += 1 }
                let tokens = try await self.oauth.signIn(user: "alice", password: "a")
                let end = self.wallTime().addingTimeInterval(tokens.expiresIn.secondsValue)
                return OAuthTokens(
                    access: OAuthTokens.AccessToken(tokens.access, expiresAt: end),
                    refresh: tokens.refresh
                )
            }
        }

        func client(
            _ runner: OAuthDependentRunner<OAuthTokens.AccessToken, String>,
            retry: RetryPolicy? = nil
        ) -> HTTPClient {
            var configuration = HTTPClient.Configuration()
            configuration.clock = self.clock
            configuration.wallTime = self.wallTime
            configuration.retry = retry
            return HTTPClient(configuration: configuration, transport: self.transport, authenticator: runner)
        }
    }

    private let ask = Ask(String.self, errors: Never.self)
    private let busy = HTTPReply(status: 503)

    @Test(arguments: [1, 2, 33, 60])
    func `CO-19 a client with a token lifetime of seconds loses no request of five hundred`(seconds: Int) async throws {
        let servers = Servers(.seconds(seconds))
        let client = servers.client(try servers.runner())
        for _ in 0..<500 {
            #expect(try await client.output(of: self.ask) == "alice")
            servers.clock.advance(by: .milliseconds(12))
        }
        #expect(servers.oauth.statistics.refusals == 0)
        #expect(servers.oauth.statistics.refreshes <= 12 / seconds + 1)
        #expect(servers.signIns.withLock { $0 } == 1)
    }

    @Test func `CO-19 a client uses the valid token while the token server is unavailable`() async throws {
        let servers = Servers(.seconds(60))
        let client = servers.client(try servers.runner())
        #expect(try await client.output(of: self.ask) == "alice")
        servers.trouble.withLock { $0 = Array(repeating: self.busy, count: 1_000) }
        for _ in 0..<59 {
            servers.clock.advance(by: .seconds(1))
            #expect(try await client.output(of: self.ask) == "alice")
        }
    }

    @Test(arguments: [-600.0, 600])
    func `CO-19 a client loses no request after the device's clock is set by minutes`(shift: TimeInterval) async throws
    {
        let servers = Servers(.seconds(120))
        let client = servers.client(try servers.runner())
        #expect(try await client.output(of: self.ask) == "alice")
        servers.wallShift.withLock { $0 = shift }
        for _ in 0..<100 {
            servers.clock.advance(by: .seconds(5))
            #expect(try await client.output(of: self.ask) == "alice")
        }
        #expect(servers.oauth.statistics.refusals == 0)
        #expect(servers.oauth.statistics.refreshes <= 6)
    }

    /// A client with an expired token, and with a token server that returns 503 once.
    private func broken(retry: RetryPolicy? = nil) async throws -> (Servers, HTTPClient) {
        let servers = Servers(.seconds(60))
        let client = servers.client(try servers.runner(), retry: retry)
        #expect(try await client.output(of: self.ask) == "alice")
        servers.clock.advance(by: .seconds(61))
        servers.trouble.withLock { $0 = [self.busy] }
        return (servers, client)
    }

    @Test(arguments: [HTTPMethod.get, .post])
    func `CO-21 the retry policy of a configuration survives one failure of the token server`(
        method: HTTPMethod
    ) async throws {
        let (servers, client) = try await self.broken(retry: .immediate(maxAttempts: 2))
        let ask = Ask(String.self, errors: Never.self) { $0.method = method }
        #expect(try await client.output(of: ask) == "alice")
        #expect(servers.oauth.statistics.refreshes == 1)
    }

    @Test func `CO-21 a retry around the request survives one failure of the token server`() async throws {
        let (servers, client) = try await self.broken()
        let user = try await retry(.immediate(maxAttempts: 2)) { _ in try await client.output(of: self.ask) }
        #expect(user == "alice")
        #expect(servers.oauth.statistics.refreshes == 1)
    }

    @Test func `CO-21 the retry policy of a multiplexer survives one failure of the token server`() async throws {
        let policy = MuxPolicy(retry: .immediate(maxAttempts: 2))
        let (_, client) = try await self.broken()
        let ask = self.ask
        let name = Multiplexer<String>(policy: policy, repository: MuxRepository(store: MemoryStore())) {
            try await client.output(of: ask)
        }
        #expect(try await name.request() == "alice")

        let servers = Servers(.seconds(60))
        let runner = try servers.runner()
        _ = try await runner.run { .output($0) }
        servers.clock.advance(by: .seconds(61))
        servers.trouble.withLock { $0 = [self.busy] }
        let other = Multiplexer<String>(cacheKey: "Other", dependency: runner, policy: policy) { token in
            servers.oauth.authorize(token.value) ?? ""
        }
        #expect(try await other.request() == "alice")
    }

    @Test func `CO-21 without a retry the request fails, and the next request succeeds`() async throws {
        let (_, client) = try await self.broken()
        await #expect(throws: HTTPError.self) { try await client.output(of: self.ask) }
        #expect(try await client.output(of: self.ask) == "alice")
    }

    @Test func `CO-21 the error of a runner has the retry advice of the underlying error`() {
        struct Passing: RetryableError {
            var retryAdvice: RetryAdvice { RetryAdvice(isTransient: true, status: 503, retryAfter: .seconds(7)) }
        }
        let passing = RetryAdvice(isTransient: true, status: 503, retryAfter: .seconds(7))
        let errors: [RunnerError] = [
            .signInFailed(underlying: Passing()), .tokensUnreadable(underlying: Passing()),
            .tokensNotStored(underlying: Passing()), .leaseUnavailable(underlying: Passing()),
            .tooManyUpdates(count: 1, elapsed: .zero, underlying: Passing()),
            .tooManyUpdatesInWindow(count: 5, window: .seconds(30), underlying: Passing()),
            .updateFailed(underlying: Passing()),
        ]
        for error in errors {
            #expect(error.retryAdvice == passing, "\(error)")
            #expect(HTTPError.authentication(error).retryAdvice == passing)
        }
        #expect(RunnerError.updateTimedOut(after: .seconds(1)).retryAdvice == .transient)
        let final: [RunnerError] = [
            .critical(underlying: Passing(), isOriginator: true), .signedOut, .reset, .wouldDeadlock, .noUpdate,
            .updateFailed(underlying: nil), .updateFailed(underlying: BadDependency()), .sameDependency,
            .signInFailed(underlying: BadDependency()),
        ]
        for error in final { #expect(error.retryAdvice == .permanent, "\(error)") }
    }
}
