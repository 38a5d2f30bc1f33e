import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Lines that new users write from memory.
@Suite(.standard)
struct CallSiteTests {
    private struct User: Codable, Sendable, Equatable {
        var name: String
    }

    private static func page() async throws -> String { "page" }
    private static func token() async throws -> String { "token" }

    /// A folder that is not created, because the lines download no file.
    private let folder = FileManager.default.temporaryDirectory.appending(component: UUID().uuidString)
    private let url = URL(string: "https://api.domain.com/users/1?all=true")

    private func client(_ configuration: HTTPClient.Configuration = .init()) -> (HTTPClient, ScriptedTransport) {
        let transport = ScriptedTransport { _, _ in .json(#"{"name":"Ada"}"#) }
        return (HTTPClient(configuration: configuration, transport: transport), transport)
    }

    @Test func `CS-01 eight lines written from memory compile and have the expected effect`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let users = MultiplexerMap<String, User>(cacheKey: "Users", repository: repository) { User(name: $0) }
        let client = self.client().0
        let url = try #require(self.url)

        #expect(try await retry { try await Self.page() } == "page")
        #expect(try await users.request(key: "Ada") == User(name: "Ada"))
        let user: User = try await client.get(url)
        #expect(user == User(name: "Ada"))
        #expect(try await DependentRunner { try await Self.token() }.run { .output($0) } == "token")
        #expect(RunnerPolicy(leeway: .seconds(60)).leeway == .seconds(60))
        let media = AsyncMedia(directory: self.folder, limits: .init(maximumBytes: 1 << 20), repository: repository)
        let caching: any HTTPTransport = .caching(options: .init(cacheKey: "http"), repository: repository)
        #expect(caching is CachingTransport)
        #expect(await repository.signOut().isComplete)
        #expect(users.cachedValue(key: "Ada") == nil)
        await media.expectAtRest()
    }

    @Test func `CS-01 ten further lines written from memory compile and have the expected effect`() async throws {
        let (client, transport) = self.client(.init(headers: ["X-App": "1"], retry: .web))
        let url = try #require(self.url)

        let data: Data = try await client.get(url, headers: ["X-Page": "2"])
        #expect(data == Data(#"{"name":"Ada"}"#.utf8))
        let call = try #require(transport.calls.first)
        #expect(call.url == url && call.headers["X-App"] == "1" && call.headers["X-Page"] == "2")
        #expect(try await Multiplexer<User> { try await client.get(url) }.request().name == "Ada")
        #expect(HTTPTransportConfiguration(timeout: .seconds(5)) != .init())
        #expect(RetryBudget.Limits(share: 0.2).share == 0.2)
        #expect(FakeOAuthServer.Configuration(accessLifetime: .seconds(60)).accessLifetime == .seconds(60))
        #expect(MuxPolicy(timeToLive: .seconds(60)).timeToLive == .seconds(60))
        let runner = DependentRunner(policy: .init(updateTimeout: .seconds(5))) { try await Self.token() }
        #expect(try await runner.renew() == "token")
        #expect(try await retry(.fixed(.zero, maxAttempts: 2)) { try await Self.page() } == "page")
        #expect(try await retry(.immediate(maxAttempts: 3), while: \.isEmpty, work: Self.page) == "page")
    }

    @Test func `CS-01 a GET accepts the type of its output, and exponential delays need no base`() async throws {
        let (client, transport) = self.client()
        let url = try #require(self.url)
        let base = try #require(URL(string: "https://api.domain.com"))
        let below = HTTPClient(baseURL: base, transport: transport)

        #expect(try await client.get(url, as: User.self).name == "Ada")
        #expect(try await below.get("users/1", as: User.self, query: ["all": "true"]).name == "Ada")
        #expect(transport.calls.map(\.url) == [url, url])
        #expect(RetryPolicy.exponential(maxAttempts: 4).backoff == RetryPolicy.web.backoff)
        #expect(try await retry(.exponential(maxAttempts: 4)) { try await Self.page() } == "page")
    }

    @Test func `CS-01 work without its attempt is retried after a failure and while it is unfinished`() async throws {
        let calls = Locked(0)
        let isEarly = { (number: Int) in number < 3 }
        let output = try await retry(.immediate(maxAttempts: 4), while: isEarly) {
            let number = calls.withLock { calls in
                calls += 1
                return calls
            }
            guard number > 1 else { throw URLError(.timedOut) }
            return number
        }
        #expect(output == 3)
    }

    @Test func `CS-01 a runner of a plain function renews a refused value, and reports a refused renewal`()
        async throws
    {
        let count = Locked(0)
        let runner = DependentRunner {
            try count.withLock { count in
                count += 1
                guard count < 3 else { throw BadDependency() }
                return count
            }
        }
        #expect(try await runner.run { $0 == 2 ? .output($0) : .badDependency } == 2)
        let error = await #expect(throws: RunnerError.self) { try await runner.run { _ in .badDependency } as Int }
        #expect(error?.code == .updateFailed)
    }

    @Test func `CS-01 a GET carries the token of the client`() async throws {
        let transport = ScriptedTransport { _, _ in .json("{}") }
        let runner = DependentRunner<String>("secret")
        let client = HTTPClient(transport: transport, authenticator: runner)
        let url = try #require(self.url)
        _ = try await client.get(url) as Data
        #expect(transport.calls.first?.headers["Authorization"] == "Bearer secret")
    }

    @Test func `CS-01 a GET of a URL that cannot be requested is a typed error`() async throws {
        let client = self.client().0
        for text in ["file:///etc/hosts", "https:", "users/1", "https://anna:secret@api.domain.com/"] {
            let url = try #require(URL(string: text))
            let error = await #expect(throws: HTTPError.self) { try await client.get(url) as Data }
            guard case .preparation? = error else {
                Issue.record("\(text): \(String(describing: error))")
                continue
            }
            #expect(!"\(String(describing: error))".contains("secret"))
        }
    }

    @Test func `CS-01 the error of a request in one line decodes its body`() async throws {
        let transport = ScriptedTransport([
            .json(["title": "Closed"], status: 409), .status(503), .failure(URLError(.timedOut)),
        ])
        let client = HTTPClient(transport: transport)
        let url = try #require(self.url)

        let closed = await #expect(throws: HTTPError.self) { try await client.get(url) as User }
        #expect(try closed?.decode([String: String].self) == ["title": "Closed"])
        #expect(throws: DecodingError.self) { try closed?.decode(User.self) }
        let busy = await #expect(throws: HTTPError.self) { try await client.get(url) as User }
        #expect(throws: DecodingError.self) { try busy?.decode([String: String].self) }
        let lost = await #expect(throws: HTTPError.self) { try await client.get(url) as User }
        #expect {
            try lost?.decode(User.self)
        } throws: {
            if case HTTPError.transport = $0 { true } else { false }
        }
    }

