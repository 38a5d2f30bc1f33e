import Foundation
import MuxKit

/// The folder of bodies that are too long for memory, with a size limit in bytes.
///
/// Methods with file access block, and are called on threads for blocking work. Above the limit, the least
/// recently used files are removed, even if a stored response names such a file. A response without its file
/// is a miss.
///
/// **On disk.** Each session has a subfolder, named `bodies-` and the session's epoch. The first opening in a
/// session removes the subfolders of other sessions. If the name of the folder is a digest, the folder also
/// has a file `owner` with the full name.
final class BodyFolder: Sendable {
    /// The body or the file is missing, unreadable, or of another session.
    struct Gone: Error {}

    private struct Use: Sendable {
        var size: Int64
        /// The sequence number of the last use.
        var lastUse: UInt64
    }

    private struct State: Sendable {
        /// The folder of the session; `nil` while the folder is not open.
        var path: String?
        var files: [String: Use] = [:]
        /// The size of `files`, in bytes.
        var used: Int64 = 0
        var lastUse: UInt64 = 0
        /// Whether the next opening removes all files.
        var isAbandoned = false

        mutating func use(_ name: String, size: Int64) {
            self.lastUse &+= 1
            self.used += size - (self.files[name]?.size ?? 0)
            self.files[name] = Use(size: size, lastUse: self.lastUse)
        }

        mutating func forget(_ name: String) {
            self.used -= self.files.removeValue(forKey: name)?.size ?? 0
        }

        /// Forgets the least recently used files above `limit`.
        ///
        /// - Returns: The names of the files, which the caller removes.
        mutating func evict(limit: Int64) -> [String] {
            var gone: [String] = []
            guard self.used > limit else { return gone }
            for (name, _) in self.files.sorted(by: { $0.value.lastUse < $1.value.lastUse }) where self.used > limit {
                gone.append(name)
                self.forget(name)
            }
            return gone
        }
    }

    private static let prefix = "bodies-"
    /// The maximum length of one read, in bytes.
    private static let pieceSize = 256 << 10

    /// The maximum size of all complete files, in bytes.
    let limit: Int64
    private let folder: StoreFolder
    private let fileSystem: CheckedFileSystem
    private let state = Locked(State())
    /// The highest epoch that was opened; the lock is held while folders are created and removed.
    ///
    /// Lock order: this lock first, then the lock of ``state``.
    private let lastEpoch = Locked(UInt64(0))

