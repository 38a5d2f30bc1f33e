import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Multiplexers of a client: the fields of a response decide on storing and on the lifetime of a value.
@Suite(.standard)
struct CachedRequestTests {
    private let world = CachingWorld()
    private let server = NumberServer()

    private func number(_ policy: MuxPolicy = .init()) -> Multiplexer<Number> {
        self.world.client(self.server.transport)
            .multiplexer(cacheKey: "Number", policy: policy, repository: self.world.repository, GetNumber())
    }

    private func say(_ cacheControl: String?, _ others: HTTPHeaders = [:]) {
        self.server.state.withLock { $0.headers = others }
        if let cacheControl { self.server.state.withLock { $0.headers["Cache-Control"] = cacheControl } }
    }

    // MARK: - N01

    @Test func `N01 max-age and Age determine the lifetime of a value`() async throws {
        self.say("max-age=10", ["Age": "4"])
        let number = self.number()

        #expect(try await number.request().version == 1)
        self.world.clock.advance(by: .seconds(5))
        _ = try await number.request()
        #expect(self.server.calls.count == 1)
        self.world.clock.advance(by: .seconds(1))
        _ = try await number.request()
        #expect(self.server.calls.count == 2)
    }

    @Test func `HC-03 a response with an entity tag and without a lifetime is revalidated at each request`()
        async throws
    {
        self.say(nil)
        let number = self.number(MuxPolicy(timeToLive: .seconds(3)))

        for _ in 0..<3 { _ = try await number.request() }
        #expect(number.cachedEntry?.timeToLive == .zero)
        #expect(self.server.calls.count == 3)
        #expect(self.server.calls.last?.headers["If-None-Match"] != nil)
    }

    @Test func `HC-03 a 304 without a lifetime is revalidated at the next request, too`() async throws {
        self.say("private")
        let number = self.number(MuxPolicy(timeToLive: .seconds(3)))

        for _ in 0..<3 { _ = try await number.request() }
        #expect(number.cachedEntry?.timeToLive == .zero)
        #expect(self.server.conditions == [nil, "\"1\"", "\"1\""])
    }

    @Test func `HC-03 the heuristic lifetime after a 304 depends on the previous Last-Modified`() async throws {
        let transport = ClosureTransport { call in
            let changed = "Sun, 06 Nov 1994 08:49:27 GMT"
            if call.headers["If-Modified-Since"] == changed {
                return HTTPReply(status: 304, headers: ["Cache-Control": "private"])
            }
            return HTTPReply(status: 200, headers: ["Last-Modified": changed], body: Data("{\"version\":7}".utf8))
        }
        let number = self.world.client(transport)
            .multiplexer(cacheKey: "Number", repository: self.world.repository, GetNumber())

        _ = try await number.request()
        #expect(number.cachedEntry?.timeToLive == .seconds(1), "a tenth of ten seconds")
        self.world.clock.advance(by: .seconds(10))
        _ = try await number.request()
        #expect(number.cachedEntry?.timeToLive == .seconds(2), "a tenth of twenty seconds")
    }

    @Test func `HC-03 a setting turns off the revalidation of a response without a lifetime`() async throws {
        self.say(nil)
        let client = self.world.client(self.server.transport) { $0.validatesWithoutLifetime = false }
        let number = client.multiplexer(
            policy: MuxPolicy(timeToLive: .seconds(3)),
            repository: self.world.repository,
            GetNumber()
        )

        _ = try await number.request()
        #expect(number.cachedEntry?.timeToLive == .seconds(3))
    }

    @Test func `HC-03 a heuristic lifetime has its own limit`() async throws {
        self.say(nil, ["Last-Modified": "Sun, 06 Nov 1994 08:49:27 GMT"])
        self.server.state.withLock { $0.answersConditions = false }
        let number = self.number(MuxPolicy(timeToLive: .zero))

        _ = try await number.request()
        #expect(number.cachedEntry?.timeToLive == .seconds(1), "a tenth of ten seconds")
        self.say(nil, ["Last-Modified": "Sun, 06 Nov 1904 08:49:27 GMT"])
        _ = try await number.refresh().request()
        #expect(number.cachedEntry?.timeToLive == .seconds(86_400), "no longer than the configuration says")
    }

    @Test func `N01 a response with no-store is not stored`() async throws {
        self.say("no-store")
        let number = self.number()

        #expect(try await number.request().version == 1)
        #expect(number.cachedValue == nil)
        await number.save()
        #expect(await self.world.store.load(.init(domain: "Number")) == nil)
        _ = try await number.request()
        #expect(self.server.conditions == [nil, nil])
    }

