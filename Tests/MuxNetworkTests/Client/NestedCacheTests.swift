import Dispatch
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A response cache belongs to the account of its client or media, at any depth of the transport.
@Suite(.standard)
struct NestedCacheTests {
    private let world = CachingWorld()
    private let url = CacheFolder.url("/numbers/a")

    /// A transport of an app, which passes calls on.
    private struct Passing: HTTPTransport {
        let pass: @Sendable (HTTPCall) async throws -> HTTPReply

        func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.pass(call) }
    }

    /// A transport of an app, which passes streams on.
    private struct Streaming: HTTPTransport {
        let base: any HTTPTransport

        func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.base.send(call) }

        func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
            try await self.base.stream(call, into: sink)
        }
    }

    /// How a transport of an app passes calls on to a cache.
    enum Way: String, CaseIterable, Sendable {
        case direct, passed, streamed, copied, rebuilt, inTask, outsideTask, exchanged

        fileprivate func transport(over base: any HTTPTransport) -> any HTTPTransport {
            switch self {
            case .direct: return base
            case .passed: return Passing { try await base.send($0) }
            case .streamed: return Streaming(base: base)
            case .copied:
                return Passing { call in
                    var copy = call
                    copy.headers["X-Trace"] = "1"
                    return try await base.send(copy)
                }
            case .rebuilt: return Passing { try await base.send(Self.rebuilt($0)) }
            case .inTask:
                return Passing { call in
                    try await TaskLauncher()(name: "test") { await Self.result(of: call, base) }.value.get()
                }
            case .outsideTask: return Passing { try await Self.sendOutside($0, base) }
            case .exchanged:
                return ExchangeTransport { call, sink in try await base.stream(call, into: sink).trailers }
            }
        }

        fileprivate static func rebuilt(_ call: HTTPCall) -> HTTPCall {
            HTTPCall(method: call.method, url: call.url, headers: call.headers, body: call.body)
        }

        private static func result(
            of call: HTTPCall,
            _ base: any HTTPTransport
        ) async -> Result<HTTPReply, any Error> {
            do { return .success(try await base.send(call)) } catch { return .failure(error) }
        }

        /// Sends a call in a task that inherits no task-local values.
        fileprivate static func sendOutside(_ call: HTTPCall, _ base: any HTTPTransport) async throws -> HTTPReply {
            try await withCheckedThrowingContinuation { continuation in
                DispatchQueue.global().async {
                    TaskLauncher()(name: "test") { continuation.resume(with: await Self.result(of: call, base)) }
                }
            }
        }
    }

    /// Responds with the token as the version, in a response that is fresh for a minute.
    private let mirror = ClosureTransport { call in
        let token = call.headers["Authorization"]?.split(separator: " ").last ?? "0"
        return HTTPReply(
            status: 200,
            headers: ["Cache-Control": "max-age=60"],
            body: Data(#"{"version":\#(token)}"#.utf8)
        )
    }

    /// A runner whose token is the number of the sign-in.
    private func runner(_ repository: MuxRepository) -> OAuthDependentRunner<String, String> {
        let signIns = Locked(0)
        return OAuthDependentRunner(
            repository: repository,
            refreshAccess: { _ in throw BadDependency() },
            signIn: {
                let number = signIns.withLock { signIns in
                    signIns += 1
                    return signIns
                }
                return OAuthSignIn(access: "\(number)", refresh: "refresh")
            }
        )
    }

    private func options(_ name: String?, _ folder: CacheFolder) -> CachingTransport.Configuration {
        var options = CachingTransport.Configuration()
        guard let name else { return options }
        options.cacheKey = name
        options.directory = folder.url.appending(component: name)
        options.memoryBodyLimit = 0
        return options
    }

    @Test(arguments: Way.allCases, [false, true])
    func `AC-07 a sign-out removes the responses of a cache at any depth`(way: Way, onDisk: Bool) async throws {
        let runner = self.runner(self.world.repository)
        let folder = try CacheFolder()
        let cache = CachingTransport(self.mirror, options: self.options(onDisk ? "HTTP" : nil, folder))
        let client = self.world.client(way.transport(over: cache), authenticator: runner)
        for _ in 0..<2 { #expect(try await client.output(of: GetNumber()).version == 1) }
        #expect(self.mirror.calls.count == 1)
        if onDisk {
            await self.world.repository.saveAll()
            #expect(try folder.files().count == 1)
        }

        #expect(await runner.signOut().isComplete)

        #expect(try folder.files().isEmpty)
        #expect(try await client.output(of: GetNumber()).version == 2)
    }

    @Test(arguments: Way.allCases, Way.allCases)
    func `AC-07 a sign-out removes the responses of two caches in a row`(outer: Way, inner: Way) async throws {
        let runner = self.runner(self.world.repository)
        let folder = try CacheFolder()
        let last = CachingTransport(self.mirror, options: self.options("Inner", folder))
        let first = CachingTransport(inner.transport(over: last), options: self.options("Outer", folder))
        let client = self.world.client(outer.transport(over: first), authenticator: runner)
        #expect(try await client.output(of: GetNumber()).version == 1)
        await self.world.repository.saveAll()
        #expect(try folder.files().count == 2)
        let reload = ["Cache-Control": "max-age=0"] as HTTPHeaders
        _ = try await client.response(to: GetNumber(), headers: reload)

        #expect(await runner.signOut().isComplete)

        #expect(try folder.files().isEmpty)
        #expect(try await client.output(of: GetNumber()).version == 2)
    }

    @Test(arguments: Way.allCases)
    func `AC-07 a sign-out removes the responses behind media and multiplexers`(way: Way) async throws {
        let runner = self.runner(self.world.repository)
        let folder = try CacheFolder()
        let cache = CachingTransport(self.mirror)
        let transport = way.transport(over: cache)
        let media = AsyncMedia(
            directory: folder.url,
            dependency: runner,
            transport: transport,
            durability: .relaxed
        ) { $0.headers["Authorization"] = "Bearer \($1)" }
        let number = self.world.client(transport, authenticator: runner).multiplexer(GetNumber())
        let texts = DecodedMedia<String>(media: media) { (try String(contentsOf: $0, encoding: .utf8), cost: 1) }
        #expect(try await texts.request(url: self.url) == #"{"version":1}"#)
        #expect(try await number.request().version == 1)
        #expect(try await number.request(.reload).version == 1)
        let count = self.mirror.calls.count

        await runner.signOut()

        #expect(try await texts.request(url: self.url) == #"{"version":2}"#)
        #expect(try await number.request().version == 2)
        #expect(self.mirror.calls.count == count + 2)
    }

    @Test(arguments: Way.allCases.filter { $0 != .direct }, [false, true])
    func `AC-07 a cache of another repository is a typed error at any depth`(way: Way, retries: Bool) async throws {
        let (events, others) = (EventTally(), EventTally())
        let own = MuxRepository(store: MemoryStore(), observer: events)
        let other = MuxRepository(store: MemoryStore(), observer: others)
        let cache = CachingTransport(self.mirror, repository: other)
        for transport in [way.transport(over: cache), CachingTransport(way.transport(over: cache))] {
            let client = self.world.client(transport, authenticator: self.runner(own)) { configuration in
                if retries { configuration.retry = .immediate(maxAttempts: 3) }
            }
            await #expect(throws: MuxError.repositoryMismatch) { try await client.output(of: GetNumber()) }
        }
        let folder = try CacheFolder()
        let media = AsyncMedia(
            directory: folder.url,
            dependency: self.runner(own),
            transport: way.transport(over: cache),
            durability: .relaxed
        ) { $0.headers["Authorization"] = "Bearer \($1)" }
        await #expect(throws: MuxError.repositoryMismatch) { try await media.request(url: self.url) }

        #expect(self.mirror.calls.isEmpty)
        #expect(events.count(of: .repositoryMismatch) == 1 && others.count(of: .repositoryMismatch) == 1)
        // An account of the cache's repository can use the cache.
        let client = self.world.client(way.transport(over: cache), authenticator: self.runner(other))
        #expect(try await client.output(of: GetNumber()).version == 1)
    }

    @Test func `AC-07 a cache of another repository over the system's transport is a typed error`() async throws {
        let (own, other) = (MuxRepository(store: MemoryStore()), MuxRepository(store: MemoryStore()))
        let folder = try CacheFolder()
        // No server listens at the URL, and no request is sent.
        let url = try #require(URL(string: "http://127.0.0.1:1/numbers/a"))
        let media = AsyncMedia(
            directory: folder.url,
            dependency: self.runner(own),
            transport: CachingTransport(.system, repository: other),
            durability: .relaxed
        ) { $0.headers["Authorization"] = "Bearer \($1)" }
        await #expect(throws: MuxError.repositoryMismatch) { try await media.request(url: url) }
        let client = self.world.client(CachingTransport(.system, repository: other), authenticator: self.runner(own))
        await #expect(throws: MuxError.repositoryMismatch) {
            try await client.output(of: GetNumber(host: "127.0.0.1"))
        }
    }

    @Test(arguments: Way.allCases)
    func `AC-07 a call of an ended session stores no response in a cache`(way: Way) async throws {
        let runner = self.runner(self.world.repository)
        let gate = Gate<Void>()
        let cache = CachingTransport(self.mirror)
        let inner = way.transport(over: cache)
        let client = self.world.client(
            Passing { call in
                try await gate.pass(ignoringCancellation: true)
                return try await inner.send(call)
            },
            authenticator: runner
        )
        let late = Task { try await client.output(of: GetNumber()) }
        await gate.waitForCall(1)
        await runner.signOut()
        gate.openForGood(returning: ())
        _ = try? await late.value

        #expect(try await client.output(of: GetNumber()).version == 2)
        #expect(try await client.output(of: GetNumber()).version == 2)
    }

    @Test func `AC-07 a response is not stored if the transport hides the account of the call`() async throws {
        let runner = self.runner(self.world.repository)
        let cache = CachingTransport(self.mirror)
        // The cache receives neither the client's call nor the client's task.
        let hidden = Passing { try await Way.sendOutside(Way.rebuilt($0), cache) }
        let client = self.world.client(hidden, authenticator: runner)
        for _ in 0..<2 { #expect(try await client.output(of: GetNumber()).version == 1) }
        #expect(self.mirror.calls.count == 2)
        // The same applies after a request without credentials has created a cache in the shared repository.
        _ = try await self.world.client(hidden).output(of: GetNumber())
        for _ in 0..<2 { _ = try await client.output(of: GetNumber()) }
        #expect(self.mirror.calls.count == 5)
        await runner.signOut()
        #expect(try await client.output(of: GetNumber()).version == 2)
    }

    @Test func `AC-07 a client without an account does not use the account of its caller`() async throws {
        let (own, other) = (self.world.repository, MuxRepository(store: MemoryStore()))
        let open = self.world.client(Way.passed.transport(over: CachingTransport(self.mirror, repository: other)))
        let account = self.world.client(
            Passing { call in
                let number = try await open.output(of: GetNumber())
                return HTTPReply(status: 200, body: Data(#"{"version":\#(number.version + 10)}"#.utf8))
            },
            authenticator: self.runner(own)
        )
        for _ in 0..<2 { #expect(try await account.output(of: GetNumber()).version == 10) }
        #expect(self.mirror.calls.count == 1)
    }

    @Test func `AC-07 media without an account use their own repository and accept caches of others`() async throws {
        let folder = try CacheFolder()
        for repository in [nil, MuxRepository(store: MemoryStore())] {
            let cache = CachingTransport(self.mirror, repository: repository)
            let media = AsyncMedia(
                directory: folder.url.appending(component: "\(repository == nil)"),
                transport: Way.passed.transport(over: cache),
                durability: .relaxed,
                repository: self.world.repository
            )
            for _ in 0..<2 {
                _ = try await media.request(url: self.url)
                try await media.clear(url: self.url)
            }
        }
        #expect(self.mirror.calls.count == 2)
    }
}
