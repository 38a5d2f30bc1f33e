/// The door to the file system: every call that the library's stores make, one by one.
///
/// The calls block, so they are made on a ``DiskExecutor``. A test puts a door of its own in between, to log the calls,
/// to fail the n-th of them, or to end the process there.
package protocol FileSystem: Sendable {
    /// Opens the file at `path`, with mode 0600 if that makes it.
    func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile

    /// Reads up to `count` bytes from `offset`; fewer at the end of the file or at the system's whim, none past the end.
    func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8]

    /// Appends `bytes`, or the first part of them, and returns how many.
    func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int

    func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus

    /// The status of what `path` names itself, or `nil` if there is nothing of that name.
    func status(at path: String) throws(MuxStoreError) -> FileStatus?

    func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError)

    /// Returns when the file's content is on the disk.
    func synchronize(_ file: OpenFile) throws(MuxStoreError)

    /// Returns when the names in the folder are on the disk.
    func synchronizeFolder(_ path: String) throws(MuxStoreError)

    /// Gives what is at `path` another name, in place of what had it.
    func move(_ path: String, to other: String) throws(MuxStoreError)

    func removeFile(_ path: String) throws(MuxStoreError)

    /// Removes an empty folder.
    func removeFolder(_ path: String) throws(MuxStoreError)

    /// The names in the folder, in no order.
    func names(in path: String) throws(MuxStoreError) -> [String]

    /// Makes a folder of mode 0700 in one that exists.
    ///
    /// - Returns: Whether there was none of that name before.
    func makeFolder(_ path: String) throws(MuxStoreError) -> Bool

    /// Keeps the folder out of backups and behind the device's lock, on systems that know these.
    ///
    /// File systems may know neither, such as those of other makers: callers go on without, and ask before the first write.
    func mark(_ path: String) throws(MuxStoreError)

    /// Waits until no other process, and no other open file of this one, holds the lock of `file`.
    func lock(_ file: OpenFile) throws(MuxStoreError)

    func unlock(_ file: OpenFile) throws(MuxStoreError)

    /// Takes the lock of `file` if nobody has it.
    ///
    /// - Returns: Whether the caller has it now, until ``unlock(_:)`` or until the file is closed.
    func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool

    /// Makes the file's time of modification `nanoseconds` since 1970.
    func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError)

    /// How many bytes are free for this user where `path` is.
    func freeSpace(at path: String) throws(MuxStoreError) -> Int64
}

extension FileSystem {
    /// Reads `count` bytes from `offset`; fewer only at the end of the file.
    package func readAll(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] {
        var bytes = try self.read(file, at: offset, count: count)
        while bytes.count < count, !bytes.isEmpty {
            let more = try self.read(file, at: offset + Int64(bytes.count), count: count - bytes.count)
            guard !more.isEmpty else { break }
            bytes += more
        }
        return bytes
    }

    /// Appends all of `bytes`; the caller cuts off what an error leaves behind.
    package func appendAll(_ bytes: [UInt8], to file: OpenFile) throws(MuxStoreError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = try self.append(rest, to: file)
            guard count > 0 else { throw .fileSystem(.write, code: POSIXFileSystem.ioError) }
            rest = rest.dropFirst(count)
        }
    }

    /// Makes the folder and those above it that are missing, each safely on the disk.
    package func makeFolders(_ path: String) throws(MuxStoreError) {
        do {
            guard try self.makeFolder(path) else { return }
        } catch .fileSystem(.makeFolder, code: POSIXFileSystem.noSuchFile) {
            guard let parent = FilePath.parent(of: path) else {
                throw .fileSystem(.makeFolder, code: POSIXFileSystem.noSuchFile)
            }
            try self.makeFolders(parent)
            guard try self.makeFolder(path) else { return }
        }
        if let parent = FilePath.parent(of: path) { try self.synchronizeFolder(parent) }
    }

    /// Removes the folder and all that is in it, following no link.
    package func removeTree(_ path: String) throws(MuxStoreError) {
        for name in try self.names(in: path) {
            let inner = FilePath.join(path, name)
            if try self.status(at: inner)?.isFolder == true {
                try self.removeTree(inner)
            } else {
                try self.removeFile(inner)
            }
        }
        try self.removeFolder(path)
    }
}
