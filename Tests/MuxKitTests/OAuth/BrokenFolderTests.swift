import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// An unusable folder stops only operations that need the folder.
@Suite(.standard)
struct BrokenFolderTests {
    private let folder = TemporaryFolder()
    private let clock = VirtualClock()
    private let events = EventTally()

    /// A path below a file: no user can create a folder or file at this path.
    private func nowhere() throws -> URL {
        try FileManager.default.createDirectory(at: self.folder.url, withIntermediateDirectories: true)
        let file = self.folder.url.appending(component: "file")
        try Data("x".utf8).write(to: file)
        return file.appending(component: "below")
    }

    private func oauth(_ configuration: FakeOAuthServer.Configuration = .init()) -> FakeOAuthServer {
        FakeOAuthServer(users: ["alice": "a"], configuration: configuration, clock: self.clock)
    }

    private func repository(_ directory: URL) -> MuxRepository {
        MuxRepository(directory: directory, observer: self.events, clock: self.clock)
    }

    private func runner(
        _ server: FakeOAuthServer,
        _ store: any TokenStore,
        _ repository: MuxRepository
    ) -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            store: store,
            repository: repository,
            refreshAccess: { refresh in
                do {
                    let tokens = try await server.refresh(refresh)
                    return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
                } catch FakeOAuthServer.Failure.invalidGrant {
                    throw BadDependency()
                }
            },
            signIn: {
                let tokens = try await server.signIn(user: "alice", password: "a")
                return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
            }
        )
    }

    private func call(_ runner: OAuthDependentRunner<String, String>, _ server: FakeOAuthServer) async throws -> String
    {
        try await runner.run { access in server.authorize(access).map { .output($0) } ?? .badDependency }
    }

    private var problems: [String] { self.events.events.compactMap(\.problem) }

    @Test func `CO-24 tokens in memory touch no disk`() async throws {
        defer { self.folder.remove() }
        let directory = self.folder.url.appending(component: "caches")
        let server = self.oauth()
        let runner = self.runner(server, .inMemory, self.repository(directory))
        for _ in 0..<3 {
            #expect(try await self.call(runner, server) == "alice")
            server.expireAllAccessTokens()
        }
        try await runner.renew()
        #expect(!FileManager.default.fileExists(atPath: directory.path))
        #expect(self.folder.contents().isEmpty)
        #expect(self.problems.isEmpty)
    }

    @Test func `CO-24 reading the session number creates no folder`() async throws {
        defer { self.folder.remove() }
        let directory = self.folder.url.appending(component: "caches")
        let store = JournalStore(directory: directory)
        #expect(try await store.sessionEpoch() == 0)
        #expect(!FileManager.default.fileExists(atPath: directory.path))
        try await store.raiseSessionEpoch(to: 3)
        let readOnly = RecordingFileSystem { _, call in
            [.open, .status, .read].contains(call.operation) && !call.name.hasSuffix("lock") ? nil : .refuse(EROFS)
        }
        let next = JournalStore(StoreFolder(directory), fileSystem: readOnly)
        #expect(try await next.sessionEpoch() == 3)
    }

    @Test func `CO-24 an unusable caches folder stops no call with tokens from a usable store`()
        async throws
    {
        defer { self.folder.remove() }
        let server = self.oauth()
        let tokens = self.folder.url.appending(component: "data")
        func runner(_ name: String) throws -> OAuthDependentRunner<String, String> {
            // The session number is unreadable, as in a folder of another owner.
            let broken = RecordingFileSystem { _, _ in .refuse(EACCES) }
            let store = JournalStore(StoreFolder(try self.nowhere()), fileSystem: broken)
            let repository = MuxRepository(store: store, observer: self.events, clock: self.clock)
            return self.runner(server, ProtectedFileTokenStore(named: "session", directory: tokens), repository)
        }
        let first = try runner("first")
        for _ in 0..<3 {
            #expect(try await self.call(first, server) == "alice")
            server.expireAllAccessTokens()
        }
        #expect(self.problems.count == 1)
        #expect(self.problems.first?.contains("store of the repository cannot be used") == true)

        // The next launch can use the tokens.
        let next = try runner("next")
        #expect(try await self.call(next, server) == "alice")
        #expect(server.statistics.signIns == 1)
        #expect(server.statistics.reusesDetected == 0)
    }

    @Test func `CO-24 on a read-only root a runner signs in, works and reports each problem once`() async throws {
        defer { self.folder.remove() }
        let server = self.oauth()
        let nowhere = try self.nowhere()
        let store = ProtectedFileTokenStore(named: "session", directory: nowhere)
        let runner = self.runner(server, store, self.repository(nowhere.appending(component: "caches")))
        for _ in 0..<4 {
            #expect(try await self.call(runner, server) == "alice")
            server.expireAllAccessTokens()
        }
        #expect(server.statistics.signIns == 1)
        #expect(server.statistics.refreshes == 3)
        #expect(server.statistics.reusesDetected == 0)
        #expect(Set(self.problems).count == self.problems.count, "each once")
        #expect(self.problems.contains { $0.contains("cannot be stored") && $0.contains("Not a directory") })
        #expect(self.problems.allSatisfy { $0.hasSuffix(".") })
    }

    @Test func `CO-24 tokens that were set are used even if their store fails`() async throws {
        defer { self.folder.remove() }
        let server = self.oauth()
        let nowhere = try self.nowhere()
        let store = ProtectedFileTokenStore(named: "session", directory: nowhere)
        let runner = self.runner(server, store, self.repository(nowhere))
        let tokens = try await server.signIn(user: "alice", password: "a")
        let error = await #expect(throws: RunnerError.self) {
            try await runner.set(access: tokens.access, refresh: tokens.refresh)
        }
        #expect(error?.code == .tokensNotStored)
        for _ in 0..<3 {
            #expect(try await self.call(runner, server) == "alice")
            server.expireAllAccessTokens()
        }
        #expect(server.statistics.signIns == 1)
    }

    @Test(arguments: [true, false])
    func `CO-24 tokens from a read-only store are used while they are valid`(
        rotates: Bool
    ) async throws {
        defer { self.folder.remove() }
        var configuration = FakeOAuthServer.Configuration()
        configuration.rotatesRefreshTokens = rotates
        let server = self.oauth(configuration)
        let directory = self.folder.url.appending(component: "data")
        let first = self.runner(
            server,
            ProtectedFileTokenStore(named: "session", directory: directory),
            MuxRepository(store: MemoryStore())
        )
        #expect(try await self.call(first, server) == "alice")

        let readOnly = RecordingFileSystem { _, call in
            let isLock = call.name.hasSuffix(".lock")
            return [.open, .status, .read].contains(call.operation) && !isLock ? nil : .refuse(EROFS)
        }
        let next = self.runner(
            server,
            ProtectedFileTokenStore(named: "session", directory: directory, fileSystem: readOnly),
            MuxRepository(store: MemoryStore(), observer: self.events)
        )
        for _ in 0..<5 { #expect(try await self.call(next, server) == "alice") }
        #expect(server.statistics.signIns == 1)
        server.expireAllAccessTokens()
        guard rotates else {
            // A refresh loses no token: the stored refresh token stays valid.
            #expect(try await self.call(next, server) == "alice")
            #expect(server.statistics.signIns == 1)
            return
        }
        // The runner does not know yet that the server rotates tokens. The rotated tokens are kept.
        _ = try? await self.call(next, server)
        #expect(server.statistics.signIns == 1)
        #expect(server.statistics.reusesDetected == 0)
    }

    @Test func `CO-24 a problem is reported again only after a success in between`() async throws {
        let tokens = UnreliableTokenStore()
        var configuration = FakeOAuthServer.Configuration()
        configuration.rotatesRefreshTokens = false
        let server = self.oauth(configuration)
        let runner = self.runner(server, tokens, MuxRepository(store: MemoryStore(), observer: self.events))
        for (fails, told) in [(true, 1), (true, 1), (false, 1), (true, 2)] {
            tokens.failsSaves.withLock { $0 = fails }
            server.expireAllAccessTokens()
            #expect(try await self.call(runner, server) == "alice")
            #expect(self.problems.count == told)
        }
    }
}
