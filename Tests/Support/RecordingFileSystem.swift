package import MuxKit

/// One call to a ``RecordingFileSystem``.
package struct FileCall: Sendable, Hashable, CustomStringConvertible {
    package var operation: MuxStoreError.FileOperation
    /// The last component of the path; for a rename, of the new path.
    package var name: String

    package init(_ operation: MuxStoreError.FileOperation, _ name: String) {
        self.operation = operation
        self.name = name
    }

    package var description: String { "\(self.operation.rawValue) \(self.name)" }
}

/// A fault of a call to a ``RecordingFileSystem``.
package enum FileFault: Sendable {
    /// The call is refused with a POSIX error number.
    case refuse(Int32)
    /// A write accepts only this number of bytes; other calls are unchanged.
    case shorten(to: Int)
    /// A write accepts only this number of bytes, and every later call is refused with the error number. A
    /// call other than a write is refused itself.
    case fail(after: Int, Int32)
    /// The closure runs, then the call; it may end the process.
    case perform(@Sendable () -> Void)
    /// The closure runs after a write of this number of bytes, or before any other call; it may end the
    /// process.
    case performInWrite(after: Int, @Sendable () -> Void)
}

/// Records the calls to another file system except ``isWritable(_:)``, and injects faults.
///
/// Calls are numbered from 1 in their order; after ``restart()`` from 1 again.
package final class RecordingFileSystem: FileSystem {
    private struct State: Sendable {
        var calls: [FileCall] = []
        var isBroken: Int32?
        var files: [OpenFile] = []
    }

    private let base: any FileSystem
    private let state = Locked(State())
    private let holdsFiles: Bool
    private let isWarm: Bool
    private let sees: @Sendable (String, FileStatus) -> FileStatus
    private let fault: @Sendable (Int, FileCall) -> FileFault?

    /// Wraps `base`.
    ///
    /// - Parameters:
    ///   - base: Receives the calls.
    ///   - holdsFiles: Whether every opened file stays open during the life of this object.
    ///   - isWarm: Whether all data counts as in the system's memory; otherwise no data does.
    ///   - fault: The fault of a call, given the call and its number.
    package init(
        _ base: any FileSystem = POSIXFileSystem(),
        holdsFiles: Bool = false,
        isWarm: Bool = false,
        fault: @escaping @Sendable (Int, FileCall) -> FileFault? = { _, _ in nil }
    ) {
        self.base = base
        self.holdsFiles = holdsFiles
        self.isWarm = isWarm
        self.sees = { $1 }
        self.fault = fault
    }

    /// Wraps the real file system; `sees` changes the status of a path, for owners that only the superuser
    /// could set.
    package init(sees: @escaping @Sendable (String, FileStatus) -> FileStatus) {
        self.base = POSIXFileSystem()
        self.holdsFiles = false
        self.isWarm = false
        self.sees = sees
        self.fault = { _, _ in nil }
    }

    /// The calls so far.
    package var calls: [FileCall] { self.state.withLock { $0.calls } }

    /// Drops the calls so far and counts from 1 again; a refusal of all calls stays.
    package func restart() { self.state.withLock { $0.calls = [] } }

    /// Records a call and applies the fault of the call.
    ///
    /// - Returns: The fault, because ``append(_:to:)`` applies the faults that limit a write.
    @discardableResult
    private func note(_ operation: MuxStoreError.FileOperation, _ path: String) throws(MuxStoreError) -> FileFault? {
        let call = FileCall(operation, FilePath.name(of: path))
        let (number, broken) = self.state.withLock { state in
            state.calls.append(call)
            return (state.calls.count, state.isBroken)
        }
        if let broken { throw .fileSystem(operation, code: broken) }
        let fault = self.fault(number, call)
        switch fault {
        case .refuse(let code)?: throw .fileSystem(operation, code: code)
        case .fail(_, let code)?:
            self.state.withLock { $0.isBroken = code }
            if operation != .write { throw .fileSystem(operation, code: code) }
        case .perform(let body)?: body()
        case .performInWrite(_, let body)? where operation != .write: body()
        case .performInWrite?, .shorten?, nil: break
        }
        return fault
    }

    package func openFile(_ path: String, for access: FileAccess) throws(MuxStoreError) -> OpenFile {
        try self.note(.open, path)
        let file = try self.base.openFile(path, for: access)
        if self.holdsFiles { self.state.withLock { $0.files.append(file) } }
        return file
    }

    package func read(_ file: OpenFile, at offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] {
        try self.note(.read, file.path)
        return try self.base.read(file, at: offset, count: count)
    }

    package func readPromptly(_ file: OpenFile, at offset: Int64, count: Int) -> [UInt8]? {
        self.isWarm ? try? self.read(file, at: offset, count: count) : nil
    }

    package func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) throws(MuxStoreError) -> Int {
        switch try self.note(.write, file.path) {
        case .shorten(let count)?, .fail(let count, _)?: return try self.base.append(bytes.prefix(count), to: file)
        case .performInWrite(let count, let body)?:
            let written = try self.base.append(bytes.prefix(count), to: file)
            body()
            return written
        case .perform?, .refuse?, nil: return try self.base.append(bytes, to: file)
        }
    }

    package func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus {
        try self.note(.status, file.path)
        return self.sees(file.path, try self.base.status(of: file))
    }

    package func status(at path: String) throws(MuxStoreError) -> FileStatus? {
        try self.note(.status, path)
        return try self.base.status(at: path).map { self.sees(path, $0) }
    }

    package func targetStatus(at path: String) throws(MuxStoreError) -> FileStatus? {
        try self.note(.status, path)
        return try self.base.targetStatus(at: path).map { self.sees(path, $0) }
    }

    package func isWritable(_ path: String) -> Bool { self.base.isWritable(path) }

    package func truncate(_ file: OpenFile, to size: Int64) throws(MuxStoreError) {
        try self.note(.truncate, file.path)
        try self.base.truncate(file, to: size)
    }

    package func synchronize(_ file: OpenFile) throws(MuxStoreError) {
        try self.note(.synchronize, file.path)
        try self.base.synchronize(file)
    }

    package func synchronizeFolder(_ path: String) throws(MuxStoreError) {
        try self.note(.synchronizeFolder, path)
        try self.base.synchronizeFolder(path)
    }

    package func move(_ path: String, to other: String) throws(MuxStoreError) {
        try self.note(.rename, other)
        try self.base.move(path, to: other)
    }

    package func removeFile(_ path: String) throws(MuxStoreError) {
        try self.note(.remove, path)
        try self.base.removeFile(path)
    }

    package func removeFolder(_ path: String) throws(MuxStoreError) {
        try self.note(.removeFolder, path)
        try self.base.removeFolder(path)
    }

    package func names(in path: String) throws(MuxStoreError) -> [String] {
        try self.note(.list, path)
        return try self.base.names(in: path)
    }

    package func makeFolder(_ path: String) throws(MuxStoreError) -> Bool {
        try self.note(.makeFolder, path)
        return try self.base.makeFolder(path)
    }

    package func setStoreAttributes(_ path: String) throws(MuxStoreError) {
        try self.note(.mark, path)
        try self.base.setStoreAttributes(path)
    }

    package func lock(_ file: OpenFile) throws(MuxStoreError) {
        try self.note(.lock, file.path)
        try self.base.lock(file)
    }

    package func unlock(_ file: OpenFile) throws(MuxStoreError) {
        // The kernel releases locks with their holder, even on a broken disk.
        defer { try? self.base.unlock(file) }
        try self.note(.unlock, file.path)
    }

    package func tryLock(_ file: OpenFile) throws(MuxStoreError) -> Bool {
        try self.note(.lock, file.path)
        return try self.base.tryLock(file)
    }

    package func setModified(_ path: String, to nanoseconds: Int64) throws(MuxStoreError) {
        try self.note(.setTime, path)
        try self.base.setModified(path, to: nanoseconds)
    }

    package func freeSpace(at path: String) throws(MuxStoreError) -> Int64 {
        try self.note(.freeSpace, path)
        return try self.base.freeSpace(at: path)
    }
}
