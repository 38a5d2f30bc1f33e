import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The conditions and sessions in which a stored response is used.
@Suite(.standard)
struct CachingTransportReuseTests {
    private let world: CachingWorld

    init() { self.init(world: CachingWorld()) }

    private init(world: CachingWorld) { self.world = world }

    private static func reply(_ text: String, _ headers: HTTPHeaders, status: Int = 200) -> HTTPReply {
        HTTPReply(status: status, headers: headers, body: Data(text.utf8))
    }

    /// A cache that stores bodies of more than ten bytes in files.
    private func persistent(
        _ folder: CacheFolder,
        on fileSystem: any FileSystem = POSIXFileSystem(),
        _ answer: @escaping @Sendable (HTTPCall) async throws -> HTTPReply
    ) -> (CachingTransport, ClosureTransport) {
        var options = CachingTransport.Configuration()
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 10
        options.directory = folder.url
        let server = ClosureTransport(answer)
        let cache = CachingTransport(
            server,
            options: options,
            repository: self.world.repository,
            fileSystem: fileSystem
        )
        return (cache, server)
    }

    // MARK: - Sign-out

    /// An authenticator whose token is the current user's name.
    private struct Account: HTTPAuthenticator {
        let name: Locked<String>
        var sessionRepository: MuxRepository?

        nonisolated(nonsending) func authorized<Output: Sendable>(
            _ send: (any HTTPToken) async throws -> RunResult<Output>
        ) async throws -> Output {
            guard case .output(let output) = try await send(self.name.withLock(\.self)) else { throw FetchLost() }
            return output
        }
    }

