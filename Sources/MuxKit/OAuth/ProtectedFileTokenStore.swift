public import Foundation

/// Keeps tokens in a file that only its owner can read: mode 0600, in a folder of mode 0700 for token stores alone.
///
/// On Apple platforms the file is also protected until the device was first unlocked, and kept out of backups.
///
/// **Concurrent calls** wait for one another, on a thread of the store's own; several processes may share the store, and
/// ``lease`` keeps them from renewing tokens at the same time.
///
/// **On disk.** After a crash at any point, the file has its old content or the new one. Temporary files of a killed process
/// are removed by the next one that uses the store. The file is named by a SHA-256 digest of the store's name, and stores the name
/// itself: a file of another name is neither used nor removed (``MuxStoreError/otherName``).
///
/// **Other users.** A folder or file that another user owns or may write to is refused (``MuxStoreError/notPrivate``).
public actor ProtectedFileTokenStore: TokenStore {
    private let executor = DiskExecutor(label: "MuxKit.ProtectedFileTokenStore")
    private let file: OwnedFile
    private let lock: FolderLock
    private let folder: String
    private let fileSystem: CheckedFileSystem
    /// The problems of the folder.
    package nonisolated let problems: StorageProblems?
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
    ///   - name: Identifies the tokens in the folder: any text. Names that differ in a byte of UTF-8 are different.
    ///   - directory: The folder in which the store makes its own, "tokens"; `nil` for a folder of this app among the user's
    ///     data (XDG on Linux, Application Support on Apple platforms), which the system does not empty.
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

    /// Returns what was saved last; `nil` if there is no file.
    ///
    /// - Throws: ``MuxStoreError`` if there is a file and it cannot be read now, or belongs to another name.
    public func load() throws -> Data? {
        let content = try self.file.read()
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
        guard try self.fileSystem.checkFolder(self.folder) else { return }
        // With the temporary file of a killed writer, which may hold tokens.
        try self.lock.hold { () throws(MuxStoreError) in try self.file.remove(durability: .full) }
    }

    /// Calls `onChange` after each change of the folder, until the task is cancelled; makes the folder if it is missing.
    ///
    /// Where the system does not report changes of a folder, it is not called again. It returns at once if the folder cannot be used.
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

extension ProtectedFileTokenStore: ReportsProblems {}

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
