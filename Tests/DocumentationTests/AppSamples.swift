import Dispatch
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import MuxUI
import Observation
import Testing

// The articles about SwiftUI apps, accounts and servers.

// MARK: - SwiftUI apps

nonisolated struct Note: Codable, Equatable, Identifiable, Sendable {
    var id: Int
    var text: String
}

@MainActor @Observable
final class NotesModel {
    private(set) var notes: [Note] = []
    private(set) var isStale = false

    func follow(_ list: Multiplexer<[Note]>) async {
        for await state in list.states {
            self.notes = state.entry?.value ?? []
            self.isStale = state.isStale
        }
    }
}

nonisolated enum NotesAPI {
    static func notes(_ token: String) async throws -> [Note] { [] }
    static func user(_ id: String, _ token: String) async throws -> User { throw CancellationError() }
    static func rename(_ id: Int, _ text: String, _ token: String) async throws {}
    static func like(_ id: Int, _ token: String) async throws {}
    static func signIn(_ name: String, _ password: String) async throws -> (access: String, refresh: String) {
        ("", "")
    }
    static func refresh(_ token: String) async throws -> (access: String, refresh: String) { ("", "") }
    static func page(after cursor: Int?, _ token: String) async throws -> (notes: [Note], next: Int?) { ([], nil) }
}

func feedOfTheApp(_ session: OAuthDependentRunner<String, String>) -> (Note) async throws -> Void {
    let feed = MuxPages<Note, Int>(cacheKey: "Feed", dependency: session) { cursor, token in
        let response = try await NotesAPI.page(after: cursor, token)
        return .init(response.notes, next: response.next)
    }
    func like(_ note: Note) async throws {
        let change = feed.window.change { window in window[note.id]?.text += " ♥" }
        do {
            try await session.run { .output(try await NotesAPI.like(note.id, $0)) }
            change.commit()
        } catch {
            change.undo()
            throw error
        }
    }
    return like
}

func notesOfTheApp(_ session: OAuthDependentRunner<String, String>) -> (Note, String) async throws -> Void {
    let notes = Multiplexer<[Note]>(
        cacheKey: "Notes",
        dependency: session,
        policy: .init(timeToLive: .seconds(300))
    ) { token in
        try await NotesAPI.notes(token)
    }
    func rename(_ note: Note, _ text: String) async throws {
        let change = notes.change { list in
            for index in list.indices where list[index].id == note.id { list[index].text = text }
        }
        do {
            try await session.run { .output(try await NotesAPI.rename(note.id, text, $0)) }
            change.commit()
        } catch {
            change.undo()
            throw error
        }
    }
    return rename
}

func setUpApp() throws {
    try MuxRepository.setUpShared(MuxRepository(savePolicy: .enteringBackground))
}

// MARK: - Accounts

extension API {
    func owner(of tokens: OAuthSignIn<String, String>) async throws -> String { "alice" }
}

nonisolated final class Account: Identifiable, Sendable {
    let id: UUID
    let repository: MuxRepository
    let session: OAuthDependentRunner<String, String>
    let profile: Multiplexer<Profile>
    let client: HTTPClient

    init(id: UUID, in accounts: URL) {
        let folder = accounts.appending(component: id.uuidString)
        self.id = id
        self.repository = MuxRepository(
            directory: folder.appending(component: "values"),
            byteLimit: 20_000_000,
            savePolicy: .enteringBackground
        )
        self.session = OAuthDependentRunner(
            store: .protectedFile(named: "session", directory: folder),
            repository: self.repository,
            refreshAccess: { refresh in try await api.refresh(refresh) },
            signIn: { try await ui.askForPassword() }
        )
        self.profile = Multiplexer(cacheKey: "Profile", dependency: self.session) { token in
            try await api.me(token: token)
        }
        self.client = HTTPClient(authenticator: self.session)
    }
}

@MainActor @Observable
final class Accounts {
    private(set) var current: Account?

    /// Shows another account; the previous account stays signed in.
    func use(_ account: Account?) async {
        let previous = self.current
        self.current = account
        await previous?.repository.saveAll()
        previous?.repository.clearMemory()
    }

