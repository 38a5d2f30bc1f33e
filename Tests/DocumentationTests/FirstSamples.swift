import MuxKit

// The landing page.

func landingPageFirst() async throws {
    let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await Backend.myProfile() }.register()
    let users = MultiplexerMap<String, User>(cacheKey: "Users") { id in try await Backend.user(id) }.register()

    let me = try await profile.request()  // one fetch, however many callers
    let alice = try await users.request(key: "alice")

    await MuxRepository.shared.saveAll()  // the app goes to the background
    await MuxRepository.shared.clearAll()  // sign-out: no trace is left
    _ = (me, alice)
}

func landingPageSecond() {
    let oauth = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await api.refresh(refresh) },
        signIn: { try await ui.askForPassword() }
    )
    let profile = Multiplexer<Profile>(cacheKey: "Me", dependency: oauth) { access in try await api.me(token: access) }
    _ = profile
}