    @Test func `CS-01 a POST sends its body as JSON, and returns an output or ignores the response`() async throws {
        let transport = ScriptedTransport { _, _ in .json(#"{"name":"Ada"}"#) }
        let client = HTTPClient(baseURL: URL(string: "https://api.example.com/v1"), transport: transport)

        let user: User = try await client.post("/users", body: User(name: "Bob"), query: ["full": "1"])
        try await client.post("/likes", body: ["post": 7], headers: ["X-Page": "2"])

        #expect(user == User(name: "Ada"))
        let calls = transport.calls
        #expect(calls.map(\.method) == ["POST", "POST"])
        #expect(
            calls.map(\.url.absoluteString) == [
                "https://api.example.com/v1/users?full=1", "https://api.example.com/v1/likes",
            ]
        )
        #expect(calls.map { $0.headers["Content-Type"] } == ["application/json", "application/json"])
        #expect(calls.map(\.body?.data) == [Data(#"{"name":"Bob"}"#.utf8), Data(#"{"post":7}"#.utf8)])
        #expect(calls.last?.headers["X-Page"] == "2")
    }

    @Test func `CS-01 PUT, PATCH and DELETE need one line, with an output or without`() async throws {
        let transport = ScriptedTransport { call, _ in
            call.method == "DELETE" || call.url.path() == "/likes" ? HTTPReply(status: 204) : .json(#"{"name":"Ada"}"#)
        }
        let client = HTTPClient(baseURL: URL(string: "https://api.example.com"), transport: transport)
        let draft = User(name: "Bob")

        let replaced: User = try await client.put("/users", body: draft, query: ["full": "1"])
        let changed: User = try await client.patch("/users", body: draft, headers: ["X-Page": "2"])
        try await client.put("/likes", body: draft, headers: ["X-Page": "3"])
        try await client.patch("/likes", body: draft, query: ["full": "4"])
        try await client.delete("/users/42", query: ["full": "5"], headers: ["X-Page": "6"])

        #expect([replaced, changed] == [User(name: "Ada"), User(name: "Ada")])
        let calls = transport.calls
        #expect(calls.map(\.method) == ["PUT", "PATCH", "PUT", "PATCH", "DELETE"])
        #expect(
            calls.map { String($0.url.absoluteString.dropFirst(23)) } == [
                "/users?full=1", "/users", "/likes", "/likes?full=4", "/users/42?full=5",
            ]
        )
        #expect(calls.map { $0.headers["X-Page"] } == [nil, "2", "3", nil, "6"])
        #expect(calls.map(\.body?.data) == Array(repeating: Data(#"{"name":"Bob"}"#.utf8), count: 4) + [nil])
        #expect(calls.last?.headers["Content-Type"] == nil)
    }

    @Test func `CS-01 a multiplexer of a path caches the resource below the base URL by the server's rules`()
        async throws
    {
        let transport = ScriptedTransport { _, _ in
            HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"], body: Data(#"{"name":"Ada"}"#.utf8))
        }
        let client = HTTPClient(baseURL: URL(string: "https://api.example.com/v1"), transport: transport)
        let clock = VirtualClock()
        let repository = MuxRepository(store: MemoryStore(), clock: clock)

        let me: Multiplexer<User> = client.multiplexer(repository: repository, "/me", query: ["full": "1"])
        for _ in 0..<2 { #expect(try await me.request() == User(name: "Ada")) }
        #expect(me.cachedEntry.map { $0.timeToLive > .seconds(59) && $0.timeToLive <= .seconds(60) } == true)
        clock.advance(by: .seconds(60))
        _ = try await me.request()

        #expect(
            transport.calls.map(\.url.absoluteString)
                == Array(repeating: "https://api.example.com/v1/me?full=1", count: 2)
        )
        #expect(transport.calls.allSatisfy { $0.method == "GET" })
    }

    private struct GetBook: HTTPRequest {
        typealias Output = Data
        var method: HTTPMethod { .get }
        var endpoint: HTTPEndpoint { HTTPEndpoint(path: "/books/{id}", query: ["full": "1"]) }
        var pathValues: [String: String] { ["id": "a/b"] }
        var queryItems: HTTPQuery { ["page": "2"] }
    }

    @Test(arguments: [
        ("https://api.example.com", "https://api.example.com"), ("http://localhost:8080/", "http://localhost:8080"),
        ("https://api.example.com/v1/", "https://api.example.com/v1"),
    ])
    func `CS-07 a request without a host goes to the base URL of its client`(base: String, prefix: String) async throws
    {
        let transport = ScriptedTransport { _, _ in .json("{}") }
        let client = HTTPClient(baseURL: URL(string: base), transport: transport)
        _ = try await client.get("/users/\(42)", query: ["fields": "name"]) as Data
        _ = try await client.output(of: GetBook())
        let book = client.multiplexer(GetBook())
        _ = try await book.request()
        _ = try await client.get(try #require(self.url)) as Data
        #expect(
            transport.calls.map(\.url.absoluteString) == [
                "\(prefix)/users/42?fields=name", "\(prefix)/books/a%2Fb?full=1&page=2",
                "\(prefix)/books/a%2Fb?full=1&page=2", self.url?.absoluteString,
            ]
        )
    }

    @Test func `CS-08 an error of a request without a host names the host of the base URL`() async throws {
        let transport = ScriptedTransport { _, _ in HTTPReply(status: 404) }
        let base = URL(string: "https://api.example.com/v1")
        let client = HTTPClient(baseURL: base, transport: transport)
        let missing = await #expect(throws: HTTPError.self) { try await client.output(of: GetBook()) }
        #expect(missing?.description.contains("GET api.example.com") == true)
        let lost = HTTPClient(
            baseURL: base,
            transport: ScriptedTransport([.failure(HTTPError.TransportFailure.notHTTP)])
        )
        let error = await #expect(throws: HTTPError.self) { try await lost.output(of: GetBook()) }
        #expect(error?.description.hasPrefix("GET api.example.com/books/{id} failed.") == true)
    }

    @Test func `CS-07 a change below the base URL makes the cached value of its resource stale`() async throws {
        struct ChangeBook: HTTPCommand {
            var method: HTTPMethod { .put }
            var endpoint: HTTPEndpoint { HTTPEndpoint(path: "/books/1") }
        }
        struct GetOne: HTTPRequest {
            typealias Output = Data
            var method: HTTPMethod { .get }
            var endpoint: HTTPEndpoint { HTTPEndpoint(path: "/books/1") }
        }
        let transport = ScriptedTransport { _, _ in HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"]) }
        let client = HTTPClient(
            baseURL: URL(string: "https://api.example.com/v1"),
            transport: transport
        )
        let book = client.multiplexer(GetOne())
        for _ in 0..<2 { _ = try await book.request() }
        #expect(transport.calls.count == 1)
        try await client.output(of: ChangeBook())
        _ = try await book.request()
        #expect(transport.calls.count == 3)
    }

    @Test func `CS-07 a request without a host and a client without a base URL are a typed error`() async throws {
        let (client, transport) = self.client()
        let error = await #expect(throws: HTTPError.self) { try await client.get("/users/42") as Data }
        guard case .preparation(.missingHost, _)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(transport.calls.isEmpty)
    }

    private struct GetUsers: HTTPRequest {
        typealias Output = [String: User]
        var ids: [String]
        var method: HTTPMethod { .get }
        var endpoint: HTTPEndpoint { HTTPEndpoint(host: "api.domain.com", path: "/users") }
        var queryItems: HTTPQuery { ["ids": self.ids.sorted().joined(separator: "-")] }
    }

    @Test func `CS-07 a map of a client fetches many keys with one request, for the lifetime of the response`()
        async throws
    {
        let clock = VirtualClock()
        let transport = ScriptedTransport { call, _ in
            let ids = call.url.query()?.split(separator: "=").last?.split(separator: "-").filter { $0 != "9" } ?? []
            let body = ids.map { #""\#($0)":{"name":"user \#($0)"}"# }.joined(separator: ",")
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"], body: Data("{\(body)}".utf8))
        }
        let repository = MuxRepository(store: MemoryStore(), clock: clock)
        let runner = DependentRunner<String>("secret")
        let client = HTTPClient(transport: transport, authenticator: runner)
        let users = client.multiplexerMap(
            cacheKey: "Users",
            batching: MuxPolicy.Batching(maximumSize: 3),
            repository: repository
        ) { ids in GetUsers(ids: ids) }
        let found = try await users.request(keys: ["1", "2", "9"])
        #expect(found == ["1": User(name: "user 1"), "2": User(name: "user 2")])
        #expect(transport.calls.map(\.url.absoluteString) == ["https://api.domain.com/users?ids=1-2-9"])
        #expect(transport.calls.first?.headers["Authorization"] == "Bearer secret")

        clock.advance(by: .seconds(59))
        #expect(try await users.request(key: "1").name == "user 1")
        #expect(transport.calls.count == 1)
        clock.advance(by: .seconds(2))
        let again = Task { try await users.request(key: "1").name }
        while transport.calls.count < 2 {
            clock.advance(by: .milliseconds(5))
            await Task.yield()
        }
        #expect(try await again.value == "user 1")
        #expect(transport.calls.count == 2)
        #expect(await users.save().saved == 2)
    }

    @Test func `CS-07 a reload of a batch reaches the server, and an ETag alone gives the lifetime of the policy`()
        async throws
    {
        let version = Locked(1)
        let server = ScriptedTransport { call, _ in
            let body = #"{"1":{"name":"\#(version.withLock { $0 })"}}"#
            let isFirst = call.url.query() == "ids=1"
            let headers: HTTPHeaders = isFirst ? ["Cache-Control": "max-age=600"] : ["ETag": "\"a\""]
            return HTTPReply(status: 200, headers: headers, body: Data(body.utf8))
        }
        let store = MemoryStore()
        let repository = MuxRepository(store: store)
        let client = HTTPClient(transport: CachingTransport(server, repository: repository))
        let users = client.multiplexerMap(
            batching: MuxPolicy.Batching(maximumSize: 1),
            repository: repository
        ) { ids in GetUsers(ids: ids) }
        #expect(try await users.request(key: "1").name == "1")
        version.withLock { $0 = 2 }
        #expect(try await users.request(key: "1").name == "1")
        #expect(try await users.request(key: "1", .reload).name == "2")
        #expect(server.calls.count == 2)

        for _ in 0..<2 { await #expect(throws: MuxError.notFound) { try await users.request(key: "2") } }
        let tagged = client.multiplexerMap(
            cacheKey: "Tagged",
            policy: .init(timeToLive: .seconds(60)),
            batching: MuxPolicy.Batching(maximumSize: 1),
            repository: repository
        ) { (ids: [String]) in GetUsers(ids: ids + ["x"]) }
        for _ in 0..<2 { #expect(try await tagged.request(key: "1").name == "2") }
        #expect(server.calls.count == 5)
        #expect(await tagged.save().saved == 1)
        let stored = try #require(await store.load(MuxStoreKey(domain: "Tagged", key: "1")))
        #expect(stored.validator?.contains("a") != true)
    }
}
