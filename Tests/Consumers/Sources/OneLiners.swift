import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTesting
import Testing

// Every form in which a function becomes a fetch or an update, as a global and as a local constant.

let remote = Remote()
let desk = Desk()

let globalStatic = Multiplexer(onFetch: Backend.fetchMyProfile)
let globalFree = Multiplexer<Profile>(onFetch: fetchFreely)
let globalInstance = Multiplexer(onFetch: remote.profile)
let globalActor = Multiplexer(onFetch: desk.profile)
let globalClosure = Multiplexer { try await Backend.fetchMyProfile() }
let globalForNow = Multiplexer(onFetch: Backend.profileForNow)
let globalForNowClosure = Multiplexer { _ in Fetched(try await Backend.fetchMyProfile()) }
let globalAgain = Multiplexer(onFetch: Backend.profileAgain)
let globalKept = Multiplexer(cacheKey: "kept", onFetch: Backend.fetchMyProfile)
let globalKeptForNow = Multiplexer(cacheKey: "kept for now", onFetch: Backend.profileForNow)
let globalKeptAgain = Multiplexer(cacheKey: "kept again", onFetch: Backend.profileAgain)

let globalMap = MultiplexerMap(onFetch: Backend.fetchUserProfile)
let globalMapFree = MultiplexerMap<String, User>(onFetch: fetchFreely)
let globalMapInstance = MultiplexerMap(onFetch: remote.user)
let globalMapActor = MultiplexerMap(onFetch: desk.user)
let globalMapClosure = MultiplexerMap { (id: String) in try await Backend.fetchUserProfile(id: id) }
let globalMapForNow = MultiplexerMap(onFetch: Backend.userForNow)
let globalMapAgain = MultiplexerMap(onFetch: Backend.userAgain)
let globalMapMany = MultiplexerMap(onFetchMany: Backend.fetchUserProfiles)
let globalMapKept = MultiplexerMap(cacheKey: "map", onFetch: Backend.fetchUserProfile)
let globalMapKeptForNow = MultiplexerMap(cacheKey: "map for now", onFetch: Backend.userForNow)
let globalMapKeptAgain = MultiplexerMap(cacheKey: "map again", onFetch: Backend.userAgain)
let globalMapKeptMany = MultiplexerMap(cacheKey: "map many", onFetchMany: Backend.fetchUserProfiles)

let globalRunner = DependentRunner(update: Up.make)
let globalRunnerFree = DependentRunner(update: makeFreely)
let globalRunnerInstance = DependentRunner(update: remote.make)
let globalRunnerActor = DependentRunner(update: desk.make)
let globalRunnerClosure = DependentRunner<String> { refused in try await Up.make(refused) }
let globalSession = DependentRunner(dependingOn: globalRunner, update: Up.session)
let globalOAuth = OAuthDependentRunner(refreshAccess: Up.refresh, signIn: Up.signIn)
let globalMe = Multiplexer(cacheKey: "me", dependency: globalOAuth, onFetch: Backend.fetchMe)
let globalUsers = MultiplexerMap(cacheKey: "users", dependency: globalOAuth, onFetch: Backend.fetchUser)

@Suite(.standard(endsAtRest: false))
struct OneLinerTests {
    private let screen: Screen

    init() async { self.screen = await Screen() }

    private func names(_ multiplexers: [Multiplexer<Profile>]) async throws -> [String] {
        var names: [String] = []
        for multiplexer in multiplexers { names.append(try await multiplexer.request().name) }
        return names
    }

    private func names(_ maps: [MultiplexerMap<String, User>]) async throws -> [String] {
        var names: [String] = []
        for map in maps { names.append(try await map.request(key: "k").name) }
        return names
    }

    private func values(_ runners: [DependentRunner<String>]) async throws -> [String] {
        var values: [String] = []
        for runner in runners { values.append(try await runner.run { .output($0) }) }
        return values
    }

