/// Applies the rules for the folders of stores to the calls of another file system.
///
/// - A folder without a usable path: every throwing call with a path is refused.
/// - A folder or file of another user, or with write permission for the group or others: opening is refused
///   with ``MuxStoreError/notPrivate``. The owner may be the superuser, who can change every file. A symbolic
///   link to a folder is followed if these rules permit the owner of the link, and the owner and mode of the
///   target.
/// - A folder without support for synchronization (`EINVAL`, `ENOTSUP`, `EOPNOTSUPP`, `ENOSYS`) counts as
///   synchronized.
///
/// Each refusal, and missing support for synchronization, is reported once, through ``StorageProblems``.
package struct CheckedFileSystem: FileSystem {
    private let base: any FileSystem
    private let refusal: MuxStoreError?
    private let problems: StorageProblems
    private let user: UInt32

    /// Wraps `base`.
    ///
    /// - Parameters:
    ///   - base: Receives the calls.
    ///   - folder: The store's folder, which contains the paths of the calls.
    ///   - problems: Collects the problems.
    ///   - user: The user who may own files, besides the superuser.
    package init(
        _ base: any FileSystem,
        for folder: StoreFolder,
        problems: StorageProblems,
        user: UInt32 = POSIXFileSystem.user
    ) {
        self.base = base
        self.refusal = folder.refusal
        self.problems = problems
        self.user = user
    }

    // MARK: - Rules

    /// Notes `error`, and returns `error` for a `throw`.
    package func refused(_ error: MuxStoreError) -> MuxStoreError {
        self.problems.note(error)
        return error
    }

    /// Refuses a call with a path if the store's folder has no usable path.
    private func admit() throws(MuxStoreError) {
        if let refusal { throw self.refused(refusal) }
    }

    /// Refuses a file that another user could have written, or can change.
    package func check(_ status: FileStatus) throws(MuxStoreError) {
        guard self.isTrusted(status), status.mode & 0o022 == 0 else { throw self.refused(.notPrivate) }
    }

    private func isTrusted(_ status: FileStatus) -> Bool { status.owner == self.user || status.owner == 0 }

    /// Refuses a folder in which another user can create or replace files.
    ///
    /// - Returns: Whether the folder exists.
    package func checkFolder(_ path: String) throws(MuxStoreError) -> Bool {
        guard let status = try self.status(at: path) else { return false }
        guard status.isLink else {
            try self.check(status)
            return true
        }
        // The permissions of a link have no meaning.
        guard self.isTrusted(status) else { throw self.refused(.notPrivate) }
        guard let target = try self.targetStatus(at: path) else { return false }
        try self.check(target)
        return true
    }

    // MARK: - Checked calls

    package func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile {
        try self.admit()
        if let folder = FilePath.parent(of: path) { _ = try self.checkFolder(folder) }
        let file = try self.base.openFile(path, for: access)
        // Checks the open file, because another file may take the path at any time. With `create`, the file
        // is new, and belongs to the user.
        if access != .create { try self.check(try self.base.status(of: file)) }
        return file
    }

    package func makeFolder(_ path: String) throws(MuxStoreError) -> Bool {
        try self.admit()
        if try self.base.makeFolder(path) { return true }
        // A link to a missing folder: `mkdir` reports that the name exists, and no file can be created.
        guard try self.checkFolder(path) else { throw .fileSystem(.makeFolder, code: POSIXFileSystem.noSuchFile) }
        return false
    }

    package func synchronizeFolder(_ path: String) throws(MuxStoreError) {
        try self.admit()
        do {
            try self.base.synchronizeFolder(path)
        } catch {
            guard case .fileSystem(.synchronizeFolder, let code) = error, POSIXFileSystem.isUnsupported(code) else {
                throw error
            }
            self.problems.note(error)
        }
    }

    // MARK: - Other calls

    package func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] {
        try self.base.read(file, at: offset, count: count)
    }

    package func readPromptly(_ file: OpenFile, at offset: Int64, count: Int) -> [UInt8]? {
        self.base.readPromptly(file, at: offset, count: count)
    }

    package func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int {
        try self.base.append(bytes, to: file)
    }

    package func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus { try self.base.status(of: file) }

    package func status(at path: String) throws(MuxStoreError) -> FileStatus? {
        try self.admit()
        return try self.base.status(at: path)
    }

    package func targetStatus(at path: String) throws(MuxStoreError) -> FileStatus? {
        try self.admit()
        return try self.base.targetStatus(at: path)
    }

    /// `true` for an unusable path: the next call then throws the refusal, not an error of missing
    /// permission.
    package func isWritable(_ path: String) -> Bool { self.refusal != nil || self.base.isWritable(path) }

    package func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError) {
        try self.base.truncate(file, to: size)
    }

    package func synchronize(_ file: OpenFile) throws(MuxStoreError) { try self.base.synchronize(file) }

    package func move(_ path: String, to other: String) throws(MuxStoreError) {
        try self.admit()
        try self.base.move(path, to: other)
    }

    package func removeFile(_ path: String) throws(MuxStoreError) {
        try self.admit()
        try self.base.removeFile(path)
    }

    package func removeFolder(_ path: String) throws(MuxStoreError) {
        try self.admit()
        try self.base.removeFolder(path)
    }

    package func names(in path: String) throws(MuxStoreError) -> [String] {
        try self.admit()
        return try self.base.names(in: path)
    }

    package func setStoreAttributes(_ path: String) throws(MuxStoreError) {
        try self.admit()
        try self.base.setStoreAttributes(path)
    }

    package func lock(_ file: OpenFile) throws(MuxStoreError) { try self.base.lock(file) }

    package func unlock(_ file: OpenFile) throws(MuxStoreError) { try self.base.unlock(file) }

    package func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool { try self.base.tryLock(file) }

    package func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError) {
        try self.admit()
        try self.base.setModified(path, to: nanoseconds)
    }

    package func freeSpace(at path: String) throws(MuxStoreError) -> Int64 {
        try self.admit()
        return try self.base.freeSpace(at: path)
    }
}

/// The problems of folders; a receiver gets each problem once.
///
/// **Concurrent calls** are safe. A receiver is called on the thread that notes a problem or connects the
/// receiver; the thread may hold locks.
package final class StorageProblems: Sendable {
    private struct State: Sendable {
        /// The noted problems, oldest first.
        var noted: [MuxStoreError] = []
        var receiver: (@Sendable (MuxStoreError) -> Void)?
    }

    private let state = Locked(State())

    package init() {}

    /// Notes a problem, and reports the problem to the receiver, if any, unless the same problem was noted
    /// before.
    package func note(_ error: MuxStoreError) {
        let receiver = self.state.withLock { state -> (@Sendable (MuxStoreError) -> Void)? in
            guard !state.noted.contains(error) else { return nil }
            state.noted.append(error)
            return state.receiver
        }
        receiver?(error)
    }

    /// Reports problems to `receiver`, beginning with the previously noted problems; replaces the former
    /// receiver.
    package func connect(_ receiver: @escaping @Sendable (MuxStoreError) -> Void) {
        let noted = self.state.withLock { state in
            state.receiver = receiver
            return state.noted
        }
        for error in noted { receiver(error) }
    }
}

/// A store or lease that collects the problems of its folder, including problems without a thrown error.
package protocol ReportsProblems: Sendable {
    /// The problems of the folder; `nil` without a folder.
    var problems: StorageProblems? { get }
}