    @Test func `HC-05 a call that is retried after a sign-out does not belong to the next session`() async throws {
        let first = Gate<HTTPReply>()
        let attempts = Locked(0)
        let (cache, server) = self.world.cache { call in
            let attempt = attempts.withLock { count in
                count += 1
                return count
            }
            if attempt == 1 { return try await first.pass() }
            let isAlice = call.headers["Authorization"]?.hasSuffix("alice") == true
            return Self.reply(#"{"version":\#(isAlice ? 1 : 2)}"#, ["Cache-Control": "max-age=60"])
        }
        let name = Locked("alice")
        let client = self.world.client(cache, authenticator: Account(name: name)) { configuration in
            configuration.retry = .immediate(maxAttempts: 2)
        }
        let alice = Task { try await client.output(of: GetNumber()) }
        await first.waitForCall(1)
        await self.world.repository.clearAll()
        name.withLock { $0 = "bob" }
        first.fail(1, with: FetchLost())
        #expect(try await alice.value.version == 1)

        #expect(try await client.output(of: GetNumber()).version == 2)
        #expect(server.calls.count == 3)
    }

    @Test func `HC-05 a call of a former session gets no response of the next session`() async throws {
        let (cache, server) = self.world.cache { _ in Self.reply(#"{"version":1}"#, ["Cache-Control": "max-age=60"]) }
        let gate = Gate<Void>()
        let slow = ClosureTransport { call in
            try await gate.pass()
            return try await cache.send(call)
        }
        let account = Account(name: Locked("alice"), sessionRepository: self.world.repository)
        let former = Task { try await self.world.client(slow, authenticator: account).response(to: GetNumber()) }
        await gate.waitForCall(1)
        await self.world.repository.clearAll()
        let next = self.world.client(cache, authenticator: account)
        _ = try await next.response(to: GetNumber())
        gate.openForGood(returning: ())

        #expect(try await former.value.headers.cacheStatuses.last?.isHit == false)
        #expect(try await next.response(to: GetNumber()).headers.cacheStatuses.last?.isHit == true)
        #expect(server.calls.count == 2)
    }

    @Test func `HC-05 the first exchange removes files of a session that ended without the cache`() async throws {
        let folder = try CacheFolder()
        do {
            let (cache, _) = self.persistent(folder) { _ in
                Self.reply(String(repeating: "x", count: 100), ["Cache-Control": "max-age=60"])
            }
            _ = try await cache.send(self.world.call())
        }
        #expect(try folder.files().count == 1)
        await self.world.repository.clearAll()
        let (cache, _) = self.persistent(folder) { _ in HTTPReply(status: 500) }
        #expect(try await cache.send(self.world.call()).status == 500)

        #expect(try folder.files().isEmpty)
    }

    @Test func `HC-05 a removed response is requested again`() async throws {
        let folder = try CacheFolder()
        let (cache, server) = self.persistent(folder) { _ in
            Self.reply(String(repeating: "x", count: 100), ["Cache-Control": "max-age=60"])
        }
        _ = try await cache.send(self.world.call())
        await cache.clear(self.world.url)
        #expect(try folder.files().isEmpty)
        _ = try await cache.send(self.world.call())
        #expect(await cache.clear().failures.isEmpty)
        #expect(try folder.files().isEmpty)
        _ = try await cache.send(self.world.call())
        #expect(server.calls.count == 3)
    }

    @Test(arguments: [true, false])
    func `HC-05 a validation that begins during a removal does not restore the removed response`(isOfAll: Bool)
        async throws
    {
        let (gate, replies, folder) = (Gate<Void>(), Gate<HTTPReply>(), try CacheFolder())
        let repository = MuxRepository(store: HeldStore(gate: gate), durability: .relaxed, clock: self.world.clock)
        var options = CachingTransport.Configuration()
        (options.cacheKey, options.directory) = ("HTTP", folder.url)
        let server = ClosureTransport { _ in try await replies.pass() }
        let cache = CachingTransport(server, options: options, repository: repository)
        let (call, headers) = (self.world.call(), ["Cache-Control": "max-age=10", "ETag": "\"1\""] as HTTPHeaders)
        replies.open(1, returning: Self.reply("1", headers))
        _ = try await cache.send(call)
        self.world.clock.advance(by: .seconds(11))

        // A running save delays the removal after its first fence.
        let save = Task { await repository.saveAll() }
        await gate.waitForCall(1)
        let removal = Task(executorPreference: InlineExecutor()) {
            if isOfAll { _ = await cache.clear() } else { await cache.clear(call.url) }
        }
        let validation = Task { try await cache.send(call) }
        await replies.waitForCall(2)
        gate.open(1)
        // Memory is empty now, and the removal on disk is held.
        await gate.waitForCall(2)
        replies.open(2, returning: HTTPReply(status: 304, headers: headers))
        #expect(try await validation.value.body == Data("1".utf8))
        gate.openForGood(returning: ())
        await removal.value
        _ = await save.value

        let stored = try await cache.send(self.world.call("GET", ["Cache-Control": "only-if-cached"]))
        #expect(stored.status == 504)
    }

    @Test func `HC-05 a file that cannot be removed is reported, and not used again`() async throws {
        let folder = try CacheFolder()
        let refuses = Locked(false)
        let files = RecordingFileSystem { _, call in
            refuses.withLock(\.self) && call.operation == .remove ? .refuse(5) : nil
        }
        let (cache, server) = self.persistent(folder, on: files) { _ in
            Self.reply(String(repeating: "x", count: 100), ["Cache-Control": "max-age=60"])
        }
        _ = try await cache.send(self.world.call())
        refuses.withLock { $0 = true }
        #expect(await cache.clear().failures.count == 1)
        refuses.withLock { $0 = false }
        _ = try await cache.send(self.world.call())
        #expect(server.calls.count == 2)
        #expect(try folder.files().count == 1)
    }

    // MARK: - Reuse

    @Test(arguments: ["no-cache", "max-age=0, must-revalidate"])
    func `HC-04 each waiter for a response that requires validation sends a request`(control: String) async throws {
        let gate = Gate<Void>()
        let (cache, server) = self.world.cache { call in
            let headers: HTTPHeaders = ["Cache-Control": control, "ETag": "\"1\""]
            if call.headers["If-None-Match"] != nil { return HTTPReply(status: 304, headers: headers) }
            try await gate.pass()
            return Self.reply("1", headers)
        }
        let calls = (0..<3).map { _ in Task { try await cache.send(self.world.call()) } }
        await gate.waitForCall(1)
        while cache.occupancy.waiters < 2 { await Task.yield() }
        gate.open(returning: ())
        for call in calls { #expect(try await call.value.body == Data("1".utf8)) }

        #expect(server.calls.count == 3)
    }

    @Test func `HC-04 a response to HEAD extends the lifetime of the stored response`() async throws {
        let (cache, server) = self.world.cache { call in
            call.method == "HEAD"
                ? HTTPReply(status: 200, headers: ["Cache-Control": "max-age=1000", "Content-Length": "1"])
                : Self.reply("1", ["Cache-Control": "max-age=2"])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(3))
        _ = try await cache.send(self.world.call("HEAD"))
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
        #expect(server.calls.count == 2)
    }

    @Test func `HC-04 a response from another URL is not stored for the requested URL`() async throws {
        let (cache, server) = self.world.cache { _ in
            var reply = Self.reply("moved", ["Cache-Control": "max-age=1000"])
            reply.url = CacheFolder.url("/elsewhere")
            return reply
        }
        for _ in 0..<2 { #expect(try await cache.send(self.world.call()).body == Data("moved".utf8)) }
        #expect(server.calls.count == 2)
    }

    @Test(arguments: [("", "W/"), ("W/", "W/"), ("\"1\"", "W/"), ("\"1\"", "\"2\"")])
    func `HC-04 an invalid or different entity tag does not match`(own: String, asked: String) async throws {
        let (cache, _) = self.world.cache { _ in Self.reply("1", ["Cache-Control": "max-age=60", "ETag": own]) }
        _ = try await cache.send(self.world.call())
        let again = try await cache.send(self.world.call("GET", ["If-None-Match": asked]))
        #expect(again.status == 200 && again.body == Data("1".utf8))
    }

    @Test func `HC-04 after a 304 without Date the lifetime begins with the arrival of the 304`() async throws {
        let (cache, server) = self.world.cache { call in
            guard call.headers["If-None-Match"] == nil else {
                return HTTPReply(status: 304, headers: ["Cache-Control": "max-age=10", "ETag": "\"1\""])
            }
            let date = "Sun, 06 Nov 1994 08:49:37 GMT"
            return Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\"", "Date": date])
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(60))
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
        #expect(server.calls.count == 2)
    }

    @Test func `HC-04 a reload of a fresh value fetches the value from the server`() async throws {
        let server = NumberServer()
        let number = self.world.client(CachingTransport(server.transport, repository: self.world.repository))
            .multiplexer(cacheKey: nil, repository: self.world.repository, GetNumber())
        #expect(try await number.request().version == 1)
        server.state.withLock { $0.versions["/numbers/a"] = 2 }
        #expect(try await number.request().version == 1)

        #expect(try await number.request(.reload).version == 2)
        #expect(server.calls.map { $0.headers["Cache-Control"] } == [nil, "no-cache"])
    }

    @Test(arguments: [("max-stale=50", true), ("max-stale=40", false)])
    func `HC-04 the Age field determines the staleness of a response that arrives stale`(control: String, isUsed: Bool)
        async throws
    {
        let (cache, _) = self.world.cache { _ in
            Self.reply("1", ["Cache-Control": "max-age=10", "Age": "55", "ETag": "\"1\""])
        }
        _ = try await cache.send(self.world.call())
        let again = try await cache.send(self.world.call("GET", ["Cache-Control": control]))
        #expect(again.headers.cacheStatuses.last?.isHit == isUsed)
    }

    @Test(
        arguments: [
            ["Cache-Control": "max-age=60, x=\"a", "cache-control": "no-store"],
            ["Cache-Control": "max-age=60", "Vary": "\"x, Accept-Language"],
            ["Cache-Control": "max-age=60", "Vary": "a b"],
        ] as [HTTPHeaders]
    )
    func `HC-04 a syntax error in Cache-Control or Vary does not make a response reusable`(headers: HTTPHeaders)
        async throws
    {
        let (cache, server) = self.world.cache { _ in Self.reply("1", headers) }
        for _ in 0..<2 { _ = try await cache.send(self.world.call()) }
        #expect(server.calls.count == 2)
    }

    // MARK: - Parts

    @Test func `HC-04 a stored part with a long rest does not prevent storing the complete response`() async throws {
        let folder = try CacheFolder()
        let all = Data(String(repeating: "0123456789", count: 10).utf8)
        let (cache, server) = self.persistent(folder) { call in
            let headers: HTTPHeaders = ["Cache-Control": "max-age=100", "ETag": "\"1\""]
            let first = call.headers["Range"]?.split(whereSeparator: { "=-".contains($0) }).dropFirst().first
            guard let first = first.flatMap({ Int($0) }) else {
                return HTTPReply(status: 200, headers: headers, body: all)
            }
            let last = first == 0 ? 4 : 99
            return HTTPReply(
                status: 206,
                headers: headers.merging(["Content-Range": "bytes \(first)-\(last)/100"]),
                body: Data(all[first...last])
            )
        }
        _ = try await cache.send(self.world.call("GET", ["Range": "bytes=0-4"]))
        for _ in 0..<3 { #expect(try await cache.send(self.world.call()).body == all) }

        #expect(server.calls.count == 2)
        #expect(try folder.files().count == 1)
    }

    // MARK: - Limits and failures

    @Test func `HC-06 a frequently requested response stays, and other responses are evicted`() async throws {
        var options = CachingTransport.Configuration()
        options.memoryLimit = 20_000
        let (cache, server) = self.world.cache(options) { _ in
            Self.reply(String(repeating: "x", count: 100), ["Cache-Control": "max-age=1000"])
        }
        let often = HTTPCall(url: CacheFolder.url("/often"))
        _ = try await cache.send(often)
        for number in 0..<200 {
            _ = try await cache.send(often)
            _ = try await cache.send(HTTPCall(url: CacheFolder.url("/\(number)")))
        }
        #expect(server.calls.count { $0.url == often.url } == 1)
    }

    @Test func `HC-04 a stored response that cannot be read is requested again`() async throws {
        let folder = try CacheFolder()
        let (fails, reads) = (Locked(false), Locked(0))
        let files = RecordingFileSystem { _, call in
            guard fails.withLock(\.self), call.operation == .read else { return nil }
            return reads.withLock { count in
                count += 1
                return count == 2 ? .refuse(5) : nil
            }
        }
        let text = String(repeating: "x", count: 600_000)
        let (cache, server) = self.persistent(folder, on: files) { _ in
            Self.reply(text, ["Cache-Control": "max-age=60"])
        }
        _ = try await cache.send(self.world.call())
        fails.withLock { $0 = true }
        // The cache reads the first piece before the head is passed on, and the second piece afterwards.
        await #expect(throws: HTTPError.truncated(expected: 600_000, received: 262_144)) {
            try await cache.send(self.world.call())
        }
        reads.withLock { $0 = 1 }
        _ = try await cache.send(self.world.call())
        #expect(server.calls.count == 2)

        reads.withLock { $0 = 1 }
        #expect(try await cache.send(self.world.call()).body.count == 600_000)
        #expect(server.calls.count == 3)

        reads.withLock { $0 = 0 }
        await #expect(throws: HTTPError.truncated(expected: 400_000, received: 262_144)) {
            try await cache.send(self.world.call("GET", ["Range": "bytes=100000-499999"]))
        }
    }

    private static func freshness(age: String) -> String {
        #"{"isKept":true,"age":\#(age),"mustRevalidate":false,"timeToLive":[1000,0],"overdue":[0,0]}"#
    }

    /// A record as written, and records with a changed member.
    @Test(arguments: [
        ("", ""), ("status", "2000"), ("status", "\"200\""), ("count", "-1"), ("file", "\"../x\""),
        ("selecting", "[[]]"), ("part", #"{"first":-1}"#), ("part", #"{"first":9223372036854775807}"#),
        ("freshness", "{}"),
        ("freshness", Self.freshness(age: "[9223372036854775807,18446744073709551615]")),
        ("freshness", Self.freshness(age: "[-1,0]")), ("received", "[]"),
    ])
    func `HC-04 a damaged record is a miss`(name: String, value: String) async throws {
        let folder = try CacheFolder()
        let answer: @Sendable (HTTPCall) -> HTTPReply = { _ in
            Self.reply(String(repeating: "x", count: 100), ["Cache-Control": "max-age=1000"])
        }
        do {
            let (cache, _) = self.persistent(folder, answer)
            _ = try await cache.send(self.world.call())
            await self.world.repository.saveAll()
        }
        let key = MuxStoreKey(domain: "HTTP", key: "http://example.org:80/a")
        var entry = try #require(await self.world.store.load(key))
        var records = try #require(try JSONSerialization.jsonObject(with: entry.payload) as? [[String: Any]])
        if !name.isEmpty {
            records[0][name] = try JSONSerialization.jsonObject(with: Data(value.utf8), options: .fragmentsAllowed)
        }
        entry.payload = try JSONSerialization.data(withJSONObject: records)
        await self.world.store.save([entry], durability: .relaxed)

        self.world.clock.advance(by: .seconds(1))
        let next = Self(world: self.world.relaunched())
        let (cache, server) = next.persistent(folder, answer)
        #expect(try await cache.send(self.world.call()).body.count == 100)
        #expect(server.calls.count == (name.isEmpty ? 0 : 1))
    }
}

/// A store that holds each save and each removal at a gate.
private struct HeldStore: MuxStore {
    private let base = MemoryStore()
    let gate: Gate<Void>

    init(gate: Gate<Void>) { self.gate = gate }

    func sessionEpoch() async -> UInt64 { await self.base.sessionEpoch() }
    func raiseSessionEpoch(to epoch: UInt64) async { await self.base.raiseSessionEpoch(to: epoch) }
    func load(_ name: MuxStoreKey) async -> MuxStoredEntry? { await self.base.load(name) }
    func removeEverything() async { await self.base.removeEverything() }
    func statistics() async -> JournalStore.Statistics { await self.base.statistics() }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        try await self.gate.pass()
        await self.base.save(entries, durability: durability)
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try await self.gate.pass()
        await self.base.remove(names, durability: durability)
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.gate.pass()
        await self.base.removeAll(domain: domain, durability: durability)
    }
}
