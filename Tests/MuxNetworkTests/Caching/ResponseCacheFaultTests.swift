import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Rules of RFC 9111 that the response cache once missed.
@Suite(.standard)
struct ResponseCacheFaultTests {
    private let world = CachingWorld()

    private static func reply(_ text: String, _ headers: HTTPHeaders, status: Int = 200) -> HTTPReply {
        HTTPReply(status: status, headers: headers, body: Data(text.utf8))
    }

    private func options(_ folder: CacheFolder) -> CachingTransport.Configuration {
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.directory = folder.url
        return options
    }

    /// Whether the response to a request comes from memory or disk.
    private func isHit(_ cache: CachingTransport, _ call: HTTPCall) async throws -> Bool {
        try await cache.send(call).headers.cacheStatuses.last?.isHit ?? false
    }

    // MARK: - HEAD

    @Test func `WR-12 a response to HEAD that may not be stored leaves nothing in memory or on disk`() async throws {
        let folder = try CacheFolder()
        let options = self.options(folder)
        let (cache, _) = self.world.cache(options) { call in
            call.method == "HEAD"
                ? HTTPReply(status: 200, headers: ["Cache-Control": "no-store", "ETag": "\"1\"", "X-Secret": "secret"])
                : Self.reply("1", ["Cache-Control": "max-age=1000", "ETag": "\"1\""])
        }
        _ = try await cache.send(self.world.call())
        await self.world.repository.saveAll()
        _ = try await cache.send(self.world.call("HEAD", ["Cache-Control": "no-cache"]))
        let after = try await cache.send(self.world.call())
        #expect(after.headers["X-Secret"] == nil)
        #expect(after.headers.cacheStatuses.last?.isHit == false)

        _ = try await cache.send(self.world.call("HEAD", ["Cache-Control": "no-cache"]))
        let next = self.world.relaunched()
        let again = CachingTransport(
            ClosureTransport { _ in Self.reply("2", [:]) },
            options: options,
            repository: next.repository
        )
        #expect(try await again.send(next.call()).body == Data("2".utf8))
    }

    @Test(
        arguments: [
            (["ETag": "\"2\""], false), (["Content-Length": "11"], false),
            (["ETag": "\"1\"", "Content-Length": "10"], true),
            ([:], true),
        ] as [(HTTPHeaders, Bool)]
    )
    func `WR-12 a response to HEAD with another validator invalidates stored parts`(fields: HTTPHeaders, stays: Bool)
        async throws
    {
        let (cache, _) = self.world.cache { call in
            guard call.method != "HEAD" else {
                return HTTPReply(status: 200, headers: fields.merging(["Cache-Control": "max-age=1000"]))
            }
            return Self.reply(
                "01234",
                ["Cache-Control": "max-age=1000", "ETag": "\"1\"", "Content-Range": "bytes 0-4/10"],
                status: 206
            )
        }
        let part = self.world.call("GET", ["Range": "bytes=0-4"])
        _ = try await cache.send(part)
        #expect(try await self.isHit(cache, part))
        _ = try await cache.send(self.world.call("HEAD"))
        #expect(try await self.isHit(cache, part) == stays)
    }

    // MARK: - Directives of requests

    @Test(arguments: ["POST", "PUT", "DELETE", "OPTIONS"])
    func `WR-12 a method that cannot use a stored response gets a 504 with only-if-cached`(method: String) async throws
    {
        let (cache, server) = self.world.cache { _ in Self.reply("1", ["Cache-Control": "max-age=1000"]) }
        _ = try await cache.send(self.world.call())
        let refused = try await cache.send(self.world.call(method, ["Cache-Control": "only-if-cached"]))
        #expect(refused.status == 504)
        #expect(server.calls.count == 1)
        #expect(try await self.isHit(cache, self.world.call()), "nothing was sent, so nothing has changed")
    }

