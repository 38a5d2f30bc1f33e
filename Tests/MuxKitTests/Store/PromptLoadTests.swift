import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Loads on the caller's thread, if the system has the entry in memory and the store is idle.
@Suite(.standard)
struct PromptLoadTests {
    private let scratch = Scratch()
    private let warm = RecordingFileSystem(isWarm: true)

    /// An open store with entries "a" and "b", whose files are in the system's memory.
    private func opened() async throws -> JournalStore {
        try await self.scratch.store().save([sample("a"), sample("b", 2)], durability: .relaxed)
        let store = self.scratch.store(self.warm)
        #expect(store.loadPromptly(name("a")) == nil, "a store that is not open yet would have to read its index")
        #expect(try await store.load(name("a")) == sample("a"))
        return store
    }

    @Test func `PF-03 an entry in the system's memory is read without the store's queue`() async throws {
        let store = try await self.opened()

        let found = store.loadPromptly(name("b"))
        #expect(found?.entry == sample("b", 2))
        #expect(found?.sessionEpoch == 0)
        let missing = store.loadPromptly(name("c"))
        #expect(missing != nil && missing?.entry == nil, "that there is nothing is known at once, too")
    }

    @Test func `PF-03 an entry that is large or not in the system's memory is left to the queue`() async throws {
        _ = try await self.opened()
        let cold = self.scratch.store(RecordingFileSystem())
        #expect(try await cold.load(name("a")) == sample("a"))
        #expect(cold.loadPromptly(name("a")) == nil)

        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: Int(JournalStore.concurrentSize)))\"".utf8)
        let store = self.scratch.store(self.warm)
        try await store.save([large], durability: .relaxed)
        #expect(store.loadPromptly(name("large")) == nil)
        #expect(try await store.load(name("large")) == large)
    }

    @Test func `PF-03 the caller does not wait for a store that is busy`() async throws {
        try await self.scratch.store().save([sample("a")], durability: .relaxed)
        let (begun, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let store = self.scratch.store(
            RecordingFileSystem(isWarm: true) { _, call in
                guard call.operation == .write, call.name == "00000001.jsonl" else { return nil }
                return .perform {
                    begun.signal()
                    _ = mayEnd.wait(timeout: .now() + 60)
                }
            }
        )
        #expect(try await store.load(name("a")) == sample("a"))
        #expect(store.loadPromptly(name("a")) != nil)

        let saving = Task { try await store.save([sample("b")], durability: .relaxed) }
        await BlockingWork.run { begun.wait() }
        #expect(store.loadPromptly(name("a")) == nil)
        mayEnd.signal()
        try await saving.value
        #expect(store.loadPromptly(name("b"))?.entry == sample("b"))
    }

    @Test func `PF-03 a sibling's appends and replacements are seen`() async throws {
        let store = try await self.opened()
        let sibling = self.scratch.store()

        try await sibling.save([sample("a", 7)], durability: .relaxed)
        #expect(store.loadPromptly(name("a")) == nil)
        #expect(try await store.load(name("a")) == sample("a", 7))
        #expect(store.loadPromptly(name("a"))?.entry == sample("a", 7))

        try await sibling.removeEverything()
        #expect(store.loadPromptly(name("a")) == nil)
        #expect(try await store.load(name("a")) == nil)
    }

    @Test func `PF-03 the sign-out of a sibling is seen`() async throws {
        let store = try await self.opened()

        try await self.scratch.store().raiseSessionEpoch(to: 3)
        #expect(store.loadPromptly(name("a")) == nil)
        #expect(try await store.load(name("a")) == nil)
        #expect(store.loadPromptly(name("a"))?.sessionEpoch == 3)
    }

    @Test func `PF-03 a damaged entry is a counted miss`() async throws {
        let store = try await self.opened()
        var bytes = try Data(contentsOf: self.scratch.segment)
        bytes[bytes.count - 3] ^= 1
        let file = try FileHandle(forWritingTo: self.scratch.segment)
        try file.write(contentsOf: bytes)
        try file.close()

        let found = store.loadPromptly(name("b"))
        #expect(found != nil && found?.entry == nil)
        #expect(await store.statistics().damagedRecords == 1)
        #expect(store.loadPromptly(name("a"))?.entry == sample("a"))
    }

    @Test func `PF-03 after a failed read the queue reads again and reports the error`() async throws {
        let fails = Locked(false)
        try await self.scratch.store().save([sample("a")], durability: .relaxed)
        let store = self.scratch.store(
            RecordingFileSystem(isWarm: true) { _, call in
                call.operation == .read && fails.withLock { $0 } ? .refuse(POSIXFileSystem.ioError) : nil
            }
        )
        #expect(try await store.load(name("a")) == sample("a"))
        fails.withLock { $0 = true }
        #expect(store.loadPromptly(name("a")) == nil)
        await #expect(throws: MuxStoreError.fileSystem(.read, code: POSIXFileSystem.ioError)) {
            try await store.load(name("a"))
        }
    }

    @Test func `PF-03 the system's prompt read returns the same bytes as any read, or no result`() async throws {
        try await self.scratch.store().save([sample("a")], durability: .full)
        let system = POSIXFileSystem()
        let file = try system.openFile(self.scratch.segment.path, for: .read)
        let whole = try system.readAll(file, at: 0, count: 1 << 16)
        for (offset, count) in [(0, 10), (5, 1), (0, whole.count), (whole.count - 1, 100), (whole.count, 10)] {
            let found = system.readPromptly(file, at: Int64(offset), count: count)
            let expected = Array(whole[offset...].prefix(count))
            #expect(found == nil || found == expected)
        }
    }
}
