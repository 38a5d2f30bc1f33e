import Dispatch

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

    /// Takes the lock of `file` if it is free.
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

/// What a file is opened for.
package enum FileAccess: Sendable, Hashable {
    /// Reading; the file must exist.
    case read
    /// Reading, and writing at the end; made with mode 0600 if it does not exist.
    case append
    /// Like ``append``, but it is an error if the file exists.
    case create
}

/// Arithmetic on path texts.
package enum FilePath {
    /// The path of `name` in `folder`.
    package static func join(_ folder: String, _ name: String) -> String {
        folder.hasSuffix("/") ? folder + name : folder + "/" + name
    }

    /// The path of the folder that `path` is in; `nil` for a root and for a lone name.
    package static func parent(of path: String) -> String? {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return nil }
        guard slash > path.startIndex else { return path.utf8.count > 1 ? "/" : nil }
        return String(path[..<slash])
    }

    /// The last name of `path`.
    package static func name(of path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
        return String(path[path.utf8.index(after: slash)...])
    }
}

/// What the file system says about a file.
package struct FileStatus: Sendable, Hashable {
    /// Tells files apart for as long as each of them exists or is open.
    package struct Identity: Sendable, Hashable {
        package var device: UInt64
        package var node: UInt64

        package init(device: UInt64, node: UInt64) {
            self.device = device
            self.node = node
        }
    }

    package var identity: Identity
    package var size: Int64
    /// How many names the file has; 0 for one that is open and has been removed or replaced.
    package var linkCount: UInt64
    /// The permission bits.
    package var mode: UInt32
    package var isFolder: Bool
    /// The time of modification, in nanoseconds since 1970.
    package var modified: Int64

    package init(
        identity: Identity,
        size: Int64,
        linkCount: UInt64,
        mode: UInt32,
        isFolder: Bool,
        modified: Int64 = 0
    ) {
        self.identity = identity
        self.size = size
        self.linkCount = linkCount
        self.mode = mode
        self.isFolder = isFolder
        self.modified = modified
    }
}

/// An open file; closed when the last reference to it goes.
package final class OpenFile: Sendable {
    package let descriptor: Int32
    package let path: String
    private let close: @Sendable (Int32) -> Void

    package init(descriptor: Int32, path: String, close: @escaping @Sendable (Int32) -> Void) {
        self.descriptor = descriptor
        self.path = path
        self.close = close
    }

    deinit { self.close(self.descriptor) }
}

/// A wait for the lock of a file, on a thread of its own, that the caller can leave.
///
/// The kernel knows no limit for such a wait. One that was left goes on, and gives the lock back when it gets it.
final class LockWait: Sendable {
    private enum State: Sendable {
        case waiting
        case taken
        case failed(MuxStoreError)
        /// The caller left.
        case left
        case over
    }

    private let state = Locked(State.waiting)
    private let ended = DispatchSemaphore(value: 0)

    /// Begins to wait.
    init(_ file: OpenFile, _ fileSystem: any FileSystem) {
        DispatchQueue(label: "MuxKit.LockWait").async {
            var end = State.taken
            do throws(MuxStoreError) {
                try fileSystem.lock(file)
            } catch {
                end = .failed(error)
            }
            let wasLeft = self.state.withLock { state -> Bool in
                if case .left = state { return true }
                state = end
                return false
            }
            guard wasLeft else {
                self.ended.signal()
                return
            }
            if case .taken = end { try? fileSystem.unlock(file) }
            self.state.withLock { $0 = .over }
        }
    }

    /// Whether the wait that was left has ended.
    var isOver: Bool {
        self.state.withLock { state in if case .over = state { true } else { false } }
    }

    /// Blocks until the lock is taken, or leaves when the time is up.
    ///
    /// - Returns: Whether the lock is taken; if so, the caller has to give it back.
    func finish(within limit: Duration) throws(MuxStoreError) -> Bool {
        _ = self.ended.wait(timeout: .now() + limit.secondsValue)
        return try self.state.withLock { state throws(MuxStoreError) -> Bool in
            switch state {
            case .taken: return true
            case .failed(let error): throw error
            case .waiting, .left, .over:
                state = .left
                return false
            }
        }
    }
}
