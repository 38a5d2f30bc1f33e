import Foundation
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxKit

@Suite(.standard)
struct CachingTransportTests {
    private let world = CachingWorld()

    private static func reply(_ text: String = "one", _ headers: HTTPHeaders = ["Cache-Control": "max-age=10"])
        -> HTTPReply
    {
        HTTPReply(status: 200, headers: headers, body: Data(text.utf8))
    }

    // MARK: - Single flight

    @Test func `HC-05 requests for one URL share an exchange`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        let replies = try await withThrowingTaskGroup { group in
            for _ in 0..<50 { group.addTask { try await cache.send(self.world.call()) } }
            await gate.waitForCall(1)
            await self.waitForWaiters(49, cache)
            gate.open(returning: Self.reply())
            return try await group.reduce(into: [HTTPReply]()) { $0.append($1) }
        }

        #expect(server.calls.count == 1)
        #expect(replies.allSatisfy { String(decoding: $0.body, as: UTF8.self) == "one" })
        let statuses = replies.compactMap { $0.headers.cacheStatuses.last }
        #expect(statuses.count { $0.isCollapsed } == 49)
        #expect(statuses.count { $0.isStored && $0.forward == .uriMiss } == 1)
        await settled(cache)
    }

    @Test func `HC-05 after the first caller is cancelled, the next waiter sends a request`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        let first = Task { try await cache.send(self.world.call()) }
        await gate.waitForCall(1)
        let second = Task { try await cache.send(self.world.call()) }
        await self.waitForWaiters(1, cache)

        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        await gate.waitForCall(2)
        gate.open(2, returning: Self.reply("two"))

        #expect(try await second.value.body == Data("two".utf8))
        #expect(server.calls.count == 2)
        await settled(cache)
    }

    @Test func `HC-05 a cancelled waiter leaves at once without an effect on other callers`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, _) = self.world.cache { _ in try await gate.pass() }
        let first = Task { try await cache.send(self.world.call()) }
        await gate.waitForCall(1)
        let second = Task { try await cache.send(self.world.call()) }
        await self.waitForWaiters(1, cache)

        second.cancel()
        await #expect(throws: CancellationError.self) { try await second.value }
        gate.open(returning: Self.reply())
        #expect(try await first.value.status == 200)
    }

    @Test func `HC-05 a failure is shared`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        let calls = (0..<5).map { _ in Task { try await cache.send(self.world.call()) } }
        await gate.waitForCall(1)
        await self.waitForWaiters(4, cache)
        gate.fail(with: HTTPError.transport(.closedWithoutResponse(FetchLost())))
        for call in calls { await #expect(throws: HTTPError.self) { try await call.value } }
        #expect(server.calls.count == 1)
    }

    @Test func `HC-05 a response that may not be stored is not shared`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        let calls = (0..<5).map { _ in Task { try await cache.send(self.world.call()) } }
        await gate.waitForCall(1)
        await self.waitForWaiters(4, cache)
        gate.open(returning: Self.reply("mine", ["Cache-Control": "no-store"]))
        // The other callers send their own requests, all at once.
        await gate.waitForCall(5)
        for number in 2...5 { gate.open(number, returning: Self.reply("yours", ["Cache-Control": "no-store"])) }
        for call in calls { #expect(try await call.value.headers.cacheStatuses.last?.isStored == false) }
        #expect(server.calls.count == 5)
    }

    // MARK: - Fences

    @Test func `HC-05 a response to a request sent before a change is not stored`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { call in
            call.method == "GET" ? try await gate.pass() : HTTPReply(status: 204)
        }
        let old = Task { try await cache.send(self.world.call()) }
        await gate.waitForCall(1)
        _ = try await cache.send(self.world.call("PUT"))
        gate.open(1, returning: Self.reply("old"))
        #expect(try await old.value.body == Data("old".utf8))

        gate.open(2, returning: Self.reply("new"))
        #expect(try await cache.send(self.world.call()).body == Data("new".utf8))
        #expect(try await cache.send(self.world.call()).body == Data("new".utf8))
        #expect(server.calls.map(\.method) == ["GET", "PUT", "GET"])
    }

    @Test func `HC-05 a change makes the stored response stale, even if the change gets no response`() async throws {
        let fails = Locked(false)
        let (cache, server) = self.world.cache { call in
            if fails.withLock({ $0 }) { throw HTTPError.transport(.closedWithoutResponse(FetchLost())) }
            return call.method == "GET" ? Self.reply() : HTTPReply(status: 204)
        }
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
        fails.withLock { $0 = true }
        await #expect(throws: HTTPError.self) { try await cache.send(self.world.call("POST")) }
        fails.withLock { $0 = false }
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == false)
        #expect(server.calls.count == 3)
    }

    @Test func `HC-05 a sign-out leaves no response behind`() async throws {
        let gate = Gate<HTTPReply>()
        let folder = try CacheFolder()
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 4
        options.directory = folder.url
        let (cache, server) = self.world.cache(options) { call in
            call.url.path() == "/a" ? Self.reply("long enough for a file") : try await gate.pass()
        }
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
        await self.world.repository.saveAll()
        let other = HTTPCall(url: CacheFolder.url("/b"))
        let running = Task { try await cache.send(other) }
        await gate.waitForCall(1)

        await self.world.repository.clearAll()
        #expect(try folder.files() == [])
        gate.open(returning: Self.reply("the former user's"))
        _ = try await running.value
        gate.open(2, returning: Self.reply("this user's"))

        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == false)
        #expect(try await cache.send(other).body == Data("this user's".utf8))
        #expect(server.calls.count == 4)
    }

    // MARK: - Limits

    @Test func `HC-06 responses in memory have a limit in bytes`() async throws {
        var options = CachingTransport.Configuration()
        options.memoryLimit = 100_000
        let (cache, server) = self.world.cache(options) { _ in Self.reply(String(repeating: "x", count: 10_000)) }
        for number in 0..<50 { _ = try await cache.send(HTTPCall(url: CacheFolder.url("/\(number)"))) }
        let before = server.calls.count
        for number in 0..<50 { _ = try await cache.send(HTTPCall(url: CacheFolder.url("/\(number)"))) }
        let hits = 50 - (server.calls.count - before)
        #expect(hits < 10)
    }

    @Test func `HC-06 long bodies are stored in files, which have a limit in bytes`() async throws {
        let folder = try CacheFolder()
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 100
        options.diskLimit = 5_000
        options.directory = folder.url
        let (cache, server) = self.world.cache(options) { call in
            Self.reply(String(repeating: call.url.lastPathComponent, count: 1_000))
        }
        for number in 0..<9 { _ = try await cache.send(HTTPCall(url: CacheFolder.url("/\(number)"))) }
        #expect(try folder.size() == 5_000)
        let last = try await cache.send(HTTPCall(url: CacheFolder.url("/8")))
        #expect(last.headers.cacheStatuses.last?.isHit == true)
        #expect(last.body == Data(String(repeating: "8", count: 1_000).utf8))
        let first = try await cache.send(HTTPCall(url: CacheFolder.url("/0")))
        #expect(first.headers.cacheStatuses.last?.isHit == false)
        #expect(first.body == Data(String(repeating: "0", count: 1_000).utf8))
        #expect(server.calls.count == 10)
    }

    @Test func `HC-06 a body with a missing or truncated file is fetched again`() async throws {
        let folder = try CacheFolder()
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 10
        options.directory = folder.url
        let (cache, server) = self.world.cache(options) { _ in Self.reply(String(repeating: "x", count: 1_000)) }
        _ = try await cache.send(self.world.call())
        for file in try folder.files() { try Data("cut".utf8).write(to: file) }
        #expect(try await cache.send(self.world.call()).body.count == 1_000)
        for file in try folder.files() { try FileManager.default.removeItem(at: file) }
        #expect(try await cache.send(self.world.call()).body.count == 1_000)
        #expect(server.calls.count == 3)
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
    }

    @Test func `HC-06 a body beyond the limit is passed on and not stored`() async throws {
        var options = CachingTransport.Configuration()
        options.memoryBodyLimit = 100
        let (cache, server) = self.world.cache(options) { _ in Self.reply(String(repeating: "x", count: 1_000)) }
        for _ in 0..<2 { #expect(try await cache.send(self.world.call()).body.count == 1_000) }
        #expect(server.calls.count == 2)
    }

    @Test func `HC-06 responses survive a relaunch without the Set-Cookie field`() async throws {
        let folder = try CacheFolder()
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 10
        options.directory = folder.url
        let headers: HTTPHeaders = ["Cache-Control": "max-age=100", "Set-Cookie": "secret=1", "X-One": "1"]
        let (cache, _) = self.world.cache(options) { call in
            Self.reply(call.url.path() == "/a" ? "short" : "long enough", headers)
        }
        let long = HTTPCall(url: CacheFolder.url("/long"))
        _ = try await cache.send(self.world.call())
        _ = try await cache.send(long)
        #expect(try await cache.send(self.world.call()).headers["Set-Cookie"] == "secret=1")
        await self.world.repository.saveAll()
        self.world.clock.advance(by: .seconds(40))

        let next = self.world.relaunched()
        let server = ClosureTransport { _ in throw HTTPError.transport(.closedWithoutResponse(FetchLost())) }
        let again = CachingTransport(server, options: options, repository: next.repository)
        let reply = try await again.send(self.world.call())
        #expect(reply.body == Data("short".utf8))
        #expect(reply.headers["X-One"] == "1")
        #expect(reply.headers["Set-Cookie"] == nil)
        #expect(reply.headers["Age"] == "40")
        #expect(try await again.send(long).body == Data("long enough".utf8))
        #expect(server.calls.isEmpty)
    }

    // MARK: - Cache-Status

    @Test(arguments: [
        ("MuxKit; hit; ttl=376", "MuxKit; hit; ttl=376"),
        ("ExampleCache; fwd=uri-miss; collapsed; stored", "ExampleCache; fwd=uri-miss; stored; collapsed"),
        ("\"a, b\"; fwd=stale; fwd-status=304; ttl=-3", "\"a, b\"; fwd=stale; fwd-status=304; ttl=-3"),
        ("A; detail=\"x; y\"", "A; detail=\"x; y\""),
        ("A; hit=?0", "A"),
    ])
    func `HC-07 a member of Cache-Status is parsed and serialized`(text: String, written: String) throws {
        #expect(try #require(HTTPCacheStatus(text)).description == written)
    }

    @Test func `HC-07 the Cache-Status field of a response reports the action of the cache`() async throws {
        let server = ClosureTransport { _ in
            Self.reply("1", ["Cache-Control": "max-age=10", "Cache-Status": "Edge; hit, Origin; fwd=miss"])
        }
        let client = self.world.client(CachingTransport(server, repository: self.world.repository))
        let miss = try await client.response(to: Ask { _ in }).cacheStatus
        #expect(miss?.forward == .uriMiss)
        #expect(miss?.isStored == true)
        self.world.clock.advance(by: .seconds(4))
        let response = try await client.response(to: Ask { _ in })
        #expect(response.cacheStatus?.isHit == true)
        #expect(response.cacheStatus?.timeToLive == .seconds(6))
        #expect(response.headers.cacheStatuses.map(\.cache) == ["Edge", "Origin", "MuxKit"])
    }

    @Test(arguments: ["max-age=2", "min-fresh=8"])
    func `HC-07 Cache-Status names the request as the reason if the request refuses a fresh response`(control: String)
        async throws
    {
        let (cache, _) = self.world.cache { _ in Self.reply("1", ["Cache-Control": "max-age=10"]) }
        _ = try await cache.send(self.world.call())
        for reason in [HTTPCacheStatus.Forward.request, .stale] {
            self.world.clock.advance(by: .seconds(reason == .request ? 4 : 11))
            let reply = try await cache.send(self.world.call("GET", ["Cache-Control": control]))
            #expect(reply.headers.cacheStatuses.last?.forward == reason)
        }
    }

    @Test func `HC-07 Cache-Status of a stale response has the status of the server`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        gate.open(1, returning: Self.reply("1", ["Cache-Control": "max-age=10, stale-if-error=100"]))
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))

        let calls = (0..<2).map { _ in Task { try await cache.send(self.world.call()) } }
        await gate.waitForCall(2)
        await self.waitForWaiters(1, cache)
        gate.open(2, returning: HTTPReply(status: 503))
        for call in calls {
            let status = try await call.value.headers.cacheStatuses.last
            #expect(status?.forward == .stale && status?.forwardStatus == 503)
        }
        #expect(server.calls.count == 2)
    }

    @Test func `HC-07 Cache-Status after a 304 has the lifetime of the updated response`() async throws {
        let (cache, _) = self.world.cache { call in
            guard call.headers["If-None-Match"] != nil else {
                return Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\""])
            }
            return HTTPReply(status: 304, headers: ["Age": "15", "ETag": "\"1\""])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.timeToLive == .seconds(-5))
    }

    @Test func `HC-07 the log reports the action of the cache`() async throws {
        let lines = Locked<[String]>([])
        let repository = MuxRepository(
            store: MemoryStore(),
            observer: LoggingObserver(observesHits: true, showsKeys: false, isIncluded: { _ in true }) { line, _ in
                lines.withLock { $0.append(line) }
            }
        )
        let folder = try CacheFolder()
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.directory = folder.url
        let cache = CachingTransport(ClosureTransport { _ in Self.reply() }, options: options, repository: repository)
        for _ in 0..<2 { _ = try await cache.send(self.world.call()) }
        #expect(lines.withLock { $0 }.contains { $0.contains("HTTP") && $0.contains("hit") })
        #expect(cache.statistics.hits == 1)
        #expect(cache.statistics.fetches == 1)
    }

    // MARK: - Rules

    @Test func `HC-04 a redirection is stored like any other response`() async throws {
        let visits = Locked(0)
        let backend = LoopbackServer { request in
            visits.withLock { $0 += 1 }
            return request.path == "/new"
                ? .init(status: 200, headers: ["Cache-Control": "max-age=100"], body: Data("there".utf8))
                : .init(status: 301, headers: ["Location": "/new", "Cache-Control": "max-age=100"])
        }
        try backend.start()
        let cache = CachingTransport(.system, repository: self.world.repository)
        let old = HTTPCall(url: backend.url.appending(path: "old"))
        for _ in 0..<3 {
            let reply = try await cache.send(old)
            #expect(reply.body == Data("there".utf8))
            #expect(reply.url?.path() == "/new")
        }
        #expect(visits.withLock { $0 } == 2)
        await backend.stop()
    }

    @Test func `HC-04 a part is completed with the rest of the same version`() async throws {
        let headers: HTTPHeaders = ["Cache-Control": "max-age=100", "ETag": "\"1\""]
        let (cache, server) = self.world.cache { call in
            let all = Data("0123456789".utf8)
            var reply = HTTPReply(status: 206, headers: headers)
            switch call.headers["Range"] {
            case "bytes=0-4":
                reply.headers["Content-Range"] = "bytes 0-4/10"
                reply.body = all.prefix(5)
            case "bytes=5-":
                #expect(call.headers["If-Range"] == "\"1\"")
                reply.headers["Content-Range"] = "bytes 5-9/10"
                reply.body = Data(all.suffix(5))
            default:
                reply.status = 200
                reply.body = all
            }
            return reply
        }
        let part = try await cache.send(self.world.call("GET", ["Range": "bytes=0-4"]))
        #expect(part.status == 206)
        let whole = try await cache.send(self.world.call())
        #expect(whole.status == 200)
        #expect(whole.body == Data("0123456789".utf8))
        #expect(whole.headers["Content-Range"] == nil)
        let last = try await cache.send(self.world.call("GET", ["Range": "bytes=-3"]))
        #expect(last.status == 206)
        #expect(last.body == Data("789".utf8))
        #expect(last.body.startIndex == 0)
        #expect(last.headers["Content-Range"] == "bytes 7-9/10")
        #expect(server.calls.count == 2)
    }

    @Test func `HC-04 a stale response is used during a background revalidation`() async throws {
        let count = Locked(0)
        let (cache, server) = self.world.cache { _ in
            Self.reply(
                String(
                    count.withLock { count in
                        count += 1
                        return count
                    }
                ),
                ["Cache-Control": "max-age=10, stale-while-revalidate=100"]
            )
        }
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
        self.world.clock.advance(by: .seconds(50))
        let stale = try await cache.send(self.world.call())
        #expect(stale.body == Data("1".utf8))
        #expect(stale.headers.cacheStatuses.last?.timeToLive == .seconds(-40))
        await settled(cache)
        #expect(try await cache.send(self.world.call()).body == Data("2".utf8))
        #expect(server.calls.count == 2)
    }

    private func waitForWaiters(_ count: Int, _ cache: CachingTransport) async {
        while cache.occupancy.waiters < count { await Task.yield() }
    }

    private func settled(_ cache: CachingTransport) async {
        let left = await settledOccupancy { cache.occupancy }
        #expect(left == (0, 0, 0))
    }
}

struct FetchLost: Error, ConnectivityError {}
