import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// File systems that cannot synchronize folders.
@Suite(.standard)
struct UnsynchronizedFolderTests {
    /// A file system in which an operation fails.
    private static func failing(
        _ operation: MuxStoreError.FileOperation,
        _ code: Int32
    ) -> RecordingFileSystem {
        RecordingFileSystem { _, call in call.operation == operation ? .refuse(code) : nil }
    }

    @Test(arguments: [EINVAL, ENOTSUP, EOPNOTSUPP, ENOSYS])
    func `DS-03 a store works where folders cannot be synchronized and reports it once`(code: Int32) async throws {
        let scratch = Scratch()
        let events = EventTally()
        let files = Self.failing(.synchronizeFolder, code)
        let store = scratch.store(files)
        let repository = MuxRepository(store: store, observer: events)
        let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 1 }
        let other = Multiplexer<Int>(cacheKey: "B", repository: repository) { 2 }

        #expect(try await value.request() == 1)
        let report = await repository.saveAll()
        #expect(report.saved == 1 && report.isComplete)
        await events.wait(for: .storageFailed)
        #expect(try await other.request() == 2)
        #expect(await repository.saveAll().isComplete)
        let next = Multiplexer<Int>(cacheKey: "A", repository: MuxRepository(store: scratch.store(files))) { 3 }
        #expect(try await next.request() == 1)

        #expect(events.count(of: .storageFailed) == 1)
        #expect(events.events.contains { $0.problem?.contains("cannot synchronize folders") == true })
        #expect(await repository.clearAll().isComplete)
        #expect(await store.statistics().failedCompactions == 0)
        #expect(files.calls.contains { $0.operation == .synchronizeFolder })
    }

    @Test func `DS-03 the calls equal the calls on a file system that synchronizes folders`() async throws {
        func calls(_ files: RecordingFileSystem) async throws -> [MuxStoreError.FileOperation] {
            let scratch = Scratch()
            let store = scratch.store(files)
            for number in 0..<40 {
                let entry = sample("a", number, domain: String(repeating: "n", count: 4000))
                try await store.save([entry], durability: .full)
            }
            try await store.raiseSessionEpoch(to: 1)
            try await store.removeEverything()
            #expect(await store.statistics().compactions > 0)
            return files.calls.map(\.operation)
        }
        #expect(try await calls(Self.failing(.synchronizeFolder, EINVAL)) == calls(RecordingFileSystem()))
    }

    @Test func `DS-03 sign-in works where folders cannot be synchronized`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let events = EventTally()
        let files = Self.failing(.synchronizeFolder, EINVAL)
        func runner() -> OAuthDependentRunner<String, String> {
            OAuthDependentRunner(
                store: ProtectedFileTokenStore(named: "session", directory: folder.url, fileSystem: files),
                repository: MuxRepository(store: MemoryStore(), observer: events),
                refreshAccess: { OAuthRenewal(access: "renewed \($0)") },
                signIn: { OAuthSignIn(access: "access", refresh: "refresh") }
            )
        }
        #expect(try await runner().run { .output($0) } == "access")
        await events.wait(for: .storageFailed)
        let next = runner()
        #expect(try await next.run { .output($0) } == "access")
        #expect(await next.signOut().isComplete)
        #expect(try await ProtectedFileTokenStore(named: "session", directory: folder.url).load() == nil)
    }

    @Test func `DS-03 a failed synchronization of a folder is an error if the file system supports it`() async throws {
        for code in [EIO, ENOSPC, EDQUOT, EROFS] {
            let store = Scratch(isInspected: false).store(Self.failing(.synchronizeFolder, code))
            await #expect(throws: MuxStoreError.fileSystem(.synchronizeFolder, code: code)) {
                try await store.save([sample("a")], durability: .full)
            }
        }
    }

    @Test func `DS-03 a file that cannot be synchronized is an error`() async throws {
        let store = Scratch(isInspected: false).store(Self.failing(.synchronize, EINVAL))
        await #expect(throws: MuxStoreError.fileSystem(.synchronize, code: EINVAL)) {
            try await store.save([sample("a")], durability: .full)
        }
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let tokens = ProtectedFileTokenStore(
            named: "session",
            directory: folder.url,
            fileSystem: Self.failing(.synchronize, EINVAL)
        )
        await #expect(throws: MuxStoreError.fileSystem(.synchronize, code: EINVAL)) {
            try await tokens.save(Data("x".utf8))
        }
    }
}