    @Test func `N01 a value is served stale after a failure unless the response requires revalidation`() async throws {
        for (header, isServed) in [("max-age=1", true), ("max-age=1, must-revalidate", false), ("no-cache", false)] {
            let server = NumberServer()
            server.state.withLock { $0.headers["Cache-Control"] = header }
            let number = self.world.client(server.transport)
                .multiplexer(cacheKey: .init(header), repository: self.world.repository, GetNumber())
            _ = try await number.request()
            self.world.clock.advance(by: .seconds(1))
            for status in [500, 502, 503, 504] {
                server.state.withLock { $0.instead = HTTPReply(status: status) }
                let value = try? await number.request(.reload)
                #expect((value != nil) == isServed, "\(header) \(status)")
            }
            server.state.withLock { $0.instead = HTTPReply(status: 404) }
            await #expect(throws: HTTPError.self) { try await number.request(.reload) }
        }
    }

    @Test func `N01 a stale value is served for the time that the server permits`() async throws {
        self.say("max-age=10, stale-while-revalidate=5, stale-if-error=20")
        let number = self.number(MuxPolicy(staleIfError: .zero, errorBackoff: .zero))
        _ = try await number.request()
        self.server.state.withLock { $0.instead = HTTPReply(status: 503) }

        self.world.clock.advance(by: .seconds(29))
        #expect(try await number.requestEntry().staleReason == .fetchFailed)
        self.world.clock.advance(by: .seconds(1))
        await #expect(throws: HTTPError.self) { try await number.request() }
    }

    // MARK: - N02

    @Test func `N02 a 304 renews the lifetime and keeps the value without decoding`() async throws {
        let decoded = Locked(0)
        let request = GetNumber { decoded.withLock { $0 += 1 } }
        let number = self.world.client(self.server.transport)
            .multiplexer(cacheKey: "Number", repository: self.world.repository, request)
        let first = try await number.requestEntry()
        self.world.clock.advance(by: .seconds(10))

        let second = try await number.requestEntry()

        #expect(second.value == first.value && !second.isStale && second.timeToLive == .seconds(10))
        #expect(decoded.withLock { $0 } == 1)
        #expect(self.server.conditions == [nil, "\"1\""])
        #expect(number.store(Number(version: 0), ifUnchangedSince: first))
    }

    @Test func `N02 a new version is fetched in one exchange`() async throws {
        let number = self.number()
        _ = try await number.request()
        self.server.state.withLock { $0.versions["/numbers/a"] = 2 }
        self.world.clock.advance(by: .seconds(10))

        #expect(try await number.request().version == 2)
        #expect(self.server.conditions == [nil, "\"1\""])
    }

    @Test func `N02 fields that a 304 omits keep their previous values`() async throws {
        self.say("max-age=10, stale-if-error=0")
        let number = self.number(MuxPolicy(timeToLive: .seconds(99)))
        _ = try await number.request()
        self.say(nil)
        self.world.clock.advance(by: .seconds(10))

        _ = try await number.request()
        #expect(number.cachedEntry?.timeToLive == .seconds(10))
        self.world.clock.advance(by: .seconds(10))
        self.server.state.withLock { $0.instead = HTTPReply(status: 503) }
        await #expect(throws: HTTPError.self) { try await number.request() }
    }

    @Test func `N02 fields of a 304 replace the previous values`() async throws {
        let number = self.number()
        _ = try await number.request()
        self.say("max-age=100, must-revalidate")
        _ = try await number.refresh().request()
        #expect(number.cachedEntry?.timeToLive == .seconds(100))

        self.say("no-store")
        #expect(try await number.refresh().request().version == 1)
        #expect(number.cachedValue == nil)
    }

    @Test func `N02 a 304 with another entity tag is rejected`() async throws {
        let number = self.number()
        _ = try await number.request()
        self.server.state.withLock { state in
            state.instead = HTTPReply(status: 304, headers: ["ETag": "\"other\""])
        }

        await #expect(throws: HTTPError.self) { try await number.refresh().request() }
        #expect(self.server.conditions == [nil, "\"1\"", nil], "asked again without a condition")
    }

    @Test(arguments: ["no-cache", "max-age=10, must-revalidate"])
    func `N02 a 304 with only Expires does not cancel the previous no-cache or must-revalidate`(control: String)
        async throws
    {
        self.say(control)
        let number = self.number()
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(10))
        self.server.state.withLock { $0.headers = ["Expires": "Mon, 07 Nov 1994 08:49:37 GMT"] }
        _ = try await number.request()
        #expect(self.server.conditions == [nil, "\"1\""])
        self.world.clock.advance(by: .seconds(10))
        self.server.state.withLock { $0.instead = HTTPReply(status: 503) }

