import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The files of tokens, their permissions, and texts that must not contain a token.
@Suite(.standard)
struct TokenSafetyTests {
    private let folder = TemporaryFolder()

    private func mode(_ url: URL) throws -> Int? {
        try FileManager.default.attributesOfItem(atPath: url.path)[.posixPermissions] as? Int
    }

    private var tokens: URL { self.folder.url.appending(component: "tokens") }

    @Test func `D09 only the owner has access to the file, also in a folder that was open to others`() async throws {
        defer { self.folder.remove() }
        try FileManager.default.createDirectory(
            at: self.tokens,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o755]
        )
        let store = ProtectedFileTokenStore(named: "session", directory: self.folder.url)
        try await store.save(Data("one".utf8))
        #expect(try self.mode(self.tokens) == 0o700)
        for name in self.folder.contents().keys where name != "tokens" {
            #expect(try self.mode(self.folder.url.appending(path: name)) == 0o600, "\(name)")
        }
        #expect(
            try await ProtectedFileTokenStore(named: "session", directory: self.folder.url).load() == Data("one".utf8)
        )
        #expect(try await ProtectedFileTokenStore(named: "Session", directory: self.folder.url).load() == nil)
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    @Test(.ownThreads)
    func `D09 temporary files of a killed writer are removed at the next launch`() async throws {
        defer { self.folder.remove() }
        let path = self.folder.url.path
        try await ProtectedFileTokenStore(named: "session", directory: self.folder.url).save(Data("one".utf8))
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String] in
            let store = ProtectedFileTokenStore(
                named: "session",
                directory: URL(filePath: path, directoryHint: .isDirectory),
                fileSystem: RecordingFileSystem { _, call in
                    call.operation == .rename ? .perform { raise(SIGKILL) } : nil
                }
            )
            try await store.save(Data("two".utf8))
        }
        #expect(self.folder.contents().keys.contains { $0.hasSuffix(".tmp") })

        let next = ProtectedFileTokenStore(named: "session", directory: self.folder.url)
        #expect(try await next.load() == Data("one".utf8))

        #expect(!self.folder.contents().keys.contains { $0.hasSuffix(".tmp") })
    }
    #endif

    @Test func `PT-06 tokens of a session that a process without a runner has ended are not used`() async throws {
        let first = OAuthWorld()
        #expect(try await first.call(first.runner()) == "alice")
        // No runner replaces the stored tokens with a sign-out record.
        let other = first.relaunched()
        #expect(await other.world.repository.clearAll().isComplete)
        let next = other.relaunched()
        #expect(try await next.call(next.runner()) == "alice")
        #expect(next.signIns.withLock { $0 } == 1 && next.refreshes.withLock { $0 } == 1)
    }

    @Test func `D09 an unreadable file causes a separate error and no sign-in`() async throws {
        defer { self.folder.remove() }
        let signIns = Locked(0)
        let refused = RecordingFileSystem { _, call in
            call.operation == .open && !call.name.hasSuffix(".lock") ? .refuse(EACCES) : nil
        }
        let runner = OAuthDependentRunner<String, String>(
            store: ProtectedFileTokenStore(named: "session", directory: self.folder.url, fileSystem: refused),
            repository: World().repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: {
                signIns.withLock { $0 += 1 }
                return OAuthSignIn(refresh: "new")
            }
        )
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.code == .tokensUnreadable)
        #expect(signIns.withLock { $0 } == 0)
    }

    @Test func `D09 temporary files of a killed writer are removed together with the file`() async throws {
        defer { self.folder.remove() }
        try await ProtectedFileTokenStore(named: "session", directory: self.folder.url).save(Data("one".utf8))
        let name = try #require(self.folder.contents().keys.first { $0.contains("tokens-") && !$0.hasSuffix(".lock") })
        try Data("two".utf8).write(to: self.folder.url.appending(path: name + ".0.tmp"))
        try await ProtectedFileTokenStore(named: "session", directory: self.folder.url).remove()
        #expect(self.folder.contents().keys.allSatisfy { !$0.contains("tokens-") || $0.hasSuffix(".lock") })
    }

    @Test func `D09 an implausibly large file leads to a sign-in`() async throws {
        defer { self.folder.remove() }
        let store = ProtectedFileTokenStore(named: "session", directory: self.folder.url)
        try await store.save(Data("one".utf8))
        let name = try #require(self.folder.contents().keys.first { $0.contains("tokens-") && !$0.hasSuffix(".lock") })
        let handle = try FileHandle(forWritingTo: self.folder.url.appending(path: name))
        try handle.truncate(atOffset: 1 << 25)
        try handle.close()
        let oauth = OAuthWorld(tokens: store)
        #expect(try await oauth.call(oauth.runner()) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 1)
    }

    // MARK: - Sign-out records in the token store

    @Test func `D05 after an interrupted sign-out tokens stay void even if the caches folder is emptied`()
        async throws
    {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        tokens.failsDeletes.withLock { $0 = true }  // or the process is killed before the removal
        await runner.signOut()
        #expect(tokens.memory.peek != nil)

        // Another process after the system has emptied the caches folder.
        let signIns = Locked(0)
        let next = OAuthDependentRunner<String, String>(
            store: tokens,
            repository: MuxRepository(store: MemoryStore()),
            refreshAccess: { OAuthRenewal(access: "access of \($0)") },
            signIn: {
                signIns.withLock { $0 += 1 }
                return OAuthSignIn(access: "new", refresh: "new")
            }
        )
        #expect(try await next.run { .output($0) } == "new")
        #expect(signIns.withLock { $0 } == 1)
    }

    @Test func `D05 the record of a sign-out in the store contains no token`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        tokens.failsDeletes.withLock { $0 = true }
        await runner.signOut()
        let left = String(decoding: tokens.memory.peek ?? Data(), as: UTF8.self)
        #expect(!left.contains("refresh-") && !left.contains("access-"))
    }

    /// A store that runs `duringSave` at the beginning of each save.
    private struct CallingStore: TokenStore {
        let memory = InMemoryTokenStore()
        let duringSave = Locked<@Sendable () async -> Void>({})
        let deletions = Tally()

        func load() async throws -> Data? { await self.memory.load() }
        func save(_ data: Data) async throws {
            await self.duringSave.withLock { $0 }()
            await self.memory.save(data)
        }
        func remove() async throws {
            await self.memory.remove()
            self.deletions.add()
        }
    }

    @Test func `D05 a store that signs out during a save does not deadlock`() async throws {
        let tokens = CallingStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let done = Locked(0)
        tokens.duringSave.withLock { action in
            action = {
                guard done.next() == 1 else { return }
                await runner.signOut()
            }
        }
        let error = await #expect(throws: RunnerError.self) { try await oauth.call(runner) }
        #expect(error?.code == .signedOut)
        await tokens.deletions.reached(1)
        #expect(tokens.memory.peek == nil, "what was being saved is removed when that has ended")
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.signIns.withLock { $0 } == 2)
    }

    // MARK: - Texts without tokens

    private struct Log: MuxObserver {
        let text = Locked("")

        func observe(_ event: MuxEvent) {
            self.text.withLock { text in
                text += "\(event)"
                dump(event, to: &text)
            }
        }
    }

    /// An error that quotes a token, like errors of servers.
    private struct Quoting: Error, CustomStringConvertible {
        let token: String
        var description: String { "SECRET \(self.token)" }
    }

    @Test func `D09 no token is in any description, dump, error, event or report`() async throws {
        defer { self.folder.remove() }
        let log = Log()
        let text = Locked("")
        func note(_ value: Any) {
            text.withLock { text in
                text += "\(value)" + String(reflecting: value)
                dump(value, to: &text)
            }
        }
        let world = World()
        let repository = MuxRepository(store: world.store, observer: log)
        let store = ProtectedFileTokenStore(named: "session", directory: self.folder.url)
        let fails = Locked(false)
        let runner = OAuthDependentRunner<String, String>(
            store: store,
            repository: repository,
            refreshAccess: { token in
                if fails.withLock({ $0 }) { throw CriticalError(Quoting(token: token)) }
                return OAuthRenewal(access: "SECRET-access", refresh: "SECRET-\(UUID().uuidString)")
            },
            signIn: { OAuthSignIn(refresh: "SECRET-refresh") }
        )
        let events = runner.events
        _ = try await runner.run { .output($0) }
        try await runner.renew()
        note(runner)
        note(store)
        note(repository)
        fails.withLock { $0 = true }
        do {
            try await runner.renew()
            #expect(Bool(false), "the refresh fails")
        } catch {
            note(error)
            text.withLock { $0 += error.localizedDescription }
        }
        for error in [
            RunnerError.signInFailed(underlying: Quoting(token: "SECRET")),
            .leaseUnavailable(underlying: Quoting(token: "SECRET")),
            .critical(underlying: Quoting(token: "SECRET"), isOriginator: true),
            .tooManyUpdatesInWindow(count: 1, window: .zero, underlying: Quoting(token: "SECRET")),
        ] {
            note(error)
            text.withLock { $0 += error.localizedDescription }
        }
        note(OAuthRenewal(access: "SECRET", refresh: "SECRET"))
        note(OAuthSignIn(access: "SECRET", refresh: "SECRET"))
        note(await runner.signOut())
        var seen = events.makeAsyncIterator()
        while let event = await seen.next(), event != .signedOut { note(event) }

        let all = text.withLock { $0 } + log.text.withLock { $0 }
        #expect(!all.isEmpty)
        #expect(!all.contains("SECRET"))
    }
}
