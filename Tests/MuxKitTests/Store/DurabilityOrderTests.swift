import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The order in which each writer writes, synchronizes and renames, so its files survive a power cut.
@Suite(.standard)
struct DurabilityOrderTests {
    private typealias Operation = MuxStoreError.FileOperation

    /// The recorded calls with one of `operations`; consecutive equal operations count once.
    private static func order(_ files: RecordingFileSystem, _ operations: Set<Operation>) -> [Operation] {
        files.calls.map(\.operation).filter(operations.contains).reduce(into: []) { order, operation in
            if order.last != operation { order.append(operation) }
        }
    }

    private static let changes: Set<Operation> = [.write, .synchronize, .rename, .remove, .synchronizeFolder]

    @Test func `PT-03 tokens are written, synchronized and renamed, and then the folder is synchronized`() async throws
    {
        let scratch = Scratch()
        let files = RecordingFileSystem()
        let store = ProtectedFileTokenStore(named: "alice", directory: scratch.folder, fileSystem: files)
        try await store.save(Data("first".utf8))
        files.restart()

        try await store.save(Data("second".utf8))

        #expect(Self.order(files, Self.changes) == [.write, .synchronize, .rename, .synchronizeFolder])
        files.restart()
        try await store.remove()
        #expect(Self.order(files, Self.changes) == [.remove, .synchronizeFolder])
        #expect(try await store.load() == nil)
    }

    @Test func `PT-03 the session epoch is written before the entries are removed`() async throws {
        let scratch = Scratch()
        let files = RecordingFileSystem()
        let store = scratch.store(files)
        try await store.save([sample("a")], durability: .full)
        files.restart()

        try await store.raiseSessionEpoch(to: 1)

        #expect(Self.order(files, Self.changes) == [.write, .synchronize, .rename, .synchronizeFolder])
        files.restart()
        try await store.removeEverything()
        #expect(Array(Self.order(files, Self.changes).prefix(2)) == [.rename, .synchronizeFolder])
    }

    @Test(arguments: [true, false])
    func `PT-03 a save and a removal are each written and then synchronized`(isSaved: Bool) async throws {
        let scratch = Scratch()
        let files = RecordingFileSystem()
        let store = scratch.store(files)
        try await store.save([sample("a"), sample("b")], durability: .full)
        files.restart()

        if isSaved {
            try await store.save([sample("a", 2)], durability: .full)
        } else {
            try await store.remove([name("a")], durability: .full)
        }

        #expect(Self.order(files, Self.changes) == [.write, .synchronize])
    }

    @Test func `PT-03 a lease is written and renamed before its holder gets the lease`() async throws {
        let scratch = Scratch()
        let files = RecordingFileSystem()
        let lease = FileLease(
            named: "lease",
            directory: scratch.folder,
            fileSystem: files,
            wallTime: { World.start },
            time: TimeSource(VirtualClock())
        )
        _ = try await lease.take(as: "alice", for: .seconds(10))
        // A power cut ends all holders, so nothing is synchronized.
        #expect(Self.order(files, Self.changes.subtracting([.remove, .synchronizeFolder])) == [.write, .rename])
    }

    // MARK: - Links

    private static let places = ["epoch.json", "lock", "journal/00000001.jsonl", "journal/00000001.index"]

    @Test(arguments: places)
    func `PT-01 a symbolic link in place of a file is not followed`(place: String) async throws {
        let scratch = Scratch(isInspected: false)
        try await scratch.store(indexFloor: 1).save([sample("a")], durability: .full)
        let target = scratch.folder.appending(component: "target")
        try FileManager.default.moveItem(at: scratch.root.appending(path: place), to: target)
        try FileManager.default.createSymbolicLink(at: scratch.root.appending(path: place), withDestinationURL: target)
        let content = try Data(contentsOf: target)

        let store = scratch.store(indexFloor: 1)
        _ = try? await store.load(name("a"))
        _ = try? await store.save([sample("b")], durability: .full)
        _ = try? await store.raiseSessionEpoch(to: 5)
        _ = try? await store.removeEverything()

        #expect(try Data(contentsOf: target) == content)
    }

    @Test func `PT-01 a folder that is a link to a missing folder is an error, and no watch repeats`() async throws {
        let scratch = Scratch(isInspected: false)
        let missing = scratch.folder.appending(component: "missing")
        try FileManager.default.createDirectory(at: scratch.folder, withIntermediateDirectories: true)
        for place in [scratch.root, scratch.folder.appending(component: "tokens")] {
            try FileManager.default.createSymbolicLink(at: place, withDestinationURL: missing)
        }
        let changes = Tally()
        await ProtectedFileTokenStore(named: "alice", directory: scratch.folder).watch {
            changes.add()
            if changes.value > 3 { withUnsafeCurrentTask { $0?.cancel() } }
        }
        #expect(changes.value <= 1)
        let watch = try #require(JournalStore(directory: scratch.root, watchesFolder: true).sessionWatch)
        await #expect(throws: MuxStoreError.self) { _ = try await watch(0) }
    }

    @Test func `PT-01 a symbolic link in place of a token file is not followed`() async throws {
        let scratch = Scratch()
        let store = ProtectedFileTokenStore(named: "alice", directory: scratch.folder)
        try await store.save(Data("alice's".utf8))
        let folder = scratch.folder.appending(component: "tokens")
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        let target = scratch.folder.appending(component: "target")
        try Data("mallory's".utf8).write(to: target)
        let content = try Data(contentsOf: target)
        for name in names {
            let place = folder.appending(component: name)
            try FileManager.default.removeItem(at: place)
            try FileManager.default.createSymbolicLink(at: place, withDestinationURL: target)
        }

        let again = ProtectedFileTokenStore(named: "alice", directory: scratch.folder)
        #expect((try? await again.load()) == nil)
        _ = try? await again.save(Data("new".utf8))
        _ = try? await again.remove()

        #expect(try Data(contentsOf: target) == content)
    }
}
