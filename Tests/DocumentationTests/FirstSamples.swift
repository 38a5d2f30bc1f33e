import MuxKit

// The README, the landing page and the first steps.

func readmeFirst() async throws {
    let profile = Multiplexer<Profile>(cacheKey: "Profile") { try await Backend.myProfile() }.register()
    let me = try await profile.request()  // one fetch, however many callers
    await MuxRepository.shared.saveAll()  // kept on disk: a relaunch within the time to live fetches nothing
    await MuxRepository.shared.clearAll()  // sign-out: no trace is left, and nothing in flight brings one back
    _ = me
}

func readmeSecond() async throws {
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

func gettingStartedValues() async throws {
    struct Forecast: Codable, Sendable { var degrees: Double }

    let forecast = Multiplexer<Forecast>(cacheKey: "Forecast") { try await Backend.forecast() }.register()

    let now = try await forecast.request()  // one fetch, however many callers
    let later = try await forecast.request()  // from memory, for the next 30 minutes

    await MuxRepository.shared.saveAll()  // when the app goes to the background
    await MuxRepository.shared.clearAll()  // memory, disk, what is in flight, and the tokens
    _ = (now, later)

    enum Backend {
        static func forecast() async throws -> Forecast { Forecast(degrees: 20) }
    }
}

func gettingStartedKeys() async throws {
    let cities = MultiplexerMap<String, Forecast>(cacheKey: "Cities") { try await Backend.forecast(of: $0) }.register()

    let vienna = try await cities.request(key: "Vienna")
    let both = try await cities.request(keys: ["Vienna", "Graz"])
    _ = (vienna, both)
}

func gettingStartedTokens() {
    let session = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await Backend.refresh(refresh) },
        signIn: { try await Backend.signIn() }
    )
    let profile = Multiplexer<Profile>(cacheKey: "Profile", dependency: session) { token in
        try await Backend.profile(token: token)
    }
    _ = profile
}
