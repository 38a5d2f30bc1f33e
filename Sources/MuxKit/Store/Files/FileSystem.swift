import Dispatch
package import Foundation

/// The file system calls of the library's stores.
///
/// The calls block, so most callers use a ``DiskExecutor`` or ``BlockingWork``; a few short reads run on the
/// caller's thread. Tests substitute an implementation that logs the calls, fails the n-th call, or ends the
/// process at the n-th call.
package protocol FileSystem: Sendable {
    /// Opens the file at `path`; a new file has mode 0600.
    func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile

    /// Reads up to `count` bytes from `offset`; may return fewer, and returns no bytes at the end of the
    /// file.
    func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8]

    /// Reads up to `count` bytes from `offset` if the bytes are in the system's memory, without a wait for a
    /// device.
    ///
    /// `nil` if the bytes are not in memory, if the system cannot determine the state, or after an error.
    func readPromptly(_ file: OpenFile, at offset: Int64, count: Int) -> [UInt8]?

    /// Appends `bytes` or a prefix; with ``FileAccess/overwrite(from:)``, writes at the current offset.
    ///
    /// - Returns: The number of bytes written.
    func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int

    func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus

    /// The status of `path`, without following a symbolic link; `nil` for a missing file or parent folder.
    func status(at path: String) throws(MuxStoreError) -> FileStatus?

    /// The status of `path`, or of the target of a symbolic link; `nil` for a missing file, target or parent
    /// folder.
    func targetStatus(at path: String) throws(MuxStoreError) -> FileStatus?

    /// Whether the user may write to the folder, as far as the system tells without an attempt; `true` for a
    /// missing folder.
    func isWritable(_ path: String) -> Bool

    func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError)

    /// Flushes the file's content to disk.
    func synchronize(_ file: OpenFile) throws(MuxStoreError)

    /// Flushes the names in the folder to disk.
    func synchronizeFolder(_ path: String) throws(MuxStoreError)

    /// Renames `path` to `other`, and replaces an existing file.
    func move(_ path: String, to other: String) throws(MuxStoreError)

    func removeFile(_ path: String) throws(MuxStoreError)

    /// Removes an empty folder.
    func removeFolder(_ path: String) throws(MuxStoreError)

    /// The names in the folder, unordered.
    func names(in path: String) throws(MuxStoreError) -> [String]

    /// Creates a folder of mode 0700 in an existing folder.
    ///
    /// - Returns: `false` if the name exists.
    func makeFolder(_ path: String) throws(MuxStoreError) -> Bool

    /// Excludes the folder from backups and protects the files until the device's first unlock, if the system
    /// has these attributes.
    ///
    /// Some file systems do not support the attributes, so callers ignore the error.
    func setStoreAttributes(_ path: String) throws(MuxStoreError)

    /// Takes the lock of `file`; waits until no other process, and no other open file of this process, holds
    /// the lock.
    func lock(_ file: OpenFile) throws(MuxStoreError)

    func unlock(_ file: OpenFile) throws(MuxStoreError)

    /// Takes the lock of `file` if the lock is free.
    ///
    /// - Returns: Whether the caller holds the lock, until ``unlock(_:)`` or until the file is closed.
    func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool

    /// Sets the modification time, in nanoseconds since 1970.
    func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError)

    /// The number of bytes available to this user on the file system of `path`; `Int64.max` if unknown.
    func freeSpace(at path: String) throws(MuxStoreError) -> Int64
}

extension FileSystem {
    /// `nil`: this file system does not know whether bytes are in memory.
    package func readPromptly(_ file: OpenFile, at offset: Int64, count: Int) -> [UInt8]? { nil }

    /// `true`: this file system tells the permission only after an attempt to write.
    package func isWritable(_ path: String) -> Bool { true }

    /// The status of `path`, for a file system without symbolic links.
    package func targetStatus(at path: String) throws(MuxStoreError) -> FileStatus? { try self.status(at: path) }

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

