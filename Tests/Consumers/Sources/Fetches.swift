import MuxKit
import MuxNetwork
import MuxTesting

// The functions of an app: every kind of function that can be a fetch.

extension Backend {
    static func fetchMyProfile() async throws -> Profile { Profile(name: "static") }
    static func fetchUserProfile(id: String) async throws -> User { User(name: "static \(id)") }
    static func fetchUserProfiles(ids: [String]) async throws -> [String: User] {
        ids.reduce(into: [:]) { $0[$1] = User(name: "many \($1)") }
    }
    static func fetchMany(ids: [String], token: String) async throws -> [String: User] {
        ids.reduce(into: [:]) { $0[$1] = User(name: "\($1) \(token)") }
    }
    static func profileForNow(_: FetchedBefore<Profile>?) async throws -> Fetched<Profile> {
        Fetched(Profile(name: "for now"))
    }
    static func userForNow(id: String, _: FetchedBefore<User>?) async throws -> Fetched<User> {
        Fetched(User(name: "for now \(id)"))
    }
    static func profileAgain(_ before: FetchedBefore<Profile>?) async throws -> Fetched<Profile> {
        before?.notModified() ?? Fetched(Profile(name: "again"))
    }
    static func userAgain(id: String, _ before: FetchedBefore<User>?) async throws -> Fetched<User> {
        before?.notModified() ?? Fetched(User(name: "again \(id)"))
    }
    static func fetchMe(token: String) async throws -> Profile { Profile(name: "with \(token)") }
    static func fetchUser(id: String, token: String) async throws -> User { User(name: "\(id) with \(token)") }
    static func a() async throws -> Int { 1 }
    static func b() async throws -> String { "b" }
    static func c() -> Bool { true }
    static func attempt(_ attempt: RetryPolicy.Attempt) async throws -> String { "attempt" }
    static func number(_ call: Int) async throws -> Int { call }
    static func handle(_ request: LoopbackServer.Request) async -> LoopbackServer.Response { .text("", status: 204) }
    static func answer(_ call: HTTPCall, _ number: Int) async throws -> HTTPReply { throw Offline() }
    static func store() async throws -> any MuxStore { MemoryStore() }
    nonisolated static func isOffline(_ error: any Error) -> Bool { error is Offline }
    nonisolated static func remembers(_ error: any Error) -> Duration? { nil }
}

enum Up {
    static func make(_ refused: String?) async throws -> UpdateResult<String> { .updatedDependency("token") }
    static func session(of account: String, _ refused: String?) async throws -> UpdateResult<String> {
        .updatedDependency("\(account)'s session")
    }
    static func refresh(_ token: String) async throws -> OAuthRenewal<String, String> { .init(access: "access") }
    static func signIn() async throws -> OAuthSignIn<String, String> { .init(refresh: "refresh") }
}

func fetchFreely() async throws -> Profile { Profile(name: "free") }
func fetchFreely(id: String) async throws -> User { User(name: "free \(id)") }
func makeFreely(_ refused: String?) async throws -> UpdateResult<String> { .updatedDependency("free") }

struct Offline: Error {}

struct Remote: Sendable {
    func profile() async throws -> Profile { Profile(name: "instance") }
    func user(id: String) async throws -> User { User(name: "instance \(id)") }
    func make(_ refused: String?) async throws -> UpdateResult<String> { .updatedDependency("instance") }
}

actor Desk {
    private var count = 0

    func profile() async throws -> Profile {
        self.count += 1
        return Profile(name: "actor")
    }
    func user(id: String) async throws -> User { User(name: "actor \(id)") }
    func make(_ refused: String?) async throws -> UpdateResult<String> { .updatedDependency("actor") }
}

@MainActor final class Screen {
    private var count = 0

    func profile() async throws -> Profile {
        self.count += 1
        return Profile(name: "main")
    }
    func user(id: String) async throws -> User { User(name: "main \(id)") }
    func make(_ refused: String?) async throws -> UpdateResult<String> { .updatedDependency("main") }
    func profileAtOnce() -> Profile { Profile(name: "main") }
}