    /// Ends the session of the current account.
    func signOut() async {
        let account = self.current
        self.current = nil
        await account?.session.signOut()
    }
}

@MainActor
func watchingTheSession(
    _ session: OAuthDependentRunner<String, String>,
    _ showHome: () -> Void,
    _ showWelcome: () -> Void
) async {
    for await status in session.statuses {
        switch status {
        case .signedIn, .unknown: showHome()
        case .signedOut: showWelcome()
        }
    }
}

func sessionWithReasons() -> OAuthDependentRunner<String, String> {
    let session = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await api.refresh(refresh) },
        signIn: { reason in
            if reason == .tokensRefused { await ui.say("Your session has ended. Please sign in again.") }
            return try await ui.askForPassword()
        }
    )
    return session
}

func signingOutOfEverything() async {
    let report = await MuxRepository.shared.clearAll()
    if !report.isComplete { print("Will be tried again:", report.failures) }
}

func sessionOfOnePerson(_ user: String) -> OAuthDependentRunner<String, String> {
    struct OtherPerson: Error {}

    let session = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await api.refresh(refresh) },
        signIn: {
            let tokens = try await ui.askForPassword()
            guard try await api.owner(of: tokens) == user else { throw OtherPerson() }
            return tokens
        }
    )
    return session
}

func switchingThePerson(
    _ session: OAuthDependentRunner<String, String>,
    _ tokens: OAuthSignIn<String, String>
) async throws {
    await session.signOut()
    try await session.set(access: tokens.access, refresh: tokens.refresh)
}

func takingOverTokens(
    _ session: OAuthDependentRunner<OAuthTokens.AccessToken, String>,
    _ tokens: OAuthTokens
) async throws {
    guard let refresh = tokens.refresh else { throw OAuthError.noRefreshToken }
    try await session.set(access: tokens.access, refresh: refresh)
}

// MARK: - Servers

nonisolated struct UserDatabase: Sendable {
    func refreshToken(of user: String) async throws -> String { "" }
    func keep(_ refreshToken: String, of user: String) async throws {}
}

nonisolated struct ManyUsers: Sendable {
    let sessions: MuxSessions<String, String>
    let profiles: MultiplexerMap<String, Profile>
    let pages: MultiplexerMap<UserKey<String, Int>, String>

    init(in database: UserDatabase, repository: MuxRepository = MuxRepository(store: .none)) {
        self.sessions = MuxSessions(repository: repository) { user, _ in
            let renewal = try await api.refresh(try await database.refreshToken(of: user))
            if let rotated = renewal.refresh { try await database.keep(rotated, of: user) }
            return .updatedDependency(renewal.access)
        }
        self.profiles = self.sessions.makeMap { _, token in try await api.me(token: token) }
        self.pages = self.sessions.makeMap { user, page, token in try await Upstream.page(page, of: user) }
    }
}

func useOfManyUsers(_ users: ManyUsers) async throws {
    let profile = try await users.profiles.request(key: "alice")
    let page = try await users.pages.request(key: .init("alice", 1))
    await users.sessions.signOut("alice")
    _ = (profile, page)
}

nonisolated final class UserSession: Sendable {
    let repository: MuxRepository
    let profile: Multiplexer<Profile>

    init(of user: String, in database: UserDatabase, observer: (any MuxObserver)? = nil) {
        let repository = MuxRepository(store: .none, observer: observer)
        let tokens = OAuthDependentRunner<String, String>(
            repository: repository,
            refreshAccess: { refresh in
                let renewal = try await api.refresh(refresh)
                if let rotated = renewal.refresh { try await database.keep(rotated, of: user) }
                return renewal
            },
            signIn: { OAuthSignIn(refresh: try await database.refreshToken(of: user)) }
        )
        self.repository = repository
        self.profile = Multiplexer(dependency: tokens) { token in try await api.me(token: token) }
    }
}

