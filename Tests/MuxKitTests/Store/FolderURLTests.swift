import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// URLs without a usable file path.
@Suite(.standard)
struct FolderURLTests {
    @Test(arguments: UnusableURLs.texts)
    func `AC-04 a URL without a usable path has no path`(text: String) throws {
        let url = try #require(URL(string: text))
        #expect(throws: MuxStoreError.unusableURL) { try FilePath.path(of: url) }
    }

    @Test func `AC-04 a folder path keeps a final scalar that combines with the slash`() throws {
        let url = URL(filePath: "/d/alice\u{0600}", directoryHint: .isDirectory)

        #expect(try FilePath.path(of: url) == "/d/alice\u{0600}")
    }

    @Test func `AC-04 a usable URL has one path, however it is written`() throws {
        let base = URL(filePath: "/srv/", directoryHint: .isDirectory)
        let here = FileManager.default.currentDirectoryPath
        let table: [(URL?, String)] = [
            (URL(string: "file:///srv/x"), "/srv/x"), (URL(string: "file:///srv/x/"), "/srv/x"),
            (URL(string: "file:/srv/x"), "/srv/x"), (URL(string: "file://localhost/srv/x"), "/srv/x"),
            (URL(string: "file:///srv/caf%C3%A9"), "/srv/caf\u{e9}"),
            (URL(string: "file:///srv/a%20b%25"), "/srv/a b%"),
            (URL(string: "file:///srv/~/x"), "/srv/~/x"), (URL(string: "file:///srv//x/./y/../z"), "/srv/x/z"),
            (URL(string: "x", relativeTo: base), "/srv/x"), (URL(filePath: "/srv/a?b#c%E9"), "/srv/a?b#c%E9"),
            (URL(filePath: "x/y"), here + "/x/y"), (URL(filePath: "/srv/e\u{301}"), "/srv/e\u{301}"),
        ]
        for (url, path) in table {
            let found = try FilePath.path(of: try #require(url))
            #expect(found.utf8.elementsEqual(path.utf8), "\(url as Any)")
        }
    }

    @Test(arguments: UnusableURLs.texts)
    func `AC-04 a repository, a token store and a lease refuse the URL and write nothing`(text: String) async throws {
        let url = try #require(URL(string: text))
        let calls = RecordingFileSystem()
        let events = EventTally()
        let store = JournalStore(StoreFolder(url), fileSystem: calls)
        let repository = MuxRepository(store: store, observer: events)

        await #expect(throws: MuxStoreError.unusableURL) { try await store.save([sample("a")], durability: .full) }
        await #expect(throws: MuxStoreError.unusableURL) { try await store.load(name("a")) }
        await #expect(throws: MuxStoreError.unusableURL) { try await store.sessionEpoch() }
        await #expect(throws: MuxStoreError.unusableURL) { try await store.removeEverything() }
        await events.wait(for: .storageFailed)

        let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 1 }
        #expect(try await value.request() == 1)
        let report = await repository.saveAll()
        #expect(report.failed.first?.error as? MuxStoreError == .unusableURL)
        #expect(await !repository.clearAll().isComplete)
        #expect(events.count(of: .storageFailed) == 1)

        let tokens = ProtectedFileTokenStore(named: "session", directory: url, fileSystem: calls)
        await #expect(throws: MuxStoreError.unusableURL) { try await tokens.load() }
        await #expect(throws: MuxStoreError.unusableURL) { try await tokens.save(Data("x".utf8)) }
        await #expect(throws: MuxStoreError.unusableURL) { try await tokens.remove() }
        await #expect(throws: MuxStoreError.unusableURL) { try await tokens.lease?.take(as: "a", for: .seconds(1)) }

        let lease = FileLease(named: "lease", directory: url, fileSystem: calls)
        await #expect(throws: MuxStoreError.unusableURL) { try await lease.take(as: "a", for: .seconds(1)) }
        let term = MuxLeaseTerm(owner: "a", generation: 1, remaining: .seconds(1))
        await #expect(throws: MuxStoreError.unusableURL) { try await lease.giveBack(term) }

        #expect(calls.calls.isEmpty)
        #expect(repository.folder(.media).refusal == .unusableURL)
    }

    @Test func `AC-04 a runner reports a token store whose URL has no path`() async throws {
        let events = EventTally()
        let url = try #require(URL(string: "file:///srv/caf%E9"))
        let runner = OAuthDependentRunner<String, String>(
            store: .protectedFile(named: "session", directory: url),
            repository: MuxRepository(store: MemoryStore(), observer: events),
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(refresh: "new") }
        )
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.underlying as? MuxStoreError == .unusableURL)
        await events.wait(for: .storageFailed)
    }
}
