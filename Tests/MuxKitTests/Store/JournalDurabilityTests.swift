import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct JournalDurabilityTests {
    /// The file system calls of `body` on an open store.
    private func calls(_ body: (JournalStore) async throws -> Void) async throws -> [FileCall] {
        let scratch = Scratch()
        let recorder = RecordingFileSystem()
        let store = scratch.store(recorder)
        try await store.save([sample("warm")], durability: .full)
        recorder.restart()
        try await body(store)
        return recorder.calls
    }

    private func synchronizing(_ calls: [FileCall]) -> [FileCall] {
        calls.filter { [.synchronize, .synchronizeFolder].contains($0.operation) }
    }

    @Test func `DK-02 a full save is one write and one sync under the lock`() async throws {
        let entries = (0..<100).map { sample("\($0)", $0) }

        let calls = try await self.calls { try await $0.save(entries, durability: .full) }

        let segment = "00000001.jsonl"
        #expect(calls.map(\.operation).filter { $0 != .status } == [.open, .lock, .write, .synchronize, .unlock])
        #expect(calls.filter { [.write, .synchronize].contains($0.operation) }.allSatisfy { $0.name == segment })
    }

    @Test func `DK-02 a relaxed save omits the sync`() async throws {
        let save = try await self.calls { try await $0.save([sample("a")], durability: .relaxed) }
        let remove = try await self.calls { try await $0.remove([name("warm")], durability: .relaxed) }
        let removeAll = try await self.calls { try await $0.removeAll(domain: "users", durability: .relaxed) }

        #expect(save.map(\.operation).filter { $0 != .status } == [.open, .lock, .write, .unlock])
        for calls in [remove, removeAll] {
            let steps = calls.map(\.operation).filter { ![.status, .list].contains($0) }
            #expect(steps == [.open, .lock, .write, .read, .open, .write, .unlock], "the value is overwritten")
        }
    }

    @Test func `DK-02 the first full save of a process also synchronizes the folders`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([sample("a")], durability: .relaxed)
        let recorder = RecordingFileSystem()

        try await scratch.store(recorder).save([sample("b")], durability: .full)

        let expected = [
            FileCall(.write, "00000001.jsonl"), FileCall(.synchronize, "00000001.jsonl"),
            FileCall(.synchronizeFolder, "journal"), FileCall(.synchronizeFolder, "store"),
            FileCall(.unlock, "lock"),
        ]
        #expect(recorder.calls.suffix(expected.count) == expected)
    }

    @Test func `DK-02 a new folder is synchronized from the outside in before a save returns`() async throws {
        let scratch = Scratch()
        let recorder = RecordingFileSystem()

        try await scratch.store(recorder).save([sample("a")], durability: .full)

        let safe = self.synchronizing(recorder.calls)
        let parent = scratch.folder.deletingLastPathComponent().lastPathComponent
        #expect(safe.count == 7)
        #expect(safe.prefix(2).map(\.name) == [parent, scratch.folder.lastPathComponent])
        #expect(safe[2].name.hasPrefix("epoch.json.") && safe[3] == FileCall(.synchronizeFolder, "store"))
        #expect(safe.suffix(3).map(\.name) == ["00000001.jsonl", "journal", "store"])
    }

    @Test func `RP-04 a raised session epoch is always synced, renamed and synced in its folder`() async throws {
        let calls = try await self.calls { try await $0.raiseSessionEpoch(to: 1) }

        let steps = calls.filter { ![.status, .lock, .unlock].contains($0.operation) && $0.name != "lock" }
        #expect(steps.map(\.operation) == [.open, .write, .synchronize, .rename, .synchronizeFolder, .setTime])
        #expect(steps[3].name == "epoch.json" && steps[4].name == "store")
    }

    @Test func `PF-08 a sign-out reads no entry that it removes`() async throws {
        let scratch = Scratch()
        try await scratch.store().save((0..<100).map { sample("\($0)", $0) }, durability: .full)
        let recorder = RecordingFileSystem()
        let store = scratch.store(recorder)

        try await store.raiseSessionEpoch(to: 1)
        try await store.removeEverything()

        let read = recorder.calls.filter { [.open, .read].contains($0.operation) }.map(\.name)
        #expect(!read.contains { $0.hasPrefix("00000001") }, "\(read)")
        #expect(try await scratch.store().load(name("1")) == nil)
    }

    @Test func `RP-04 a removal of all entries renames the folder and syncs the rename before it deletes files`()
        async throws
    {
        let calls = try await self.calls { try await $0.removeEverything() }

        let steps = calls.filter { $0.name != "lock" }.map(\.operation).filter {
            ![.status, .lock, .unlock].contains($0)
        }
        #expect(steps == [.rename, .synchronizeFolder, .list, .list, .remove, .removeFolder])
    }

    @Test func `RP-04 a removal of all entries deletes the leftovers of an interrupted sign-out`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.save([sample("a")], durability: .full)
        let trash = scratch.root.appending(component: "trash-0123456789abcdef")
        try FileManager.default.moveItem(at: scratch.root.appending(component: "journal"), to: trash)
        let other = scratch.store()

        try await other.raiseSessionEpoch(to: 1)
        try await other.removeEverything()

        #expect(scratch.listing.sorted() == ["epoch.json", "lock"])
    }

    @Test func `DK-02 a compacted journal is durable before it replaces the old journal`() async throws {
        let recorder = RecordingFileSystem()
        let scratch = Scratch()
        let store = scratch.store(recorder)
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 70_000))\"".utf8)
        try await store.save([large, sample("a")], durability: .full)
        recorder.restart()

        try await store.save([sample("large")], durability: .full)

        #expect(await store.statistics().compactions == 1)
        let steps = recorder.calls.filter { $0.name != "lock" }.map(\.operation)
            .filter { ![.status, .lock, .unlock, .read].contains($0) }
        #expect(
            steps == [.write, .synchronize, .open, .write, .synchronize, .rename, .synchronizeFolder]
        )
        #expect(try Data(contentsOf: scratch.segment).count < 2000)
        #expect(try await store.load(name("a")) == sample("a"))
        #expect(try await store.load(name("large")) == sample("large"))
        // The next full save synchronizes the new file and both folders.
        recorder.restart()
        try await store.save([sample("b")], durability: .full)
        #expect(self.synchronizing(recorder.calls).count == 3)
    }

    @Test func `DK-02 a write that stops in the middle is continued`() async throws {
        let scratch = Scratch()
        let fileSystem = RecordingFileSystem { _, call in call.operation == .write ? .shorten(to: 7) : nil }

        try await scratch.store(fileSystem).save([sample("a")], durability: .full)

        #expect(try await scratch.store().load(name("a")) == sample("a"))
    }

    @Test func `DK-02 a save that fails in the middle leaves no byte`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([sample("a", 1)], durability: .full)
        let before = try Data(contentsOf: scratch.segment)
        let writes = Locked(0)
        let fileSystem = RecordingFileSystem { _, call in
            guard call.operation == .write else { return nil }
            return writes.withLock { writes in
                writes += 1
                return writes == 1 ? .shorten(to: 30) : writes == 2 ? .refuse(ENOSPC) : nil
            }
        }
        let store = scratch.store(fileSystem)

        await #expect(throws: MuxStoreError.fileSystem(.write, code: ENOSPC)) {
            try await store.save([sample("a", 2), sample("b", 2)], durability: .full)
        }

        #expect(try Data(contentsOf: scratch.segment) == before)
        #expect(try await store.load(name("a")) == sample("a", 1))
        #expect(try await store.load(name("b")) == nil)
        try await store.save([sample("a", 3)], durability: .full)
        #expect(try await scratch.store().load(name("a")) == sample("a", 3))
    }

    @Test func `DK-02 a save whose sync fails is rolled back`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([sample("a", 1)], durability: .full)
        let fileSystem = RecordingFileSystem { _, call in call.operation == .synchronize ? .refuse(EIO) : nil }
        let store = scratch.store(fileSystem)

        await #expect(throws: MuxStoreError.fileSystem(.synchronize, code: EIO)) {
            try await store.save([sample("a", 2)], durability: .full)
        }

        #expect(try await store.load(name("a")) == sample("a", 1))
        #expect(try await scratch.store().load(name("a")) == sample("a", 1))
    }

    @Test func `DK-12 a temporarily unreadable file is an error and not a miss`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([sample("a")], durability: .full)
        let isBroken = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            call.operation == .read && isBroken.withLock { $0 } ? .refuse(EIO) : nil
        }
        let store = scratch.store(fileSystem)

        await #expect(throws: MuxStoreError.fileSystem(.read, code: EIO)) { try await store.load(name("a")) }
        await #expect(throws: MuxStoreError.fileSystem(.read, code: EIO)) { try await store.sessionEpoch() }

        isBroken.withLock { $0 = false }
        #expect(try await store.load(name("a")) == sample("a"))
        #expect(await store.statistics() == JournalStore.Statistics())
    }

    @Test(arguments: [EACCES, EROFS])
    func `DK-12 a folder that refuses access is an error until it permits access`(code: Int32) async throws {
        let scratch = Scratch()
        let isBroken = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            [.open, .makeFolder].contains(call.operation) && isBroken.withLock { $0 } ? .refuse(code) : nil
        }
        let store = scratch.store(fileSystem)

        await #expect(throws: MuxStoreError.fileSystem(.open, code: code)) { try await store.load(name("a")) }
        await #expect(throws: MuxStoreError.self) { try await store.save([sample("a")], durability: .relaxed) }

        isBroken.withLock { $0 = false }
        try await store.save([sample("a")], durability: .full)
        #expect(try await store.load(name("a")) == sample("a"))
    }
}
