package import Foundation
import MuxKit

/// The folder of one ``AsyncMedia``: complete files, growing files (incomplete downloads) and their sidecars.
///
/// The methods block. ``find(_:)``, ``beginUse(_:)`` and ``endUse(_:)`` may run on the caller's thread, even
/// the main thread; the other methods run on threads that may block. Most methods are atomic under one lock.
/// Methods that create, truncate or rename a file of a download check under the lock whether a removal or a
/// sign-out (a fence) has invalidated the download, so a removed file does not reappear.
///
/// **On disk.** The folder `media` contains the files, and the file `session` contains the ``Session`` of the
/// files. Folders with the prefix `removed-` are being removed. The file `owner` contains the texts from
/// which the name of the folder was made (``OwnedName``). The system may remove any file or folder at any
/// time: the methods of a download then throw ``Removed``, and ``open(_:opening:anew:_:)`` recreates the
/// folder.
final class MediaFolder: Sendable {
    /// Returns whether no fence has invalidated the caller's work since its start; called under the lock.
    typealias Check = () -> Bool

    /// A fence invalidated the caller's work.
    struct Fenced: RetryableError {
        var retryAdvice: RetryAdvice { .permanent }
    }

    /// Another program removed the folder, or the file in use.
    struct Removed: RetryableError {
        var retryAdvice: RetryAdvice { .permanent }
    }

    struct Disk: Sendable {
        /// The number of the current opening; `nil` if the folder must be opened.
        var opening: UInt64?
        /// The session at the current opening.
        var session = Session(epoch: 0)
        /// The total size of the files in bytes; approximate, because the system may remove files, too.
        var used: Int64 = 0
        /// The number of uses of each file, by the name of the complete file.
        var uses: [String: Int] = [:]
        /// The latest modification time on disk at the opening, or set since, in nanoseconds since 1970.
        var lastMark: Int64 = 0
    }

    let fileSystem: CheckedFileSystem
    let limits: AsyncMedia.Limits
    private let folder: StoreFolder
    private let root: String
    let path: String
    private let durability: MuxDurability
    private let wallTime: @Sendable () -> Date
    let disk = Locked(Disk())

    init(
        _ folder: StoreFolder,
        limits: AsyncMedia.Limits,
        durability: MuxDurability,
        fileSystem: any FileSystem,
        problems: StorageProblems,
        wallTime: @escaping @Sendable () -> Date
    ) {
        self.folder = folder
        self.root = folder.path
        self.path = FilePath.join(self.root, "media")
        self.limits = limits
        self.durability = durability
        self.fileSystem = CheckedFileSystem(fileSystem, for: folder, problems: problems)
        self.wallTime = wallTime
    }

    func path(_ name: String) -> String { FilePath.join(self.path, name) }

    func url(_ name: MediaName) -> URL { URL(filePath: self.path(name.file), directoryHint: .notDirectory) }

    // MARK: - Sessions

    /// The identity of a session, also after a relaunch.
    struct Session: Codable, Equatable {
        var mux = 1
        var epoch: UInt64
        /// The identity of the store that counts the epoch; `nil` for a store without an identity.
        ///
        /// The epoch starts at 0 again if the store is lost, or keeps the epoch in memory only.
        var store: UInt64?
    }

    /// Opens the folder for `session`; removes the files of any other session.
    ///
    /// - Parameters:
    ///   - session: The session of the repository.
    ///   - opening: The opening number, which identifies the session in this process. If the folder is
    ///     already open with this number, the method only removes moved files.
    ///   - anew: Whether to open the folder even if the folder is already open with this number, because
    ///     another program removed a file or folder.
    ///   - check: Returns whether no fence has invalidated the caller's work since its start.
    /// - Throws: ``MediaError``, or ``Fenced``.
    func open(_ session: Session, opening: UInt64, anew: Bool = false, _ check: Check) throws {
        try self.withLockedDisk(attempts: Self.maximumAttempts) { disk in
            guard check() else { throw Fenced() }
            guard disk.opening != opening || anew else { return }
            try self.folder.claim(self.fileSystem)
            try? self.fileSystem.setStoreAttributes(self.root)
            try? self.sessionFile.removeLeftovers()
            let content = try self.sessionFile.read()
            let found = content.flatMap { try? JSONDecoder().decode(Session.self, from: $0) }
            if found != session {
                // Without the file `session`, or after a loss of the store, only the object that has opened
                // the folder for this session can be sure that the files belong to the session.
                let isUnchanged = content == nil || found == disk.session
                let isOwn = isUnchanged && disk.opening == opening && disk.session.epoch == session.epoch
                if !isOwn { try self.moveAway() }
                try self.sessionFile.write(try JSONEncoder().encode(session), durability: self.durability)
            }
            try self.fileSystem.makeFolders(self.path)
            self.removeLeftoverSidecars()
            let entries = try self.entries()
            disk.used = entries.reduce(0) { $0 + $1.status.size }
            // A clock that was set back since the last launch must not make new files the oldest files.
            disk.lastMark = entries.reduce(disk.lastMark) { max($0, min($1.status.modified, Self.maximumMark)) }
            (disk.opening, disk.session) = (opening, session)
        }
        // Outside the lock: no method uses the moved files.
        try? self.removeMovedAway()
    }

