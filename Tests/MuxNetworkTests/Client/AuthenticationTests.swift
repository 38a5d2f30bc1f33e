import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct AuthenticationTests {
    /// A server that accepts only the current token.
    private final class Door: Sendable {
        let good: Locked<String>
        let transport: ScriptedTransport

        init(_ token: String, hold: Gate<Void>? = nil) {
            let good = Locked(token)
            self.good = good
            self.transport = ScriptedTransport { call, _ in
                let isGood = call.headers["Authorization"] == "Bearer \(good.withLock { $0 })"
                try await hold?.pass()
                return HTTPReply(status: isGood ? 200 : 401, body: Data("body".utf8))
            }
        }

        var tokens: [String] { self.transport.calls.map { $0.headers["Authorization"] ?? "" } }
    }

    private func runner(_ first: String?, _ fetch: ScriptedFetch<String>) -> DependentRunner<String> {
        DependentRunner(first) { _ in .updatedDependency(try await fetch()) }
    }

    @Test func `K05 the headers of a token are marked as credentials`() async throws {
        struct Key: HTTPToken {
            var headers: HTTPHeaders { ["X-Own-Token": "secret"] }
        }
        let transport = ScriptedTransport { _, _ in .json("{}") }

        _ = try await HTTPClient(transport: transport).response(to: Ask(), token: Key())
        _ = try await HTTPClient(transport: transport).response(to: Ask())

        #expect(transport.calls.map(\.credentialHeaders) == [["X-Own-Token"], []])
    }

    @Test func `K07 fifty requests with an expired token make one token request`() async throws {
        let hold = Gate<Void>()
        let door = Door("new", hold: hold)
        let fetch = ScriptedFetch<String>([.value("new")])
        let client = HTTPClient(transport: door.transport, authenticator: self.runner("old", fetch))

        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<50 { group.addTask { _ = try await client.execute(Ask()) } }
            await hold.waitForCall(50)
            hold.openForGood(returning: ())
            try await group.waitForAll()
        }

        #expect(fetch.callCount == 1)
        #expect(door.tokens.filter { $0 == "Bearer old" }.count == 50)
        #expect(door.tokens.filter { $0 == "Bearer new" }.count == 50)
    }

    @Test func `K07 fifty requests to a server with token rotation make one refresh`() async throws {
        let backend = try LoopbackBackend(oauth: FakeOAuthServer(users: ["a": "p"]), places: [Place(id: 1)])
        let oauth = backend.oauth
        let base = try HTTPEndpoint(try backend.goOnline())
        let runner = OAuthDependentRunner<String, String>(
            repository: MuxRepository(store: MemoryStore()),
            refreshAccess: { token in
                let tokens = try await oauth.refresh(token)
                return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
            },
            signIn: {
                let tokens = try await oauth.signIn(user: "a", password: "p")
                return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
            }
        )
        let client = HTTPClient(authenticator: runner)
        let me = Ask { $0.endpoint = base.appending("/me") }
        _ = try await client.execute(me)
        oauth.expireAllAccessTokens()

        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<50 { group.addTask { _ = try await client.execute(me) } }
            try await group.waitForAll()
        }
        await backend.goOffline()

        #expect(oauth.statistics.refreshes == 1 && oauth.statistics.signIns == 1)
        #expect(oauth.statistics.reusesDetected == 0)
    }

    private struct Place: Encodable, Identifiable, Sendable {
        var id: Int
    }

    @Test func `K08 a refused token is renewed and the request repeated once`() async throws {
        let door = Door("new")
        let fetch = ScriptedFetch<String>([.value("new")])
        let client = HTTPClient(transport: door.transport, authenticator: self.runner("old", fetch))
        let ask = Ask { ask in
            ask.method = .post
            ask.body = .multipart(HTTPMultipart(fields: ["a": "1"]))
        }

        let (body, response) = try await client.execute(ask)

        #expect(response.status == .ok && body == Data("body".utf8))
        #expect(door.tokens == ["Bearer old", "Bearer new"] && fetch.callCount == 1)
        #expect(door.transport.calls[0].body == door.transport.calls[1].body)
    }

    private struct CustomTransport: HTTPTransport {
        let base: ExchangeTransport

        func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.base.send(call) }

        func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
            try await self.base.stream(call, into: sink)
        }
    }

    typealias Redirection = (method: String, status: Int, location: String, methods: [String])

    private static let redirections: [Redirection] = [
        ("POST", 303, "/result", ["POST", "GET"]), ("POST", 303, "/", ["POST", "GET"]),
        ("POST", 303, "http://other/result", ["POST", "GET"]), ("GET", 302, "http://other/result", ["GET", "GET"]),
        ("POST", 307, "/result", ["POST", "POST", "POST", "POST"]),
        ("GET", 302, "/result", ["GET", "GET", "GET", "GET"]),
    ]

    @Test(arguments: Self.redirections, [false, true])
    func `K08 a 401 of a later request than the redirected request is no refusal of the token`(
        redirection: Redirection,
        isCached: Bool
    ) async throws {
        let (method, status, location, methods) = redirection
        let sent = Locked<[String]>([])
        let transport = ExchangeTransport { call, sink in
            let number = sent.withLock { sent in
                sent.append(call.method)
                return sent.count
            }
            let isFirst = number % 2 == 1
            try await sink.receive(
                head: HTTPReply(status: isFirst ? status : 401, headers: isFirst ? ["Location": location] : [:])
            )
            return [:]
        }
        let fetch = ScriptedFetch<String>(thereafter: .value("new"))
        // A cache does not see the redirections of a custom transport.
        let cache = CachingTransport(CustomTransport(base: transport), repository: MuxRepository(store: MemoryStore()))
        let client = HTTPClient(transport: isCached ? cache : transport, authenticator: self.runner("old", fetch))
        let ask = Ask { $0.method = HTTPMethod(rawValue: method) ?? .get }

        let error = await #expect(throws: HTTPError.self) { try await client.execute(ask) }

        #expect(error?.status == .unauthorized && error?.isBadDependency == (methods.count == 4))
        #expect(sent.withLock(\.self) == methods && fetch.callCount == methods.count / 2 - 1)
    }

    @Test(arguments: [("/result", false), ("/", true)])
    func `K08 a 401 counts as a refusal of a POST by a custom transport only at the requested URL`(
        path: String,
        isRefusal: Bool
    ) throws {
        let url = try #require(URL(string: "https://host"))
        let reply = HTTPReply(status: 401, url: URL(string: "https://host\(path)"))
        let (post, get) = (HTTPCall(method: "POST", url: url), HTTPCall(url: url))
        #expect(HTTPError.status(.init(HTTPResponse(request: post, reply: reply))).isBadDependency == isRefusal)
        #expect(HTTPError.status(.init(HTTPResponse(request: get, reply: reply))).isBadDependency)
    }

    @Test func `K09 a second 401 is the error of the request`() async throws {
        let door = Door("never")
        let fetch = ScriptedFetch<String>(thereafter: .value("other"))
        let client = HTTPClient(transport: door.transport, authenticator: self.runner("old", fetch))

        let error = await #expect(throws: HTTPError.self) { try await client.execute(Ask()) }

        #expect(error?.status == .unauthorized)
        #expect(door.tokens == ["Bearer old", "Bearer other"] && fetch.callCount == 1)
    }

    @Test func `K09 a token that the caller passes is neither renewed nor sent again`() async {
        let door = Door("new")
        let fetch = ScriptedFetch<String>([])
        let client = HTTPClient(transport: door.transport, authenticator: self.runner("mine", fetch))

        let error = await #expect(throws: HTTPError.self) { try await client.execute(Ask(), token: "given") }

        #expect(error?.isBadDependency == true)
        #expect(door.tokens == ["Bearer given"] && fetch.callCount == 0)
    }

    @Test func `K10 a token that is about to expire is renewed before the server receives the token`() async throws {
        let wall: @Sendable () -> Date = { Date(timeIntervalSince1970: 1_000) }
        let good = try Self.token(expiry: 2_000)
        let door = Door(good.text)
        for (seconds, refreshes) in [(999.0, 1), (1_000, 1), (1_030, 1), (1_031, 0)] {
            let fetch = ScriptedFetch<JSONWebToken>([.value(good)])
            let old = try Self.token(expiry: seconds)
            let runner = DependentRunner(old, wallTime: wall) { _ in .updatedDependency(try await fetch()) }
            let client = HTTPClient(transport: door.transport, authenticator: runner)
            let before = door.tokens.count

            _ = try await client.execute(Ask())

            #expect(fetch.callCount == 1, "\(seconds)")
            #expect(door.tokens.count - before == (refreshes == 1 ? 1 : 2), "\(seconds)")
        }
    }

    @Test func `K10 a new token that has already expired is used nevertheless`() async throws {
        let short = try Self.token(expiry: 1)
        let door = Door(short.text)
        let fetch = ScriptedFetch<JSONWebToken>(thereafter: .value(short))
        let runner = DependentRunner(short) { _ in .updatedDependency(try await fetch()) }
        let client = HTTPClient(transport: door.transport, authenticator: runner)

        _ = try await client.execute(Ask())

        #expect(fetch.callCount == 1 && door.tokens == ["Bearer \(short.text)"])
    }

    @Test func `K11 a request with private headers causes no token request`() async throws {
        let door = Door("x")
        let fetch = ScriptedFetch<String>([])
        let client = HTTPClient(transport: door.transport, authenticator: self.runner(nil, fetch))

        await #expect(throws: HTTPError.self) { try await client.execute(Ask { $0.usesPrivateHeaders = true }) }

        #expect(fetch.callCount == 0 && door.tokens == [""])
    }

    @Test func `K11 a request that cannot be sent causes no token request`() async {
        let fetch = ScriptedFetch<String>([])
        let client = HTTPClient(transport: ScriptedTransport([]), authenticator: self.runner(nil, fetch))

        await #expect(throws: HTTPError.preparation(.missingHost)) {
            try await client.execute(Ask { $0.endpoint.host = "" })
        }
        await #expect(throws: HTTPError.preparation(.invalidHeader(name: "X"))) {
            try await client.execute(Ask { $0.headers = ["X": "\n"] })
        }
        #expect(fetch.callCount == 0)
    }

    @Test func `K11 an error of the exchange is not an authentication error`() async {
        let fetch = ScriptedFetch<String>([.value("t")])
        let transport = ScriptedTransport([.failure(HTTPError.notHTTP), .failure(BadDependency())])
        let client = HTTPClient(transport: transport, authenticator: self.runner(nil, fetch))

        await #expect(throws: HTTPError.notHTTP) { try await client.execute(Ask()) }
        let error = await #expect(throws: HTTPError.self) { try await client.execute(Ask()) }

        guard case .transport(.unreachable, _)? = error else {
            Issue.record("not a transport error")
            return
        }
        #expect(fetch.callCount == 1)
    }

    @Test func `K07 a multiplexer with a dependency renews the token after a 401`() async throws {
        let door = Door("new")
        let fetch = ScriptedFetch<String>([.value("new")])
        let runner = self.runner("old", fetch)
        let client = HTTPClient(transport: door.transport)
        let data = Multiplexer<Data>(
            cacheKey: "K07",
            dependency: runner,
            repository: MuxRepository(store: MemoryStore())
        ) { token in
            try await client.output(of: Ask(), token: token)
        }

        #expect(try await data.request() == Data("body".utf8))
        #expect(fetch.callCount == 1 && door.tokens == ["Bearer old", "Bearer new"])
    }

    @Test func `K13 a cancelled call that waits for a token leaves at once`() async {
        let gate = Gate<String>()
        let runner = DependentRunner<String> { _ in .updatedDependency(try await gate.pass()) }
        let client = HTTPClient(transport: ScriptedTransport([]), authenticator: runner)

        let call = Task { _ = try await client.execute(Ask()) }
        await gate.waitForCall(1)
        call.cancel()

        await #expect(throws: CancellationError.self) { try await call.value }
        gate.open(returning: "t")
    }

    static func token(expiry: Double?) throws -> JSONWebToken {
        let claims = expiry.map { "{\"exp\":\($0)}" } ?? "{}"
        return try JSONWebToken("e30.\(Base64URL.encode(Data(claims.utf8))).c2ln")
    }
}
