import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Folders and files of small stores are removed while the process runs, before each call to the file
/// system in turn.
@Suite(.standard)
struct RemovedFolderTests {
    /// Runs `body` repeatedly; run n removes `path` before the n-th call to the file system.
    ///
    /// The last run makes fewer than n calls. `body` gets a new folder, the folder's file system, n, and a
    /// closure that ends the removals.
    private func atEveryCall(
        of path: String,
        _ body: (Scratch, RecordingFileSystem, _ number: Int, _ calm: () -> Void) async throws -> Void
    ) async throws {
        var number = 1
        while true {
            let scratch = Scratch()
            let moment = Locked(number)
            let gone = scratch.folder.appending(path: path)
            let fileSystem = RecordingFileSystem { count, _ in
                guard count == moment.withLock({ $0 }) else { return nil }
                return .perform { try? FileManager.default.removeItem(at: gone) }
            }
            try await body(scratch, fileSystem, number) { moment.withLock { $0 = .max } }
            guard fileSystem.calls.count >= number else { break }
            number += 1
        }
        #expect(number > 3)
    }

    @Test(arguments: ["", "store", "store/token"], [MuxDurability.full, .relaxed])
    func `WR-04 a durable file is written although its folder is removed at any call`(
        path: String,
        durability: MuxDurability
    ) async throws {
        try await self.atEveryCall(of: path) { scratch, fileSystem, number, calm in
            let file = DurableFile("token", in: scratch.root.path, fileSystem: fileSystem)
            try file.write(Data("old".utf8), durability: durability)
            try file.write(Data("new".utf8), durability: durability)
            calm()

            // A removal of the file alone can follow the rename and precede the folder's synchronization.
            let isLost = path.hasSuffix("token") && scratch.listing.isEmpty
            #expect(try file.read() == (isLost ? nil : Data("new".utf8)), "removed before call \(number)")
            try file.write(Data("next".utf8), durability: durability)
            #expect(try file.read() == Data("next".utf8) && scratch.listing == ["token"])
        }
    }

    @Test(arguments: ["", "store", "store/token"])
    func `WR-04 a durable file is removed although its folder is removed at any call`(path: String) async throws {
        try await self.atEveryCall(of: path) { scratch, fileSystem, _, calm in
            let file = DurableFile("token", in: scratch.root.path, fileSystem: fileSystem)
            try file.write(Data("old".utf8))
            try file.remove()
            try file.removeLeftovers()
            calm()

            #expect(try file.read() == nil)
        }
    }

    @Test(arguments: ["", "tokens", "tokens/file", "tokens/lock"])
    func `WR-04 tokens are saved although their folder is removed at any call`(path: String) async throws {
        let names = Scratch()
        try await ProtectedFileTokenStore(named: "alice", directory: names.folder).save(Data("x".utf8))
        let files = try FileManager.default.contentsOfDirectory(atPath: names.folder.appending(path: "tokens").path)
        let lock = try #require(files.first { $0.hasSuffix(".lock") })
        let tokens = try #require(files.first { !$0.hasSuffix(".lock") })
        let path = path.replacingOccurrences(of: "file", with: tokens).replacingOccurrences(of: "lock", with: lock)

        try await self.atEveryCall(of: path) { scratch, fileSystem, number, calm in
            let store = ProtectedFileTokenStore(named: "alice", directory: scratch.folder, fileSystem: fileSystem)
            try await store.save(Data("one".utf8))
            let isDurable = (fileSystem.calls.lastIndex { $0.operation == .synchronizeFolder } ?? 0) + 1 > number
            let found = try await store.load()
            // Tokens are found if their folder is synchronized after the removal, or without a removal.
            if isDurable || fileSystem.calls.count < number { #expect(found == Data("one".utf8), "\(number)") }
            #expect(found == nil || found == Data("one".utf8))
            try await store.remove()
            #expect(try await store.load() == nil)
            calm()

            try await store.save(Data("two".utf8))
            #expect(try await store.load() == Data("two".utf8), "removed before call \(number)")
        }
    }

    @Test(arguments: ["", "leases"])
    func `WR-04 a lease is taken although its folder is removed at any call`(path: String) async throws {
        try await self.atEveryCall(of: path) { scratch, fileSystem, number, calm in
            let directory = scratch.folder.appending(path: "leases")
            let lease = FileLease(named: "alice", directory: directory, fileSystem: fileSystem)
            let term = try await lease.take(as: "a", for: .seconds(60))
            #expect(term.owner == "a")
            try await lease.giveBack(term)
            calm()

            let next = try await lease.take(as: "b", for: .seconds(60))
            let refused = try await lease.take(as: "c", for: .seconds(60))
            #expect(next.owner == "b" && refused.owner == "b", "removed before call \(number)")
        }
    }

    @Test func `WR-04 a lock is not used if its file is removed during the wait`() async throws {
        let scratch = Scratch()
        let directory = scratch.folder.appending(path: "leases")
        let isFirst = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            guard call.operation == .lock,
                isFirst.withLock({ first in
                    defer { first = false }
                    return first
                })
            else {
                return nil
            }
            return .perform { try? FileManager.default.removeItem(at: directory) }
        }
        let lease = FileLease(named: "alice", directory: directory, fileSystem: fileSystem)

        #expect(try await lease.take(as: "a", for: .seconds(60)).owner == "a")

        // The locked file is the file that other processes open.
        #expect(fileSystem.calls.filter { $0.operation == .lock }.count == 2)
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(names.count == 2 && names.contains { $0.hasSuffix(".lock") })
    }
}
