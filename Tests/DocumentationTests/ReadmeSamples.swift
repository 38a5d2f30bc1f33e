import MuxKit

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
        let oauth = OAuthDependentRunner<String, String>(
            store: .protectedFile(named: "session"),
            refreshAccess: { refresh in try await api.refresh(refresh) },
            signIn: { try await ui.askForPassword() }
        )
        let users = MultiplexerMap<String, User>(cacheKey: "Users", dependency: oauth) { id, access in
            try await api.user(id, token: access)  // a refusal, such as a 401, renews the token once
        }
        let alice = try await users.request(key: "alice")
        _ = alice
    }
}
