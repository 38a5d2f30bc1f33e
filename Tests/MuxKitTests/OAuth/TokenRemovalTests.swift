import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct TokenRemovalTests {
    @Test func `D09 a sign-out without an earlier sign-in is complete`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let tokens = ProtectedFileTokenStore(named: "session", directory: folder.url.appending(path: "not/there/yet"))
        let oauth = OAuthWorld(tokens: tokens)

        #expect(await oauth.runner().signOut().isComplete)
    }

    @Test func `D09 the next launch removes the tokens that a sign-out could not remove`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        tokens.failsDeletes.withLock { $0 = true }  // or the process is killed here
        await runner.signOut()
        tokens.failsDeletes.withLock { $0 = false }
        #expect(tokens.memory.peek != nil)

        let next = oauth.relaunched()
        next.beforeSignInReply.withLock { $0 = { throw FetchFailed() } }  // the user declines
        await #expect(throws: RunnerError.self) { try await next.call(next.runner()) }

        #expect(tokens.memory.peek == nil)
    }

    @Test func `PT-01 tokens whose removal failed inside a store call are removed by the next call`() async throws {
        let tokens = UnreliableTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        tokens.failsDeletes.withLock { $0 = true }
        tokens.afterSave.withLock { action in
            action = {
                tokens.afterSave.withLock { $0 = {} }
                // The sign-out cannot wait for the store. The store removes the tokens after this call.
                await runner.signOut()
            }
        }
        let bob = try await oauth.server.signIn(user: "bob", password: "b").refresh
        try? await runner.set(refresh: bob)
        #expect(tokens.memory.peek != nil, "the removal did not fail")

        tokens.failsDeletes.withLock { $0 = false }
        tokens.failsSaves.withLock { $0 = true }
        try? await runner.set(refresh: try await oauth.server.signIn(user: "bob", password: "b").refresh)

        #expect(tokens.memory.peek == nil)
    }

    @Test func `D06 tokens that are set during a sign-out do not belong to the next session`() async throws {
        let executor = OrderedExecutor()
        let tokens = UnreliableTokenStore()
        tokens.failsDeletes.withLock { $0 = true }  // as if the process were killed before the removal
        let store = UnreliableStore()
        let repository = MuxRepository(store: store)
        let oauth = Self.runner(tokens, repository)
        let setting = Self.settingOldTokens(of: oauth, during: store, on: executor)

        await oauth.signOut()
        _ = await setting.withLock { $0 }?.result

        #expect(setting.withLock { $0 } != nil)
        store.afterRaise.withLock { $0 = {} }
        let next = Self.runner(tokens, MuxRepository(store: store))
        #expect(try await next.run { .output($0) } == "new")
    }

    @Test func `D06 tokens that are set during a sign-out stay void after the folder is emptied`() async throws {
        let executor = OrderedExecutor()
        let tokens = UnreliableTokenStore()
        tokens.failsDeletes.withLock { $0 = true }  // as if the process were killed before the removal
        let store = UnreliableStore()
        let oauth = Self.runner(tokens, MuxRepository(store: store))
        // From here on, the runner knows the session number.
        #expect(try await oauth.run { .output($0) } == "new")
        let setting = Self.settingOldTokens(of: oauth, during: store, on: executor)

        await oauth.signOut()

        let set = try #require(setting.withLock { $0 })
        let error = await #expect(throws: RunnerError.self) { try await set.value }
        #expect(error?.code == .signedOut)
        // The system has emptied the folder with the session number.
        let next = Self.runner(tokens, MuxRepository(store: MemoryStore()), signingInAs: "newer")
        #expect(try await next.run { .output($0) } == "newer")
    }

    @Test func `D06 a sign-in that ends during a sign-out is not stored`() async throws {
        let executor = OrderedExecutor()
        let tokens = UnreliableTokenStore()
        tokens.failsDeletes.withLock { $0 = true }
        let store = UnreliableStore()
        let world = World(store: store, spawn: TaskLauncher(executor: executor))
        let scratch = Scratch()
        let gate = Gate<Void>()
        let oauth = OAuthDependentRunner<String, String>(
            store: tokens,
            lease: FileLease(
                named: "lease",
                directory: scratch.folder,
                fileSystem: POSIXFileSystem(),
                wallTime: { World.start },
                time: TimeSource(world.clock)
            ),
            repository: world.repository,
            refreshAccess: { OAuthRenewal(access: "access of \($0)") },
            signIn: {
                try await gate.pass(ignoringCancellation: true)
                return OAuthSignIn(access: "new", refresh: "new")
            }
        )
        let call = Task { try await oauth.run { .output($0) } }
        await gate.waitForCall(1)
        store.afterRaise.withLock { action in
            action = {
                gate.open()
                executor.settle()
            }
        }

        await oauth.signOut()

        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .signedOut)
        #expect(tokens.memory.peek == nil)
    }

    /// Sets tokens during a sign-out, after the epoch is raised and before the session ends in memory.
    private static func settingOldTokens(
        of oauth: OAuthDependentRunner<String, String>,
        during store: UnreliableStore,
        on executor: OrderedExecutor
    ) -> Locked<Task<Void, any Error>?> {
        let setting = Locked<Task<Void, any Error>?>(nil)
        store.afterRaise.withLock { action in
            action = {
                let task = Task(executorPreference: executor) { try await oauth.set(access: "old", refresh: "old") }
                setting.withLock { $0 = task }
                executor.settle()
            }
        }
        return setting
    }

    private static func runner(
        _ tokens: UnreliableTokenStore,
        _ repository: MuxRepository,
        signingInAs name: String = "new"
    ) -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            store: tokens,
            repository: repository,
            refreshAccess: { OAuthRenewal(access: "access of \($0)") },
            signIn: { OAuthSignIn(access: name, refresh: name) }
        )
    }

    @Test func `RP-04 a folder that cannot be emptied does not prevent a sign-in`() async throws {
        let store = UnreliableStore()
        let oauth = OAuthWorld(store: store)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        store.failsEpochs.withLock { $0 = true }
        await runner.signOut()

        // The session can be ended durably again, so entries left on disk are void.
        store.failsEpochs.withLock { $0 = false }
        store.failsRemovals.withLock { $0 = true }

        #expect(try await oauth.call(runner) == "alice")
    }
}
