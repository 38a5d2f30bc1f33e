import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Sign-outs by other processes.
///
/// Two repositories with a common folder simulate two processes.
@Suite(.standard)
struct SiblingSignOutTests {
    private let scratch = Scratch()

    /// The values of a process with a signed-in user.
    private struct App: Sendable {
        let repository: MuxRepository
        let user: Locked<String>
        let fetches = Locked(0)
        let profile: Multiplexer<String>
        let settings: Multiplexer<String>
        let drafts: Multiplexer<String>

        init(_ store: any MuxStore, user: String, observer: (any MuxObserver)? = nil) {
            let (user, fetches) = (Locked(user), self.fetches)
            self.user = user
            let repository = MuxRepository(store: store, durability: .relaxed, observer: observer)
            self.repository = repository
            let fetch: @Sendable () async throws -> String = {
                fetches.withLock { $0 += 1 }
                return user.withLock { $0 }
            }
            self.profile = Multiplexer(cacheKey: "Profile", repository: repository, onFetch: fetch)
            self.settings = Multiplexer(cacheKey: "Settings", repository: repository, onFetch: fetch)
            self.drafts = Multiplexer(repository: repository, onFetch: fetch).register()
        }

        func end() { self.drafts.unregister() }
    }

    /// Signs `app` out, signs `user` in, and saves the user's values.
    private func becomes(_ user: String, _ app: App) async throws {
        await app.repository.clearAll()
        app.user.withLock { $0 = user }
        _ = try await app.profile.request()
        _ = try await app.settings.request()
        #expect(await app.repository.saveAll().saved == 2)
    }

    @Test func `CO-07 a request that reads the disk ends a session that another process has ended`() async throws {
        let (a, b) = (App(self.scratch.store(), user: "alice"), App(self.scratch.store(), user: "alice"))
        defer { for app in [a, b] { app.end() } }
        #expect(try await b.profile.request() == "alice")
        #expect(try await b.drafts.request() == "alice")
        try await self.becomes("bob", a)

        // Bob's settings are on disk. A request must not return bob's settings beside alice's profile.
        await #expect(throws: MuxError.sessionEnded) { try await b.settings.request() }

        #expect(b.profile.cachedValue == nil)
        #expect(b.drafts.cachedValue == nil)
        #expect(try await b.settings.request() == "bob")
        #expect(try await b.profile.request() == "bob")
        #expect(b.fetches.withLock { $0 } == 2, "both are on disk")
    }

    @Test(arguments: [true, false])
    func `CO-07 no value of the next session is read beside values of the previous session`(loads: Bool) async throws {
        let (a, b) = (App(self.scratch.store(), user: "alice"), App(self.scratch.store(), user: "alice"))
        defer { for app in [a, b] { app.end() } }
        #expect(try await b.profile.request() == "alice")
        try await self.becomes("bob", a)

        let read = loads ? await b.settings.loadCachedValue() : try? await b.settings.request(.cacheOnly)

        #expect(read == nil)
        #expect(b.profile.cachedValue == nil)
    }

    @Test func `PT-01 an entry that was read before another process signs out is not used`() async throws {
        let store = UnreliableStore()
        let a = App(store, user: "alice")
        defer { a.end() }
        #expect(try await a.profile.request() == "alice")
        #expect(await a.repository.saveAll().saved == 1)
        // This process has not read its session epoch yet. The other process signs out after the load of the
        // entry and before the read of the epoch.
        let b = App(store, user: "bob")
        defer { b.end() }
        store.afterLoad.withLock { $0 = { try? await store.raiseSessionEpoch(to: 1) } }

        #expect(try await b.profile.request() == "bob")
        #expect(b.fetches.withLock { $0 } == 1)
    }

    @Test func `CO-07 a request for an unsaved value detects a sign-out, too`() async throws {
        let (a, b) = (App(self.scratch.store(), user: "alice"), App(self.scratch.store(), user: "alice"))
        defer { for app in [a, b] { app.end() } }
        #expect(try await b.profile.request() == "alice")
        await a.repository.clearAll()

        await #expect(throws: MuxError.sessionEnded) { try await b.settings.request() }

        #expect(b.profile.cachedValue == nil)
    }

    @Test func `CO-07 a renewal of a value in memory detects a sign-out, too`() async throws {
        let (a, b) = (App(self.scratch.store(), user: "alice"), App(self.scratch.store(), user: "alice"))
        defer { for app in [a, b] { app.end() } }
        #expect(try await b.profile.request() == "alice")
        #expect(try await b.drafts.request() == "alice")
        try await self.becomes("bob", a)

        await #expect(throws: MuxError.sessionEnded) { try await b.profile.refresh().request() }

        #expect(b.drafts.cachedValue == nil)
        #expect(try await b.profile.request() == "bob")
    }

    @Test func `CO-07 a store that watches its folder ends the session without a request`() async throws {
        let events = EventTally()
        let store = JournalStore(directory: self.scratch.root, watchesFolder: true)
        let (a, b) = (App(self.scratch.store(), user: "alice"), App(store, user: "alice", observer: events))
        defer { for app in [a, b] { app.end() } }
        #expect(try await b.profile.request() == "alice")
        #expect(try await b.drafts.request() == "alice")

        await a.repository.clearAll()
        await events.wait(for: .sessionEnded, count: 3)

        #expect(b.profile.cachedValue == nil)
        #expect(b.drafts.cachedValue == nil)
        // The store continues to watch the folder.
        #expect(try await b.profile.request() == "alice")
        await a.repository.clearAll()
        await events.wait(for: .sessionEnded, count: 6)
        #expect(b.profile.cachedValue == nil)
    }