    /// Appends all of `bytes`; after an error, a prefix may be in the file.
    package func appendAll(_ bytes: [UInt8], to file: OpenFile) throws(MuxStoreError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = try self.append(rest, to: file)
            guard count > 0 else { throw .fileSystem(.write, code: POSIXFileSystem.ioError) }
            rest = rest.dropFirst(count)
        }
    }

    /// Creates the folder and missing parents, and flushes the names to disk.
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

    /// Opens or creates the file at `path`; first creates the folder and missing parents, if necessary.
    func openFileAndFolders(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile {
        do {
            return try self.openFile(path, for: access)
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile) {
            if let folder = FilePath.parent(of: path) { try self.makeFolders(folder) }
            return try self.openFile(path, for: access)
        }
    }

    /// Removes the folder and its content; does not follow links.
    ///
    /// A missing file or folder is not an error.
    package func removeTree(_ path: String) throws(MuxStoreError) {
        try ignoringMissing { () throws(MuxStoreError) in
            for name in try self.names(in: path) {
                let inner = FilePath.join(path, name)
                if try self.status(at: inner)?.isFolder == true {
                    try self.removeTree(inner)
                } else {
                    try ignoringMissing { () throws(MuxStoreError) in try self.removeFile(inner) }
                }
            }
            try self.removeFolder(path)
        }
    }
}

/// Runs `body`; ignores the error for a missing file or folder, which another program may have removed.
package func ignoringMissing(_ body: () throws(MuxStoreError) -> Void) throws(MuxStoreError) {
    do {
        try body()
    } catch  where error.isMissing {}
}

extension MuxStoreError {
    /// Whether the cause of the error is a missing file or folder.
    package var isMissing: Bool {
        if case .fileSystem(_, code: POSIXFileSystem.noSuchFile) = self { true } else { false }
    }
}

/// The access mode of an open file.
package enum FileAccess: Sendable, Hashable {
    /// For reading; the file must exist.
    case read
    /// For reading and appending; creates a missing file with mode 0600.
    case append
    /// Like ``append``, but fails if the file exists.
    case create
    /// For overwriting the content from the offset; the file must exist.
    case overwrite(from: Int64)
}

/// Operations on path strings.
package enum FilePath {
    /// The path of a file URL, without ".", ".." and a trailing slash.
    ///
    /// The path of a URL with ".." or below `/private` depends on the existing files. Foundation resolves a
    /// symbolic link before "..", or removes `/private`, only if the resulting path exists.
    ///
    /// Stores do not use `URL.path`: the property is "" or "/" for a URL without a usable path, so different
    /// URLs would name the same folder.
    ///
    /// - Parameter url: A file URL, which may be relative to another URL.
    /// - Returns: An absolute path other than the root.
    /// - Throws: ``MuxStoreError/unusableURL`` if the scheme is not `file`; if the URL has a host other than
    ///   `localhost`, a user, a port, a query or a fragment; or if the path is empty, relative, the root, not
    ///   in UTF-8, or has an escaped slash or zero.
    package static func path(of url: URL) throws(MuxStoreError) -> String {
        let url = url.absoluteURL
        guard url.isFileURL, ["", "localhost"].contains(url.host(percentEncoded: false) ?? ""),
            url.user() == nil, url.port == nil, url.query() == nil, url.fragment() == nil,
            let decoded = self.decoded(url.path(percentEncoded: true)), decoded.utf8.first == UInt8(ascii: "/")
        else { throw .unusableURL }
        var path = URL(filePath: decoded, directoryHint: .isDirectory).standardizedFileURL.path(percentEncoded: false)
        // Scalars, not characters: some scalars before a slash form a single character with the slash.
        while path.unicodeScalars.last == "/" { path.unicodeScalars.removeLast() }
        guard path.utf8.first == UInt8(ascii: "/") else { throw .unusableURL }
        return path
    }

    /// A path without escapes; `nil` if the bytes are not UTF-8, or if the path has an escaped slash or zero.
    private static func decoded(_ path: String) -> String? {
        var bytes: [UInt8] = []
        var rest = path.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16), rest.count >= 2,
                value != 0, value != UInt8(ascii: "/")
            else { return nil }
            rest = rest.dropFirst(2)
            bytes.append(value)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    /// The path of `name` in `folder`.
    package static func join(_ folder: String, _ name: String) -> String {
        folder.hasSuffix("/") ? folder + name : folder + "/" + name
    }

    /// The path of the parent folder; `nil` for the root and for a single name.
    package static func parent(of path: String) -> String? {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return nil }
        guard slash > path.startIndex else { return path.utf8.count > 1 ? "/" : nil }
        return String(path[..<slash])
    }

    /// The last component of `path`.
    package static func name(of path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
        return String(path[path.utf8.index(after: slash)...])
    }
}

