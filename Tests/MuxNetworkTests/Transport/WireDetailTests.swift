#if os(Linux)
import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Smaller rules for sent requests and accepted responses.
@Suite(.standard)
struct WireDetailTests {
    private static func transport() -> SystemTransport {
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        return SystemTransport(options)
    }

    private static func isUserInfo(_ error: (any Error)?) -> Bool {
        guard case HTTPError.preparation(.userInfo, _)? = error else { return false }
        return true
    }

    // MARK: - URLs

    @Test(arguments: ["user:password@", "user@", ":password@", "us%20er:p%40@"])
    func `WR-08 a user's name or password in a URL is a typed error everywhere`(userInfo: String) async throws {
        let server = LoopbackServer { request in
            guard request.path == "/redirected" else { return .text("") }
            return .redirect(to: URL(string: "http://\(userInfo)127.0.0.1/") ?? URL(filePath: "/"))
        }
        let base = try server.start()
        let url = try #require(URL(string: "http://\(userInfo)127.0.0.1:\(base.port ?? 0)/x"))
        let exchange = ExchangeTransport { _, sink in
            try await sink.receive(head: HTTPReply(status: 200))
            return [:]
        }
        let system = Self.transport()
        let caching = CachingTransport(system, repository: MuxRepository(store: MemoryStore()))
        for transport in [system, URLSessionTransport(), caching, exchange] as [any HTTPTransport] {
            for method in ["GET", "POST"] {
                let error = await #expect(throws: HTTPError.self) {
                    try await transport.send(HTTPCall(method: method, url: url))
                }
                #expect(Self.isUserInfo(error), "\(transport): \(error as Any)")
            }
        }
        let error = await #expect(throws: HTTPError.self) {
            try await system.send(HTTPCall(url: base.appending(path: "redirected")))
        }
        #expect(Self.isUserInfo(error), "\(error as Any)")
        #expect(throws: HTTPError.PreparationFailure.self) { try HTTPEndpoint(url) }
        #expect(server.requestCount == 1)
        await server.stop()
    }

    @Test func `WR-08 an IPv6 address may have a zone`() async throws {
        let server = RawServer(on: .ipv6) { connection in
            try connection.readRequest()
            try connection.respond(200, "zone")
        }
        let port = try server.start().port ?? 0
        let url = try #require(URL(string: "http://[::1%25lo]:\(port)/path"))
        #expect(try await Self.transport().send(HTTPCall(url: url)).body == Data("zone".utf8))

        let endpoint = try HTTPEndpoint(url)
        #expect(try endpoint.url() == url)
        let written = HTTPEndpoint(scheme: .http, host: "[fe80::1%25eth0]:8080", path: "/x")
        #expect(try written.url().absoluteString == "http://[fe80::1%25eth0]:8080/x")
        for host in ["[fe80::1%eth0]", "[fe80::1%25]", "[fe80::1%25a/b]", "[%25eth0]", "[fe80::1%25a%25b]"] {
            let endpoint = HTTPEndpoint(scheme: .http, host: HTTPHost(host), path: "/x")
            #expect(throws: HTTPError.PreparationFailure.self, "\(host)") { try endpoint.url() }
        }
        await server.stop()
    }

    // MARK: - Header fields

    @Test func `WR-08 a request has a default User-Agent unless the caller sets the field`() async throws {
        let server = RawServer { connection in
            while true {
                try connection.readRequest()
                try connection.respond(200)
            }
        }
        let url = try server.start()
        let transport = Self.transport()
        _ = try await transport.send(HTTPCall(url: url))
        _ = try await transport.send(HTTPCall(method: "POST", url: url, headers: ["User-Agent": "Notes/2"]))

        let fields = server.requests.map { $0.values(of: "User-Agent") }
        #expect(fields.count == 2)
        #expect(fields.first?.count == 1)
        #expect(fields.first?.first?.hasSuffix("MuxKit") == true)
        #expect(fields.last == ["Notes/2"])
        await server.stop()
    }

    @Test(arguments: ["abc123", "W/abc123", "abc-1.2:3", "\u{e9}tag", "\"abc\"", "W/\"abc\""])
    func `WR-08 an entity tag is sent back unchanged, also without quotation marks`(tag: String) async throws {
        let transport = ClosureTransport { call in
            if call.headers[.ifNoneMatch] == tag { return HTTPReply(status: 304, headers: ["ETag": tag]) }
            var reply = HTTPReply.json("1")
            reply.headers["ETag"] = tag
            reply.headers["Cache-Control"] = "max-age=0"
            return reply
        }
        let client = HTTPClient(transport: transport)
        let number = client.multiplexer(
            repository: MuxRepository(store: MemoryStore()),
            Ask(Int.self, errors: Never.self)
        )
        for _ in 0..<3 { #expect(try await number.request() == 1) }
        #expect(transport.calls.map { $0.headers[.ifNoneMatch] } == [nil, tag, tag])

        let caching = CachingTransport(transport, repository: MuxRepository(store: MemoryStore()))
        let url = try #require(URL(string: "http://host/"))
        for _ in 0..<2 { #expect(try await caching.send(HTTPCall(url: url)).body == Data("1".utf8)) }
        #expect(transport.calls.suffix(2).map { $0.headers[.ifNoneMatch] } == [nil, tag])
    }

    @Test func `WR-08 an invalid entity tag is not sent back`() {
        for tag in ["", "*", "W/", "a b", "a,b", "\"a", "a\"b", "\"a\"b"] {
            #expect(HTTPValidator(["ETag": tag], receivedAt: Date()) == nil, "\(tag)")
        }
        #expect(!HTTPValidator.isStrongTag("abc"))
        #expect(HTTPValidator("abc123") == .entityTag("abc123"))
        #expect(
            HTTPValidator("Sun, 06 Nov 1994 08:49:37 GMT") == .lastModified("Sun, 06 Nov 1994 08:49:37 GMT")
        )
    }

    // MARK: - Cached POST

    @Test(arguments: ["", "max-age=1000", "no-store"])
    func `WR-08 a POST in a multiplexer is cached by the rules of the policy or the server`(control: String)
        async throws
    {
        let count = Locked(0)
        let transport = ClosureTransport { _ in
            let number = count.withLock { count -> Int in
                count += 1
                return count
            }
            var reply = HTTPReply.json("\(number)")
            if control != "" { reply.headers["ETag"] = "\"\(number)\"" }
            if !control.isEmpty { reply.headers["Cache-Control"] = control }
            return reply
        }
        let client = HTTPClient(transport: transport)
        var policy = MuxPolicy()
        policy.timeToLive = .seconds(1000)
        let query = Ask(Int.self, errors: Never.self) { request in
            request.method = .post
            request.body = .json(["query": "{ notes { id } }"])
        }
        let repository = MuxRepository(store: MemoryStore())
        let value = client.multiplexer(policy: policy, repository: repository, query)
        // A value of the same URL, which a query does not invalidate.
        let other = client.multiplexer(policy: policy, repository: repository, Ask(Int.self, errors: Never.self))
        let first = try await value.request()
        let before = try await other.request()
        _ = try await value.request(.reload)
        #expect(first == 1)

        let isKept = control != "no-store"
        let (third, after) = (try await value.request(), try await other.request())
        #expect(third == (isKept ? 3 : 4))
        #expect(after == (isKept ? before : 5))
        // A condition would make the server refuse the query.
        #expect(transport.calls.filter { $0.method == "POST" }.allSatisfy { $0.headers[.ifNoneMatch] == nil })

        // The same request, sent as a change, makes both values stale.
        _ = try await client.response(to: query)
        let count2 = count.withLock(\.self)
        _ = try await other.request()
        #expect(count.withLock(\.self) == count2 + 1)
    }

    // MARK: - Proxies

    #if compiler(>=6.3)
    @Test(.ownThreads, arguments: ["http", "https", "socks5h"])
    func `WR-08 a proxy that refuses the password is no connectivity failure`(kind: String) async {
        await #expect(processExitsWith: .success) { [kind = kind as String] in
            let proxy = RawServer { connection in
                guard kind.hasPrefix("http") else {
                    let head = try connection.read(count: 2)
                    _ = try connection.read(count: Int(head[1]))
                    try connection.write([5, 2])
                    _ = try connection.read(count: 2)
                    try connection.write([1, 1])
                    return connection.waitForEnd()
                }
                try connection.readRequest()
                try connection.respond(407, fields: "Proxy-Authenticate: Basic realm=\"x\"\r\n")
            }
            let port = try proxy.start().port ?? 0
            let scheme = kind == "https" ? "http" : kind
            setenv(kind == "https" ? "https_proxy" : "http_proxy", "\(scheme)://user:wrong@127.0.0.1:\(port)", 1)
            let target = kind == "https" ? "https://host.example/" : "http://198.51.100.1/"
            guard let url = URL(string: target) else { exit(1) }
            do {
                let reply = try await SystemTransport().send(HTTPCall(url: url))
                // Without a tunnel the refusal is a response.
                guard kind == "http", reply.status == 407 else { exit(2) }
            } catch let error as HTTPError {
                guard kind != "http" else { exit(3) }
                guard !error.isConnectivityFailure, !error.retryAdvice.isTransient else { exit(4) }
                guard error.description.contains("proxy"), !error.description.contains("wrong") else { exit(5) }
            }
        }
    }
    #endif

    // MARK: - Client certificates

    @Test func `WR-10 no description contains the key or the password of a certificate`() async throws {
        var options = HTTPTransportConfiguration()
        let file = URL(filePath: "/secret-place")
        let certificates: [HTTPTransportConfiguration.ClientCertificate] = [
            .files(chain: file, key: file, password: "hunter2"),
            .pem(chain: Data("hunter2".utf8), key: Data("hunter2".utf8), password: "hunter2"),
            .pkcs12(Data("hunter2".utf8), password: "hunter2"),
        ]
        #expect(Set(certificates).count == 3)
        let url = try #require(URL(string: "https://127.0.0.1/"))
        for certificate in certificates {
            options.clientCertificate = certificate
            var dumped = ""
            dump(options, to: &dumped)
            for text in ["\(options)", String(reflecting: options), "\(certificate)", dumped] {
                #expect(!text.contains("hunter2") && !text.contains("secret-place"), "\(text)")
            }
            let exchange = ExchangeTransport(options) { _, _ in [:] }
            for transport in [URLSessionTransport(options), exchange] as [any HTTPTransport] {
                let error = await #expect(throws: HTTPError.self) { try await transport.send(HTTPCall(url: url)) }
                guard case .preparation(.unsupportedOption(name: "clientCertificate"), _)? = error else {
                    Issue.record("\(error as Any)")
                    continue
                }
            }
        }
    }
}
#endif