    /// Removes the files of an ended session, unless the folder is already open for the next session.
    ///
    /// - Parameter opening: The opening number of the next session.
    /// - Throws: The error that prevented the removal of files.
    func removeEndedSession(opening: UInt64) throws {
        try self.withLockedDisk(attempts: Self.maximumAttempts) { disk in
            guard disk.opening != opening else { return }
            // Throws if the folder belongs to another name: the files of the folder must stay.
            _ = try self.folder.isPresent(self.fileSystem)
            disk.opening = nil
            disk.used = 0
            try self.moveAway()
            try self.sessionFile.remove(durability: self.durability)
        }
        try MediaError.mapping { () throws(MuxStoreError) in try self.removeMovedAway() }
    }

    /// Writes the file `session` again if another program has removed the file.
    ///
    /// Without the file `session`, the next launch could not determine the session of the media files, and
    /// would remove the media files.
    ///
    /// - Throws: ``Removed`` if the folder must be opened first; an error of the file system.
    private func restoreSessionFile(_ disk: Disk) throws {
        guard try self.fileSystem.status(at: self.sessionFile.path) == nil else { return }
        guard disk.opening != nil else { throw Removed() }
        try self.sessionFile.write(try JSONEncoder().encode(disk.session), durability: self.durability)
    }

    /// Removes all files; the session continues.
    func removeAll() throws {
        try self.withLockedDisk(attempts: Self.maximumAttempts) { disk in
            try self.moveAway()
            try self.fileSystem.makeFolders(self.path)
            disk.used = 0
        }
        try? self.removeMovedAway()
    }

    /// Renames the folder of the files, if present; ``removeMovedAway()`` removes the renamed folder later.
    private func moveAway() throws(MuxStoreError) {
        guard try self.fileSystem.status(at: self.path) != nil else { return }
        let name = Self.removedPrefix + Hex.text(of: .random(in: .min ... .max))
        try self.fileSystem.move(self.path, to: FilePath.join(self.root, name))
        if self.durability == .full { try self.fileSystem.synchronizeFolder(self.root) }
    }

    private func removeMovedAway() throws(MuxStoreError) {
        try ignoringMissing { () throws(MuxStoreError) in
            for name in try self.fileSystem.names(in: self.root) where name.hasPrefix(Self.removedPrefix) {
                try self.fileSystem.removeTree(FilePath.join(self.root, name))
            }
        }
    }

    /// Removes sidecars without a growing file, which a killed process may have left.
    private func removeLeftoverSidecars() {
        let names = Set((try? self.fileSystem.names(in: self.path)) ?? [])
        for name in names where name.hasPrefix(MediaName.sidecarPrefix) {
            let partial = MediaName.partialPrefix + name.dropFirst(MediaName.sidecarPrefix.count)
            if !names.contains(partial) { try? self.fileSystem.removeFile(self.path(name)) }
        }
    }

    private static let removedPrefix = "removed-"
    /// The maximum of a time from the clock or the disk, in nanoseconds; a greater time may follow in order.
    private static let maximumMark: Int64 = 9_000_000_000_000_000_000

    private var sessionFile: DurableFile { DurableFile("session", in: self.root, fileSystem: self.fileSystem) }

    // MARK: - Complete files

    /// Finds the complete file and marks the file as used; `nil` if absent, too small, or if the folder is
    /// not open.
    ///
    /// - Throws: ``MediaError/disk(_:)`` if another user owns the file or may write to the file.
    func find(_ name: MediaName) throws -> URL? {
        try self.withLockedDisk { disk in
            guard disk.opening != nil, let status = try? self.fileSystem.status(at: self.path(name.file)),
                !status.isFolder, status.size >= self.limits.minimumFileBytes
            else { return nil }
            try self.fileSystem.check(status)
            return self.markUsed(name, &disk) ? self.url(name) : nil
        }
    }

    /// Marks the complete file as used; returns whether the file exists.
    @discardableResult
    private func markUsed(_ name: MediaName, _ disk: inout Disk) -> Bool {
        // `max` first: a date that is not a number counts as 0.
        let now = Int64(min(max(0, self.wallTime().timeIntervalSince1970 * 1e9), Double(Self.maximumMark)))
        disk.lastMark = max(now, disk.lastMark + 1)
        do throws(MuxStoreError) {
            try self.fileSystem.setModified(self.path(name.file), to: disk.lastMark)
        } catch {
            return !error.isMissing
        }
        return true
    }

