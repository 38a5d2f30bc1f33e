import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A debug build reports misuse in the log if the repository has no observer.
@Suite(.standard)
struct MisuseTests {
    private let lines = Locked<[String]>([])

    private func repository(_ store: any MuxStore = MemoryStore(), observer: (any MuxObserver)? = nil) -> MuxRepository
    {
        let lines = self.lines
        return MuxRepository(
            store: store,
            durability: .relaxed,
            observer: observer,
            time: TimeSource(VirtualClock()),
            wallTime: { World.start },
            random: { 0.5 },
            spawn: TaskLauncher(),
            misuseLog: MisuseLog { line in lines.withLock { $0.append(line) } }
        )
    }

    /// Every kind of misuse, twice.
    private func misuse(_ repository: MuxRepository, _ other: MuxRepository, _ store: any MuxStore) async throws {
        // Several multiplexers with the same `cacheKey`.
        let all = (0..<3).map { number in
            Multiplexer<Int>(cacheKey: "Number\u{1f}alice", repository: repository) { number }
        }
        // An entry that cannot be decoded.
        let entry = MuxStoredEntry(
            name: MuxStoreKey(domain: "Text"),
            schemaVersion: 1,
            sessionEpoch: try await store.sessionEpoch(),
            fetchedAt: World.start,
            timeToLive: .seconds(60),
            payload: Data("\"secret\"".utf8)
        )
        try await store.save([entry], durability: .relaxed)
        let text = Multiplexer<Int>(cacheKey: "Text", repository: repository) { 1 }
        for _ in 0..<2 { #expect(await text.loadCachedValue() == nil) }
        #expect(try await text.request() == 1)
        // Damaged tokens.
        for _ in 0..<2 {
            let tokens = InMemoryTokens(Data("damaged secret".utf8))
            let runner = OAuthDependentRunner<String, String>(
                store: tokens,
                repository: repository,
                refreshAccess: { OAuthRenewal(access: $0) },
                signIn: { OAuthSignIn(access: "secret", refresh: "secret") }
            )
            #expect(try await runner.run { .output($0) } == "secret")
        }
        // A dependency of another repository.
        let runner = OAuthDependentRunner<String, String>(
            repository: other,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(access: "secret", refresh: "secret") }
        )
        let mismatched = Multiplexer(cacheKey: "Mismatched", dependency: runner, repository: repository) { $0 }
        for _ in 0..<2 {
            await #expect(throws: MuxError.repositoryMismatch) { try await mismatched.request() }
        }
        withExtendedLifetime(all) {}
    }

    @Test func `DS-15 each misuse is logged once in a single line, and no line contains a secret`() async throws {
        let store = MemoryStore()
        try await self.misuse(self.repository(store), self.repository(), store)

        let lines = self.lines.withLock { $0 }
        #expect(
            lines == [
                "Two multiplexers have the cacheKey \"Number\" and share entries on disk. The later save wins.",
                "An entry on disk of \"Text\" cannot be decoded as Int and is ignored. Raise the schemaVersion of the "
                    + "policy, or add a migration.",
                "The stored tokens are damaged and cannot be used. A sign-in replaces the tokens.",
                "The multiplexer \"Mismatched\" has another repository than its dependency. Requests fail, because a "
                    + "sign-out would reach only one repository.",
            ]
        )
    }

    @Test func `DS-15 an observer gets an event for each misuse, and the log stays empty`() async throws {
        let (store, events) = (MemoryStore(), EventTally())
        try await self.misuse(
            self.repository(store, observer: events),
            self.repository(observer: events),
            store
        )

        #expect(self.lines.withLock { $0 } == [])
        for kind in [MuxEvent.Kind.cacheKeyShared, .loadFailed, .storageFailed, .repositoryMismatch] {
            #expect(events.count(of: kind) > 0, "\(kind)")
        }
    }

    @Test func `DS-15 correct use logs nothing`() async throws {
        let repository = self.repository()
        for _ in 0..<3 {
            // Consecutive multiplexers with the same `cacheKey`, as for a screen that is shown again.
            let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
            #expect(try await number.request() == 1)
            await number.save()
            await number.expectAtRest()
        }
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: repository) { _ in 1 }
        #expect(await map.loadCachedValue(key: "missing") == nil)

        #expect(self.lines.withLock { $0 } == [])
    }

    @Test func `DS-15 only a debug build logs misuse`() {
        #if DEBUG
        #expect(MisuseLog.standard != nil)
        #else
        #expect(MisuseLog.standard == nil)
        #endif
    }

    @Test func `DS-15 the number of logged lines is limited`() {
        let repository = self.repository()
        var all: [Multiplexer<Int>] = []
        for number in 0..<1_000 {
            all.append(Multiplexer(cacheKey: .init("\(number)"), repository: repository) { number })
            all.append(Multiplexer(cacheKey: .init("\(number)"), repository: repository) { number })
        }
        #expect(self.lines.withLock { $0.count } == 100)
    }
}

/// A token store in memory with given content.
private actor InMemoryTokens: TokenStore {
    private var data: Data?

    init(_ data: Data?) { self.data = data }

    func load() -> Data? { self.data }
    func save(_ data: Data) { self.data = data }
    func remove() { self.data = nil }
}
