package import Foundation

/// A small file that is always whole: written beside its place, then moved there.
///
/// **On disk.** Killed at any point, the file has its old content or the new one. What is left beside it then is removed
/// by ``removeLeftovers()``. **Concurrent calls** of several processes do not mix; the last one to move wins.
package struct DurableFile: Sendable {
    private let fileSystem: any FileSystem
    private let folder: String
    private let name: String

    /// Larger files are not read, unless the reader expects one: nothing of that size was written here.
    package static let usualMaximum: Int64 = 1 << 24

    /// Describes the file `name` in `folder`; touches nothing.
    package init(_ name: String, in folder: String, fileSystem: any FileSystem) {
        self.name = name
        self.folder = folder
        self.fileSystem = fileSystem
    }

    package var path: String { FilePath.join(self.folder, self.name) }

    /// The file's content, or `nil` if there is no file; that it cannot be read now is an error, not an absence.
    package func read() throws(MuxStoreError) -> Data? {
        try self.open()?.content
    }

    /// The file's content as an array, which spares copies of a large one; `nil` if there is no file.
    ///
    /// - Parameter maximum: The size of the largest file that is read.
    /// - Returns: The content.
    /// - Throws: ``MuxStoreError``, also if the file is larger.
    package func bytes(atMost maximum: Int64 = usualMaximum) throws(MuxStoreError) -> [UInt8]? {
        try self.openBytes(atMost: maximum)?.content
    }

    /// The file's content together with the open file it came from, whose link count tells later whether it still holds.
    package func open() throws(MuxStoreError) -> (file: OpenFile, content: Data)? {
        guard let (file, bytes) = try self.openBytes(atMost: Self.usualMaximum) else { return nil }
        return (file, Data(bytes))
    }

    private func openBytes(atMost maximum: Int64) throws(MuxStoreError) -> (file: OpenFile, content: [UInt8])? {
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

    /// Replaces the file's content, making the folder (mode 0700) if need be; the file's mode is 0600.
    package func write(_ content: Data, durability: MuxDurability = .full) throws(MuxStoreError) {
        let temporary = self.path + "." + Hex.text(of: .random(in: .min ... .max)) + Self.suffix
        do {
            let file = try self.create(temporary)
            try self.fileSystem.appendAll([UInt8](content), to: file)
            if durability == .full { try self.fileSystem.synchronize(file) }
            try self.fileSystem.move(temporary, to: self.path)
        } catch {
            try? self.fileSystem.removeFile(temporary)
            throw error
        }
        if durability == .full { try self.fileSystem.synchronizeFolder(self.folder) }
    }

    /// Removes the file; that there is none is as good.
    package func remove(durability: MuxDurability = .full) throws(MuxStoreError) {
        do {
            try self.fileSystem.removeFile(self.path)
        } catch .fileSystem(.remove, code: POSIXFileSystem.noSuchFile) {
            return
        }
        if durability == .full { try self.fileSystem.synchronizeFolder(self.folder) }
    }

    /// Removes what a killed writer left; only while no other writes.
    package func removeLeftovers() throws(MuxStoreError) {
        let names: [String]
        do {
            names = try self.fileSystem.names(in: self.folder)
        } catch .fileSystem(.list, code: POSIXFileSystem.noSuchFile) {
            return
        }
        for name in names where self.isLeftover(name) {
            try self.fileSystem.removeFile(FilePath.join(self.folder, name))
        }
    }

    package func isLeftover(_ name: String) -> Bool {
        name.hasPrefix(self.name + ".") && name.hasSuffix(Self.suffix)
    }

    private static let suffix = ".tmp"

    private func create(_ path: String) throws(MuxStoreError) -> OpenFile {
        do {
            return try self.fileSystem.openFile(path, for: .create)
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile) {
            try self.fileSystem.makeFolders(self.folder)
            return try self.fileSystem.openFile(path, for: .create)
        }
    }
}