    /// Removes the complete file, the growing file and its sidecar.
    func remove(_ name: MediaName) throws {
        try self.withLockedDisk(attempts: Self.maximumAttempts) { disk in
            for file in [name.file, name.partial, name.sidecar] { try self.remove(file, &disk) }
        }
    }

    /// Removes a file, if present.
    func remove(_ name: String, _ disk: inout Disk) throws(MuxStoreError) {
        guard let status = try self.fileSystem.status(at: self.path(name)) else { return }
        try ignoringMissing { () throws(MuxStoreError) in try self.fileSystem.removeFile(self.path(name)) }
        if !name.hasPrefix(MediaName.sidecarPrefix) { disk.used -= status.size }
    }

    // MARK: - Growing files

    /// Opens the growing file and reads its state.
    ///
    /// - Throws: ``MediaError/fetchedElsewhere`` if another process or object has locked the file; another
    ///   ``MediaError``; ``Removed``; ``Fenced``.
    func openPartial(
        _ name: MediaName,
        _ check: Check
    ) throws -> (file: OpenFile, partial: DownloadStateMachine.Partial) {
        try self.withLockedDisk { disk in
            guard check() else { throw Fenced() }
            try self.restoreSessionFile(disk)
            let file = try self.fileSystem.openFile(self.path(name.partial), for: .append)
            guard try self.fileSystem.tryLock(file) else { throw MediaError.fetchedElsewhere }
            // The former holder of the lock may have completed or removed the file between the opening and
            // the lock.
            try self.requirePresent(file, name)
            let content: Data?
            do throws(MuxStoreError) {
                content = try DurableFile(name.sidecar, in: self.path, fileSystem: self.fileSystem).read()
            } catch .fileSystem(.read, code: POSIXFileSystem.tooLarge) {
                content = nil  // not written by this class
            }
            let sidecar = content.flatMap { MediaSidecar($0) }
            let size = try self.fileSystem.status(of: file).size
            return (file, .init(validator: sidecar?.validator, total: sidecar?.total, offset: size))
        }
    }

    /// Whether the growing file still has its name; another process may have renamed or replaced the file.
    private func isPresent(_ file: OpenFile, _ name: MediaName) throws(MuxStoreError) -> Bool {
        try self.fileSystem.status(at: self.path(name.partial))?.identity == self.fileSystem.status(of: file).identity
    }

    /// Throws ``MediaError/fetchedElsewhere`` or ``Removed`` unless the growing file still has its name.
    private func requirePresent(_ file: OpenFile, _ name: MediaName) throws {
        guard try self.fileSystem.status(at: self.path(name.partial)) != nil else { throw Removed() }
        guard try self.isPresent(file, name) else { throw MediaError.fetchedElsewhere }
    }

    /// Unlocks the growing file before the file is closed.
    func unlock(_ file: OpenFile) { try? self.fileSystem.unlock(file) }

    /// Truncates the growing file, and replaces the sidecar; removes the sidecar if `sidecar` is `nil`.
    func restart(_ name: MediaName, _ file: OpenFile, _ sidecar: MediaSidecar?, _ check: Check) throws {
        try self.withLockedDisk { disk in
            guard check() else { throw Fenced() }
            // Without this check, the sidecar might be written to a new folder without the file `session`.
            try self.requirePresent(file, name)
            // The truncation precedes the new sidecar: a sidecar never belongs to bytes of another
            // representation.
            let size = try self.fileSystem.status(of: file).size
            disk.used -= size
            // An empty file is not truncated: at the close, ext4 flushes a file that was truncated to zero,
            // and the caller waits for the flush.
            if size > 0 {
                try self.fileSystem.truncate(file, to: 0)
                // A file system may write a new sidecar to the disk before the truncation.
                if self.durability == .full { try self.fileSystem.synchronize(file) }
            }
            let note = DurableFile(name.sidecar, in: self.path, fileSystem: self.fileSystem)
            // After a power failure, a former sidecar must not return: the sidecar would describe other
            // bytes. The loss of a first sidecar only prevents a resumption.
            let isReplacing = try self.fileSystem.status(at: note.path) != nil
            let durability = isReplacing ? self.durability : .relaxed
            if let sidecar {
                try note.write(try sidecar.encoded, durability: durability)
            } else {
                try note.remove(durability: durability)
            }
        }
    }

