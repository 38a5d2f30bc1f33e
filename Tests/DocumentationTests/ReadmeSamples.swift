import Foundation
import MuxKit
import MuxNetwork
import MuxTesting
import Testing

/// The README.
struct ReadmeSamples {
    /// What a reader imagines around them.
    private struct Problem: Decodable, Sendable { var title: String }
    private let photo = URL(filePath: "/photo.png")
    private func fetchPage() async throws -> Data { Data() }

    func first() async throws {
        let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await Backend.myProfile() }.register()
        let me = try await profile.request()  // one fetch, however many callers
        await MuxRepository.shared.saveAll()  // kept on disk: a relaunch within the time to live fetches nothing
        await MuxRepository.shared.clearAll()  // sign-out: no trace is left, and nothing in flight brings one back
        _ = me
    }

    func setUp(_ folder: URL) throws {
        try MuxRepository.setUpShared(
            MuxRepository(directory: folder, savePolicy: .enteringBackground, observer: LoggingObserver())
        )
    }

    func tokens() async throws {
        let oauth = OAuthDependentRunner<String, String>(
            store: .protectedFile(named: "session"),
            refreshAccess: { refresh in try await api.refresh(refresh) },
            signIn: { try await ui.askForPassword() }
        )
        let users = MultiplexerMap<String, User>(cacheKey: "Users", dependency: oauth) { id, access in
            try await api.user(id, token: access)  // an error that says "bad dependency" renews the token, once
        }
        let alice = try await users.request(key: "alice")
        let again = try await users.refresh(key: "alice").request(key: "alice")  // the old value stays as a safety net
        let many = try await users.request(keys: ["alice", "bob"], .maxAge(.seconds(5)))
        for await entry in users.values(key: "alice") { print(entry?.value.name ?? "signed out") }
        _ = (alice, again, many)
    }

    func requests(_ oauth: OAuthDependentRunner<String, String>) async throws {
        struct GetUser: HTTPRequest {
            var endPoint: HTTPEndPoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
            var method: HTTPMethod { .get }
            typealias Output = User
            typealias ServerError = Problem
        }

        let client = HTTPClient(authenticator: oauth)  // 401: one new token for all, then each is sent once more
        do {
            let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
            print(user.name, response.status)
        } catch let error as HTTPError where error.status == .notFound {
            print(error.serverError(as: Problem.self)?.title ?? "There is no such user.")
        }
    }

    func retries() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(60), retry: .web)  // of a multiplexer: all attempts are one fetch
        let page = try await retry(.web) { _ in try await fetchPage() }  // of anything: three attempts, with jitter
        _ = (policy, page)
    }

    func media() async throws {
        let file = try await AsyncMedia.shared.request(url: photo)  // one download, which goes on where it broke off
        _ = file
    }

    @Test func `a name is fetched again after half an hour`() async throws {
        let clock = VirtualClock()
        let fetch = ScriptedFetch<String>([.value("Alice"), .value("Bob")])
        let repository = MuxRepository(store: MemoryStore(), clock: clock)
        let name = Multiplexer<String>(repository: repository) { try await fetch() }
        #expect(try await name.request() == "Alice")
        clock.advance(by: .seconds(30 * 60))
        #expect(try await name.request() == "Bob")
    }

    @Test func `in a hundred orders nobody is given what is older than a refresh`() async throws {
        try await SeededExecutor.explore(100) { schedule in  // a failure names its seed, which plays it again
            let fetch = ScriptedFetch<Int>(thereafter: .computed { number in number })
            let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
            let number = Multiplexer<Int>(repository: repository) { try await fetch() }
            async let anybody = number.request()
            let before = fetch.callCount
            number.refresh()
            let after = try await number.request()
            try #require(after > before)
            _ = try await anybody
        }
    }
}
