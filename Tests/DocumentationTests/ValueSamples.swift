import Foundation
import MuxKit

// Articles about multiplexers, policies, processes and migration.

func multiplexers(_ profile: Multiplexer<Profile>, _ banner: Label, _ label: Label) async throws {
    let entry = try await profile.requestEntry(.within(.seconds(1)))
    if entry.isStale { banner.show("As of \(entry.age) ago") }

    for await entry in profile.values { label.text = entry?.value.name ?? "signed out" }
}

func namesFromText(_ name: String) {
    let settings = Multiplexer<Settings>(cacheKey: name) { try await Backend.settings(name) }
    _ = settings
}

func tags(_ repository: MuxRepository) {
    let posts = MultiplexerMap<String, Post>(cacheKey: "Posts") { id, _ in
        let post = try await api.post(id)
        return Fetched(post, tags: ["user:\(post.author)"])
    }

    repository.refresh(tags: ["user:7"])
    _ = posts
}

func batches() async throws {
    let prices = MultiplexerMap<String, Int>(onFetchMany: { ids in try await Backend.prices(of: ids) })
    let some = try await prices.request(keys: ["a", "b", "c"])
    _ = some
}

func policies(_ profile: Multiplexer<Profile>) async throws {
    let prices = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(60))

    let now = try await profile.request(.reload)
    let recent = try await profile.request(.maxAge(.seconds(5)))
    let any = try await profile.request(.cacheOnly)
    _ = (prices, now, recent, any)
}

func processes() {
    let repository = MuxRepository(directory: sharedFolder.appending(component: "values"))
    let oauth = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session", directory: sharedFolder),
        repository: repository,
        refreshAccess: { refresh in try await api.refresh(refresh) },
        signIn: { try await ui.askForPassword() }
    )
    let watchful = MuxRepository(store: JournalStore(directory: sharedFolder, watchesFolder: true))
    _ = (oauth, watchful)
}

func machines(_ store: any MuxSharedStore) async {
    let fleet = MuxRepository(sharedStore: store, observer: LoggingObserver())
    let places = MultiplexerMap<String, Place>(cacheKey: "Places", repository: fleet) { id in try await api.place(id) }

    let menus = MultiplexerMap<String, Menu>(
        cacheKey: .init("Menus") { key in ["city:\(key.prefix(2))"] },
        repository: fleet
    ) { key in try await api.menu(key) }

    await fleet.clear(tags: ["city:ro"])
    _ = (places, menus)
}

func logging() async {
    let repository = MuxRepository(observer: LoggingObserver(subsystem: "org.example.shop", showsKeys: true))
    let counters = repository.statistics
    let gauges = await repository.gauges()
    _ = (counters, gauges)
}

func migration() async throws {
    let users = MultiplexerMap<String, User>(cacheKey: "Users") { id in try await api.user(id) }.register()

    let alice = try await users.request(key: "alice")
    _ = alice
}
