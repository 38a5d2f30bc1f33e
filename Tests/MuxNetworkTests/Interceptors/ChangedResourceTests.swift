import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The requests of a client invalidate the client's cached values.
@Suite(.standard)
struct ChangedResourceTests {
    private let world = CachingWorld()
    private let server = NumberServer()

    private func map(_ client: HTTPClient, in world: CachingWorld? = nil) -> MultiplexerMap<String, Number> {
        client.multiplexerMap(cacheKey: "Numbers", repository: (world ?? self.world).repository) { GetNumber(id: $0) }
    }

    @Test(arguments: ["POST", "PUT", "PATCH", "DELETE", "PURGE"] as [HTTPMethod])
    func `N03 an unsafe method makes cached values of its URL stale, and no other values`(method: HTTPMethod)
        async throws
    {
        let client = self.world.client(self.server.transport)
        let map = self.map(client)
        let alone = client.multiplexer(cacheKey: "Number", repository: self.world.repository, GetNumber())
        _ = try await (map.request(key: "a"), map.request(key: "b"), alone.request())

        try await client.execute(ChangeNumber(method: method))

        #expect(map.cachedEntry(key: "a")?.isStale == true)
        #expect(alone.cachedEntry?.isStale == true)
        #expect(map.cachedEntry(key: "b")?.isStale == false)
        #expect(try await map.request(key: "a").version == 2)
        #expect(try await alone.request().version == 2)
    }

    @Test(arguments: ["GET", "HEAD", "OPTIONS"] as [HTTPMethod])
    func `N03 a safe method makes no value stale`(method: HTTPMethod) async throws {
        let client = self.world.client(self.server.transport)
        let map = self.map(client)
        _ = try await map.request(key: "a")

        _ = try await client.response(to: ChangeNumber(method: method))

        #expect(map.cachedEntry(key: "a")?.isStale == false)
    }

    @Test(arguments: [
        (200, true), (201, true), (204, true), (303, true), (400, false), (404, false), (409, false), (500, false),
    ])
    func `N03 a request that the server refuses makes no value stale`(status: Int, isChanged: Bool) async throws {
        let client = self.world.client(self.server.transport)
        let map = self.map(client)
        _ = try await map.request(key: "a")
        self.server.state.withLock { $0.instead = HTTPReply(status: status) }

        _ = try await client.response(to: ChangeNumber())

        #expect(map.cachedEntry(key: "a")?.isStale == isChanged)
    }

    @Test func `N03 a change that breaks off makes the cached value stale`() async throws {
        let breaks = Locked(false)
        let inner = self.server.transport
        let client = self.world.client(
            ClosureTransport { call in
                if breaks.withLock({ $0 }) { throw HTTPError.transport(.timedOut(after: .seconds(1))) }
                return try await inner.send(call)
            }
        )
        let map = self.map(client)
        _ = try await map.request(key: "a")
        breaks.withLock { $0 = true }

        await #expect(throws: HTTPError.self) { try await client.execute(ChangeNumber()) }

        #expect(map.cachedEntry(key: "a")?.isStale == true)
    }

    @Test func `N03 Location and Content-Location of a response invalidate URLs of the same origin`() async throws {
        let client = self.world.client(self.server.transport)
        let map = self.map(client)
        for key in ["b", "c", "d"] { _ = try await map.request(key: key) }
        let foreign = client.multiplexer(
            cacheKey: "Foreign",
            repository: self.world.repository,
            GetNumber(id: "c", host: "other.example.com")
        )
        _ = try await foreign.request()
        self.server.state.withLock {
            $0.instead = HTTPReply(
                status: 201,
                headers: ["Location": "/numbers/b", "Content-Location": "https://other.example.com/numbers/c"]
            )
        }
        try await client.execute(ChangeNumber())
        self.server.state.withLock {
            $0.instead = HTTPReply(status: 201, headers: ["Content-Location": "HTTPS://EXAMPLE.com:443/numbers/d#x"])
        }
        try await client.execute(ChangeNumber())

        #expect(["b", "c", "d"].map { map.cachedEntry(key: $0)?.isStale } == [true, false, true])
        #expect(foreign.cachedEntry?.isStale == false, "what belongs to another server")
    }