actor UserSessions {
    private let database = UserDatabase()
    private let sessions = MemoryCache<String, UserSession>(maximumCount: 10_000)

    func session(of user: String) -> UserSession {
        if let session = self.sessions.value(for: user) { return session }
        let session = UserSession(of: user, in: self.database)
        self.sessions.insert(session, for: user)
        return session
    }

    func signOut(_ user: String) async {
        await self.sessions.remove(user)?.repository.clearAll()
    }
}

nonisolated struct UserPage: MuxKey {
    var user: String
    var page: Int
    var keyText: String { "\(self.page) \(self.user)" }  // the space ends the number, so the texts of keys differ
}

nonisolated enum Upstream {
    static func page(_ page: Int, of user: String) async throws -> String { "page \(page) of \(user)" }
    static func rates() async throws -> [String: Double] { [:] }
}

func sharedEntries() async throws {
    let memory = MuxRepository(store: .none)
    let pages = MultiplexerMap<UserPage, String>(
        policy: .init(timeToLive: .seconds(30), maximumCount: 100_000),
        repository: memory
    ) { key in
        try await Upstream.page(key.page, of: key.user)
    }

    let first = try await pages.request(key: UserPage(user: "alice", page: 1))
    await pages.clear(key: UserPage(user: "alice", page: 1), endingRequests: true)
    _ = first
}

func entriesForAll() {
    let policy = MuxPolicy.service(timeToLive: .seconds(60))
    let rates = Multiplexer<[String: Double]>(policy: policy) { try await Upstream.rates() }
    _ = rates
}

nonisolated struct WebServer: Sendable {
    func stop() async {}
}

func untilTerminated() async {
    let (signals, told) = AsyncStream<Void>.makeStream()
    signal(SIGTERM, SIG_IGN)  // otherwise the process ends at once
    let source = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
    source.setEventHandler { @Sendable in told.finish() }
    source.activate()
    for await _ in signals {}
    source.cancel()
}

func runUntilTerminated(_ web: WebServer) async {
    await untilTerminated()
    await web.stop()  // sends pending responses, and accepts no new requests
    let report = await MuxRepository.shared.saveAll(within: .seconds(5))
    print("saved", report.saved, "failed", report.failed.count, "left over", report.leftOver)
}

nonisolated struct OtherClient: Sendable {
    nonisolated struct Answer: Sendable {
        var status: Int
        var headers: [String: String]
        var pieces: AsyncStream<Data>
    }

    var body = "{}"

    func open(
        _ method: String,
        _ url: URL,
        _ headers: [HTTPHeaders.Field],
        _ body: HTTPCall.Body?
    ) async throws -> Answer {
        let (pieces, writer) = AsyncStream<Data>.makeStream()
        writer.yield(Data(self.body.utf8))
        writer.finish()
        return Answer(status: 200, headers: ["Content-Type": "application/json"], pieces: pieces)
    }
}

func clientOver(_ other: OtherClient) -> HTTPClient {
    let transport = ExchangeTransport { call, sink in
        let answer = try await other.open(call.method, call.url, call.headers.fields, call.body)
        try await sink.receive(head: HTTPReply(status: answer.status, headers: HTTPHeaders(answer.headers)))
        for try await piece in answer.pieces { try await sink.receive(piece) }
        return [:]
    }
    let client = HTTPClient(transport: transport)
    return client
}

// MARK: - Promises of the articles

@MainActor @Suite(.standard(endsAtRest: false))
struct AppSamplesTests {
    /// Suspends until the model shows `notes`.
    private func wait(for notes: [Note], in model: NotesModel) async {
        while model.notes != notes {
            await withCheckedContinuation { continuation in
                withObservationTracking {
                    _ = model.notes
                } onChange: {
                    continuation.resume()
                }
            }
            // The observed property changes after the notification, on this actor.
            await Task { @MainActor in }.value
        }
    }

