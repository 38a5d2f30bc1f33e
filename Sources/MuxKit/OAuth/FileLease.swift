public import Foundation

/// A lease between the processes of one machine, kept in a file.
///
/// **Concurrent calls** access the file one after another, on a serial queue of the lease.
///
/// **On disk.** The file is replaced as a whole, under a file lock. The lock is held for one comparison and
/// replacement, and not between calls. If a process is killed while holding the lease, other processes wait
/// for the remaining time of the lease.
///
/// The end of a lease is a wall-clock time, which all processes share, even across a restart of the machine.
/// In case the wall clock is set back, each process also measures the time since the first sight of a term. A
/// term that stays unchanged for its duration has ended for this process. If the wall clock is set forward, a
/// lease can end early.
///
/// The file name contains a SHA-256 digest of the lease's name. The file contains the lease's name, the name
/// of the holder and the end of the lease. A file with the name of another lease is not used
/// (``MuxStoreError/otherName``). A folder or file is refused if a user other than the current user and the
/// superuser is its owner or has write permission (``MuxStoreError/notPrivate``).
public actor FileLease: MuxLease {
    /// The content of the file; without an owner the lease is free.
    private struct Record: Codable, Sendable, Equatable {
        var generation: UInt64
        var owner: String?
        var deadline: Date
        /// The duration of the term in seconds: each process also measures the duration; see
        /// ``isOver(_:at:)``.
        var seconds: Double
        /// The full name of the lease.
        var name: [String]?
    }

    /// The maximum duration in seconds, so that no content of the file blocks a lease for ever.
    private static let longest: Int64 = 86_400

    private let executor = DiskExecutor(label: "MuxKit.FileLease")
    private let name: OwnedName
    private let lock: FolderLock
    private let file: DurableFile
    private let fileSystem: CheckedFileSystem
    private let folder: String
    /// Collects the problems of the folder.
    package nonisolated let problems: StorageProblems?
    private let wallTime: @Sendable () -> Date
    private let time: TimeSource
    /// The last seen record that had not ended by the wall clock, and the time of the first sight of the
    /// record.
    private var seen: (record: Record, since: Moment)?

    /// The executor of the lease's blocking calls.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe self.executor.asUnownedSerialExecutor()
    }

    /// Describes a lease; does not access the disk yet.
    ///
    /// - Parameters:
    ///   - name: Identifies the lease in the folder: any text. Names with different UTF-8 bytes are
    ///     different.
    ///   - directory: A folder in which all processes have write permission, such as a folder of an app
    ///     group. All processes must run as the same user.
    public init(named name: String, directory: URL) {
        self.init(OwnedName(.lease, [name]), in: StoreFolder(directory))
    }

    package init(
        _ name: OwnedName,
        in folder: StoreFolder,
        fileSystem base: any FileSystem = POSIXFileSystem(),
        problems: StorageProblems = StorageProblems(),
        wallTime: @escaping @Sendable () -> Date = { Date() },
        time: TimeSource = TimeSource(ContinuousClock())
    ) {
        let fileSystem = CheckedFileSystem(base, for: folder, problems: problems)
        self.name = name
        self.fileSystem = fileSystem
        self.problems = problems
        self.folder = folder.path
        self.file = DurableFile(name.fileName, in: folder.path, fileSystem: fileSystem)
        self.lock = FolderLock(name.fileName + ".lock", in: folder.path, fileSystem: fileSystem)
        self.wallTime = wallTime
        self.time = time
    }

    /// Takes the lease if the lease is free or has ended; extends the lease if `owner` is the holder.
    ///
    /// - Parameters:
    ///   - owner: A name that no other caller uses.
    ///   - duration: The duration of the lease, measured from this call; limited to one day. A negative
    ///     duration counts as zero.
    /// - Returns: The current term, of `owner` or of another owner.
    /// - Throws: ``MuxStoreError`` if the folder or the file cannot be used now.
    public func take(as owner: String, for duration: Duration) throws -> MuxLeaseTerm {
        let duration = min(max(duration, .zero), .seconds(Self.longest))
        return try self.lock.hold { () throws(MuxStoreError) in
            let now = self.wallTime()
            let present = try self.present()
            if let present, let holder = present.owner, holder != owner, !self.isOver(present, at: now) {
                let remaining = min(max(present.deadline.timeIntervalSince(now), 0), present.seconds)
                return MuxLeaseTerm(
                    owner: holder,
                    generation: present.generation,
                    remaining: .saturating(seconds: remaining)
                )
            }
            let isExtension = present.map { $0.owner == owner && !self.isOver($0, at: now) } ?? false
            // The clock: without the file, the last generation is unknown, and a generation never decreases.
            let generation = (present?.generation ?? now.milliseconds) &+ (isExtension ? 0 : 1)
            let seconds = duration.secondsValue
            try self.write(
                Record(
                    generation: generation,
                    owner: owner,
                    deadline: now.addingTimeInterval(seconds),
                    seconds: seconds
                )
            )
            return MuxLeaseTerm(owner: owner, generation: generation, remaining: duration)
        }
    }

    /// Gives the lease back; does nothing if the file no longer contains `term`.
    ///
    /// - Parameter term: A term from ``take(as:for:)``.
    /// - Throws: ``MuxStoreError`` if the folder or the file cannot be used now.
    public func giveBack(_ term: MuxLeaseTerm) throws {
        try self.lock.hold { () throws(MuxStoreError) in
            guard var present = try self.present(), present.owner == term.owner,
                present.generation == term.generation
            else { return }
            present.owner = nil
            try self.write(present)
        }
    }

    /// Suspends until the file no longer contains `term`; may return early.
    ///
    /// If the system does not report changes of a folder, the file is read only once, and the function then
    /// suspends until the task is cancelled.
    ///
    /// - Parameter term: The term of another owner.
    /// - Throws: `CancellationError`, or ``MuxStoreError`` if the file cannot be read now.
    public func wait(for term: MuxLeaseTerm) async throws {
        // The watch begins before the read, so no change is missed.
        let watch = FolderWatch(self.folder)
        defer { withExtendedLifetime(watch) {} }
        for await _ in watch.changes {
            guard let present = try self.present(), present.owner == term.owner,
                present.generation == term.generation
            else { return }
        }
        try Task.checkCancellation()
    }

    private func present() throws(MuxStoreError) -> Record? {
        guard let content = try self.file.read(),
            let record = try? JSONDecoder().decode(Record.self, from: content),
            (0...Double(Self.longest)).contains(record.seconds)
        else { return nil }
        if let name = record.name, !self.name.matches(name) { throw self.fileSystem.refused(.otherName) }
        return record
    }

    private func write(_ record: Record) throws(MuxStoreError) {
        var record = record
        record.name = self.name.fields
        let content = (try? JSONEncoder().encode(record)) ?? Data()  // never throws: all numbers are finite
        // A power cut ends the processes of all holders, so the record need not survive a power cut.
        try self.file.write(content, durability: .relaxed)
    }

    /// Whether a term has ended.
    ///
    /// Remembers a record that was not seen before: a record that stays unchanged for its duration has ended,
    /// even if the wall clock was set back.
    private func isOver(_ record: Record, at now: Date) -> Bool {
        guard now < record.deadline else { return true }
        let moment = self.time.now
        guard let seen, seen.record == record else {
            self.seen = (record, moment)
            return false
        }
        return moment.duration(since: seen.since) >= .saturating(seconds: record.seconds)
    }
}

