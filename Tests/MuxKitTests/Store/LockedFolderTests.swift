import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Another process is suspended while it holds a folder's lock.
@Suite(.standard)
struct LockedFolderTests {
    private let scratch = Scratch()
    private let system = POSIXFileSystem()

    /// A separate open file that holds the lock.
    private func held() throws -> OpenFile {
        try FileManager.default.createDirectory(at: self.scratch.root, withIntermediateDirectories: true)
        let file = try self.system.openFile(self.scratch.root.appending(component: "lock").path, for: .append)
        try self.system.lock(file)
        return file
    }

    private func store(_ waitLimit: Duration, _ fileSystem: any FileSystem = POSIXFileSystem()) -> JournalStore {
        JournalStore(StoreFolder(self.scratch.root), lockPatience: waitLimit, fileSystem: fileSystem)
    }

    @Test func `CO-17 requests succeed over the network while another process locks the folder`() async throws {
        let lock = try self.held()
        let repository = MuxRepository(store: self.store(.zero), durability: .relaxed)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { $0 }

        for key in 0..<3 { #expect(try await map.request(key: key) == key) }
        let report = await repository.saveAll()
        let clear = await map.clear(key: 0)
        let signOut = await repository.clearAll()

        #expect(report.saved == 0 && report.failed.count == 3)
        #expect(report.failed.first?.error as? MuxStoreError == .fileSystem(.lock, code: EWOULDBLOCK))
        #expect(!clear.isComplete && !signOut.isComplete)
        try self.system.unlock(lock)
        await self.untilFree()
        #expect(try await map.request(key: 7) == 7)
        // The abandoned wait releases the lock as soon as it acquires the lock, and may hold the lock now.
        while await !repository.saveAll().isComplete {}
        #expect(await repository.saveAll().unchanged == 1)
    }

    /// Waits until the lock is free.
    private func untilFree() async {
        await BlockingWork.run {
            guard
                let file = try? self.system.openFile(self.scratch.root.appending(component: "lock").path, for: .append)
            else { return }
            try? self.system.lock(file)
            try? self.system.unlock(file)
        }
    }

    @Test func `CO-17 a call waits for a lock that is released in time`() async throws {
        let lock = Locked<OpenFile?>(try self.held())
        let recorder = RecordingFileSystem { number, call in
            // The second lock call is the blocking wait.
            guard call.operation == .lock, number > 2 else { return nil }
            return .perform { lock.withLock { $0 = nil } }
        }
        let store = self.store(.seconds(3_600), recorder)

        try await store.save([sample("a")], durability: .relaxed)

        #expect(try await store.load(name("a")) == sample("a"))
        #expect(lock.withLock { $0 } == nil)
    }

    @Test func `CO-17 failed saves leave at most one wait for a held lock, and the wait releases the lock`()
        async throws
    {
        let lock = try self.held()
        let store = self.store(.zero)

        for _ in 0..<5 {
            await #expect(throws: MuxStoreError.fileSystem(.lock, code: EWOULDBLOCK)) {
                try await store.save([sample("a")], durability: .relaxed)
            }
        }
        #expect(throws: Never.self) { try self.system.unlock(lock) }
        await self.untilFree()

        // The abandoned wait does not block another process.
        let other = self.store(.seconds(3_600))
        try await other.save([sample("b")], durability: .relaxed)
        #expect(try await other.load(name("b")) == sample("b"))
    }

    @Test func `CO-17 an open store is read while another process holds the lock`() async throws {
        let store = self.store(.zero)
        try await store.save([sample("a")], durability: .relaxed)
        let lock = try self.held()

        #expect(try await store.load(name("a")) == sample("a"))
        #expect(try await store.sessionEpoch() == 0)

        try self.system.unlock(lock)
    }

    @Test func `CO-17 a watch reports a sign-out while another process holds the lock`() async throws {
        let store = JournalStore(
            StoreFolder(self.scratch.root),
            watchesFolder: true,
            lockPatience: .zero,
            fileSystem: self.system
        )
        try await store.save([sample("a")], durability: .relaxed)
        try await self.store(.seconds(3_600)).raiseSessionEpoch(to: 1)
        let lock = try self.held()

        let watch = try #require(store.sessionWatch)
        #expect(try await watch(0) == 1)

        try self.system.unlock(lock)
    }
}
