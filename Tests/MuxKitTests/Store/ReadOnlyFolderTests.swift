import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Stores in read-only folders.
@Suite(.standard)
struct ReadOnlyFolderTests {
    /// A file system on which files can be read, and locks and all changes fail.
    static func readOnly(_ isOn: Locked<Bool> = Locked(true)) -> RecordingFileSystem {
        RecordingFileSystem { _, call in
            guard isOn.withLock(\.self) else { return nil }
            let reads: [MuxStoreError.FileOperation] = [.open, .read, .status]
            return reads.contains(call.operation) && call.name != "lock" ? nil : .refuse(EROFS)
        }
    }

    @Test(arguments: [1, 1000])
    func `DS-12 a store in a read-only folder is read and not written`(count: Int) async throws {
        let scratch = Scratch()
        try await scratch.store().save((0..<count).map { sample("\($0)", $0) }, durability: .full)
        let before = scratch.listing
        let files = Self.readOnly()
        let store = scratch.store(files)

        for number in 0..<min(count, 20) {
            #expect(try await store.load(name("\(number)")) == sample("\(number)", number))
        }
        #expect(try await store.load(name("missing")) == nil)
        #expect(try await store.sessionEpoch() == 0)

        let writes: [MuxStoreError.FileOperation] = [.write, .truncate, .rename, .remove, .makeFolder, .synchronize]
        #expect(files.calls.allSatisfy { !writes.contains($0.operation) })
        #expect(scratch.listing == before)
        await #expect(throws: MuxStoreError.fileSystem(.open, code: EROFS)) {
            try await store.save([sample("b")], durability: .full)
        }
        await #expect(throws: MuxStoreError.fileSystem(.open, code: EROFS)) { try await store.raiseSessionEpoch(to: 1) }
        #expect(try await store.load(name("0")) == sample("0", 0))
    }

    @Test func `DS-12 values that are part of an app are used, and saves report the error`() async throws {
        let scratch = Scratch()
        let first = Multiplexer<Int>(cacheKey: "A", repository: MuxRepository(store: scratch.store())) { 1 }
        #expect(try await first.request() == 1)
        #expect(await first.save().isComplete)

        let repository = MuxRepository(store: scratch.store(Self.readOnly()))
        let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 2 }
        #expect(try await value.request() == 1)
        #expect(try await value.refresh().request() == 2)
        let report = await repository.saveAll()
        #expect(report.failed.first?.error as? MuxStoreError == .fileSystem(.open, code: EROFS))
        #expect(value.cachedValue == 2)
    }

    @Test func `DS-12 a torn record at the end is a miss and is not removed`() async throws {
        let scratch = Scratch(isInspected: false)
        try await scratch.store().save([sample("a")], durability: .full)
        let whole = try Data(contentsOf: scratch.segment)
        try await scratch.store().save([sample("b")], durability: .full)
        let all = try Data(contentsOf: scratch.segment)
        try all.prefix((whole.count + all.count) / 2).write(to: scratch.segment)
        let torn = try Data(contentsOf: scratch.segment)

        let store = scratch.store(Self.readOnly())
        for _ in 0..<2 {
            #expect(try await store.load(name("a")) == sample("a"))
            #expect(try await store.load(name("b")) == nil)
        }
        #expect(try Data(contentsOf: scratch.segment) == torn)
    }

    @Test func `DS-12 a store writes again once its folder is writable again`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([sample("a")], durability: .full)
        let isReadOnly = Locked(true)
        let store = scratch.store(Self.readOnly(isReadOnly))
        #expect(try await store.load(name("a")) == sample("a"))
        isReadOnly.withLock { $0 = false }

        try await store.save([sample("b", 2)], durability: .full)
        #expect(try await store.load(name("a")) == sample("a"))
        #expect(try await scratch.store().load(name("b")) == sample("b", 2))
    }

    @Test func `DS-12 a read-only folder without a store is an error and stays empty`() async throws {
        let scratch = Scratch(isInspected: false)
        let store = scratch.store(Self.readOnly())
        #expect(try await store.sessionEpoch() == 0)
        await #expect(throws: MuxStoreError.self) { try await store.load(name("a")) }
        #expect(scratch.listing.isEmpty)
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    @Test(.ownThreads, .enabled(if: geteuid() == 0))
    func `DS-12 another user without write permission reads a store of the superuser`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let root = folder.url.appending(component: "store")
        try await JournalStore(directory: root).save([sample("a")], durability: .full)
        let files = FileManager.default
        for name in [""] + (files.enumerator(atPath: folder.url.path)?.compactMap { $0 as? String } ?? []) {
            let path = folder.url.appending(path: name).path
            try files.setAttributes([.posixPermissions: name.contains(".") ? 0o444 : 0o555], ofItemAtPath: path)
        }
        await #expect(processExitsWith: .success) { [path = root.path as String] in
            #expect(setgid(65_534) == 0 && setuid(65_534) == 0)
            let calls = RecordingFileSystem()
            let store = JournalStore(StoreFolder(URL(filePath: path, directoryHint: .isDirectory)), fileSystem: calls)
            let found = try await store.load(name("a"))
            #expect(found == sample("a"))
            #expect(!calls.calls.contains(FileCall(.open, "lock")))
            await #expect(throws: MuxStoreError.fileSystem(.open, code: EACCES)) {
                try await store.save([sample("b")], durability: .full)
            }
        }
    }
    #endif
}