    @Test func `CO-28 the model shows the value on disk at once and then the fetched value`() async throws {
        let store = MemoryStore()
        let old = [Note(id: 1, text: "old")]
        let new = [Note(id: 1, text: "new")]
        let policy = MuxPolicy(timeToLive: .zero)
        let before = MuxRepository(store: store)
        let list = Multiplexer<[Note]>(cacheKey: "Notes", policy: policy, repository: before) { old }
        _ = try await list.request()
        #expect(await before.saveAll().isComplete)

        let gate = Gate<[Note]>()
        let relaunched = MuxRepository(store: store)
        let next = Multiplexer<[Note]>(cacheKey: "Notes", policy: policy, repository: relaunched) {
            try await gate.pass()
        }
        let model = NotesModel()
        let following = Task { await model.follow(next) }
        #expect(try await next.request(.staleWhileRevalidate) == old)
        await self.wait(for: old, in: model)
        #expect(model.isStale)

        await gate.waitForCall()
        gate.openForGood(returning: new)
        await self.wait(for: new, in: model)

        await relaunched.clearAll()
        await self.wait(for: [], in: model)
        following.cancel()
        await following.value
    }

    @Test func `CO-28 a preview plays a script and keeps its notes without a network`() async {
        let notes = [Note(id: 1, text: "Milk")]
        let fetch = ScriptedFetch<[Note]>([.value(notes), .failure(URLError(.notConnectedToInternet))])
        let list = Multiplexer<[Note]>(repository: MuxRepository(store: MemoryStore())) { try await fetch() }
        let observed = list.observed()
        await observed.reload()
        #expect(observed.value == notes && !observed.isStale)
        await observed.reload()
        #expect(observed.value == notes && observed.isStale && observed.problem is URLError)
        #expect(fetch.callCount == 2)
    }

    @Test func `CO-28 simultaneous accounts have separate values and sign-outs`() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "Accounts-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let alice = Account(id: UUID(), in: folder)
        let bob = Account(id: UUID(), in: folder)
        for (account, name) in [(alice, "Alice"), (bob, "Bob")] {
            _ = try await account.profile.request()
            account.profile.store(Profile(name: name))
            #expect(await account.repository.saveAll().isComplete)
        }

        let accounts = Accounts()
        await accounts.use(bob)
        await accounts.use(alice)
        await accounts.signOut()
        #expect(accounts.current == nil)
        #expect(await alice.profile.loadCachedValue() == nil)
        #expect(await bob.profile.loadCachedValue()?.name == "Bob")

        #expect(await Account(id: alice.id, in: folder).profile.loadCachedValue() == nil)
        #expect(await Account(id: bob.id, in: folder).profile.loadCachedValue()?.name == "Bob")
    }

    @Test func `FL-07 the sessions of a server's users are one object`() async throws {
        let users = ManyUsers(in: UserDatabase())
        #expect(try await users.pages.request(key: .init("bob", 2)) == "page 2 of bob")
        try await useOfManyUsers(users)
        #expect(users.profiles.cachedValue(key: "alice") == nil, "a sign-out reaches every map")
        #expect(users.pages.cachedValue(key: .init("alice", 1)) == nil)
        #expect(users.pages.cachedValue(key: .init("bob", 2)) == "page 2 of bob")
    }

    @Test func `CO-28 a server has one session for each user`() async throws {
        let sessions = UserSessions()
        let alice = await sessions.session(of: "alice")
        #expect(await sessions.session(of: "alice") === alice)
        _ = try await alice.profile.request()
        #expect(alice.profile.cachedValue != nil)
        await sessions.signOut("alice")
        #expect(alice.profile.cachedValue == nil, "the dependency makes it part of the session")
        #expect(await sessions.session(of: "alice") !== alice)
    }

    @Test func `CO-28 keys of users and pages are as distinct as their texts`() {
        let keys = [("1 a", 1), ("a", 11), ("a", 1), ("1 a", 11)].map { UserPage(user: $0.0, page: $0.1) }
        #expect(Set(keys.map(\.keyText)).count == keys.count)
    }

    @Test func `CO-28 another client carries requests`() async throws {
        let client = clientOver(OtherClient(body: #"{"name": "Alice"}"#))
        #expect(try await client.output(of: GetProfile()).name == "Alice")
    }
}
