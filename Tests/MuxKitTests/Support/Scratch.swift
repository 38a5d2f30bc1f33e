import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting

/// A folder for one test, removed on the release of this object.
final class Scratch: InspectedAtEnd {
    let folder: URL
    private let isOwner: Bool

    init(isInspected: Bool = true) {
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
    init(_ path: String) {
        self.folder = URL(filePath: path, directoryHint: .isDirectory)
        self.isOwner = false
    }

    /// A copy of the folder of another test.
    convenience init(copyOf other: Scratch) throws {
        self.init(isInspected: false)
        guard FileManager.default.fileExists(atPath: other.folder.path) else { return }
        try FileManager.default.copyItem(at: other.folder, to: self.folder)
    }

    /// The step of tests that try every byte: 1 in the long run.
    static let stride = ProcessInfo.processInfo.environment["MUX_FUZZ"] == nil ? 5 : 1

    deinit {
        if self.isOwner { try? FileManager.default.removeItem(at: self.folder) }
    }

    var root: URL { self.folder.appending(component: "store") }
    var segment: URL { self.root.appending(path: "journal/00000001.jsonl") }
    var session: URL { self.root.appending(component: "epoch.json") }

    var index: URL { self.root.appending(path: "journal/00000001.index") }

    func store(
        _ fileSystem: any FileSystem = POSIXFileSystem(),
        byteLimit: Int? = nil,
        indexFloor: Int = 512
    ) -> JournalStore {
        // On a busy machine other stores may take the lock many times before this store gets a processor.
        JournalStore(
            directory: self.root,
            byteLimit: byteLimit,
            indexFloor: indexFloor,
            lockPatience: .seconds(600),
            fileSystem: fileSystem
        )
    }

    /// The length in bytes of the two lines before the journal's first entry.
    func beginning() throws -> Int {
        let ends = try Data(contentsOf: self.segment).indices(of: 0x0a).ranges.flatMap { $0 }
        return ends.count < 2 ? 0 : ends[1] + 1
    }

    /// The violated invariants of the folder, found by a new store.
    func faults() async -> [String] {
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
    var listing: [String] {
        (FileManager.default.enumerator(atPath: self.root.path)?.allObjects as? [String] ?? []).sorted()
    }

    /// The paths of the files under the store's folder that contain `text`.
    func find(_ text: String) -> [String] {
        self.listing.filter { path in
            let content = try? Data(contentsOf: self.root.appending(path: path))
            return content?.firstRange(of: Data(text.utf8)) != nil
        }
    }

    func mode(_ url: URL) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: url.path)[.posixPermissions] as? Int ?? -1
    }
}

/// An entry for tests whose value contains `number`.
func sample(_ key: String?, _ number: Int = 1, domain: String = "users", epoch: UInt64 = 0) -> MuxStoredEntry {
    MuxStoredEntry(
        name: MuxStoreKey(domain: domain, key: key),
        schemaVersion: 1,
        sessionEpoch: epoch,
        fetchedAt: Date(timeIntervalSince1970: 1_767_225_600.5),
        timeToLive: .seconds(1800),
        validator: nil,
        payload: Data("{\"number\":\(number)}".utf8)
    )
}

func name(_ key: String?, domain: String = "users") -> MuxStoreKey { MuxStoreKey(domain: domain, key: key) }