        await #expect(throws: HTTPError.self) { try await number.request() }
    }

    @Test func `N02 a 304 with another Last-Modified is rejected`() async throws {
        let changes = Locked(["Sun, 06 Nov 1994 08:00:00 GMT", "Sun, 06 Nov 1994 07:00:00 GMT"])
        let conditions = Locked<[String?]>([])
        let transport = ClosureTransport { call in
            let condition = call.headers["If-Modified-Since"]
            conditions.withLock { $0.append(condition) }
            let changed = changes.withLock { condition == nil && $0.count > 1 ? $0.removeFirst() : $0[0] }
            let headers: HTTPHeaders = ["Cache-Control": "max-age=10", "Last-Modified": changed]
            if condition != nil { return HTTPReply(status: 304, headers: headers) }
            return HTTPReply(
                status: 200,
                headers: headers,
                body: Data("{\"version\":\(changed.contains("07:00") ? 0 : 1)}".utf8)
            )
        }
        let number = self.world.client(transport).multiplexer(
            cacheKey: "Number",
            repository: self.world.repository,
            GetNumber()
        )
        #expect(try await number.request().version == 1)
        self.world.clock.advance(by: .seconds(10))

        #expect(try await number.request().version == 0, "the server has gone back to an older version")
        #expect(conditions.withLock { $0 } == [nil, "Sun, 06 Nov 1994 08:00:00 GMT", nil])
    }

    @Test func `N02 a 304 to an unconditional request is an error`() async throws {
        self.server.state.withLock { $0.instead = HTTPReply(status: 304) }

        await #expect { try await self.number().request() } throws: { ($0 as? HTTPError)?.status == .notModified }
    }

    /// A transport that redirects `/numbers/a` to the path `target`, unless `nil`.
    ///
    /// All responses have the same entity tag. The version is the last digit of the target, and 0 without a
    /// redirection.
    private func redirecting(_ status: Int, _ lifetime: Int, _ target: Locked<String?>) -> ExchangeTransport {
        ExchangeTransport(clock: self.world.clock) { call, sink in
            let path = call.url.path()
            if path == "/numbers/a", let target = target.withLock(\.self) {
                try await sink.receive(head: HTTPReply(status: status, headers: ["Location": target]))
                return [:]
            }
            let headers: HTTPHeaders = ["Cache-Control": "max-age=\(lifetime)", "ETag": "\"1\""]
            guard call.headers["If-None-Match"] == nil else {
                try await sink.receive(head: HTTPReply(status: 304, headers: headers))
                return [:]
            }
            let version = path == "/numbers/a" ? 0 : Int(path.suffix(1)) ?? -1
            try await sink.receive(head: HTTPReply(status: 200, headers: headers))
            try await sink.receive(Data("{\"version\":\(version)}".utf8))
            return [:]
        }
    }

    @Test(arguments: [301, 302, 303, 307, 308])
    func `N01 the target of a redirection determines neither the lifetime nor the validator`(status: Int)
        async throws
    {
        let target = Locked<String?>("/versions/1")
        let number = self.world.client(self.redirecting(status, 1_000, target)).multiplexer(
            cacheKey: "Number",
            repository: self.world.repository,
            GetNumber()
        )
        #expect(try await number.request().version == 1)

        target.withLock { $0 = "/versions/2" }
        #expect(try await number.request().version == 2)
    }

    @Test func `N02 a 304 of the target of a redirection does not validate the value`() async throws {
        let target = Locked<String?>(nil)
        let number = self.world.client(self.redirecting(302, 10, target)).multiplexer(
            cacheKey: "Number",
            repository: self.world.repository,
            GetNumber()
        )
        #expect(try await number.request().version == 0)
        self.world.clock.advance(by: .seconds(11))

        target.withLock { $0 = "/versions/2" }
        #expect(try await number.request().version == 2)
    }

    @Test func `N02 Last-Modified is the validator of a response without an entity tag`() async throws {
        let asked = Locked<[String?]>([])
        let transport = ClosureTransport { call in
            asked.withLock { $0.append(call.headers["If-Modified-Since"]) }
            let headers: HTTPHeaders = [
                "Last-Modified": "Sun, 06 Nov 1994 08:00:00 GMT", "Cache-Control": "no-cache",
            ]
            if call.headers["If-Modified-Since"] != nil { return HTTPReply(status: 304, headers: headers) }
            return HTTPReply(status: 200, headers: headers, body: Data("{\"version\":7}".utf8))
        }
        let number = self.world.client(transport)
            .multiplexer(cacheKey: "Number", repository: self.world.repository, GetNumber())

        for _ in 0..<3 { #expect(try await number.request().version == 7) }

        let time = "Sun, 06 Nov 1994 08:00:00 GMT"
        #expect(asked.withLock { $0 } == [nil, time, time])
    }

    @Test func `N02 the entity tag is stored on disk and sent after a relaunch`() async throws {
        let number = self.number()
        _ = try await number.request()
        await number.save()
        self.world.clock.advance(by: .seconds(10))
        let next = self.world.relaunched()
        let again = next.client(self.server.transport)
            .multiplexer(cacheKey: "Number", repository: next.repository, GetNumber())

        #expect(try await again.request().version == 1)

        #expect(self.server.conditions == [nil, "\"1\""])
    }

    @Test func `N02 a request that is not GET is never conditional`() async throws {
        struct Search: HTTPRequest {
            typealias Output = Number
            var endpoint: HTTPEndpoint { .init(scheme: .https, host: "example.com", path: "/search") }
            var method: HTTPMethod = .post
        }
        let old = self.world.client(self.server.transport)
            .multiplexer(cacheKey: "Number", repository: self.world.repository, Search(method: .get))
        _ = try await old.request()
        await old.save()
        self.world.clock.advance(by: .seconds(10))
        let transport = ClosureTransport { call in
            #expect(call.headers["If-None-Match"] == nil)
            return HTTPReply(status: 200, headers: ["ETag": "\"1\""], body: Data("{\"version\":1}".utf8))
        }
        // The entry on disk of an earlier version of the app has an entity tag.
        let world = self.world.relaunched()
        let number = world.client(transport).multiplexer(cacheKey: "Number", repository: world.repository, Search())

        _ = try await number.request()
        _ = try await number.request()
        #expect(transport.calls.count == 2, "and is not kept by itself")
    }

    @Test func `N02 a POST of a multiplexer makes no stored response stale`() async throws {
        struct Search: HTTPRequest {
            typealias Output = Number
            var endpoint: HTTPEndpoint { .init(scheme: .https, host: "example.com", path: "/search") }
            var method: HTTPMethod
        }
        let fails = Locked(false)
        let server = ClosureTransport { call in
            if fails.withLock({ $0 }) { throw HTTPError.timedOut(after: .seconds(1)) }
            return HTTPReply(
                status: 200,
                headers: ["Cache-Control": "max-age=100"],
                body: Data("{\"version\":1}".utf8)
            )
        }
        let cache = CachingTransport(server, repository: self.world.repository)
        let client = self.world.client(cache)
        let number = client.multiplexer(repository: self.world.repository, Search(method: .post))
        _ = try await client.output(of: Search(method: .get))
        _ = try await number.request()
        fails.withLock { $0 = true }
        _ = try? await number.reload()
        fails.withLock { $0 = false }
        _ = try await client.output(of: Search(method: .get))
        #expect(server.calls.map(\.method) == ["GET", "POST", "POST"])
    }

    @Test func `N02 a 304 over a real socket has no body and renews the value`() async throws {
        let conditions = Locked<[String?]>([])
        let server = LoopbackServer { request in
            conditions.withLock { $0.append(request.header("If-None-Match")) }
            let headers: KeyValuePairs = ["ETag": "W/\"é\"", "Cache-Control": "no-cache"]
            guard request.header("If-None-Match") == nil else {
                return LoopbackServer.Response(status: 304, headers: headers)
            }
            return .json(Number(version: 5), headers: headers)
        }
        let url = try server.start()
        struct Get: HTTPRequest {
            typealias Output = Number
            var port: Int
            var endpoint: HTTPEndpoint { .init(scheme: .http, host: .init("127.0.0.1", port: self.port), path: "/n") }
            var method: HTTPMethod { .get }
        }
        let request = Get(port: try #require(url.port))
        let number = HTTPClient().multiplexer(cacheKey: "Number", repository: self.world.repository, request)

        for _ in 0..<3 { #expect(try await number.request().version == 5) }

        let asked = conditions.withLock { $0 }
        #expect(asked.count == 3 && asked[0] == nil && asked[1] != nil && asked[1] == asked[2])
        await server.stop()
    }

    // MARK: - Keys

    @Test func `N01 each key of a map has its own lifetime and entity tag`() async throws {
        let map = self.world.client(self.server.transport)
            .multiplexerMap(cacheKey: "Numbers", repository: self.world.repository) { id in GetNumber(id: id) }
        self.server.state.withLock { $0.versions["/numbers/b"] = 5 }

        #expect(try await map.request(key: "a").version == 1)
        #expect(try await map.request(key: "b").version == 5)
        self.world.clock.advance(by: .seconds(10))
        _ = try await map.request(key: "b")

        #expect(self.server.calls.map { $0.url.path() } == ["/numbers/a", "/numbers/b", "/numbers/b"])
        #expect(self.server.conditions == [nil, nil, "\"5\""])
    }
}