    @Test func `N03 a fetch that overlaps a change is not stored`() async throws {
        let gate = Gate<Void>()
        let inner = self.server.transport
        let client = self.world.client(
            ClosureTransport { call in
                let reply = try await inner.send(call)
                if call.method == "GET" { try await gate.pass() }
                return reply
            }
        )
        let map = self.map(client)
        async let old = map.request(key: "a")
        await gate.waitForCall(1)

        try await client.execute(ChangeNumber())
        gate.openForGood(returning: ())

        #expect(try await old.version == 1)
        #expect(try await map.request(key: "a").version == 2)
    }

    @Test func `N03 a fetch that overlaps a change is not stored, even after many other fetches`() async throws {
        let gate = Gate<Void>()
        let inner = self.server.transport
        let client = self.world.client(
            ClosureTransport { call in
                let reply = try await inner.send(call)
                if call.method == "GET", call.url.path() == "/numbers/a" { try await gate.pass() }
                return reply
            }
        )
        let map = self.map(client)
        async let old = map.request(key: "a")
        await gate.waitForCall(1)
        for number in 0..<1_100 { _ = try await map.request(key: "\(number)") }

        try await client.execute(ChangeNumber())
        gate.openForGood(returning: ())

        #expect(try await old.version == 1)
        #expect(try await map.request(key: "a").version == 2)
    }

    @Test func `N03 a change makes a value stale that the app has stored`() async throws {
        let client = self.world.client(self.server.transport)
        let map = self.map(client)
        let alone = client.multiplexer(repository: self.world.repository, GetNumber(id: "b"))
        map.store(Number(version: 7), key: "a")
        alone.store(Number(version: 7))

        try await client.execute(ChangeNumber())
        #expect(map.cachedEntry(key: "a")?.isStale == true)
        #expect(alone.cachedEntry?.isStale == false)
        try await client.execute(ChangeNumber(id: "b"))
        #expect(alone.cachedEntry?.isStale == true)
    }

    @Test func `N03 a change makes a value that is only on disk stale`() async throws {
        let first = self.map(self.world.client(self.server.transport))
        for key in ["a", "b"] { _ = try await first.request(key: key) }
        await first.save()

        // The next process sends the change before the creation of the map.
        let next = self.world.relaunched()
        let client = next.client(self.server.transport)
        try await client.execute(ChangeNumber())
        let map = client.multiplexerMap(
            cacheKey: "Numbers",
            policy: MuxPolicy(staleWhileRevalidate: .seconds(60)),
            repository: next.repository
        ) { GetNumber(id: $0) }

        #expect(try await map.request(key: "a").version == 2)
        #expect(try await map.request(key: "b").version == 1)
        #expect(self.server.calls.map(\.method) == ["GET", "GET", "POST", "GET"], "the other one is fresh")
    }

    @Test func `N03 a change makes a value that was read from disk stale`() async throws {
        let first = self.map(self.world.client(self.server.transport))
        _ = try await first.request(key: "a")
        await first.save()
        let next = self.world.relaunched()
        let client = next.client(self.server.transport)
        let map = self.map(client, in: next)
        #expect(try await map.request(key: "a").version == 1)

        try await client.execute(ChangeNumber())

        #expect(try await map.request(key: "a").version == 2)
    }

    @Test func `N03 a change makes a value stale whose read from disk exceeded the limit of recorded keys`()
        async throws
    {
        let first = self.map(self.world.client(self.server.transport))
        let keys = (0...1_000).map { "\($0)" }
        for key in keys { _ = try await first.request(key: key) }
        await first.save()
        let next = self.world.relaunched()
        let client = next.client(self.server.transport)
        let map = self.map(client, in: next)
        for key in keys { _ = await map.loadCachedValue(key: key) }

        try await client.execute(ChangeNumber(id: keys[1_000]))

        #expect(map.cachedEntry(key: keys[1_000])?.isStale == true)
        #expect(map.cachedEntry(key: keys[999])?.isStale == false)
    }

    @Test func `N03 more changes than the limit of recorded names make every value stale`() async throws {
        let first = self.map(self.world.client(self.server.transport))
        _ = try await first.request(key: "kept")
        await first.save()
        let next = self.world.relaunched()
        let client = next.client(self.server.transport)

        for number in 0...InvalidationInterceptor.maximumChanges {
            try await client.execute(ChangeNumber(id: "\(number)"))
        }

        _ = try await self.map(client, in: next).request(key: "kept")
        #expect(self.server.calls.last?.method == "GET", "it was asked about")
    }

