public import Foundation

/// Keeps tokens in a file that only its owner can read: mode 0600, in a folder of mode 0700 for token stores alone.
///
/// On Apple platforms the file is also protected until the device was first unlocked, and kept out of backups.
///
/// **Concurrent calls** wait for one another, on a thread of the store's own; several processes may share the store, and
/// ``lease`` keeps them from renewing tokens at the same time.
///
/// **On disk.** After a crash at any point, the file has its old content or the new one. Temporary files of a killed process
/// are removed by the next one that uses the store.
public actor ProtectedFileTokenStore: TokenStore {
    private let executor = DiskExecutor(label: "MuxKit.ProtectedFileTokenStore")
    private let file: DurableFile
    private let lock: FolderLock
    private let folder: String
    private let fileSystem: any FileSystem
    /// Whether temporary files of killed processes were removed.
    private var isTidy = false

    /// A ``FileLease`` in the same folder.
    public nonisolated let lease: (any MuxLease)?

    /// The executor of the store's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// Describes a store; accesses nothing yet.
    ///
    /// - Parameters:
    ///   - name: Identifies the tokens in the folder: any text. The file is named by a digest of it.
    ///   - directory: The folder in which the store makes its own, "tokens"; `nil` for a folder of this app among the user's
    ///     data (XDG on Linux, Application Support on Apple platforms), which the system does not empty.
    public init(named name: String, directory: URL? = nil) {
        self.init(named: name, directory: directory, fileSystem: POSIXFileSystem())
    }

    package init(named name: String, directory: URL?, fileSystem: any FileSystem) {
        let folder = (directory ?? MuxStoreLocation.standard(.data)).appending(component: "tokens")
        self.fileSystem = fileSystem
        let fileName = "tokens-" + Hex.text(of: FNV.hash(name.utf8))
        self.folder = folder.standardizedFileURL.path(percentEncoded: false)
        self.file = DurableFile(fileName, in: self.folder, fileSystem: fileSystem)
        self.lock = FolderLock(fileName + ".lock", in: self.folder, fileSystem: fileSystem)
        self.lease = FileLease(named: name, directory: folder, fileSystem: fileSystem)
    }

    /// Returns what was saved last; `nil` if there is no file.
    ///
    /// - Throws: ``MuxStoreError`` if there is a file and it cannot be read now.
    public func load() throws -> Data? {
        let content: Data?
        do {
            content = try self.file.read()
        } catch .fileSystem(.read, code: POSIXFileSystem.tooLarge) {
            content = Data()  // no store has written that
        }
        if content != nil { self.tidy() }
        return content
    }

    /// Replaces the file's content; returns when that survives a power cut.
    ///
    /// - Throws: ``MuxStoreError``; the file then has its old content.
    public func save(_ data: Data) throws {
        try self.lock.hold { () throws(MuxStoreError) in
            self.tidyLocked()
            try? self.fileSystem.mark(self.folder)
            try self.file.write(data, durability: .full)
        }
    }

    /// Removes the file, durably.
    ///
    /// - Throws: ``MuxStoreError``; the file may then still be there.
    public func delete() throws {
        guard try self.fileSystem.status(at: self.folder) != nil else { return }
        try self.lock.hold { () throws(MuxStoreError) in
            try self.file.remove(durability: .full)
            // The temporary file of a killed writer may hold tokens.
            try self.file.removeLeftovers()
        }
    }

    /// Removes temporary files of killed processes, unless this store has; files that cannot be removed now stay.
    private func tidy() {
        guard !self.isTidy else { return }
        try? self.lock.hold { () throws(MuxStoreError) in self.tidyLocked() }
    }

    /// The same, under the lock.
    private func tidyLocked() {
        guard !self.isTidy else { return }
        self.isTidy = true
        // The folder may have been made or copied with another mode.
        _ = FolderAttributes.restrict(self.folder)
        try? self.file.removeLeftovers()
    }
}

extension TokenStore where Self == ProtectedFileTokenStore {
    /// A file that only its owner can read; see ``ProtectedFileTokenStore/init(named:directory:)``.
    ///
    /// - Parameters:
    ///   - name: Identifies the tokens in the folder: any text.
    ///   - directory: The folder; `nil` for a folder of this app among the user's data.
    /// - Returns: The store.
    public static func protectedFile(named name: String, directory: URL? = nil) -> ProtectedFileTokenStore {
        ProtectedFileTokenStore(named: name, directory: directory)
    }
}
