import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Values that a client, a response cache or media have fetched with a token end with the token's session.
@Suite(.standard)
struct AccountOfClientTests {
    private let repository = MuxRepository(store: MemoryStore())
    private let folder = FileManager.default.temporaryDirectory.appending(component: "MuxAccount-\(UUID().uuidString)")

    /// A runner whose token is the number of the sign-in.
    private func runner(_ repository: MuxRepository? = nil) -> OAuthDependentRunner<String, String> {
        let signIns = Locked(0)
        return OAuthDependentRunner(
            repository: repository ?? self.repository,
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

    /// Responds with the token, in a response that is fresh for a minute.
    private let mirror = ClosureTransport { call in
        let token = call.headers["Authorization"]?.split(separator: " ").last ?? ""
        return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"], body: Data(token.utf8))
    }

    @Test func `CO-09 a sign-out removes values that a client with a token keeps only in memory`() async throws {
        let runner = self.runner()
        let client = HTTPClient(transport: self.mirror, authenticator: runner)
        let value = client.multiplexer(Ask())
        let map = client.multiplexerMap { (_: Int) in Ask() }
        #expect(try await value.request() == Data("1".utf8))
        #expect(try await map.request(key: 1) == Data("1".utf8))

        await runner.signOut()

        #expect(value.cachedValue == nil && map.cachedValue(key: 1) == nil)
        #expect(try await value.request() == Data("2".utf8))
        #expect(try await map.request(key: 1) == Data("2".utf8))
    }

    @Test func `AC-01 a sign-out removes values that a client without a token keeps only in memory`() async throws {
        let runner = self.runner()
        let client = HTTPClient(transport: self.mirror)
        let value = client.multiplexer(repository: self.repository, Ask())
        let map = client.multiplexerMap(repository: self.repository) { (_: Int) in Ask() }
        let other = client.multiplexer(repository: MuxRepository(store: MemoryStore()), Ask())
        _ = try await (value.request(), map.request(key: 1), other.request())

        await runner.signOut()

        #expect(value.cachedValue == nil && map.cachedValue(key: 1) == nil)
        // Values that belong to no user have a repository without users.
        #expect(other.cachedValue != nil)
    }

    @Test func `CO-09 a running request ends at the sign-out, even for a value only in memory`() async throws {
        let runner = self.runner()
        let gate = Gate<Void>()
        let transport = ClosureTransport { _ in
            try? await gate.pass(ignoringCancellation: true)
            return HTTPReply(status: 200, body: Data("late".utf8))
        }
        let value = HTTPClient(transport: transport, authenticator: runner).multiplexer(Ask())
        let late = Task { try await value.request() }
        await gate.waitForCall()

        await runner.signOut()

        await #expect(throws: MuxError.sessionEnded) { try await late.value }
        gate.openForGood(returning: ())
        #expect(value.cachedValue == nil)
    }

    @Test(arguments: [false, true])
    func `CO-09 a response cache belongs to the repository of the client's authenticator`(onDisk: Bool) async throws {
        let runner = self.runner()
        var options = CachingTransport.Configuration()
        if onDisk {
            options.cacheKey = "Answers"
            options.directory = self.folder
            options.memoryBodyLimit = 0
        }
        let client = HTTPClient(transport: .caching(self.mirror, options: options), authenticator: runner)
        for _ in 0..<2 { #expect(try await client.output(of: Ask()) == Data("1".utf8)) }
        #expect(self.mirror.calls.count == 1)
        if onDisk { #expect(await self.repository.saveAll().saved == 1) }

        #expect(await runner.signOut().isComplete)

        #expect(try await client.output(of: Ask()) == Data("2".utf8))
        try? FileManager.default.removeItem(at: self.folder)
    }

    @Test func `CO-09 a cache in another repository than the authenticator is a typed error and an event`()
        async throws
    {
        let (events, others) = (EventTally(), EventTally())
        let own = MuxRepository(store: MemoryStore(), observer: events)
        let other = MuxRepository(store: MemoryStore(), observer: others)
        let cache = CachingTransport(self.mirror, repository: other)
        let client = HTTPClient(transport: cache, authenticator: self.runner(own))

        for _ in 0..<2 {
            await #expect(throws: MuxError.repositoryMismatch) { try await client.output(of: Ask()) }
        }

        #expect(self.mirror.calls.isEmpty)
        #expect(events.count(of: .repositoryMismatch) == 1 && others.count(of: .repositoryMismatch) == 1)
        #expect(
            try await HTTPClient(transport: cache, authenticator: self.runner(other)).output(of: Ask())
                == Data("1".utf8)
        )
        // No two caches may use the same folder, so the folder belongs to the first account.
        let options = CachingTransport.Configuration(cacheKey: "HTTP", directory: self.folder)
        let shared = CachingTransport(self.mirror, options: options)
        let first = HTTPClient(transport: shared, authenticator: self.runner(own))
        let second = HTTPClient(transport: shared, authenticator: self.runner(other))
        #expect(try await first.output(of: Ask()) == Data("1".utf8))
        await #expect(throws: MuxError.repositoryMismatch) { try await second.output(of: Ask()) }
        try? FileManager.default.removeItem(at: self.folder)
    }

    @Test func `CO-09 media and decoded media belong to the repository of the media's dependency`() async throws {
        let runner = self.runner()
        let media = AsyncMedia(
            directory: self.folder,
            dependency: runner,
            transport: self.mirror,
            durability: .relaxed
        ) { call, token in call.headers["Authorization"] = "Bearer \(token)" }
        let texts = DecodedMedia<String>(media: media) { file in
            (try String(contentsOf: file, encoding: .utf8), cost: 1)
        }
        let url = try #require(URL(string: "http://host/picture.txt"))
        #expect(try await texts.request(url: url) == "1")
        #expect(media.cachedValue(url: url) != nil && texts.cachedValue(url: url) != nil)

        #expect(await runner.signOut().isComplete)

        #expect(media.cachedValue(url: url) == nil && texts.cachedValue(url: url) == nil)
        #expect(try await texts.request(url: url) == "2")
        try? FileManager.default.removeItem(at: self.folder)
    }

    @Test func `CO-09 media in another repository than the dependency are a typed error and an event`() async throws {
        let events = EventTally()
        let other = MuxRepository(store: MemoryStore(), observer: events)
        let url = try #require(URL(string: "http://host/picture.txt"))
        // An earlier version has left a file.
        let before = AsyncMedia(directory: self.folder, transport: self.mirror, durability: .relaxed, repository: other)
        _ = try await before.request(url: url)
        let media = AsyncMedia(
            directory: self.folder,
            dependency: self.runner(),
            transport: self.mirror,
            durability: .relaxed,
            repository: other
        ) { _, _ in }

        for _ in 0..<2 {
            await #expect(throws: MuxError.repositoryMismatch) { try await media.request(url: url) }
        }

        #expect(await media.loadCachedValue(url: url) == nil)
        #expect(self.mirror.calls.count == 1)
        #expect(events.count(of: .repositoryMismatch) == 1)
        try? FileManager.default.removeItem(at: self.folder)
    }

    /// An authenticator that uses a runner.
    private struct Traced: HTTPAuthenticator {
        let runner: OAuthDependentRunner<String, String>

        var sessionRepository: MuxRepository? { self.runner.sessionRepository }

        nonisolated(nonsending) func authorized<Output: Sendable>(
            _ send: (any HTTPToken) async throws -> RunResult<Output>
        ) async throws -> Output {
            try await self.runner.run { try await send($0) }
        }
    }

    @Test func `CO-09 a custom authenticator names the repository of its session`() async throws {
        let runner = self.runner()
        let traced = Traced(runner: runner)
        let value = HTTPClient(transport: self.mirror, authenticator: traced).multiplexer(Ask())
        let cached = HTTPClient(transport: .caching(self.mirror), authenticator: traced)
        #expect(try await value.request() == Data("1".utf8))
        #expect(try await cached.output(of: Ask()) == Data("1".utf8))

        await runner.signOut()

        #expect(try await value.request() == Data("2".utf8))
        #expect(try await cached.output(of: Ask()) == Data("2".utf8))
    }

    @Test func `CO-09 a response cache under media belongs to the repository of the media`() async throws {
        let runner = self.runner()
        let url = try #require(URL(string: "http://host/picture.txt"))
        func media(_ transport: any HTTPTransport) -> AsyncMedia {
            AsyncMedia(directory: self.folder, dependency: runner, transport: transport, durability: .relaxed) {
                $0.headers["Authorization"] = "Bearer \($1)"
            }
        }
        let cached = media(.caching(self.mirror))
        #expect(try Data(contentsOf: await cached.request(url: url)) == Data("1".utf8))
        await runner.signOut()
        #expect(try Data(contentsOf: await cached.request(url: url)) == Data("2".utf8))

        let elsewhere = media(CachingTransport(self.mirror, repository: MuxRepository(store: MemoryStore())))
        await #expect(throws: MuxError.repositoryMismatch) { try await elsewhere.request(url: url) }
        // Media that need no sign-in have no session that the cache could outlive.
        let open = AsyncMedia(
            directory: self.folder.appending(component: "open"),
            transport: CachingTransport(self.mirror, repository: MuxRepository(store: MemoryStore())),
            durability: .relaxed,
            repository: self.repository
        )
        #expect(try Data(contentsOf: await open.request(url: url)).isEmpty)
        try? FileManager.default.removeItem(at: self.folder)
    }

    @Test func `CO-09 accounts with separate folders share no files`() async throws {
        let accounts = ["a", "b"].map { name in
            let repository = MuxRepository(directory: self.folder.appending(component: name), durability: .relaxed)
            let runner = self.runner(repository)
            let media = AsyncMedia(dependency: runner, transport: self.mirror, durability: .relaxed) { call, token in
                call.headers["Authorization"] = "Bearer \(name)\(token)"
            }
            return (runner: runner, media: media)
        }
        let url = try #require(URL(string: "http://host/picture.txt"))
        let other = try #require(URL(string: "http://host/other.txt"))
        var folders: Set<URL> = []
        defer { for folder in folders { try? FileManager.default.removeItem(at: folder) } }
        for (account, expected) in zip(accounts, ["a1", "b1"]) {
            let file = try await account.media.request(url: url)
            #expect(try Data(contentsOf: file) == Data(expected.utf8))
            // `media/` and the name are below the folder.
            folders.insert(file.deletingLastPathComponent().deletingLastPathComponent())
        }
        #expect(folders.count == 2)

        #expect(await accounts[1].runner.signOut().isComplete)

        #expect(accounts[0].media.cachedValue(url: url) != nil && accounts[1].media.cachedValue(url: url) == nil)
        #expect(try Data(contentsOf: await accounts[0].media.request(url: other)) == Data("a1".utf8))
        try? FileManager.default.removeItem(at: self.folder)
    }

    // MARK: - A cancelled sign-in

    private struct Cancelled: Error {}
    private struct Offline: RetryableError {
        var retryAdvice: RetryAdvice { .transient }
    }

    /// The number of sign-ins in each of four ways to retry, if the sign-in fails with `error`.
    private func asked(_ error: any Error) async -> [Int] {
        var counts: [Int] = []
        let policy = RetryPolicy.immediate(maxAttempts: 3)
        for way in 0..<4 {
            let count = Locked(0)
            let runner = OAuthDependentRunner<String, String>(
                repository: self.repository,
                refreshAccess: { _ in throw BadDependency() },
                signIn: {
                    count.withLock { $0 += 1 }
                    throw error
                }
            )
            var configuration = HTTPClient.Configuration()
            if way == 0 { configuration.retry = policy }
            let client = HTTPClient(configuration: configuration, transport: self.mirror, authenticator: runner)
            switch way {
            case 0: _ = try? await client.output(of: Ask())
            case 1: _ = try? await client.multiplexer(policy: .init(retry: policy), Ask()).request()
            case 2:
                _ = try? await Multiplexer<String>(dependency: runner, policy: .init(retry: policy)) { $0 }.request()
            default:
                let media = AsyncMedia(
                    directory: self.folder,
                    dependency: runner,
                    transport: self.mirror,
                    retry: policy
                ) { _, _ in }
                if let url = URL(string: "http://host/picture.txt") { _ = try? await media.request(url: url) }
            }
            counts.append(count.withLock { $0 })
        }
        try? FileManager.default.removeItem(at: self.folder)
        return counts
    }

    @Test func `C03 no retry policy repeats a sign-in that a person has cancelled`() async {
        #expect(await self.asked(Cancelled()) == [1, 1, 1, 1])
        #expect(await self.asked(CancellationError()) == [1, 1, 1, 1])
        #expect(await self.asked(Offline()) == [3, 3, 3, 3], "the error says that it is transient")
    }
}
