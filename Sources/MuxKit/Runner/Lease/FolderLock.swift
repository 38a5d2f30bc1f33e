/// Keeps processes apart for the length of one function that suspends nowhere.
struct FolderLock: Sendable {
    private let path: String
    private let folder: String
    private let fileSystem: any FileSystem

    /// Describes a lock on a file of its own, which stays empty; touches nothing.
    init(_ name: String, in folder: String, fileSystem: any FileSystem) {
        self.path = FilePath.join(folder, name)
        self.folder = folder
        self.fileSystem = fileSystem
    }

    /// Runs `body` when no other process, and nobody else in this one, is in it; makes the folder (mode 0700) if need be.
    func hold<R>(_ body: () throws(MuxStoreError) -> R) throws(MuxStoreError) -> R {
        let file: OpenFile
        do {
            file = try self.fileSystem.openFile(self.path, for: .append)
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile) {
            try self.fileSystem.makeFolders(self.folder)
            file = try self.fileSystem.openFile(self.path, for: .append)
        }
        try self.fileSystem.lock(file)
        defer { try? self.fileSystem.unlock(file) }
        return try body()
    }
}