    /// Whether `text` can be the name of a file of this folder.
    static func isName(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (48...57).contains($0) || (97...122).contains($0) }
    }

    init(_ folder: StoreFolder, limit: Int64, fileSystem: any FileSystem, problems: StorageProblems) {
        self.folder = folder
        self.limit = limit
        self.fileSystem = CheckedFileSystem(fileSystem, for: folder, problems: problems)
    }

    var root: String { self.folder.path }

    // MARK: - Sessions

    /// Prepares the folder for the session of `epoch`, unless prepared; removes the files of other sessions.
    ///
    /// - Throws: ``Gone`` if a later session was opened; `MuxStoreError` for a failure of the file system.
    func open(epoch: UInt64) throws {
        try self.lastEpoch.withLock { last throws in
            guard epoch >= last else { throw Gone() }
            try self.openFolder(epoch)
            last = epoch
        }
    }

    private func openFolder(_ epoch: UInt64) throws(MuxStoreError) {
        let name = Self.prefix + String(epoch)
        let path = FilePath.join(self.root, name)
        let (opened, isAbandoned) = self.state.withLock { ($0.path, $0.isAbandoned) }
        guard opened != path else { return }
        try self.folder.claim(self.fileSystem)
        if isAbandoned { try self.removeSessions { _ in true } }
        try self.fileSystem.makeFolders(path)
        try? self.fileSystem.setStoreAttributes(self.root)
        try self.removeSessions { $0 != name }
        var found: [(name: String, size: Int64, modified: Int64)] = []
        for file in try self.fileSystem.names(in: path) {
            guard let status = try self.fileSystem.status(at: FilePath.join(path, file)) else { continue }
            found.append((file, status.size, status.modified))
        }
        let gone = self.state.withLock { state -> [String] in
            guard state.path != path else { return [] }
            state = State(path: path)
            for file in found.sorted(by: { $0.modified < $1.modified }) { state.use(file.name, size: file.size) }
            // The limit may be lower than in an earlier process.
            return state.evict(limit: self.limit)
        }
        for name in gone { try? self.fileSystem.removeFile(FilePath.join(path, name)) }
    }

    /// Closes the folder, and marks all files for removal at the next opening; does not block.
    func abandon() {
        self.state.withLock { state in
            state = State()
            state.isAbandoned = true
        }
    }

    /// Removes the files of all sessions, including the current session.
    func removeAllFiles() throws(MuxStoreError) {
        try self.lastEpoch.withLock { _ throws(MuxStoreError) in
            // After a failure, the next opening removes the files.
            self.abandon()
            guard try self.folder.isPresent(self.fileSystem) else { return }
            try self.removeSessions { _ in true }
            self.state.withLock { $0.isAbandoned = false }
        }
    }

    /// Whether the folder is open for the session of `epoch`.
    func isOpen(epoch: UInt64) -> Bool {
        self.state.withLock { $0.path == FilePath.join(self.root, Self.prefix + String(epoch)) }
    }

    private func removeSessions(_ isOver: (String) -> Bool) throws(MuxStoreError) {
        try ignoringMissing { () throws(MuxStoreError) in
            for name in try self.fileSystem.names(in: self.root) where name.hasPrefix(Self.prefix) && isOver(name) {
                try self.fileSystem.removeTree(FilePath.join(self.root, name))
            }
        }
    }

    // MARK: - Files

    /// The open file of an incomplete body; readable even after the removal of the file.
    struct Growing: Sendable {
        fileprivate let file: OpenFile
        fileprivate let name: String
        fileprivate let folder: String
        fileprivate(set) var count: Int64 = 0
    }

    /// Creates the file of a body; requires an earlier call of ``open(epoch:)`` for the session.
    func begin() throws -> Growing {
        guard let folder = self.state.withLock({ $0.path }) else { throw Gone() }
        let name = Hex.text(of: .random(in: .min ... .max))
        let file = try self.create(name, in: folder)
        return Growing(file: file, name: name, folder: folder)
    }

    /// Creates a file, and the folder if the system has removed the folder.
    private func create(_ name: String, in folder: String, attempts: Int = 3) throws -> OpenFile {
        do {
            return try self.fileSystem.openFile(FilePath.join(folder, name), for: .create)
        } catch {
            guard error.isMissing, attempts > 1 else { throw error }
            try self.recreate(folder)
            return try self.create(name, in: folder, attempts: attempts - 1)
        }
    }

    /// Creates the removed folder of the session again; the removed files are lost.
    ///
    /// - Throws: ``Gone`` if the session has ended; `MuxStoreError` for a failure of the file system.
    private func recreate(_ folder: String) throws {
        try self.lastEpoch.withLock { _ throws in
            guard self.state.withLock({ $0.path == folder }) else { throw Gone() }
            try ignoringMissing { () throws(MuxStoreError) in try self.fileSystem.makeFolders(folder) }
            try? self.fileSystem.setStoreAttributes(self.root)
        }
    }

    /// Copies a body to a new file of the same name, after the system has removed the file; the open file
    /// still has the bytes.
    private func restore(_ growing: Growing) throws {
        let file = try self.create(growing.name, in: growing.folder)
        var offset: Int64 = 0
        while offset < growing.count {
            let bytes = try self.fileSystem.readAll(growing.file, at: offset, count: Self.pieceSize)
            guard !bytes.isEmpty else { throw Gone() }
            try self.fileSystem.appendAll(bytes, to: file)
            offset += Int64(bytes.count)
        }
        guard try self.isPresent(growing) else { throw Gone() }
    }

    private func isPresent(_ growing: Growing) throws(MuxStoreError) -> Bool {
        try self.fileSystem.status(at: FilePath.join(growing.folder, growing.name)) != nil
    }

    func append(_ bytes: Data, to growing: inout Growing) throws(MuxStoreError) {
        try self.fileSystem.appendAll([UInt8](bytes), to: growing.file)
        growing.count += Int64(bytes.count)
    }

    /// Counts the complete file as used, and removes the least recently used files above the limit.
    ///
    /// - Returns: The name of the file; `nil` if the file was removed, because the session has ended or the
    ///   file cannot be kept.
    func finish(_ growing: Growing) -> String? {
        do {
            if try !self.isPresent(growing) { try self.restore(growing) }
            let gone = try self.state.withLock { state throws in
                guard state.path == growing.folder else { throw Gone() }
                state.use(growing.name, size: growing.count)
                return state.evict(limit: self.limit)
            }
            for name in gone { try? self.fileSystem.removeFile(FilePath.join(growing.folder, name)) }
            return gone.contains(growing.name) ? nil : growing.name
        } catch {
            self.discard(growing)
            return nil
        }
    }

    /// Removes an incomplete file.
    func discard(_ growing: Growing) {
        try? self.fileSystem.removeFile(FilePath.join(growing.folder, growing.name))
    }

    /// Removes a file that no stored response uses, or that is unreadable.
    func remove(_ name: String) {
        let path = self.state.withLock { state -> String? in
            state.forget(name)
            return state.path
        }
        if let path, Self.isName(name) { try? self.fileSystem.removeFile(FilePath.join(path, name)) }
    }

    /// Opens a file for reading, and reads the first piece of the bytes at `places`.
    ///
    /// The file may be removed afterwards: an open file remains readable.
    ///
    /// - Throws: ``Gone`` without a file of this name and length, or if the file is unreadable. An unusable
    ///   file is removed.
    func read(_ name: String, count: Int, piece places: Range<Int>) throws -> (OpenFile, Data) {
        guard let path = self.state.withLock({ $0.path }), Self.isName(name) else { throw Gone() }
        do {
            let file = try self.fileSystem.openFile(FilePath.join(path, name), for: .read)
            guard try self.fileSystem.status(of: file).size == Int64(count) else { throw Gone() }
            self.state.withLock { $0.use(name, size: Int64(count)) }
            return (file, try self.piece(of: file, name, at: places))
        } catch {
            self.remove(name)
            throw Gone()
        }
    }

    /// Reads the first bytes at `places` of an open file, at most 256 KiB; an unreadable file is removed.
    func piece(of file: OpenFile, _ name: String, at places: Range<Int>) throws -> Data {
        guard !places.isEmpty else { return Data() }
        let count = min(Self.pieceSize, places.count)
        let bytes = try? self.fileSystem.readAll(file, at: Int64(places.lowerBound), count: count)
        guard let bytes, bytes.count == count else {
            self.remove(name)
            throw Gone()
        }
        return Data(bytes)
    }
}

