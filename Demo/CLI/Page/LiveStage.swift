import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// A slow backend on loopback, an app, a film and a worker process.
final class LiveStage: PageStage {
    /// An access token that the app obtained.
    struct Token: Codable, Sendable {
        var epoch: UInt64
        var how: String
        var user: String
    }

    private struct Session: Sendable {
        /// The user of the next sign-in.
        var nextUser = "alice"
        var isSignedIn = false
        var tokens: [Token] = []
        /// The user of a running sign-in.
        var signsIn: String?
        var signOuts = 0
    }

    /// Counts the changes of the page.
    let changes = Tally()
    let activity: KeyActivity
    let store: WatchedStore
    let backend: LoopbackBackend
    let app: App
    let media: AsyncMedia
    let film: Film
    let worker: Worker
    let writer: Writer
    let screen: PlaceScreen
    let places: [Place]
    let journal: ActJournal
    private let folder: URL
    private let session = Locked(Session())
    private let isServing = Locked(true)
    private let followers = Locked<[Task<Void, Never>]>([])

    init() throws {
        let changes = self.changes
        let session = self.session
        let film = Film(changes: changes)
        let places = try Place.all()
        var configuration = FakeOAuthServer.Configuration()
        configuration.latency = .milliseconds(500)
        let oauth = FakeOAuthServer(users: Stage.passwords, configuration: configuration)
        let renamed = RenamedPlaces(places, oauth: oauth)
        self.backend = try LoopbackBackend(oauth: oauth, places: places) { request in
            changes.add()
            if request.path == film.path { return film.response(to: request) }
            // A slow network with varying latency.
            if ["GET", "PUT"].contains(request.method) {
                try? await Task.sleep(for: .milliseconds(250 + request.target.utf8.reduce(0) { $0 + Int($1) } % 450))
            }
            return renamed.response(to: request)
        }
        let url = try self.backend.goOnline()
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxKit-page-\(UUID().uuidString)")
        self.activity = KeyActivity(changes: changes)
        self.store = WatchedStore(directory: folder.appending(component: "caches"), changes: changes)
        let repository = MuxRepository(
            store: self.store,
            savePolicy: .afterFetch(debounce: .milliseconds(600)),
            observer: self.activity
        )
        self.app = try App(
            backend: url,
            folder: folder,
            repository: repository,
            policy: MuxPolicy(timeToLive: .seconds(120), timeToLiveJitter: 0.5, errorBackoff: .milliseconds(250))
        ) {
            Stage.credentials(
                session.withLock { session in
                    session.signsIn = session.nextUser
                    return session.nextUser
                }
            )
        }
        self.media = AsyncMedia(directory: folder.appending(component: "media"), budget: nil, repository: repository)
        self.film = film
        self.worker = Worker(folder: folder.appending(component: "worker"), changes: changes)
        self.writer = Writer(folder: folder.appending(component: "writer"), changes: changes)
        self.screen = PlaceScreen(of: places[0], in: self.app, changes: changes)
        self.places = Array(places.prefix(24))
        self.journal = ActJournal(changes: changes)
        self.folder = folder
    }

    var changeCount: Int { self.changes.value }
    var shown: Snapshot { Snapshot(of: self) }
    func changed(_ count: Int) async { await self.changes.reached(count) }
    func perform(_ act: PageAct) async -> ActJournal.Outcome? { await act.perform(on: self) }

    /// The HTML of the page, from the resources.
    static func html() throws -> String {
        guard let file = Bundle.module.url(forResource: "page", withExtension: "html", subdirectory: "Resources") else {
            throw CocoaError(.fileNoSuchFile)
        }
        return try String(contentsOf: file, encoding: .utf8)
    }

    /// Starts the worker, the writer and the screen, and observes the tokens.
    func open() async throws {
        let events = self.app.oauth.events
        let follower = Task { [app, session, changes] in
            for await event in events {
                let isSignedIn = await app.oauth.status == .signedIn
                session.withLock { session in
                    session.isSignedIn = isSignedIn
                    guard case .updated(let epoch) = event else { return }
                    let how = session.signsIn == nil ? "refresh" : "sign-in"
                    let user = session.signsIn ?? session.tokens.last?.user ?? session.nextUser
                    session.tokens.append(Token(epoch: epoch, how: how, user: user))
                    session.signsIn = nil
                }
                changes.add()
            }
        }
        self.followers.withLock { $0 = [follower, Task { [screen] in await screen.follow() }] }
        try await self.worker.start()
        try await self.writer.start()
    }

