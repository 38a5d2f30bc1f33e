package import Foundation
package import MuxKit
import MuxTesting

/// A folder for one test, removed on the release of the object that made the folder.
package final class Scratch: InspectedAtEnd {
    package let folder: URL
    private let isOwner: Bool

    package init(isInspected: Bool = true) {
        // In memory if the system has a file system there: thousands of waits for a disk would take most of
        // the tests' time.
        let memory = URL(filePath: "/dev/shm", directoryHint: .isDirectory)
        let hasMemory = FileManager.default.isWritableFile(atPath: memory.path)
        self.folder = (hasMemory ? memory : FileManager.default.temporaryDirectory)
            .appending(component: "MuxKit-" + UUID().uuidString)
        self.isOwner = true
        if isInspected { Inspection.inspector?.note(self) }
    }

    /// The folder of a test in another process, which removes the folder.
    package init(_ path: String) {
        self.folder = URL(filePath: path, directoryHint: .isDirectory)
        self.isOwner = false
    }

    /// A copy of the folder of another test.
    package convenience init(copyOf other: Scratch) throws {
        self.init(isInspected: false)
        guard FileManager.default.fileExists(atPath: other.folder.path) else { return }
        try FileManager.default.copyItem(at: other.folder, to: self.folder)
    }

    /// The step of tests that try every byte: 5, or 1 with `MUX_FUZZ`.
    package static let stride = ProcessInfo.processInfo.environment["MUX_FUZZ"] == nil ? 5 : 1

    deinit {
        if self.isOwner { try? FileManager.default.removeItem(at: self.folder) }
    }

    package var root: URL { self.folder.appending(component: "store") }
    package var segment: URL { self.root.appending(path: "journal/00000001.jsonl") }
    package var session: URL { self.root.appending(component: "epoch.json") }

    package var index: URL { self.root.appending(path: "journal/00000001.index") }

    package func store(
        _ fileSystem: any FileSystem = POSIXFileSystem(),
        byteLimit: Int? = nil,
        indexFloor: Int = 512
    ) -> JournalStore {
        // On a busy machine other stores may take the lock many times before this store gets a processor.
        JournalStore(
            StoreFolder(self.root),
            byteLimit: byteLimit,
            indexFloor: indexFloor,
            lockPatience: .seconds(600),
            fileSystem: fileSystem
        )
    }

    /// The length in bytes of the two lines before the journal's first entry.
    package func beginning() throws -> Int {
        let ends = try Data(contentsOf: self.segment).indices(of: 0x0a).ranges.flatMap { $0 }
        return ends.count < 2 ? 0 : ends[1] + 1
    }

    /// The violated invariants of the folder, found by a new store.
    package func faults() async -> [String] {
        guard FileManager.default.fileExists(atPath: self.root.path) else { return [] }
        do {
            return try await JournalStore(directory: self.root, byteLimit: nil).brokenInvariants()
        } catch MuxStoreError.newerFormat {
            return []  // a later format
        } catch {
            return ["\(error)"]
        }
    }

    /// All paths under the store's folder, in order.
    package var listing: [String] {
        (FileManager.default.enumerator(atPath: self.root.path)?.allObjects as? [String] ?? []).sorted()
    }

    /// The paths of the files under the store's folder that contain `text`.
    package func find(_ text: String) -> [String] {
        self.listing.filter { path in
            let content = try? Data(contentsOf: self.root.appending(path: path))
            return content?.firstRange(of: Data(text.utf8)) != nil
        }
    }

    package func mode(_ url: URL) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: url.path)[.posixPermissions] as? Int ?? -1
    }
}

extension RecordCodec {
    /// The two lines of an entry.
    package func record(of entry: MuxStoredEntry) throws(MuxStoreError) -> [UInt8] {
        var bytes: [UInt8] = []
        _ = try self.append(entry, to: &bytes)
        return bytes
    }
}

extension RecordHeader {
    /// The fields as ``append(to:)`` writes them.
    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        self.append(to: &bytes)
        return bytes
    }
}