    @Test func `CO-01 global multiplexers take functions of every kind`() async throws {
        #expect(
            try await names([
                globalStatic, globalFree, globalInstance, globalActor, globalClosure, globalForNow, globalForNowClosure,
                globalAgain, globalKept, globalKeptForNow, globalKeptAgain, globalMe,
            ]) == [
                "static", "free", "instance", "actor", "static", "for now", "static",
                "again", "static", "for now", "again", "with access",
            ]
        )
    }

    @Test func `CO-01 global maps take functions of every kind`() async throws {
        #expect(
            try await names([
                globalMap, globalMapFree, globalMapInstance, globalMapActor, globalMapClosure, globalMapForNow,
                globalMapAgain, globalMapMany, globalMapKept, globalMapKeptForNow, globalMapKeptAgain,
                globalMapKeptMany, globalUsers,
            ]) == [
                "static k", "free k", "instance k", "actor k", "static k", "for now k",
                "again k", "many k", "static k", "for now k", "again k",
                "many k", "k with access",
            ]
        )
    }

    @Test func `CO-01 global runners take functions of every kind`() async throws {
        #expect(
            try await values([
                globalRunner, globalRunnerFree, globalRunnerInstance, globalRunnerActor, globalRunnerClosure,
                globalSession,
            ]) == ["token", "free", "instance", "actor", "token", "token's session"]
        )
        #expect(try await globalOAuth.run { .output($0) } == "access")
    }

    @Test func `CO-01 local multiplexers take functions of every kind`() async throws {
        @Sendable func nested() async throws -> Profile { Profile(name: "nested") }
        @Sendable func nestedUser(id: String) async throws -> User { User(name: "nested \(id)") }
        let stored: @Sendable () async throws -> Profile = { Profile(name: "stored") }
        let screen = self.screen

        let multiplexers = [
            Multiplexer(onFetch: Backend.fetchMyProfile), Multiplexer<Profile>(onFetch: fetchFreely),
            Multiplexer(onFetch: Remote().profile), Multiplexer(onFetch: Desk().profile),
            Multiplexer(onFetch: screen.profile), Multiplexer { await screen.profileAtOnce() },
            Multiplexer(onFetch: nested), Multiplexer(onFetch: stored),
            Multiplexer(cacheKey: "local", onFetch: screen.profile),
        ]
        #expect(
            try await names(multiplexers)
                == ["static", "free", "instance", "actor", "main", "main", "nested", "stored", "main"]
        )
        let maps = [
            MultiplexerMap(onFetch: Backend.fetchUserProfile), MultiplexerMap<String, User>(onFetch: fetchFreely),
            MultiplexerMap(onFetch: Remote().user), MultiplexerMap(onFetch: Desk().user),
            MultiplexerMap(onFetch: screen.user), MultiplexerMap(onFetch: nestedUser),
            MultiplexerMap(cacheKey: "local map", onFetch: screen.user),
        ]
        #expect(
            try await names(maps)
                == ["static k", "free k", "instance k", "actor k", "main k", "nested k", "main k"]
        )
        let runners = [
            DependentRunner(update: Up.make), DependentRunner(update: makeFreely),
            DependentRunner(update: Remote().make), DependentRunner(update: Desk().make),
            DependentRunner(update: screen.make),
        ]
        #expect(try await values(runners) == ["token", "free", "instance", "actor", "main"])
    }

    @Test func `CO-01 all other functions with a function parameter accept a function's name`() async throws {
        let zipped = try await zip(Backend.a, Backend.b)
        #expect(zipped == (1, "b"))
        let three = try await zip(Backend.a, Backend.b, Backend.c)
        #expect(three == (1, "b", true))
        let repeated = try await zip(repeating: Backend.a, Backend.b)
        #expect(repeated == (1, "b"))
        let operation = RetryingOperation<String>.running(work: Backend.attempt)
        await withCheckedContinuation { continuation in
            operation.completionBlock = { continuation.resume() }
            operation.start()
        }

        let fetch = ScriptedFetch<Int>(thereafter: .computed(Backend.number))
        #expect(try await Multiplexer(onFetch: fetch.callAsFunction).request() == 1)
        _ = LoopbackServer(handler: Backend.handle)
        _ = ScriptedTransport(Backend.answer)
        _ = MuxPolicy(isSilenceable: Backend.isOffline, remembersFailure: Backend.remembers)
        try await MuxStoreConformance.run(Backend.store)
    }

    @Test func `CO-01 a client creates multiplexers of requests`() async throws {
        let client = HTTPClient()
        let profile = client.multiplexer(cacheKey: "client", GetProfile())
        let users = client.multiplexerMap(cacheKey: "client map") { (id: String) in GetUserNamed(id: id) }
        let more = client.multiplexerMap(cacheKey: "client map more", GetUserNamed.init)
        #expect(profile.cachedValue == nil && users.cachedValue(key: "a") == nil && more.cachedValue(key: "a") == nil)
    }

    @Test func `CS-01 lines written from memory compile`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let users = MultiplexerMap<String, User>(cacheKey: "Users", repository: repository) { id in User(name: id) }
        #expect(try await users.request(key: "Ada").name == "Ada")
        let page = try await retry { try await Backend.b() }
        #expect(page == "b")
        // Not `work: Backend.b`: with the name of a function, as with `operation:`, the compiler of Swift
        // 6.3.1 crashes.
        let other = try await retry(.fixed(.zero, maxAttempts: 2)) { try await Backend.b() }
        #expect(other == "b")
        let runners = [
            DependentRunner { try await Backend.b() }, DependentRunner(update: Backend.b),
            DependentRunner(policy: .init(updateTimeout: .seconds(5))) { try await Backend.b() },
        ]
        for runner in runners { #expect(try await runner.run { .output($0) } == "b") }
        for runner in runners { #expect(try await runner.run { token in try await Backend.b() + token } == "bb") }
        #expect(RunnerPolicy(leeway: .seconds(60)).leeway == .seconds(60))
        let transport = ScriptedTransport { _, _ in HTTPReply(status: 200, body: Data(#"{"name":"Ada"}"#.utf8)) }
        let client = HTTPClient(configuration: .init(headers: ["X-App": "1"], retry: .web), transport: transport)
        let url = try #require(URL(string: "https://api.domain.com/users/1"))
        let user: User = try await client.get(url)
        #expect(user.name == "Ada")
        let data: Data = try await client.get(url, headers: ["X-Page": "2"])
        #expect(!data.isEmpty)
        #expect(try await Multiplexer<User> { try await client.get(url) }.request().name == "Ada")
        #expect(HTTPTransportConfiguration(timeout: .seconds(5)) != .init())
        #expect(RetryBudget.Limits(share: 0.2) != .init())
        #expect(FakeOAuthServer.Configuration(accessLifetime: .seconds(60)) != .init())
        #expect(await repository.signOut().isComplete)

        // Only compiled: these expressions use the folder and the session of the process.
        _ = { () async -> [any Sendable] in
            await MuxRepository.shared.signOut()
            let caching: any HTTPTransport = .caching(options: .init(cacheKey: "http"))
            return [AsyncMedia(limits: .init(maximumBytes: 1 << 20)), caching]
        }
    }

    @Test func `CS-03 a variable and the case of an enum are cache keys`() async throws {
        let (name, repository) = ("name", MuxRepository(store: MemoryStore()))
        let one = Multiplexer<User>(cacheKey: name, repository: repository) { User(name: "one") }
        let two = Multiplexer<User>(cacheKey: Keys.profile, repository: repository) { User(name: "two") }
        let three = Multiplexer<User>(cacheKey: "\(name) 3", repository: repository) { User(name: "three") }
        #expect(try await [one.request().name, two.request().name, three.request().name] == ["one", "two", "three"])
        let users = MultiplexerMap<Keys, User>(cacheKey: Keys.users, repository: repository) { key in
            User(name: key.rawValue)
        }
        #expect(try await users.request(key: .profile).name == "profile")
    }

    @Test func `CS-07 a map of batches accepts a dependency`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let runner = DependentRunner { "token" }
        let users = MultiplexerMap<String, User>(
            dependency: runner,
            repository: repository,
            onFetchMany: { ids, token in
                Dictionary(uniqueKeysWithValues: ids.map { ($0, User(name: "\($0) with \(token)")) })
            }
        )
        let many = MultiplexerMap(
            cacheKey: "many",
            dependency: runner,
            repository: repository,
            onFetchMany: Backend.fetchMany
        )
        #expect(try await users.request(key: "Ada").name == "Ada with token")
        #expect(try await many.request(keys: ["a", "b"]).mapValues(\.name) == ["a": "a token", "b": "b token"])
    }

    @Test func `CO-03 a closure that only throws is not ambiguous`() async throws {
        let multiplexers = [
            Multiplexer<Int> { throw Offline() },
            Multiplexer<Int> { _ in throw Offline() },
            Multiplexer<Int>(cacheKey: "throws") { throw Offline() },
            Multiplexer<Int>(cacheKey: "throws, too") { _ in throw Offline() },
            Multiplexer<Int>(cacheKey: "throws with a token", dependency: globalOAuth) { _ in throw Offline() },
        ]
        for multiplexer in multiplexers {
            await #expect(throws: Offline.self) { try await multiplexer.request() }
        }
        let maps = [
            MultiplexerMap<String, Int> { _ in throw Offline() },
            MultiplexerMap<String, Int> { _, _ in throw Offline() },
            MultiplexerMap<String, Int>(onFetchMany: { _ in throw Offline() }),
            MultiplexerMap<String, Int>(cacheKey: "throws") { _ in throw Offline() },
            MultiplexerMap<String, Int>(cacheKey: "throws, too") { _, _ in throw Offline() },
            MultiplexerMap<String, Int>(cacheKey: "throws with a token", dependency: globalOAuth) { _, _ in
                throw Offline()
            },
            MultiplexerMap<String, Int>(dependency: globalOAuth, onFetchMany: { _, _ in throw Offline() }),
        ]
        for map in maps {
            await #expect(throws: Offline.self) { try await map.request(key: "k") }
        }
        let runners = [DependentRunner<Int> { throw Offline() }, DependentRunner<Int> { _ in throw Offline() }]
        for runner in runners {
            await #expect(throws: Offline.self) { try await runner.run { .output($0) } }
        }
        await #expect(throws: RetryError.self) {
            try await retry(.immediate(maxAttempts: 1)) { throw Offline() } as Int
        }
        await #expect(throws: RetryError.self) {
            try await retry(.immediate(maxAttempts: 1)) { _ in throw Offline() } as Int
        }
    }
}

nonisolated enum Keys: String, MuxKey { case profile, users }

struct GetUserNamed: HTTPRequest {
    var id: String
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/\(self.id)") }
    var method: HTTPMethod { .get }
    typealias Output = User
}