extension FileLease: ReportsProblems {}

/// A lock between processes, held for one synchronous function.
package struct FolderLock: Sendable {
    private let path: String
    private let fileSystem: any FileSystem

    /// Describes a lock on a separate empty file; does not access the disk yet.
    package init(_ name: String, in folder: String, fileSystem: any FileSystem) {
        self.path = FilePath.join(folder, name)
        self.fileSystem = fileSystem
    }

    /// Runs `body` under the lock; creates the folder (mode 0700) if missing.
    package func hold<R>(_ body: () throws(MuxStoreError) -> R) throws(MuxStoreError) -> R {
        var file: OpenFile?
        return try self.hold(keeping: &file, body)
    }

    /// As ``hold(_:)``; keeps the lock's file open in `open` for the next call.
    package func hold<R>(
        keeping open: inout OpenFile?,
        _ body: () throws(MuxStoreError) -> R
    ) throws(MuxStoreError) -> R {
        let file = try self.lockedFile(open)
        open = file
        defer { try? self.fileSystem.unlock(file) }
        return try body()
    }

    private static let maximumAttempts = 3

    /// The open file, locked.
    ///
    /// Another process or the system may remove the file during the wait. The lock of a removed file excludes
    /// no other process, so the function opens the file again.
    private func lockedFile(_ open: OpenFile?) throws(MuxStoreError) -> OpenFile {
        var open = open
        for _ in 0..<Self.maximumAttempts {
            do {
                let file = if let open { open } else { try self.fileSystem.openFileAndFolders(self.path, for: .append) }
                open = nil
                try self.fileSystem.lock(file)
                var isUsable = false
                defer { if !isUsable { try? self.fileSystem.unlock(file) } }
                isUsable = try self.fileSystem.status(of: file).linkCount > 0
                if isUsable { return file }
            } catch  where error.isMissing {}
        }
        throw .fileSystem(.lock, code: POSIXFileSystem.noSuchFile)
    }
}