    @Test func `N03 a released multiplexer is neither notified nor retained`() async throws {
        let client = self.world.client(self.server.transport)
        weak var weakMap: MultiplexerMap<String, Number>?
        do {
            let map = self.map(client)
            _ = try await map.request(key: "a")
            weakMap = map
        }

        #expect(weakMap == nil)
        try await client.execute(ChangeNumber())
    }

    @Test func `N03 a client that only reads keeps no place for deallocated multiplexers`() {
        let time = TimeSource(self.world.clock)
        let invalidation = InvalidationInterceptor(time: time)
        for _ in 0..<1_000 { invalidation.listen(HTTPResourceIndex<Int>(invalidation, time: time)) }
        #expect(invalidation.listenerPlaces <= 64)
    }

    @Test func `N03 the index removes keys that are no longer in memory`() throws {
        let time = TimeSource(self.world.clock)
        let index = HTTPResourceIndex<Int>(InvalidationInterceptor(time: time), time: time)
        let refreshed = Locked<[Int]>([])
        index.attach(refresh: { key in refreshed.withLock { $0.append(key) } }, isInUse: { $0 >= 9_000 })
        let names = (0..<10_000).compactMap { URL(string: "http://a/\($0)") }.compactMap { HTTPResourceName($0) }

        for (number, name) in names.enumerated() { index.recordKey(number, of: name) }

        #expect(index.count <= 3_000)
        index.resourceChanged(names[9_500])
        index.resourceChanged(names[3])
        #expect(refreshed.withLock { $0 } == [9_500])
    }

    @Test func `N03 the index keeps the last two resources of a key in use`() throws {
        let time = TimeSource(self.world.clock)
        let index = HTTPResourceIndex<Int>(InvalidationInterceptor(time: time), time: time)
        let refreshed = Locked<[Int]>([])
        index.attach(refresh: { key in refreshed.withLock { $0.append(key) } }, isInUse: { _ in true })
        let names = (0..<10_000).compactMap { URL(string: "http://a/?\($0)") }.compactMap { HTTPResourceName($0) }

        for name in names { index.recordKey(1, of: name) }
        index.recordKey(2, of: names[9_998])
        index.recordKey(1, of: names[9_999])

        #expect(index.count == 3)
        for name in names.suffix(3) { index.resourceChanged(name) }
        #expect(refreshed.withLock { $0.sorted() } == [1, 1, 2])
    }

    @Test func `N03 a key that is recorded during the removal of other keys stays`() throws {
        let time = TimeSource(self.world.clock)
        let index = HTTPResourceIndex<Int>(InvalidationInterceptor(time: time), time: time)
        let names = (0..<1_001).compactMap { URL(string: "http://a/\($0)") }.compactMap { HTTPResourceName($0) }
        let refreshed = Locked<[Int]>([])
        index.attach(
            refresh: { key in refreshed.withLock { $0.append(key) } },
            isInUse: { key in
                if key == 7 { index.recordKey(key, of: names[key]) }
                return false
            }
        )

        for (number, name) in names.enumerated() { index.recordKey(number, of: name) }

        for number in 6...8 { index.resourceChanged(names[number]) }
        #expect(refreshed.withLock { $0 } == [7])
    }

    @Test func `N03 only equivalent URLs have the same resource name`() throws {
        func name(_ text: String) throws -> HTTPResourceName? { HTTPResourceName(try #require(URL(string: text))) }
        #expect(try name("HTTP://Example.COM:80") == name("http://example.com/#x"))
        #expect(try name("https://example.com:443/a?b=c") == name("https://example.com/a?b=c#d"))
        #expect(try name("http://example.com/%7Ea%2fb?%61") == name("http://example.com/~a%2Fb?a"))
        #expect(try name("http://example.com/a%2Fb") != name("http://example.com/a/b"))
        for other in [
            "http://example.com/A", "http://example.com/a/", "http://example.com/a?", "http://example.com:81/a",
            "https://example.com/a", "http://example.org/a",
        ] {
            #expect(try name(other) != name("http://example.com/a"), "\(other)")
        }
        #expect(try name("ftp://example.com/") == nil)
    }
}
