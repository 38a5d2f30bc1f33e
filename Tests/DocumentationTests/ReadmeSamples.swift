import Foundation
import MuxKit
import MuxNetwork

/// The README.
struct ReadmeSamples {
    func first() async throws {
        let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await Backend.myProfile() }.register()
        let me = try await profile.request()  // one fetch, however many callers
        await MuxRepository.shared.saveAll()  // kept on disk: a relaunch within the time to live fetches nothing
        await MuxRepository.shared.clearAll()  // sign-out: no trace is left, and no running fetch restores a value
        _ = me
    }

    func tokens() async throws {
        let oauth = OAuthDependentRunner<String, String>(  // the types of the access token and the refresh token
            store: .protectedFile(named: "session"),
            refreshAccess: { refresh in try await api.refresh(refresh) },  // returns OAuthRenewal(access:refresh:)
            signIn: { try await ui.askForPassword() }  // returns OAuthSignIn(access:refresh:)
        )
        let users = MultiplexerMap<String, User>(cacheKey: "Users", dependency: oauth) { id, access in
            try await api.user(id, token: access)  // a refusal, such as a 401, renews the token once
        }
        let alice = try await users.request(key: "alice")
        _ = alice
    }

    func calls(
        _ profile: Multiplexer<Profile>,
        _ oauth: OAuthDependentRunner<String, String>,
        _ server: URL,
        _ photo: URL
    ) async throws {
        let known = profile.cachedValue  // the value in memory, without a fetch
        let new = try await profile.request(.reload)  // now; in a map: request(key: "alice", .reload)
        profile.refresh()  // makes the value stale: the next request fetches
        profile.store(new)  // a value from elsewhere, such as the response to a change
        let change = profile.change { $0.name = "Ann" }  // shown at once; then `change.commit()` or `change.undo()`
        for await entry in profile.values { show(entry?.value) }  // `nil` after a clear; `states` shows more
        let page = try await oauth.run { access in try await api.page(token: access) }
        let place = try await retry(.exponential(base: .seconds(1), maxAttempts: 5)) { try await api.place("42") }
        let client = HTTPClient(baseURL: server, configuration: .init(retry: .web), authenticator: oauth)
        let found: [User] = try await client.get("/users", query: ["q": "ann"])  // of `import MuxNetwork`
        let file = try await AsyncMedia(limits: .init(maximumBytes: 100_000_000)).request(url: photo)
        _ = (known, change, page, place, found, file)
    }
}
