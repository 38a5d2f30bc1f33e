import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The steps of a client around its cache: retry, cache, token, `Retry-After`, transport.
@Suite(.standard)
struct ClientChainTests {
    private let world = CachingWorld()

    /// An authenticator with the token of a closure.
    private struct Account: HTTPAuthenticator {
        var repository: MuxRepository?
        let token: @Sendable () async throws -> String

        var sessionRepository: MuxRepository? { self.repository }

        nonisolated(nonsending) func authorized<Output: Sendable>(
            _ send: (any HTTPToken) async throws -> RunResult<Output>
        ) async throws -> Output {
            if case .output(let output) = try await send(try await self.token()) { return output }
            // The server refused the token, so the request is sent once more with a new token.
            guard case .output(let output) = try await send(try await self.token()) else { throw BadDependency() }
            return output
        }
    }

    private struct NoToken: Error {}
    private struct Lost: Error {}

    private func account(_ token: @escaping @Sendable () async throws -> String) -> Account {
        Account(repository: self.world.repository, token: token)
    }

    /// A response whose version is the token of the request, or 0 without a token.
    private static func mirror(_ call: HTTPCall, _ headers: HTTPHeaders = ["Cache-Control": "max-age=60"]) -> HTTPReply
    {
        let token = call.headers["Authorization"]?.split(separator: " ").last ?? "0"
        return HTTPReply(status: 200, headers: headers, body: Data(#"{"version":\#(token)}"#.utf8))
    }

    @Test func `HS-03 a fresh stored response needs neither a token nor a network`() async throws {
        let works = Locked(true)
        let transport = ClosureTransport { call in
            guard works.withLock(\.self) else { throw HTTPError.transport(.closedWithoutResponse(Lost())) }
            return Self.mirror(call)
        }
        let tokens = Locked(0)
        let client = self.world.client(
            .caching(transport),
            authenticator: self.account {
                guard works.withLock(\.self) else { throw NoToken() }
                tokens.withLock { $0 += 1 }
                return "1"
            }
        )
        #expect(try await client.output(of: GetNumber()).version == 1)
        works.withLock { $0 = false }

        let (number, response) = try await client.execute(GetNumber())
        #expect(number.version == 1)
        #expect(response.headers.cacheStatuses.last?.isHit == true)
        #expect(tokens.withLock(\.self) == 1 && transport.calls.count == 1)
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "b")) }
    }

    @Test func `HS-03 a stale response replaces a token that cannot be renewed without a network`() async throws {
        let works = Locked(true)
        let transport = ClosureTransport { Self.mirror($0) }
        let client = self.world.client(
            .caching(transport),
            authenticator: self.account {
                guard works.withLock(\.self) else { throw URLError(.notConnectedToInternet) }
                return "1"
            }
        )
        _ = try await client.output(of: GetNumber())
        self.world.clock.advance(by: .seconds(61))
        works.withLock { $0 = false }
        #expect(try await client.output(of: GetNumber()).version == 1)
        #expect(transport.calls.count == 1)
    }

    @Test func `HS-03 a hit takes at most three locks`() async throws {
        // A virtual clock takes a lock, and the system's clock does not.
        let account = Account(repository: MuxRepository(store: MemoryStore())) { "1" }
        let client = HTTPClient(transport: .caching(ClosureTransport { Self.mirror($0) }), authenticator: account)
        _ = try await client.response(to: GetNumber())
        // Other tests acquire locks at the same time: the smallest count is the count of the hit.
        var smallest: Int?
        for _ in 0..<2_000 {
            guard let before = LockCount.total else { return }  // a release build does not count
            _ = try await client.response(to: GetNumber())
            smallest = min(smallest ?? .max, (LockCount.total ?? .max) - before)
        }
        let count = try #require(smallest)
        #expect((1...3).contains(count))
    }

    @Test func `HS-03 a refused token is renewed below the cache`() async throws {
        let tokens = Locked(0)
        let transport = ClosureTransport { call in
            call.headers["Authorization"] == "Bearer 1" ? HTTPReply(status: 401) : Self.mirror(call)
        }
        let client = self.world.client(
            .caching(transport),
            authenticator: self.account {
                tokens.withLock { tokens in
                    tokens += 1
                    return String(tokens)
                }
            }
        )
        for _ in 0..<3 { #expect(try await client.output(of: GetNumber()).version == 2) }
        #expect(transport.calls.map { $0.headers["Authorization"] } == ["Bearer 1", "Bearer 2"])
    }

    @Test func `HS-03 a revalidation in the background has the current token`() async throws {
        let token = Locked("1")
        let transport = ClosureTransport {
            Self.mirror($0, ["Cache-Control": "max-age=10, stale-while-revalidate=1000"])
        }
        let cache = CachingTransport(transport)
        let client = self.world.client(cache, authenticator: self.account { token.withLock(\.self) })
        #expect(try await client.output(of: GetNumber()).version == 1)
        token.withLock { $0 = "2" }
        self.world.clock.advance(by: .seconds(20))
        #expect(try await client.output(of: GetNumber()).version == 1)
        #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))
        #expect(try await client.output(of: GetNumber()).version == 2)
        #expect(transport.calls.count == 2)
    }

    @Test func `HS-03 the age of a response begins with the attempt that got the response`() async throws {
        let attempts = Locked(0)
        let transport = ClosureTransport { call in
            let attempt = attempts.withLock { attempts in
                attempts += 1
                return attempts
            }
            guard attempt > 1 else { return HTTPReply(status: 503, headers: ["Retry-After": "50"]) }
            return Self.mirror(call)
        }
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" }) { configuration in
            configuration.retry = RetryPolicy(maxAttempts: 2)
            configuration.retryBudget = RetryBudget()
        }
        let first = Task { try await client.output(of: GetNumber()).version }
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(50))
        #expect(try await first.value == 1)
        self.world.clock.advance(by: .seconds(30))
        // With the wait of 50 seconds, the age would exceed the lifetime of 60 seconds.
        #expect(try await client.response(to: GetNumber()).headers.cacheStatuses.last?.isHit == true)
        #expect(transport.calls.count == 2)
    }

    @Test(arguments: [nil, HTTPReply(status: 503)])
    func `HS-03 a stale response that replaces a failure is used without a retry`(failure: HTTPReply?) async throws {
        let isFirst = Locked(true)
        let transport = ClosureTransport { call in
            let isFirst = isFirst.withLock { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            guard !isFirst else { return Self.mirror(call, ["Cache-Control": "max-age=10, stale-if-error=1000"]) }
            guard let failure else { throw HTTPError.transport(.closedWithoutResponse(Lost())) }
            return failure
        }
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" }) { configuration in
            configuration.retry = .immediate(maxAttempts: 5)
            configuration.retryBudget = RetryBudget()
        }
        _ = try await client.output(of: GetNumber())
        self.world.clock.advance(by: .seconds(20))
        #expect(try await client.output(of: GetNumber()).version == 1)
        #expect(transport.calls.count == 2)
        // Without a stored response, the client makes every attempt.
        _ = try? await client.output(of: GetNumber(id: "b"))
        #expect(transport.calls.count == 2 + 5)
    }

    @Test func `HS-03 a redirection to another origin has no token, also behind a cache`() async throws {
        let transport = ExchangeTransport(clock: self.world.clock) { call, sink in
            let reply =
                switch call.url.path() {
                case "/numbers/a": HTTPReply(status: 302, headers: ["Location": "/numbers/b"])
                case "/numbers/b": HTTPReply(status: 302, headers: ["Location": "https://other.example/numbers/c"])
                default:
                    HTTPReply(
                        status: 200,
                        body: Data(#"{"version":\#(call.headers["Authorization"] == nil ? 1 : 0)}"#.utf8)
                    )
                }
            if call.url.path() == "/numbers/b", call.headers["Authorization"] == nil { throw Lost() }
            try await sink.receive(head: HTTPReply(status: reply.status, headers: reply.headers))
            if !reply.body.isEmpty { try await sink.receive(reply.body) }
            return [:]
        }
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" })
        #expect(try await client.output(of: GetNumber()).version == 1)
    }

    @Test func `HS-03 Vary on Authorization separates clients of a cache, but not tokens of one client`()
        async throws
    {
        let transport = ClosureTransport {
            Self.mirror($0, ["Cache-Control": "max-age=60", "Vary": "Accept, Authorization"])
        }
        let cache = CachingTransport(transport)
        let token = Locked("1")
        let first = self.world.client(cache, authenticator: self.account { token.withLock(\.self) })
        let second = self.world.client(cache, authenticator: self.account { "3" })
        let open = HTTPClient(transport: CachingTransport(transport, repository: self.world.repository))
        #expect(try await first.output(of: GetNumber()).version == 1)
        #expect(try await second.output(of: GetNumber()).version == 3)
        #expect(try await open.output(of: GetNumber()).version == 0)
        #expect(try await first.output(of: GetNumber(), token: "4").version == 4)
        token.withLock { $0 = "2" }
        #expect(try await first.output(of: GetNumber()).version == 1)
        #expect(try await second.output(of: GetNumber()).version == 3)
        #expect(transport.calls.count == 4)
    }

    @Test func `HS-03 a call of an ended session is not sent with a token of the next session`() async throws {
        let gate = Gate<String>()
        let transport = ClosureTransport { Self.mirror($0) }
        let client = self.world.client(.caching(transport), authenticator: self.account { try await gate.pass() })
        let late = Task { try await client.output(of: GetNumber()) }
        await gate.waitForCall(1)
        await self.world.repository.clearAll()
        gate.openForGood(returning: "2")
        let error = await #expect(throws: HTTPError.self) { try await late.value }
        if case .authentication(MuxError.sessionEnded)? = error {} else { Issue.record("\(String(describing: error))") }
        #expect(transport.calls.isEmpty)
        #expect(try await client.output(of: GetNumber()).version == 2)
    }

    @Test func `HS-03 accounts of several repositories share a cache, and see only their own responses`()
        async throws
    {
        let transport = ClosureTransport { Self.mirror($0) }
        let cache = CachingTransport(transport)
        let repositories = [self.world.repository, MuxRepository(store: MemoryStore())]
        let clients = zip(repositories, ["1", "2"]).map { repository, token in
            self.world.client(cache, authenticator: Account(repository: repository) { token })
        }
        for _ in 0..<2 {
            for (client, version) in zip(clients, 1...) {
                #expect(try await client.output(of: GetNumber()).version == version)
            }
        }
        #expect(transport.calls.count == 2 && cache.statistics.hits == 2)
        await repositories[0].clearAll()
        for (client, version) in zip(clients, 1...) {
            #expect(try await client.output(of: GetNumber()).version == version)
        }
        #expect(transport.calls.count == 3)
        #expect(await cache.clear().isComplete)
        for client in clients { _ = try await client.output(of: GetNumber()) }
        #expect(transport.calls.count == 5)
    }

    @Test func `HS-03 a cache takes part in a sign-out from the creation of its client`() async throws {
        let folder = try CacheFolder()
        var options = CachingTransport.Configuration(cacheKey: "HTTP", directory: folder.url)
        options.memoryBodyLimit = 0
        let transport = ClosureTransport { Self.mirror($0) }
        let before = self.world.client(.caching(transport, options: options), authenticator: self.account { "1" })
        _ = try await before.output(of: GetNumber())
        await self.world.repository.saveAll()
        #expect(try folder.files().count == 1)

        let next = self.world.relaunched()
        let client = next.client(
            .caching(transport, options: options),
            authenticator: Account(repository: next.repository) { "2" }
        )
        #expect(await next.repository.clearAll().isComplete)
        #expect(try folder.files().isEmpty)
        #expect(try await client.output(of: GetNumber()).version == 2)
    }

    // MARK: - Accounts and tokens

    private struct OwnToken: HTTPToken, Codable {
        let text: String
        var headers: HTTPHeaders { ["X-Own-Token": self.text] }
    }

    @Test func `HS-03 Vary on any field of a token separates authenticators, and stays in memory`() async throws {
        let transport = ClosureTransport { call in
            let version = call.headers["X-Own-Token"] ?? "0"
            let headers: HTTPHeaders = ["Cache-Control": "max-age=60", "Vary": "X-Own-Token"]
            return HTTPReply(status: 200, headers: headers, body: Data(#"{"version":\#(version)}"#.utf8))
        }
        let cache = CachingTransport(transport, options: .init(cacheKey: "HTTP"))
        let runners = ["1", "2"].map { value in
            OAuthDependentRunner<OwnToken, String>(
                repository: self.world.repository,
                refreshAccess: { _ in throw BadDependency() },
                signIn: { OAuthSignIn(access: OwnToken(text: value), refresh: "r") }
            )
        }
        for _ in 0..<2 {
            for (runner, version) in zip(runners, 1...) {
                let client = self.world.client(cache, authenticator: runner)
                #expect(try await client.output(of: GetNumber()).version == version)
            }
        }
        #expect(transport.calls.count == 2, "two clients of one authenticator share a response")
        await self.world.repository.saveAll()
        let stored = await self.world.store.load(.init(domain: "HTTP", key: "https://example.com:443/numbers/a"))
        #expect(stored.map { String(decoding: $0.payload, as: UTF8.self).contains("version") } != true)
    }

    @Test func `HS-03 an authenticator without a session adds its token to each call before the cache`() async throws {
        let transport = ClosureTransport {
            Self.mirror($0, ["Cache-Control": "max-age=60", "Vary": "Authorization"])
        }
        let user = Locked("1")
        let account = Account(repository: nil) { user.withLock(\.self) }
        let cache = CachingTransport(transport, repository: self.world.repository)
        let client = self.world.client(cache, authenticator: account)
        for version in [1, 2, 1] {
            user.withLock { $0 = String(version) }
            #expect(try await client.output(of: GetNumber()).version == version)
        }
        #expect(transport.calls.count == 2)
    }

    @Test func `HS-03 a runner without a session needs no token for a stored response`() async throws {
        let transport = ClosureTransport { Self.mirror($0) }
        let runner = DependentRunner<String>("1")
        let client = self.world.client(.caching(transport, repository: self.world.repository), authenticator: runner)
        for _ in 0..<2 { #expect(try await client.output(of: GetNumber()).version == 1) }
        #expect(transport.calls.count == 1)
    }

    @Test(arguments: [false, true])
    func `HS-03 a cache directly in a cache of another repository is a typed error`(hasFolder: Bool) async throws {
        let folder = try CacheFolder()
        let transport = ClosureTransport { Self.mirror($0) }
        let other = MuxRepository(store: MemoryStore())
        let inner =
            hasFolder
            ? CachingTransport(transport, options: .init(cacheKey: "HTTP", directory: folder.url))
            : CachingTransport(transport, repository: other)
        if hasFolder {
            let first = self.world.client(.caching(inner), authenticator: Account(repository: other) { "1" })
            #expect(try await first.output(of: GetNumber()).version == 1)
        }
        let count = transport.calls.count
        let client = self.world.client(.caching(inner), authenticator: self.account { "2" })
        await #expect(throws: MuxError.repositoryMismatch) { try await client.output(of: GetNumber()) }
        #expect(transport.calls.count == count)
    }

    @Test func `HS-03 a failure to get a token fails no call with another token`() async throws {
        let (gate, transport) = (Gate<String>(), ClosureTransport { Self.mirror($0) })
        let cache = CachingTransport(transport, repository: self.world.repository)
        let first = self.world.client(cache, authenticator: self.account { try await gate.pass() })
        let second = self.world.client(cache, authenticator: self.account { "2" })
        let leader = Task { try await first.output(of: GetNumber()) }
        await gate.waitForCall(1)
        let waiter = Task { try await second.output(of: GetNumber()) }
        while cache.occupancy.waiters < 1 { await Task.yield() }
        gate.fail(1, with: NoToken())
        await #expect(throws: HTTPError.self) { try await leader.value }
        #expect(try await waiter.value.version == 2)
    }

    @Test func `HS-03 Clear-Site-Data of a response to a refused token is obeyed`() async throws {
        let (tokens, isExpired) = (Locked(0), Locked(false))
        let transport = ClosureTransport { call in
            let isRefused =
                call.url.path() == "/numbers/b"
                && isExpired.withLock { isExpired in
                    defer { isExpired = false }
                    return isExpired
                }
            let clear: HTTPHeaders = ["Clear-Site-Data": #""cache""#]
            return isRefused ? HTTPReply(status: 401, headers: clear) : Self.mirror(call)
        }
        let client = self.world.client(
            .caching(transport),
            authenticator: self.account {
                tokens.withLock { tokens in
                    tokens += 1
                    return String(tokens)
                }
            }
        )
        #expect(try await client.output(of: GetNumber()).version == 1)
        isExpired.withLock { $0 = true }
        #expect(try await client.output(of: GetNumber(id: "b")).version == 3)
        #expect(try await client.output(of: GetNumber()).version == 4)
    }

    // MARK: - A host that is down

    @Test func `HS-03 a stored response is used while the retry budget admits no request to its host`() async throws {
        let works = Locked(true)
        let transport = ClosureTransport { call in
            guard works.withLock(\.self) else { throw HTTPError.transport(.closedWithoutResponse(Lost())) }
            return Self.mirror(call)
        }
        let budget = RetryBudget(
            RetryBudget.Limits(failuresToOpen: 1, pause: .seconds(1_000)),
            clock: self.world.clock
        )
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" }) { configuration in
            configuration.retry = .immediate(maxAttempts: 1)
            configuration.retryBudget = budget
        }
        #expect(try await client.output(of: GetNumber()).version == 1)
        works.withLock { $0 = false }
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "b")) }
        let count = transport.calls.count
        works.withLock { $0 = true }

        #expect(try await client.output(of: GetNumber()).version == 1)
        self.world.clock.advance(by: .seconds(61))
        #expect(try await client.response(to: GetNumber()).headers.cacheStatuses.last?.forward == .stale)
        // No stored response has closed the circuit.
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "b")) }
        #expect(transport.calls.count == count)
    }

    @Test func `HS-03 a stored response between two failures does not keep the circuit closed`() async throws {
        let works = Locked(true)
        let transport = ClosureTransport { call in
            guard works.withLock(\.self) else { throw HTTPError.transport(.closedWithoutResponse(Lost())) }
            return Self.mirror(call)
        }
        let budget = RetryBudget(
            RetryBudget.Limits(failuresToOpen: 2, pause: .seconds(1_000)),
            clock: self.world.clock
        )
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" }) { configuration in
            configuration.retry = .immediate(maxAttempts: 1)
            configuration.retryBudget = budget
        }
        _ = try await client.output(of: GetNumber())
        works.withLock { $0 = false }

        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "b")) }
        #expect(try await client.output(of: GetNumber()).version == 1)
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "b")) }
        let count = transport.calls.count
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "b")) }
        #expect(transport.calls.count == count)
    }

    @Test func `HS-03 a stored redirection leads to a stale response while the retry budget admits no request`()
        async throws
    {
        let (works, requests) = (Locked(true), Locked(0))
        let transport = ExchangeTransport(clock: self.world.clock) { call, sink in
            requests.withLock { $0 += 1 }
            guard works.withLock(\.self) else { throw HTTPError.transport(.closedWithoutResponse(Lost())) }
            guard call.url.path() == "/numbers/a" else {
                try await sink.receive(head: HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"]))
                try await sink.receive(Data(#"{"version":7}"#.utf8))
                return [:]
            }
            let headers: HTTPHeaders = ["Location": "/numbers/b", "Cache-Control": "max-age=1000"]
            try await sink.receive(head: HTTPReply(status: 301, headers: headers))
            return [:]
        }
        let budget = RetryBudget(
            RetryBudget.Limits(failuresToOpen: 1, pause: .seconds(1_000)),
            clock: self.world.clock
        )
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" }) { configuration in
            configuration.retry = .immediate(maxAttempts: 1)
            configuration.retryBudget = budget
        }
        #expect(try await client.output(of: GetNumber()).version == 7)
        works.withLock { $0 = false }
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber(id: "c")) }
        works.withLock { $0 = true }
        self.world.clock.advance(by: .seconds(61))

        let count = requests.withLock(\.self)
        let (number, response) = try await client.execute(GetNumber())
        #expect(number.version == 7 && response.headers.cacheStatuses.last?.forward == .stale)
        #expect(requests.withLock(\.self) == count, "the target of the redirection is requested")
    }

    @Test func `HS-03 a failure to get a token counts neither for nor against the host of the request`() async throws {
        let works = Locked(false)
        let transport = ClosureTransport { Self.mirror($0) }
        let budget = RetryBudget(
            RetryBudget.Limits(failuresToOpen: 1, pause: .seconds(1_000)),
            clock: self.world.clock
        )
        let client = self.world.client(
            .caching(transport),
            authenticator: self.account {
                guard works.withLock(\.self) else { throw URLError(.notConnectedToInternet) }
                return "1"
            }
        ) { configuration in
            configuration.retry = .immediate(maxAttempts: 2)
            configuration.retryBudget = budget
        }
        await #expect(throws: HTTPError.self) { try await client.output(of: GetNumber()) }
        works.withLock { $0 = true }
        #expect(try await client.output(of: GetNumber()).version == 1)
        #expect(transport.calls.count == 1)
    }

    // MARK: - Changes

    @Test func `HS-03 a change that was not sent makes no stored response stale`() async throws {
        let works = Locked(true)
        let transport = ClosureTransport { Self.mirror($0) }
        let client = self.world.client(
            .caching(transport),
            authenticator: self.account {
                guard works.withLock(\.self) else { throw URLError(.notConnectedToInternet) }
                return "1"
            }
        )
        _ = try await client.output(of: GetNumber())
        works.withLock { $0 = false }
        await #expect(throws: HTTPError.self) { try await client.output(of: ChangeNumber()) }
        #expect(try await client.output(of: GetNumber()).version == 1)
        #expect(transport.calls.count == 1)
    }

    @Test func `HS-03 a change whose first attempt was lost makes the stored response stale`() async throws {
        let deletions = Locked(0)
        let transport = ClosureTransport { call in
            guard call.method == "DELETE" else { return Self.mirror(call) }
            let isFirst = deletions.withLock { deletions in
                deletions += 1
                return deletions == 1
            }
            guard !isFirst else { throw HTTPError.transport(.closedWithoutResponse(Lost())) }
            return HTTPReply(status: 404)
        }
        let client = self.world.client(.caching(transport), authenticator: self.account { "1" }) { configuration in
            configuration.retry = .immediate(maxAttempts: 2)
            configuration.retryBudget = RetryBudget()
        }
        _ = try await client.output(of: GetNumber())
        await #expect(throws: HTTPError.self) { try await client.output(of: ChangeNumber(method: .delete)) }
        _ = try await client.output(of: GetNumber())
        #expect(transport.calls.count == 4)
    }

    // MARK: - Redirections and limits

    /// A transport that redirects `/numbers/a` to `/numbers/b`, with a body that ends early.
    private func redirecting(_ calls: Locked<Int> = Locked(0)) -> ExchangeTransport {
        ExchangeTransport(HTTPTransportConfiguration(deadline: .seconds(40)), clock: self.world.clock) { call, sink in
            calls.withLock { $0 += 1 }
            guard call.url.path() == "/numbers/a" else {
                try await sink.receive(head: HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"]))
                try await sink.receive(Data(#"{"version":7}"#.utf8))
                return [:]
            }
            let headers: HTTPHeaders = ["Location": "/numbers/b", "Content-Length": "100"]
            try await sink.receive(head: HTTPReply(status: 302, headers: headers))
            try await sink.receive(Data("short".utf8))
            return [:]
        }
    }

    @Test func `HS-03 a redirection with a truncated body is followed behind a cache`() async throws {
        let client = self.world.client(.caching(self.redirecting()), authenticator: self.account { "1" })
        #expect(try await client.output(of: GetNumber()).version == 7)
    }

    @Test func `HS-03 a POST is not repeated after a failure to get a token for its redirection`() async throws {
        let (methods, tokens) = (Locked<[String]>([]), Locked(0))
        let transport = ExchangeTransport(clock: self.world.clock) { call, sink in
            methods.withLock { $0.append(call.method) }
            try await sink.receive(head: HTTPReply(status: 303, headers: ["Location": "/numbers/b"]))
            return [:]
        }
        let account = self.account {
            let number = tokens.withLock { tokens in
                tokens += 1
                return tokens
            }
            guard number == 1 else { throw URLError(.notConnectedToInternet) }
            return "1"
        }
        let client = self.world.client(.caching(transport), authenticator: account) { configuration in
            configuration.retry = .immediate(maxAttempts: 3)
            configuration.retryBudget = RetryBudget()
        }
        let error = await #expect(throws: HTTPError.self) { try await client.output(of: ChangeNumber()) }
        #expect(methods.withLock(\.self) == ["POST"] && error?.isUnsent == false)
    }

    @Test func `HS-03 the wait for a token does not count towards the deadline, also after a redirection`() async throws
    {
        let (gate, clock) = (Gate<String>(), self.world.clock)
        let client = self.world.client(
            .caching(self.redirecting()),
            authenticator: self.account { try await gate.pass() }
        )
        let call = Task { try await client.output(of: GetNumber()).version }
        for number in 1...2 {
            await gate.waitForCall(number)
            clock.advance(by: .seconds(60))
            gate.open(number, returning: "1")
        }
        #expect(try await call.value == 7)
    }
}
