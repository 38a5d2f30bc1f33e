package import Foundation

/// A file that is replaced atomically: written to a temporary file, then renamed.
///
/// **On disk.** If a process is killed at any point, the file has the old content or the new content;
/// ``removeLeftovers()`` removes the temporary file. **Concurrent calls** of several processes do not mix;
/// the last rename wins.
package struct DurableFile: Sendable {
    private let fileSystem: any FileSystem
    private let folder: String
    private let name: String

    /// The default limit of reads, in bytes; readers of larger files pass another limit.
    static let usualMaximum: Int64 = 1 << 24

    /// Makes the file `name` in `folder`; does no I/O.
    package init(_ name: String, in folder: String, fileSystem: any FileSystem) {
        self.name = name
        self.folder = folder
        self.fileSystem = fileSystem
    }

    package var path: String { FilePath.join(self.folder, self.name) }

    /// The file's content; `nil` for a missing file.
    ///
    /// - Throws: ``MuxStoreError`` if the file cannot be read now, or exceeds 16 MB.
    package func read() throws(MuxStoreError) -> Data? {
        guard let content = try self.open()?.content else { return nil }
        return Data(content)
    }

    /// The file's content and the open file; `nil` for a missing file.
    ///
    /// - Parameter maximum: The size in bytes of the largest file that is read.
    /// - Returns: The content, and the open file, which has the link count 0 after a replacement of the file.
    /// - Throws: ``MuxStoreError``, also for a file larger than `maximum`.
    func open(atMost maximum: Int64 = usualMaximum) throws(MuxStoreError) -> (file: OpenFile, content: [UInt8])? {
        let file: OpenFile
        do {
            file = try self.fileSystem.openFile(self.path, for: .read)
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile),
            .fileSystem(.open, code: POSIXFileSystem.notAFolder)
        {
            return nil
        }
        let size = try self.fileSystem.status(of: file).size
        guard size <= maximum else { throw .fileSystem(.read, code: POSIXFileSystem.tooLarge) }
        return (file, try self.fileSystem.readAll(file, at: 0, count: Int(size)))
    }

    /// Replaces the file's content (mode 0600); creates the folder (mode 0700) if necessary.
    ///
    /// The system may remove a folder of caches at any time: if the folder disappears during the write, the
    /// write is repeated, at most twice.
    ///
    /// - Throws: ``MuxStoreError``; if only the synchronization of the folder failed, the file has the new
    ///   content.
    package func write(_ content: Data, durability: MuxDurability = .full) throws(MuxStoreError) {
        for _ in 1..<Self.maximumAttempts {
            do {
                return try self.writeOnce(content, durability)
            } catch  where error.isMissing {}
        }
        try self.writeOnce(content, durability)
    }

    private static let maximumAttempts = 3

    private func writeOnce(_ content: Data, _ durability: MuxDurability) throws(MuxStoreError) {
        let temporary = self.path + "." + Hex.text(of: .random(in: .min ... .max)) + Self.suffix
        do {
            let file = try self.fileSystem.openFileAndFolders(temporary, for: .create)
            try self.fileSystem.appendAll([UInt8](content), to: file)
            if durability == .full { try self.fileSystem.synchronize(file) }
            try self.fileSystem.move(temporary, to: self.path)
        } catch {
            try? self.fileSystem.removeFile(temporary)
            throw error
        }
        if durability == .full { try self.fileSystem.synchronizeFolder(self.folder) }
    }

    /// Removes the file; a missing file is not an error.
    package func remove(durability: MuxDurability = .full) throws(MuxStoreError) {
        try ignoringMissing { () throws(MuxStoreError) in
            try self.fileSystem.removeFile(self.path)
            if durability == .full { try self.fileSystem.synchronizeFolder(self.folder) }
        }
    }

    /// Removes the temporary files of killed writers; to be called only while no other writer is active.
    package func removeLeftovers() throws(MuxStoreError) {
        try ignoringMissing { () throws(MuxStoreError) in
            for name in try self.fileSystem.names(in: self.folder) where self.isLeftover(name) {
                try ignoringMissing { () throws(MuxStoreError) in
                    try self.fileSystem.removeFile(FilePath.join(self.folder, name))
                }
            }
        }
    }

    package func isLeftover(_ name: String) -> Bool {
        name.hasPrefix(self.name + ".") && name.hasSuffix(Self.suffix)
    }

    private static let suffix = ".tmp"
}