/// Collects the body of a response: in memory, and a long body in a file.
struct BodySpool: Sendable {
    private let folder: BodyFolder?
    private let memoryLimit: Int
    private let limit: Int
    private var data = Data()
    private var growing: BodyFolder.Growing?
    private(set) var count = 0

    /// The body is too long.
    struct Failed: Error {}

    /// Makes a spool.
    ///
    /// - Parameters:
    ///   - folder: The folder for bodies longer than `memoryLimit`; `nil` without a folder.
    ///   - memoryLimit: The maximum length of a body in memory, in bytes.
    ///   - limit: The maximum length of a body, in bytes; a lower limit of the folder, or of the memory
    ///     without a folder, takes precedence.
    init(in folder: BodyFolder?, memoryLimit: Int, limit: Int) {
        self.folder = folder
        self.memoryLimit = memoryLimit
        self.limit = min(limit, folder.map { Int(clamping: $0.limit) } ?? memoryLimit)
    }

    /// Whether a body of this length is permitted.
    func fits(_ count: Int) -> Bool { count <= self.limit }

    /// Begins the file of a body that is too long for memory.
    ///
    /// An unusable folder is thus detected before the body arrives.
    ///
    /// - Parameter count: The expected length.
    /// - Throws: The error of the file system, or ``BodyFolder/Gone``.
    mutating func prepare(for count: Int) async throws {
        guard count > self.memoryLimit, self.growing == nil, let folder else { return }
        self.growing = try await BlockingWork.run { Result { try folder.begin() } }.get()
    }

    /// Appends a piece of the body.
    ///
    /// - Throws: ``Failed`` for a body that is too long, ``BodyFolder/Gone``, or the error of the file
    ///   system; the caller then discards the spool.
    mutating func append(_ bytes: Data) async throws {
        guard bytes.count <= self.limit - self.count else { throw Failed() }
        self.count += bytes.count
        guard self.growing != nil || self.count > self.memoryLimit, let folder else {
            self.data.append(bytes)
            return
        }
        let (held, growing) = (self.data, self.growing)
        self.data = Data()
        self.growing = try await BlockingWork.run {
            Result {
                var file = try growing ?? folder.begin()
                do {
                    if !held.isEmpty { try folder.append(held, to: &file) }
                    try folder.append(bytes, to: &file)
                } catch {
                    folder.discard(file)
                    throw error
                }
                return file
            }
        }.get()
    }

    /// The complete body; `nil` if the session has ended, or the file cannot be kept.
    func finish() async -> StoredResponse.Body? {
        guard let growing, let folder else { return .memory(self.data) }
        return await BlockingWork.run { folder.finish(growing) }.map { .file($0) }
    }

    func discard() async {
        guard let growing, let folder else { return }
        await BlockingWork.run { folder.discard(growing) }
    }
}
