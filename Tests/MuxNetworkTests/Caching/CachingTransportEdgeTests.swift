import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Responses that must not be stored, reused or lost.
@Suite(.standard)
struct CachingTransportEdgeTests {
    private let world = CachingWorld()

    private static func reply(_ text: String, _ headers: HTTPHeaders, status: Int = 200) -> HTTPReply {
        HTTPReply(status: status, headers: headers, body: Data(text.utf8))
    }

    private func persistent(_ folder: CacheFolder) -> CachingTransport.Configuration {
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 10
        options.directory = folder.url
        return options
    }

    @Test func `HC-05 a caller that waited during a sign-out stores no response`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        let alice = self.world.call("GET", ["Authorization": "alice"])
        let calls = (0..<2).map { _ in Task { try await cache.send(alice) } }
        await gate.waitForCall(1)
        while cache.occupancy.waiters < 1 { await Task.yield() }
        await self.world.repository.clearAll()
        await gate.waitForCall(2)
        gate.open(1, returning: Self.reply("alice", ["Cache-Control": "max-age=10"]))
        gate.open(2, returning: Self.reply("alice", ["Cache-Control": "max-age=10"]))
        for call in calls { _ = try await call.value }

        gate.open(3, returning: Self.reply("bob", ["Cache-Control": "max-age=10"]))
        #expect(try await cache.send(self.world.call("GET", ["Authorization": "bob"])).body == Data("bob".utf8))
        #expect(server.calls.count == 3)
    }

    @Test(arguments: [401, 407, 408, 412, 416, 421, 425, 428, 429, 431, 511])
    func `HC-04 a response about the request rather than the resource is not stored`(status: Int) async throws {
        let (cache, server) = self.world.cache { call in
            guard call.headers["Range"] == nil, call.headers["Authorization"] != "old" else {
                return Self.reply("", ["Cache-Control": "max-age=60"], status: status)
            }
            return Self.reply("whole", ["Cache-Control": "max-age=60"])
        }
        let refused =
            status == 416
            ? self.world.call("GET", ["Range": "bytes=900-"]) : self.world.call("GET", ["Authorization": "old"])
        #expect(try await cache.send(refused).status == status)
        #expect(try await cache.send(self.world.call()).body == Data("whole".utf8))
        #expect(server.calls.count == 2)
    }

    @Test func `HC-04 a response that varies on credentials is not written to disk`() async throws {
        let folder = try CacheFolder()
        let (cache, _) = self.world.cache(self.persistent(folder)) { _ in
            Self.reply("short", ["Cache-Control": "max-age=100", "Vary": "Authorization"])
        }
        let call = self.world.call("GET", ["Authorization": "Bearer secret"])
        _ = try await cache.send(call)
        #expect(try await cache.send(call).headers.cacheStatuses.last?.isHit == true)
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.forward == .varyMiss)
        await self.world.repository.saveAll()
        let entry = await self.world.store.load(MuxStoreKey(domain: "HTTP", key: "http://example.org:80/a"))
        #expect(entry.map { String(decoding: $0.payload, as: UTF8.self).contains("secret") } != true)
    }

    @Test func `HC-04 a response that varies on a credential field of the configuration is not written to disk`()
        async throws
    {
        let folder = try CacheFolder()
        let server = LoopbackServer { _ in
            LoopbackServer.Response(
                headers: ["Cache-Control": "max-age=100", "Vary": "X-Own-Token"],
                body: Data("short".utf8)
            )
        }
        let url = try server.start()
        let transport = SystemTransport(HTTPTransportConfiguration(credentialHeaders: ["X-Own-Token"]))
        let repository = self.world.repository
        let cache = CachingTransport(transport, options: self.persistent(folder), repository: repository)
        let call = HTTPCall(url: url, headers: ["X-Own-Token": "secret"])
        for _ in 0..<2 { _ = try await cache.send(call) }
        #expect(server.requestCount == 1)

        await repository.saveAll()

        let name = "http://127.0.0.1:\(try #require(url.port))/"
        let entry = await self.world.store.load(MuxStoreKey(domain: "HTTP", key: name))
        #expect(entry.map { String(decoding: $0.payload, as: UTF8.self).contains("secret") } != true)
        await server.stop()
    }

    @Test func `HC-04 a long body that varies on credentials is not written to disk`() async throws {
        let folder = try CacheFolder()
        let (cache, server) = self.world.cache(self.persistent(folder)) { call in
            let vary = call.url.path() == "/own" ? "Authorization" : "Accept"
            return Self.reply("a private body", ["Cache-Control": "max-age=10", "Vary": vary])
        }
        for (path, count) in [("/shared", 1), ("/own", 2)] {
            var call = self.world.call("GET", ["Authorization": "Bearer secret"])
            call.url = CacheFolder.url(path)
            for _ in 0..<2 { #expect(try await cache.send(call).body == Data("a private body".utf8)) }
            #expect(server.calls.count { $0.url.path() == path } == count)
            let isOnDisk = try folder.files().contains { try Data(contentsOf: $0).count == 14 }
            #expect(isOnDisk == (path == "/shared"))
            await cache.clear()
        }
    }

    @Test(arguments: ["GET", "HEAD"])
    func `HC-04 a long body is removed from disk when an update makes the response vary on credentials`(method: String)
        async throws
    {
        let folder = try CacheFolder()
        let isFirst = Locked(true)
        let (cache, _) = self.world.cache(self.persistent(folder)) { call in
            var headers: HTTPHeaders = ["Cache-Control": "max-age=10", "ETag": "\"1\""]
            let isUpdated = isFirst.withLock { isFirst in
                defer { isFirst = false }
                return !isFirst
            }
            if isUpdated { headers["Vary"] = "Authorization" }
            guard call.method == "GET" else { return HTTPReply(status: 200, headers: headers) }
            guard call.headers["If-None-Match"] == nil else { return HTTPReply(status: 304, headers: headers) }
            return Self.reply("a private body", headers)
        }
        let secret: HTTPHeaders = ["Authorization": "Bearer secret"]
        _ = try await cache.send(self.world.call("GET", secret))
        #expect(try folder.files().count == 1)
        self.world.clock.advance(by: .seconds(11))

        _ = try await cache.send(self.world.call(method, secret))

        #expect(try folder.files().isEmpty)
        #expect(try await cache.send(self.world.call("GET", secret)).body == Data("a private body".utf8))
    }

    @Test func `HC-04 a late validation does not bring an older version back`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, _) = self.world.cache { call in
            if call.headers["If-None-Match"] != nil { return try await gate.pass() }
            return Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\""])
        }
        _ = try await cache.send(self.world.call())
        let slow = Task { try await cache.send(self.world.call("GET", ["Cache-Control": "no-cache"])) }
        await gate.waitForCall(1)
        gate.open(2, returning: Self.reply("2", ["Cache-Control": "max-age=10", "ETag": "\"2\""]))
        #expect(try await cache.send(self.world.call("GET", ["Cache-Control": "no-cache"])).body == Data("2".utf8))
        gate.open(1, returning: HTTPReply(status: 304, headers: ["Cache-Control": "max-age=10", "ETag": "\"1\""]))
        #expect(try await slow.value.body == Data("1".utf8))

        #expect(try await cache.send(self.world.call()).body == Data("2".utf8))
    }

    @Test func `HC-04 a 304 with no-store removes the stored response`() async throws {
        let (cache, server) = self.world.cache { call in
            guard call.headers["If-None-Match"] == nil else {
                return HTTPReply(status: 304, headers: ["Cache-Control": "no-store"])
            }
            return Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\""])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
        let stale = try await cache.send(self.world.call("GET", ["Cache-Control": "max-stale"]))
        #expect(stale.headers.cacheStatuses.last?.isHit == false)
        #expect(server.calls.count == 3)
    }

    @Test func `HC-04 a request with no-store neither uses nor changes the stored response`() async throws {
        let (cache, server) = self.world.cache { _ in
            Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\""])
        }
        _ = try await cache.send(self.world.call())
        _ = try await cache.send(self.world.call("GET", ["Cache-Control": "no-store"]))
        #expect(server.calls.last?.headers["If-None-Match"] == nil)
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
    }

    @Test func `HC-04 a request with no-store does not complete a stored part`() async throws {
        let (cache, server) = self.world.cache { call in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=100", "ETag": "\"1\""]
            guard let range = call.headers["Range"] else { return Self.reply("0123456789", headers) }
            let (places, text) = range == "bytes=0-4" ? ("0-4", "01234") : ("5-9", "56789")
            let part = headers.merging(["Content-Range": "bytes \(places)/10"])
            return HTTPReply(status: 206, headers: part, body: Data(text.utf8))
        }
        _ = try await cache.send(self.world.call("GET", ["Range": "bytes=0-4"]))
        let whole = try await cache.send(self.world.call("GET", ["Cache-Control": "no-store"]))
        #expect(whole.body == Data("0123456789".utf8))
        #expect(server.calls.map { $0.headers["Range"] } == ["bytes=0-4", nil])
        let rest = try await cache.send(self.world.call("GET", ["Range": "bytes=5-9"]))
        #expect(rest.headers.cacheStatuses.last?.isHit == false)
    }

    @Test func `HC-04 a GET with a body bypasses the cache`() async throws {
        let (cache, _) = self.world.cache { call in
            Self.reply(
                call.body?.data.map { String(decoding: $0, as: UTF8.self) } ?? "",
                ["Cache-Control": "max-age=10"]
            )
        }
        for text in ["one", "two"] {
            let call = HTTPCall(url: self.world.url, body: .data(Data(text.utf8)))
            #expect(try await cache.send(call).body == Data(text.utf8))
        }
    }

    @Test func `HC-04 a part in a file is not completed, the complete response is fetched`() async throws {
        let folder = try CacheFolder()
        let all = Data(String(repeating: "0123456789", count: 10).utf8)
        let (cache, _) = self.world.cache(self.persistent(folder)) { call in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=100", "ETag": "\"1\""]
            guard call.headers["Range"] != nil else { return HTTPReply(status: 200, headers: headers, body: all) }
            return HTTPReply(
                status: 206,
                headers: headers.merging(["Content-Range": "bytes 0-49/100"]),
                body: Data(all.prefix(50))
            )
        }
        #expect(try await cache.send(self.world.call("GET", ["Range": "bytes=0-49"])).body.count == 50)
        #expect(try await cache.send(self.world.call()).body == all)
    }

    @Test func `HC-04 parts are combined only within the memory limit`() async throws {
        var options = CachingTransport.Configuration()
        options.memoryBodyLimit = 25
        let (cache, _) = self.world.cache(options) { call in
            let first = Int(call.headers["Range"]?.split(separator: "=").last?.split(separator: "-").first ?? "") ?? 0
            return HTTPReply(
                status: 206,
                headers: [
                    "Cache-Control": "max-age=100", "ETag": "\"1\"",
                    "Content-Range": "bytes \(first)-\(first + 9)/1000",
                ],
                body: Data(repeating: UInt8(first), count: 10)
            )
        }
        for first in [0, 10, 20] {
            _ = try await cache.send(self.world.call("GET", ["Range": "bytes=\(first)-\(first + 9)"]))
        }
        let both = try await cache.send(self.world.call("GET", ["Range": "bytes=20-29"]))
        #expect(both.headers.cacheStatuses.last?.isHit == true)
        #expect(both.body == Data(repeating: 20, count: 10))
    }

    @Test func `HC-04 the response of a transport that passes no head on reaches the caller`() async throws {
        struct Headless: HTTPTransport {
            func send(_ call: HTTPCall) async throws -> HTTPReply { HTTPReply(status: 200) }
            func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply { HTTPReply(status: 204) }
        }
        let cache = CachingTransport(Headless(), repository: self.world.repository)
        #expect(try await cache.send(self.world.call()).status == 204)
    }

    @Test func `HC-04 an error of a custom transport counts as a lost connection`() async throws {
        let fails = Locked(false)
        let (cache, _) = self.world.cache { _ in
            if fails.withLock({ $0 }) { throw URLError(.notConnectedToInternet) }
            return Self.reply("1", ["Cache-Control": "max-age=10"])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(60))
        fails.withLock { $0 = true }
        let stale = try await cache.send(self.world.call())
        #expect(stale.body == Data("1".utf8))
        #expect(stale.headers.cacheStatuses.last?.forward == .stale)
    }

    @Test func `HC-04 a response with must-revalidate becomes a 504 if the server cannot be reached`() async throws {
        let fails = Locked(false)
        let (cache, _) = self.world.cache { _ in
            if fails.withLock({ $0 }) { throw HTTPError.transport(.closedWithoutResponse(FetchLost())) }
            return Self.reply("1", ["Cache-Control": "max-age=10, must-revalidate"])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(60))
        fails.withLock { $0 = true }
        #expect(try await cache.send(self.world.call()).status == 504)
    }

    @Test(arguments: [403, 407, 408, 416, 421, 425, 429, 503])
    func `HC-04 a failing HEAD does not change the stored response`(status: Int) async throws {
        let (cache, _) = self.world.cache { call in
            call.method == "HEAD"
                ? HTTPReply(status: status, headers: ["Retry-After": "60"])
                : Self.reply("1", ["Cache-Control": "max-age=10"])
        }
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call("HEAD", ["Cache-Control": "no-cache"])).status == status)
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
    }

    @Test func `HC-04 a response with the greatest Age is read back from disk`() async throws {
        let folder = try CacheFolder()
        let world = self.world
        let (cache, _) = world.cache(self.persistent(folder)) { _ in
            world.clock.advance(by: .seconds(1))
            return Self.reply("1", ["Age": "2147483648", "ETag": "\"1\""])
        }
        _ = try await cache.send(world.call())
        await world.repository.saveAll()

        let next = world.relaunched()
        let (nextCache, server) = next.cache(self.persistent(folder)) { _ in
            HTTPReply(status: 304, headers: ["ETag": "\"1\""])
        }
        #expect(try await nextCache.send(next.call()).body == Data("1".utf8))
        #expect(server.calls.map { $0.headers["If-None-Match"] } == ["\"1\""])
    }

    @Test(arguments: [#"{"answers":[]}"#, "[]", "[{}]"])
    func `HC-04 an invalid record is a miss`(text: String) async throws {
        let folder = try CacheFolder()
        await self.world.store.save(
            [
                MuxStoredEntry(
                    name: MuxStoreKey(domain: "HTTP", key: "http://example.org:80/a"),
                    schemaVersion: 1,
                    sessionEpoch: 0,
                    fetchedAt: self.world.now,
                    timeToLive: .seconds(1_000),
                    payload: Data(text.utf8)
                )
            ],
            durability: .relaxed
        )
        let (cache, server) = self.world.cache(self.persistent(folder)) { _ in
            Self.reply("1", ["Cache-Control": "max-age=10"])
        }
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
        #expect(server.calls.count == 1)
    }
}