    @Test(arguments: [
        ("max-stale=5, max-stale=100", false), ("max-stale=100, max-stale=5", false), ("max-stale=5, max-stale", false),
        ("max-stale, max-stale=5", false), ("max-stale, max-stale=100", true), ("max-stale=x, max-stale=100", false),
    ])
    func `WR-12 the stricter of two max-stale values counts`(control: String, isUsed: Bool) async throws {
        let (cache, _) = self.world.cache { _ in Self.reply("1", ["Cache-Control": "max-age=10"]) }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(60))
        #expect(try await self.isHit(cache, self.world.call("GET", ["Cache-Control": control])) == isUsed)
    }

    @Test(arguments: [
        ("stale-if-error=5, stale-if-error=100", 503), ("stale-if-error=100, stale-if-error=5", 503),
        ("stale-if-error=100", 200),
    ])
    func `WR-12 the stricter of two stale-if-error values counts`(control: String, status: Int) async throws {
        let fails = Locked(false)
        let (cache, _) = self.world.cache { _ in
            fails.withLock(\.self) ? HTTPReply(status: 503) : Self.reply("1", ["Cache-Control": "max-age=10"])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(60))
        fails.withLock { $0 = true }
        #expect(try await cache.send(self.world.call("GET", ["Cache-Control": control])).status == status)
    }

    @Test(arguments: ["max-stale", "only-if-cached, max-stale"])
    func `WR-12 a response that arrives stale without a validator is not stored, as documented`(control: String)
        async throws
    {
        let (cache, server) = self.world.cache { _ in Self.reply("1", ["Cache-Control": "max-age=10", "Age": "60"]) }
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isStored == false)
        let again = try await cache.send(self.world.call("GET", ["Cache-Control": control]))
        #expect(again.status == (control == "max-stale" ? 200 : 504))
        #expect(server.calls.count == (control == "max-stale" ? 2 : 1))
    }

    // MARK: - Validators

    @Test(arguments: [
        ("W/\"1\"", "\"1\"", false), ("\"1\"", "W/\"1\"", true), ("\"1\"", "\"1\"", true), ("W/\"1\"", "W/\"1\"", true),
    ])
    func `WR-12 a strong validator never updates a weak validator`(stored: String, sent: String, updates: Bool)
        async throws
    {
        let (cache, server) = self.world.cache { call in
            call.headers["If-None-Match"] == nil
                ? Self.reply("1", ["Cache-Control": "max-age=10", "ETag": stored, "X-Field": "old"])
                : HTTPReply(status: 304, headers: ["Cache-Control": "max-age=1000", "ETag": sent, "X-Field": "new"])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        let second = try await cache.send(self.world.call())
        #expect(second.status == 200 && second.body == Data("1".utf8))
        #expect(second.headers["ETag"] == (updates ? sent : stored))
        let third = try await cache.send(self.world.call())
        #expect(third.body == Data("1".utf8))
        #expect(third.headers["X-Field"] == (updates ? "new" : "old"))
        #expect(third.headers["Age"] == (updates ? "0" : "11"))
        #expect(server.calls.map { $0.headers["If-None-Match"] } == [nil, stored] + (updates ? [] : [stored]))
    }

    @Test func `WR-12 a cached value keeps its weak validator after a 304 with a strong validator`() async throws {
        let server = ClosureTransport { call in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=10"]
            return call.headers["If-None-Match"] == nil
                ? Self.reply(#"{"version":1}"#, headers.merging(["ETag": "W/\"1\""]))
                : HTTPReply(status: 304, headers: headers.merging(["ETag": "\"1\""]))
        }
        let number = self.world.client(server).multiplexer(repository: self.world.repository, GetNumber())
        for _ in 0..<3 {
            #expect(try await number.request().version == 1)
            self.world.clock.advance(by: .seconds(11))
        }
        #expect(server.calls.map { $0.headers["If-None-Match"] } == [nil, "W/\"1\"", "W/\"1\""])
    }

    @Test func `WR-12 sixteen variants of a URL are stored, as documented`() async throws {
        let (cache, server) = self.world.cache { _ in
            Self.reply("1", ["Cache-Control": "max-age=1000", "Vary": "X-Key"])
        }
        for key in 0..<17 { _ = try await cache.send(self.world.call("GET", ["X-Key": String(key)])) }
        for key in 1..<17 {
            #expect(try await self.isHit(cache, self.world.call("GET", ["X-Key": String(key)])))
        }
        #expect(try await !self.isHit(cache, self.world.call("GET", ["X-Key": "0"])))
        #expect(server.calls.count == 18)
    }

    // MARK: - Clear-Site-Data

    private static func cleared(_ url: URL) -> HTTPReply {
        switch url.path() {
        case "/clear": HTTPReply(status: 204, headers: ["Clear-Site-Data": "\"cookies\", \"cache\""])
        case "/clear-all": HTTPReply(status: 500, headers: ["Clear-Site-Data": "\"*\""])
        case "/clear-open": HTTPReply(status: 204, headers: ["Clear-Site-Data": "\"cookies, \"cache\""])
        case "/clear-cookies": HTTPReply(status: 200, headers: ["Clear-Site-Data": "\"cookies\", cache"])
        default: reply(url.path(), ["Cache-Control": "max-age=1000", "ETag": "\"1\""])
        }
    }

    @Test(
        arguments: [("/clear", true), ("/clear-all", true), ("/clear-open", true), ("/clear-cookies", false)],
        [false, true]
    )
    func `WR-12 Clear-Site-Data removes the stored responses of its origin`(
        clearing: (path: String, clears: Bool),
        relaunches: Bool
    ) async throws {
        let folder = try CacheFolder()
        var options = self.options(folder)
        options.memoryBodyLimit = 2
        var (cache, _) = self.world.cache(options) { Self.cleared($0.url) }
        let other = try #require(URL(string: "http://example.com/long"))
        let urls = [CacheFolder.url("/a"), CacheFolder.url("/long"), other]
        for url in urls { _ = try await cache.send(HTTPCall(url: url)) }
        await self.world.repository.saveAll()
        var next = self.world
        if relaunches {
            next = self.world.relaunched()
            cache = next.cache(options) { Self.cleared($0.url) }.0
        }
        _ = try await cache.send(HTTPCall(url: CacheFolder.url(clearing.path)))
        if !relaunches { #expect(try folder.files().count == (clearing.clears ? 1 : 2)) }

        for launch in 0..<2 {
            if launch == 1 {
                next = next.relaunched()
                cache = next.cache(options) { Self.cleared($0.url) }.0
            }
            for url in urls {
                let stored = try await cache.send(HTTPCall(url: url, headers: ["Cache-Control": "only-if-cached"]))
                #expect((stored.status == 200) == (url == other || !clearing.clears), "\(url), launch \(launch)")
            }
        }
        // The origin's responses are stored again from now on.
        next.clock.advance(by: .seconds(1))
        _ = try await cache.send(HTTPCall(url: urls[0]))
        #expect(try await self.isHit(cache, HTTPCall(url: urls[0])))
        await next.repository.saveAll()
        let last = next.relaunched()
        #expect(try await self.isHit(last.cache(options) { Self.cleared($0.url) }.0, HTTPCall(url: urls[0])))
    }

    @Test func `WR-12 an exchange that began before Clear-Site-Data stores nothing`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, _) = self.world.cache { call in
            call.url.path() == "/a" ? try await gate.pass() : Self.cleared(call.url)
        }
        let slow = Task { try await cache.send(self.world.call()) }
        await gate.waitForCall(1)
        _ = try await cache.send(HTTPCall(url: CacheFolder.url("/clear")))
        gate.open(1, returning: Self.reply("1", ["Cache-Control": "max-age=1000"]))
        _ = try await slow.value
        let stored = try await cache.send(self.world.call("GET", ["Cache-Control": "only-if-cached"]))
        #expect(stored.status == 504)
    }

    // The first origin begins with `http://example.org:80`, and the second origin with `http://example.org`.
    @Test(arguments: ["http://example.org:8080", "http://example.org.com", "https://example.org"])
    func `PT-01 Clear-Site-Data concerns no other origin`(origin: String) async throws {
        let stored = try #require(URL(string: "\(origin)/a"))
        let running = try #require(URL(string: "\(origin)/slow"))
        let gate = Gate<HTTPReply>()
        let (cache, _) = self.world.cache { call in
            call.url.path() == "/slow" ? try await gate.pass() : Self.cleared(call.url)
        }
        for url in [self.world.url, stored] { _ = try await cache.send(HTTPCall(url: url)) }
        let slow = Task { try await cache.send(HTTPCall(url: running)) }
        await gate.waitForCall(1)
        _ = try await cache.send(HTTPCall(url: CacheFolder.url("/clear")))
        gate.open(1, returning: Self.reply("slow", ["Cache-Control": "max-age=1000"]))
        _ = try await slow.value

        for (url, status) in [(self.world.url, 504), (stored, 200), (running, 200)] {
            let reply = try await cache.send(HTTPCall(url: url, headers: ["Cache-Control": "only-if-cached"]))
            #expect(reply.status == status, "\(url)")
        }
    }

    @Test func `PT-01 a response that a 304 with Clear-Site-Data validates is not stored again`() async throws {
        let (cache, server) = self.world.cache { call in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=10", "ETag": "\"1\""]
            guard call.headers["If-None-Match"] == nil else {
                return HTTPReply(status: 304, headers: headers.merging(["Clear-Site-Data": "\"cache\""]))
            }
            return Self.reply("1", headers)
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))

        let validated = try await cache.send(self.world.call())

        #expect(validated.status == 200 && validated.body == Data("1".utf8))
        let status = try #require(validated.headers.cacheStatuses.last)
        #expect(status.forwardStatus == 304 && !status.isStored)
        let stored = try await cache.send(self.world.call("GET", ["Cache-Control": "only-if-cached"]))
        #expect(stored.status == 504)
        #expect(server.calls.count == 2)
    }

    @Test func `WR-12 a stored response with Clear-Site-Data clears nothing when it is used`() async throws {
        let (cache, server) = self.world.cache { call in
            call.url.path() == "/b"
                ? Self.reply("b", ["Cache-Control": "max-age=1000", "Clear-Site-Data": "\"cache\""])
                : Self.reply("a", ["Cache-Control": "max-age=1000"])
        }
        let clearing = HTTPCall(url: CacheFolder.url("/b"))
        _ = try await cache.send(self.world.call())
        _ = try await cache.send(clearing)
        _ = try await cache.send(self.world.call())
        #expect(try await self.isHit(cache, clearing))
        #expect(try await self.isHit(cache, self.world.call()))
        #expect(server.calls.count == 3)
    }
}