    /// Ends all processes and removes all files.
    func close() async {
        for follower in self.followers.withLock({ $0 }) { follower.cancel() }
        await self.worker.stop()
        await self.writer.stop()
        await self.backend.goOffline()
        try? FileManager.default.removeItem(at: self.folder)
    }

    /// Whether the backend can be reached.
    var isOnline: Bool { self.isServing.withLock { $0 } }

    /// The signed-in user, otherwise the user of the next sign-in.
    var user: String {
        self.session.withLock { session in
            (session.isSignedIn ? session.tokens.last?.user : nil) ?? session.nextUser
        }
    }

    /// Whether there are tokens, as of the last event of the runner.
    var isSignedIn: Bool { self.session.withLock { $0.isSignedIn } }

    /// All access tokens so far.
    var tokens: [Token] { self.session.withLock { $0.tokens } }

    /// The number of sign-outs.
    var signOuts: Int { self.session.withLock { $0.signOuts } }

    /// For each key, whether the value in memory is stale; `nil` without a value in memory.
    var staleness: [Bool?] {
        [self.app.profile.cachedEntry?.isStale] + self.places.map { self.app.places.cachedEntry(key: $0.id)?.isStale }
    }

    /// The number of values in memory.
    var cachedCount: Int { self.staleness.count { $0 != nil } }

    /// Whether the library has a complete film.
    var hasFilm: Bool { self.media.cachedValue(url: self.backend.url.appending(path: self.film.path)) != nil }

    /// Changes the reachability of the backend.
    func setOnline(_ isOnline: Bool) async throws {
        if isOnline { try self.backend.goOnline() } else { await self.backend.goOffline() }
        self.isServing.withLock { $0 = isOnline }
        self.changes.add()
    }

    /// Marks all values in memory as stale.
    ///
    /// - Returns: The number of values in memory.
    func markStale() -> Int {
        defer {
            self.app.profile.refresh()
            self.app.places.refresh()
        }
        return self.cachedCount
    }

    /// Signs out; the next sign-in is by the other user.
    func signOut() async -> MuxRepository.ClearReport {
        self.session.withLock { session in
            session.nextUser = session.nextUser == "alice" ? "bob" : "alice"
            session.signOuts += 1
        }
        let report = await self.app.oauth.signOut()
        let isSignedIn = await self.app.oauth.status == .signedIn
        self.session.withLock { $0.isSignedIn = isSignedIn }
        self.film.forget()
        return report
    }

    /// Counts of outcomes.
    struct Answers: Sendable {
        var fresh = 0
        var stale = 0
        /// Ended with the session.
        var ended = 0
        var failed = 0

        var all: Int { self.fresh + self.stale + self.ended + self.failed }
    }

    /// Requests all values for each of `callers` callers; pauses 40 ms before each tenth caller.
    func storm(callers: Int) async -> Answers {
        await withTaskGroup(of: Answers.self) { group in
            for caller in 0..<callers {
                if caller % 10 == 9 { try? await Task.sleep(for: .milliseconds(40)) }
                group.addTask { await self.answer { try await self.app.profile.requestEntry().isStale } }
                for place in self.places {
                    group.addTask {
                        await self.answer { try await self.app.places.requestEntry(key: place.id).isStale }
                    }
                }
            }
            return await group.reduce(into: Answers()) { sum, one in
                sum.fresh += one.fresh
                sum.stale += one.stale
                sum.ended += one.ended
                sum.failed += one.failed
            }
        }
    }

    private func answer(_ isStale: () async throws -> Bool) async -> Answers {
        do {
            return try await isStale() ? Answers(stale: 1) : Answers(fresh: 1)
        } catch MuxError.sessionEnded {
            return Answers(ended: 1)
        } catch RunnerError.signedOut {
            return Answers(ended: 1)
        } catch {
            return Answers(failed: 1)
        }
    }
}
