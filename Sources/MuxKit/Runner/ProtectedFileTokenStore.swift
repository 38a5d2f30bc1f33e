public import Foundation

/// Keeps tokens in a file that only its owner can read: mode 0600, in a folder of mode 0700.
///
/// On Apple platforms the file is also protected until the device was first unlocked, and kept out of backups.
///
/// **Concurrent calls** wait for one another, on a thread of the store's own.
///
/// **On disk.** Killed at any point, the file has its old content or the new one.
public actor ProtectedFileTokenStore: TokenStore {
    private let executor = DiskExecutor(label: "MuxKit.ProtectedFileTokenStore")
    private let file: DurableFile
    private let folder: String

    /// The executor of the store's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// Describes a store; touches nothing yet.
    ///
    /// - Parameters:
    ///   - name: Tells the tokens from others in the folder: any text. The file is named by a digest of it.
    ///   - directory: The folder; `nil` for a folder of this app among the user's data (XDG on Linux, Application Support on
    ///     Apple platforms). Unlike the caches folder, the system does not empty it.
    public init(named name: String, directory: URL? = nil) {
        self.init(named: name, directory: directory, fileSystem: POSIXFileSystem())
    }

    package init(named name: String, directory: URL?, fileSystem: any FileSystem) {
        let folder = directory ?? MuxStoreLocation.standard(.data)
        self.folder = folder.standardizedFileURL.path(percentEncoded: false)
        self.file = DurableFile("tokens-" + Hex.text(of: FNV.hash(name.utf8)), in: self.folder, fileSystem: fileSystem)
    }

    /// Returns what was saved last; `nil` if there is no file.
    ///
    /// - Throws: ``MuxStoreError`` if there is a file and it cannot be read now.
    public func load() throws -> Data? { try self.file.read() }

    /// Replaces the file's content; returns when that survives a power cut.
    ///
    /// - Throws: ``MuxStoreError``; the file then has its old content.
    public func save(_ data: Data) throws {
        try self.file.write(data, durability: .full)
        _ = FolderManners.mark(self.folder)
    }

    /// Removes the file, durably.
    ///
    /// - Throws: ``MuxStoreError``; the file may then still be there.
    public func delete() throws {
        try self.file.remove(durability: .full)
        // A killed writer may have left tokens beside the file.
        try self.file.removeLeftovers()
    }
}

extension TokenStore where Self == ProtectedFileTokenStore {
    /// A file that only its owner can read; see ``ProtectedFileTokenStore/init(named:directory:)``.
    ///
    /// - Parameters:
    ///   - name: Tells the tokens from others in the folder: any text.
    ///   - directory: The folder; `nil` for a folder of this app among the user's data.
    /// - Returns: The store.
    public static func protectedFile(named name: String, directory: URL? = nil) -> ProtectedFileTokenStore {
        ProtectedFileTokenStore(named: name, directory: directory)
    }
}