/// The metadata of a file.
package struct FileStatus: Sendable, Hashable {
    /// Unique among the files that exist or are open.
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
    /// The number of names; 0 for an open file that was removed or replaced.
    package var linkCount: UInt64
    /// The permission bits.
    package var mode: UInt32
    package var isFolder: Bool
    /// Whether the file is a symbolic link, which was not followed.
    package var isLink: Bool
    /// The user ID of the owner; 0 is the superuser.
    package var owner: UInt32
    /// The modification time, in nanoseconds since 1970.
    package var modified: Int64

    package init(
        identity: Identity,
        size: Int64,
        linkCount: UInt64,
        mode: UInt32,
        isFolder: Bool,
        isLink: Bool = false,
        owner: UInt32 = POSIXFileSystem.user,
        modified: Int64 = 0
    ) {
        self.identity = identity
        self.size = size
        self.linkCount = linkCount
        self.mode = mode
        self.isFolder = isFolder
        self.isLink = isLink
        self.owner = owner
        self.modified = modified
    }
}

/// An open file; closed at the release of the last reference.
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

/// A wait for a file lock, on a separate thread, which the caller can abandon.
///
/// `flock(2)` has no timeout. An abandoned wait continues, and releases the lock as soon as the lock is
/// taken.
final class LockWait: Sendable {
    private struct State: Sendable {
        /// The result of the call that takes the lock; `nil` until the wait is over.
        var result: Result<Void, MuxStoreError>?
        var isAbandoned = false
    }

    private let state = Locked(State())
    private let ended = DispatchSemaphore(value: 0)

    init(_ file: OpenFile, _ fileSystem: any FileSystem) {
        DispatchQueue(label: "MuxKit.LockWait").async {
            let result = Result { () throws(MuxStoreError) in try fileSystem.lock(file) }
            let isAbandoned = self.state.withLock { state in
                if !state.isAbandoned { state.result = result }
                return state.isAbandoned
            }
            guard isAbandoned else {
                self.ended.signal()
                return
            }
            // Unlocks before `result` is set: afterwards a later call may take the lock with the same file.
            if case .success = result { try? fileSystem.unlock(file) }
            self.state.withLock { $0.result = result }
        }
    }

    /// Whether the wait is over; an abandoned wait then no longer holds the lock.
    var isOver: Bool { self.state.withLock { $0.result != nil } }

    /// Blocks until the end of the call that takes the lock; abandons the wait after `limit`.
    ///
    /// - Returns: Whether the lock is taken; the caller must then release the lock.
    /// - Throws: The error of the call that takes the lock.
    func finish(within limit: Duration) throws(MuxStoreError) -> Bool {
        _ = self.ended.wait(timeout: .now() + limit.secondsValue)
        return try self.state.withLock { state throws(MuxStoreError) -> Bool in
            guard let result = state.result else {
                state.isAbandoned = true
                return false
            }
            try result.get()
            return true
        }
    }
}
