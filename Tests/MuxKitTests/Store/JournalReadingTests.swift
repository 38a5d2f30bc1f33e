import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct JournalReadingTests {
    private func large(_ key: String) -> MuxStoredEntry {
        var entry = sample(key)
        entry.payload = Data("\"\(String(repeating: "x", count: Int(JournalStore.concurrentSize)))\"".utf8)
        return entry
    }

    /// Delays the next read of records.
    private struct HeldRead: Sendable {
        let fileSystem: RecordingFileSystem
        private let isArmed = Locked(false)
        private let begun = DispatchSemaphore(value: 0)
        private let mayEnd = DispatchSemaphore(value: 0)

        init() {
            self.fileSystem = RecordingFileSystem { [isArmed, begun, mayEnd] _, call in
                guard call.operation == .read, call.name == "00000001.jsonl", isArmed.withLock({ $0 }) else {
                    return nil
                }
                isArmed.withLock { $0 = false }
                return .perform {
                    begun.signal()
                    _ = mayEnd.wait(timeout: .now() + 20)
                }
            }
        }

        func arm() { self.isArmed.withLock { $0 = true } }
        func waitForBeginning() async { await BlockingWork.run { [begun] in begun.wait() } }
        func end() { self.mayEnd.signal() }
    }

    @Test func `DK-09 large entries are read concurrently and delay no other call`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([self.large("a"), self.large("b"), sample("c")], durability: .relaxed)
        let (held, isOver) = (Locked(0), Locked(false))
        let (bothRead, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let fileSystem = RecordingFileSystem { _, call in
            guard call.operation == .read, call.name == "00000001.jsonl", held.withLock({ $0 != 0 && $0 < 3 }) else {
                return nil
            }
            return .perform {
                if held.withLock({ held in
                    held += 1
                    return held == 3
                }) {
                    bothRead.signal()
                }
                if mayEnd.wait(timeout: .now() + 20) == .timedOut { isOver.withLock { $0 = true } }
            }
        }
        let store = scratch.store(fileSystem)
        #expect(try await store.load(name("c")) == sample("c"))
        held.withLock { $0 = 1 }

        async let a = store.load(name("a"))
        async let b = store.load(name("b"))
        let both = await BlockingWork.run { bothRead.wait(timeout: .now() + 20) == .success }
        #expect(both, "the second reading did not begin before the first had ended")
        #expect(try await store.load(name("c")) == sample("c"))
        try await store.save([sample("d")], durability: .full)
        for _ in 0..<2 { mayEnd.signal() }

        #expect(try await a == self.large("a"))
        #expect(try await b == self.large("b"))
        #expect(!isOver.withLock { $0 })
    }

    @Test func `RP-04 an entry is not returned if a sign-out occurs during its read`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([self.large("a")], durability: .relaxed)
        let read = HeldRead()
        let store = scratch.store(read.fileSystem)
        #expect(try await store.load(name("b")) == nil)  // opens the journal
        read.arm()

        async let found = store.load(name("a"))
        await read.waitForBeginning()
        try await store.raiseSessionEpoch(to: 1)
        read.end()

        #expect(try await found == nil)
    }

    @Test func `DK-09 damage found late does not remove an entry saved during the read`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([self.large("a")], durability: .relaxed)
        var bytes = try Data(contentsOf: scratch.segment)
        bytes[bytes.count - 5] ^= 1
        try bytes.write(to: scratch.segment)
        let read = HeldRead()
        let store = scratch.store(read.fileSystem)
        #expect(try await store.load(name("b")) == nil)  // opens the journal
        read.arm()

        async let found = store.load(name("a"))
        await read.waitForBeginning()
        try await store.save([sample("a", 2)], durability: .relaxed)
        read.end()

        #expect(try await found == sample("a", 2))
        #expect(try await store.load(name("a")) == sample("a", 2))
    }

    @Test func `AC-05 an entry is found although a removal rewrites the file during the read`() async throws {
        let scratch = Scratch()
        var other = self.large("b")
        other.payload = Data("\"\(String(repeating: "y", count: 200_000))\"".utf8)
        try await scratch.store().save([other, self.large("a")], durability: .relaxed)
        let read = HeldRead()
        let store = scratch.store(read.fileSystem)
        #expect(try await store.load(name("c")) == nil)  // opens the journal
        read.arm()

        async let found = store.load(name("a"))
        await read.waitForBeginning()
        try await store.remove([name("b")], durability: .relaxed)
        #expect(await store.statistics().compactions == 1)
        read.end()

        #expect(try await found == self.large("a"))
        #expect(await store.statistics().damagedRecords == 0)
    }

    @Test(arguments: [false, true])
    func `AC-05 entries are found although another process rewrites the file during the read`(
        isLarge: Bool
    ) async throws {
        let scratch = Scratch()
        var removed = self.large("removed")
        removed.payload = Data("\"\(String(repeating: "y", count: 200_000))\"".utf8)
        let entries = ["a", "b"].map { isLarge ? self.large($0) : sample($0) }
        let other = scratch.store()
        try await other.save([removed] + entries, durability: .relaxed)
        let read = HeldRead()
        let store = scratch.store(read.fileSystem)
        #expect(try await store.load(name("c")) == nil)  // opens the journal
        read.arm()

        async let found = store.load(entries.map(\.name))
        await read.waitForBeginning()
        try await other.remove([removed.name], durability: .relaxed)
        #expect(await other.statistics().compactions == 1)
        read.end()

        #expect(try await found.compactMap { $0 } == entries)
        #expect(await store.statistics().damagedRecords == 0)
    }
}
