public import Foundation

/// Keeps tokens in a file that only the file's owner can read.
///
/// The file has mode 0600, and is in a folder of mode 0700 for token stores and their leases. On Apple
/// platforms, the folder is also excluded from backups; except on macOS, the file is protected until the
/// first unlock of the device. A file system without these attributes is permitted.
///
/// **Concurrent calls** access the file one after another, on a serial queue of the store. Several processes
/// may share the store; ``lease`` prevents simultaneous renewals.
///
/// **On disk.** After a crash at any point, the file has its old content or its new content. A later use of
/// the store removes temporary files of a killed process. The file name contains a SHA-256 digest of the
/// store's name, and the file contains the store's name: a file of another name is neither used nor removed
/// (``MuxStoreError/otherName``).
///
/// **Other users.** A folder or file is refused if a user other than the current user and the superuser is
/// its owner or has write permission (``MuxStoreError/notPrivate``).
public actor ProtectedFileTokenStore: TokenStore {
    private let executor = DiskExecutor(label: "MuxKit.ProtectedFileTokenStore")
    private let file: OwnedFile
    private let lock: FolderLock
    private let folder: String
    private let fileSystem: CheckedFileSystem
    /// Collects the problems of the folder.
    package nonisolated let problems: StorageProblems?
    /// Whether this object has tried to remove temporary files of killed processes.
    private var isTidy = false

    /// A ``FileLease`` in the same folder.
    public nonisolated let lease: (any MuxLease)?

    /// The executor of the store's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// Describes a store; does not access the disk yet.
    ///
    /// - Parameters:
    ///   - name: Identifies the tokens in the folder: any text. Names with different UTF-8 bytes are
    ///     different.
    ///   - directory: The parent of the store's folder, "tokens"; `nil` for a folder of this app in the
    ///     user's data (XDG on Linux, Application Support on Apple platforms), which the system does not
    ///     empty.
    public init(named name: String, directory: URL? = nil) {
        self.init(named: name, directory: directory, fileSystem: POSIXFileSystem())
    }

    package init(named name: String, directory: URL?, fileSystem: any FileSystem) {
        self.init(OwnedName(.tokens, [name]), OwnedName(.lease, [name]), directory: directory, fileSystem: fileSystem)
    }

    package init(_ name: OwnedName, _ lease: OwnedName, directory: URL?, fileSystem base: any FileSystem) {
        let folder = (directory.map { StoreFolder($0) } ?? .standard(.data)).appending("tokens")
        let problems = StorageProblems()
        let fileSystem = CheckedFileSystem(base, for: folder, problems: problems)
        self.fileSystem = fileSystem
        self.problems = problems
        self.folder = folder.path
        self.file = OwnedFile(name, in: folder.path, fileSystem: fileSystem)
        self.lock = FolderLock(name.fileName + ".lock", in: folder.path, fileSystem: fileSystem)
        self.lease = FileLease(lease, in: folder, fileSystem: base, problems: problems)
    }

    /// Returns the data of the last save; `nil` without a file.
    ///
    /// The data is empty if the file is damaged.
    ///
    /// - Throws: ``MuxStoreError`` if the file cannot be read now, or must not be used.
    public func load() throws -> Data? {
        let content = try self.file.read()
        if content != nil { self.tidy() }
        return content
    }

    /// Replaces the file's content; returns when the new content survives a power cut.
    ///
    /// - Throws: ``MuxStoreError``; the file then has its old content or, if only the synchronization of the
    ///   folder failed, its new content.
    public func save(_ data: Data) throws {
        try self.lock.hold { () throws(MuxStoreError) in
            self.tidyLocked()
            try? self.fileSystem.setStoreAttributes(self.folder)
            try self.file.write(data, durability: .full)
        }
    }

    /// Removes the file, durably.
    ///
    /// - Throws: ``MuxStoreError``; the file may then still exist.
    public func remove() throws {
        guard try self.fileSystem.checkFolder(self.folder) else { return }
        // Also removes the temporary files of killed writers, because these files may contain tokens.
        try self.lock.hold { () throws(MuxStoreError) in try self.file.remove(durability: .full) }
    }

    /// Calls `onChange` at once, and after changes of the folder, until the task is cancelled.
    ///
    /// Changes in quick succession may share a call. Creates the folder if missing. If the system does not
    /// report changes of a folder, `onChange` is called only once, at the start. If the folder cannot be
    /// used, the function returns at once.
    public func watch(_ onChange: @escaping @Sendable () -> Void) async {
        repeat {
            do throws(MuxStoreError) {
                if try !self.fileSystem.checkFolder(self.folder) { try self.fileSystem.makeFolders(self.folder) }
            } catch {
                return
            }
            let watch = FolderWatch(self.folder)
            defer { withExtendedLifetime(watch) {} }
            for await _ in watch.changes { onChange() }
            // The folder was removed.
        } while !Task.isCancelled
    }

    /// Removes temporary files of killed processes once; files that cannot be removed now stay.
    private func tidy() {
        guard !self.isTidy else { return }
        try? self.lock.hold { () throws(MuxStoreError) in self.tidyLocked() }
    }

    /// As ``tidy()``; called under ``lock``.
    private func tidyLocked() {
        guard !self.isTidy else { return }
        self.isTidy = true
        // The folder may have been created or copied with another mode.
        _ = FolderAttributes.restrict(self.folder)
        try? self.file.removeLeftovers()
    }
}

extension ProtectedFileTokenStore: ReportsProblems {}

extension TokenStore where Self == ProtectedFileTokenStore {
    /// A file that only the file's owner can read; see ``ProtectedFileTokenStore/init(named:directory:)``.
    ///
    /// - Parameters:
    ///   - name: Identifies the tokens in the folder: any text.
    ///   - directory: The parent of the store's folder; `nil` for a folder of this app in the user's data.
    /// - Returns: The store.
    public static func protectedFile(named name: String, directory: URL? = nil) -> ProtectedFileTokenStore {
        ProtectedFileTokenStore(named: name, directory: directory)
    }
}