    /// Renames the growing file to its final name, and evicts files if the total size exceeds the limit.
    ///
    /// - Throws: ``MediaError``; ``Removed``; ``Fenced``.
    func complete(_ name: MediaName, _ file: OpenFile, _ check: Check) throws -> URL {
        if self.durability == .full {
            try MediaError.mapping { () throws(MuxStoreError) in try self.fileSystem.synchronize(file) }
        }
        return try self.withLockedDisk { disk in
            guard check() else { throw Fenced() }
            try self.requirePresent(file, name)
            let former = try self.fileSystem.status(at: self.path(name.file))?.size ?? 0
            try self.fileSystem.move(self.path(name.partial), to: self.path(name.file))
            disk.used -= former
            try? self.remove(name.sidecar, &disk)
            try? self.restoreSessionFile(disk)
            self.markUsed(name, &disk)
            if self.durability == .full { try? self.fileSystem.synchronizeFolder(self.path) }
            self.evict(toFree: 0, &disk)
            return self.url(name)
        }
    }

    /// Removes a growing file that cannot be resumed, unless another process or object is downloading the
    /// file.
    func discard(_ name: MediaName, _ check: Check) throws {
        try self.withLockedDisk { disk in
            guard check() else { throw Fenced() }
            if try self.fileSystem.status(at: self.path(name.partial)) != nil {
                let file = try self.fileSystem.openFile(self.path(name.partial), for: .read)
                guard try self.fileSystem.tryLock(file), try self.isPresent(file, name) else { return }
            }
            try self.remove(name.sidecar, &disk)
            try self.remove(name.partial, &disk)
        }
    }

    private static let maximumAttempts = 3

    /// Runs `body` under the lock.
    ///
    /// - Parameters:
    ///   - attempts: The maximum number of attempts: a missing file or folder is the reason for another
    ///     attempt.
    ///   - body: The work.
    /// - Returns: The result of `body`.
    /// - Throws: The error of `body`. ``MediaError`` for an error of the file system; ``Removed``, if
    ///   `attempts` is 1 and a file is missing: the caller can then open the folder again.
    func withLockedDisk<R: Sendable>(attempts: Int = 1, _ body: (inout Disk) throws -> R) throws -> R {
        var attempt = 1
        while true {
            do {
                return try self.disk.withLock { disk in try body(&disk) }
            } catch let error as MuxStoreError {
                guard !error.isMissing || attempts > 1 else { throw Removed() }
                guard error.isMissing, attempt < attempts else { throw MediaError(error) }
                attempt += 1
            }
        }
    }
}

/// The names of the files for a URL.
///
/// A name consists of a hash and the URL's extension, so the name is unique and valid in any file system,
/// cannot lead out of the folder, and shows the type of the file to media players. An extension with more
/// than 12 characters, or with other characters than ASCII letters and digits, is omitted. The hash ignores
/// the URL's fragment. If the app provides a key, the hash depends on the key instead of the URL.
package struct MediaName: Sendable {
    /// The URL of the request that made the name; a download uses the newest URL of all its requests.
    let url: URL
    /// The name of the complete file.
    package let file: String

    /// Makes the names for `url`.
    ///
    /// - Parameters:
    ///   - url: The URL for the download.
    ///   - key: The key that identifies the file; `nil` if the URL identifies the file.
    package init(_ url: URL, key: String? = nil) {
        self.url = url
        // The leading space distinguishes keys from URLs, because no URL begins with a space.
        let text = key.map { " \($0)" } ?? String(url.absoluteString.prefix { $0 != "#" })
        let hash = SHA256.text(SHA256.hash(text)).prefix(32)
        let suffix = url.pathExtension.lowercased()
        let isPlain =
            (1...12).contains(suffix.utf8.count)
            && suffix.utf8.allSatisfy { (97...122).contains($0) || (48...57).contains($0) }
        self.file = isPlain ? "\(hash).\(suffix)" : String(hash)
    }

    /// The name of the growing file.
    package var partial: String { Self.partialPrefix + self.file }

    /// The name of the growing file's sidecar.
    package var sidecar: String { Self.sidecarPrefix + self.file }

    // The first letter distinguishes the prefixes from a hash, which begins with a hexadecimal digit.
    static let partialPrefix = "partial-"
    static let sidecarPrefix = "state-"

    /// The name of the complete file, from the name of a complete file, a growing file or a sidecar.
    static func file(of name: String) -> String {
        for prefix in [self.partialPrefix, self.sidecarPrefix] where name.hasPrefix(prefix) {
            return String(name.dropFirst(prefix.count))
        }
        return name
    }
}

extension MediaName: Hashable {
    package static func == (a: MediaName, b: MediaName) -> Bool { a.file == b.file }

    package func hash(into hasher: inout Hasher) { hasher.combine(self.file) }
}