    @Test(arguments: [true, false])
    func `CO-08 a process takes part in a sign-out before its first read`(isFolderThere: Bool) async throws {
        let a = App(self.scratch.store(), user: "alice")
        defer { a.end() }
        if isFolderThere { try await self.becomes("alice", a) }
        let b = App(self.scratch.store(), user: "alice")
        defer { b.end() }
        b.profile.store("alice, by hand")
        b.drafts.store("alice, a draft")

        await a.repository.clearAll()
        _ = await b.repository.saveAll()

        #expect(b.profile.cachedValue == nil)
        #expect(b.drafts.cachedValue == nil)
        let fresh = App(self.scratch.store(), user: "nobody")
        defer { fresh.end() }
        #expect(await fresh.profile.loadCachedValue() == nil)
    }

    @Test func `CO-08 another process's sign-out at any step of a save leaves no value of the session`() async throws {
        let signOuts = Locked(0)
        var step = 0
        // The loop ends after the last step of a save.
        while step == signOuts.withLock({ $0 }) {
            step += 1
            let (base, hook) = (MemoryStore(), StepHook())
            let a = App(base, user: "alice")
            let b = App(SteppedStore(base: base, hook: hook), user: "alice")
            defer { for app in [a, b] { app.end() } }
            b.profile.store("alice, by hand")
            _ = try await b.settings.request()
            hook.arm { [step] number in
                guard number == step else { return }
                signOuts.withLock { $0 += 1 }
                await a.repository.clearAll()
            }

            await b.repository.saveAll()
            hook.disarm()
            guard step == signOuts.withLock({ $0 }) else { break }
            await b.repository.saveAll()

            #expect(b.profile.cachedValue == nil, "at step \(step)")
            let fresh = App(base, user: "nobody")
            defer { fresh.end() }
            #expect(await fresh.profile.loadCachedValue() == nil, "at step \(step)")
            #expect(await fresh.settings.loadCachedValue() == nil, "at step \(step)")
        }
        #expect(step > 6)
    }

    @Test func `CO-08 without a sign-out a value that was stored before the first read is saved`() async throws {
        let (a, b) = (App(self.scratch.store(), user: "alice"), App(self.scratch.store(), user: "alice"))
        defer { for app in [a, b] { app.end() } }
        b.profile.store("alice, by hand")
        _ = try await a.settings.request()
        #expect(await a.repository.saveAll().isComplete)

        #expect(await b.repository.saveAll().saved == 1)

        #expect(await a.profile.loadCachedValue() == "alice, by hand")
    }
}

#if compiler(>=6.3) && (os(macOS) || os(Linux))
/// Sign-outs between real processes.
@Suite(.standard)
struct ProcessSignOutTests {
    @Test(.ownThreads) func `CO-07 CO-08 a running process detects another process's sign-out`() async throws {
        let scratch = Scratch(isInspected: false)
        let (hasValues, isSignedOut) = (Gate<Void>(), Gate<Void>())
        let server = LoopbackServer { request in
            try? await (request.path == "/ready" ? hasValues : isSignedOut).pass()
            return LoopbackServer.Response()
        }
        let port = try server.start().port ?? 0
        let app = MuxRepository(directory: scratch.root)
        let profile = Multiplexer<String>(cacheKey: "Profile", repository: app) { "alice" }
        _ = try await profile.request()
        await app.saveAll()

        async let other: Void = {
            await #expect(processExitsWith: .success) { [path = scratch.folder.path as String, port = port as Int] in
                let folder = Scratch(path)
                let client = LoopbackClient(port: port)
                let reader = MuxRepository(directory: folder.root)
                let profile = Multiplexer<String>(cacheKey: "Profile", repository: reader) { "nobody" }
                let settings = Multiplexer<String>(cacheKey: "Settings", repository: reader) { "nobody" }
                try #require(try await profile.request() == "alice")
                let writer = MuxRepository(directory: folder.root)
                let draft = Multiplexer<String>(cacheKey: "Draft", repository: writer) { "nobody" }
                let note = Multiplexer<String>(repository: writer) { "nobody" }.register()
                draft.store("alice's draft")
                note.store("alice's note")

                _ = try await client.send("GET", "/ready")
                _ = try await client.send("GET", "/signed-out")

                await #expect(throws: MuxError.sessionEnded) { try await settings.request() }
                try #require(profile.cachedValue == nil)
                try #require(try await profile.request() == "bob")
                _ = await writer.saveAll()
                try #require(draft.cachedValue == nil)
                try #require(note.cachedValue == nil)
            }
        }()
        await hasValues.waitForCall(1)
        await app.clearAll()
        profile.store("bob")
        #expect(await app.saveAll().saved == 1)
        hasValues.open()
        isSignedOut.openForGood(returning: ())
        await other
        await server.stop()

        let fresh = MuxRepository(directory: scratch.root)
        let draft = Multiplexer<String>(cacheKey: "Draft", repository: fresh) { "nobody" }
        #expect(await draft.loadCachedValue() == nil)
    }
}
#endif
