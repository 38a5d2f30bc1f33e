package import Foundation
package import MuxKit

/// The changes of one outbox on disk: a file to which records are appended, in the format of the journal.
///
/// The methods block. A single thread at a time uses the log. Several processes share the log; a process
/// holds the file lock while reading and writing records.
///
/// A record is an entry of the journal's format. The domain of the record's name is the kind, the key is the
/// identity of the change:
///
/// - `add`: a new change; the payload is the change, the validator is the lane.
/// - `state`: the new state of a change; the payload is an ``OutboxStateMachine/Progress``.
/// - `end`: the change was confirmed or discarded, or its addition failed.
/// - `session`: the changes of all earlier sessions are dropped.
///
/// A later version of the library increments the schema version of records with another meaning. This version
/// keeps such records, and does not send their changes.
///
/// **On disk.** If a process is killed during an append, the next process truncates the incomplete record at
/// the end of the file. A damaged record in the middle is kept and listed. A rewrite, which omits the records
/// of ended changes, writes a temporary file, and then renames the temporary file.
package final class OutboxLog {
    package typealias ID = OutboxStateMachine.ID
    package typealias Progress = OutboxStateMachine.Progress

    package struct Content: Sendable {
        /// The change as JSON; `nil` if the `add` record is missing, damaged or of a later version.
        package var payload: Data?
        /// The wall-clock time of the addition; for damage, the time of the first read by this process.
        package var addedAt: Date
        /// The bytes of records that this version cannot write again; empty for a readable change.
        package var raw: [UInt8] = []
        /// The size of the change in bytes.
        package var size: Int { (self.payload?.count ?? 0) + self.raw.count }
    }

    enum Kind: String {
        case add, state, end, session
    }

    /// The schema version of the records of this version of the library.
    static let version = 1
    /// The identity of the store in the journal's format, "muxoutbx" in ASCII: the same for all outboxes,
    /// which have different folders.
    private static let store: UInt64 = 0x6d75_786f_7574_6278
    /// A file with changes is rewritten without the ended changes only above this size in bytes.
    private static let rewriteSize: Int64 = 1 << 16
    /// The number of bytes up to which new records are read at once.
    static let singleReadLimit: Int64 = 1 << 26
    private static let fileName = "changes.jsonl"

    let policy: MuxOutboxPolicy
    let folder: StoreFolder
    let fileSystem: CheckedFileSystem
    private let lock: FolderLock
    /// The open file of ``lock``.
    private var lockFile: OpenFile?
    let path: String
    let codec = RecordCodec(store: OutboxLog.store)
    let wallTime: @Sendable () -> Date
    let time: TimeSource

    var file: OpenFile?
    var identity: FileStatus.Identity?
    /// The end of the part of the file that this process has read or written.
    var end: Int64 = 0
    var needsLineBreak = false
    /// Whether the file has records of a later format, which this version cannot read at all.
    var holdsNewer = false
    /// Whether the file lock is held; without the lock, every write fails.
    private var isLocked = false
    /// The smallest session number of the file's readable records; `nil` without such a record.
    var oldestSession: UInt64?
    /// Whether a sign-out has to remove records of a later format.
    private var mustEraseNewerRecords = false
    /// Whether this process has synchronized the directory entries of the present file and of the folder.
    var isNameSafe = false
    /// Changes whose last state or end is not on disk yet, after a failed write.
    var unsaved: Set<ID> = []
    /// The size of all ``contents`` in bytes, for `MuxOutboxPolicy.maximumBytes`.
    var size = 0
    /// The updates of the list since the last call of ``takeEvents()``.
    var events: [Event] = []

    package var machine = OutboxStateMachine()
    package internal(set) var contents: [ID: Content] = [:]

    /// An update of the list, by this or another process.
    package enum Event: Sendable {
        case added(ID)
        /// Removed from the list, except at the end of a session.
        ///
        /// Also follows ``discarded(_:)``.
        case ended(ID)
        /// Removed by the app.
        case discarded(ID)
        /// Hide the change until its next ``progressed(_:)``.
        ///
        /// The overlays then apply the change again, after all changes shown in the meantime.
        case hidden(ID)
        /// Dropped at the end of the session.
        case dropped(ID)
        /// The state of the change may have changed.
        case progressed(ID)

        package var isDrop: Bool { if case .dropped = self { true } else { false } }

        package var id: ID {
            switch self {
            case .added(let id), .ended(let id), .discarded(let id), .hidden(let id), .dropped(let id),
                .progressed(let id):
                id
            }
        }
    }

    package init(
        _ folder: StoreFolder,
        policy: MuxOutboxPolicy,
        fileSystem base: any FileSystem,
        problems: StorageProblems,
        wallTime: @escaping @Sendable () -> Date,
        time: TimeSource
    ) {
        let fileSystem = CheckedFileSystem(base, for: folder, problems: problems)
        self.folder = folder
        self.fileSystem = fileSystem
        self.lock = FolderLock("lock", in: folder.path, fileSystem: fileSystem)
        self.path = FilePath.join(folder.path, Self.fileName)
        self.policy = policy
        self.wallTime = wallTime
        self.time = time
    }

    /// Returns and removes the updates of the list since the last call.
    package func takeEvents() -> [Event] {
        defer { self.events = [] }
        return self.events
    }

    // MARK: - Access

    /// Runs `body` with all records read, and without writes by other processes.
    package func update<R>(_ body: (OutboxLog) throws(MuxStoreError) -> R) throws(MuxStoreError) -> R {
        if self.file == nil { try self.folder.claim(self.fileSystem) }
        return try self.locked { () throws(MuxStoreError) in
            try self.refresh()
            try? self.saveSession()
            try? self.saveUnsaved()
            return try body(self)
        }
    }

    /// As ``update(_:)``; if the file is unusable, runs `body` without access to the file.
    package func updateEvenWithoutFile<R>(_ body: (OutboxLog) -> R) -> R {
        var result: R?
        try? self.update { result = body($0) }
        return result ?? body(self)
    }

    /// Reads the records of an existing file; creates no folder.
    package func readIfPresent() throws(MuxStoreError) {
        guard try self.folder.isPresent(self.fileSystem), try self.fileSystem.status(at: self.path) != nil else {
            return
        }
        try self.locked { () throws(MuxStoreError) in try self.refresh() }
    }

    /// Runs `body` without accesses of other processes.
    private func locked<R>(_ body: () throws(MuxStoreError) -> R) throws(MuxStoreError) -> R {
        var file = self.lockFile
        defer { self.lockFile = file }
        return try self.lock.hold(keeping: &file) { () throws(MuxStoreError) in
            self.isLocked = true
            defer { self.isLocked = false }
            return try body()
        }
    }

    /// Queues an update of each change, for a new overlay.
    package func queueAllUpdates() { self.events += self.machine.all.map { .progressed($0.id) } }

    /// Queues the removal of all changes from the overlays, and then the display in the order of addition.
    package func queueRedisplay() {
        self.events += self.machine.all.map { .hidden($0.id) }
        self.queueAllUpdates()
    }

    /// Writes the state of a retried change.
    ///
    /// The overlays show the later changes of the lane again, so that these changes apply after the retried
    /// change.
    package func writeRetry(_ item: OutboxStateMachine.Item) throws(MuxStoreError) {
        let lane = item.lane.map { self.machine.changes(in: $0) } ?? []
        let later = lane.drop { $0.id != item.id }.dropFirst().filter(\.progress.isPending)
        self.events += later.map { .hidden($0.id) }
        defer { self.events += later.map { .progressed($0.id) } }
        try self.write(item)
    }

    // MARK: - The state in memory

    func add(_ item: OutboxStateMachine.Item, _ content: Content) {
        // An identity in `unsaved` without a change in memory: the change has ended, and the end is not on
        // disk.
        guard self.machine[item.id] != nil || !self.unsaved.contains(item.id), self.machine.addItem(item) else {
            return
        }
        self.contents[item.id] = content
        self.size += content.size
        self.events.append(.added(item.id))
    }

    func remove(_ id: ID) {
        guard self.machine.removeItem(id) != nil else { return }
        self.forget(id)
        self.events.append(.ended(id))
    }

    private func forget(_ id: ID) {
        if let content = self.contents.removeValue(forKey: id) { self.size -= content.size }
    }

    /// Drops the changes of the sessions before `session`, in memory; a later ``update(_:)`` removes the
    /// changes from the file.
    ///
    /// The session of damage in a file without a readable record is not known: the damage stays until a
    /// sign-out.
    package func drop(before session: UInt64, isSignOut: Bool = false) {
        let sparesDamage = !isSignOut && self.oldestSession == nil
        for item in self.machine.beginSession(session, sparesDamage: sparesDamage) {
            self.forget(item.id)
            self.unsaved.remove(item.id)
            self.events.append(.dropped(item.id))
        }
    }

    // MARK: - Writing

    /// Appends a change durably.
    ///
    /// - Throws: ``MuxOutboxError``. The change is then not in memory; if the written bytes could not be
    ///   removed, a later ``update(_:)`` writes the end of the change.
    package func append(_ payload: Data, id: ID, lane: String) throws(MuxOutboxError) {
        let (count, bytes) = (max(0, self.policy.maximumCount), max(0, self.policy.maximumBytes))
        guard self.machine.count < count else { throw .tooManyChanges(limit: count) }
        guard payload.count <= bytes - min(self.size, bytes) else {
            throw .tooLarge(bytes: payload.count, limit: bytes)
        }
        let now = self.wallTime()
        let entry = self.entry(.add, id, self.machine.session, payload, at: now, lane: lane)
        do throws(MuxStoreError) {
            try self.checkVersion()
            try self.write([entry])
        } catch {
            // Without an open file, written bytes may be left in the file.
            if self.file == nil { self.unsaved.insert(id) }
            throw .notStored(underlying: error)
        }
        self.applyAddition(entry, id, raw: [])
    }

    /// Appends the state of a change; after a failure, a later ``update(_:)`` writes the state.
    package func write(_ item: OutboxStateMachine.Item) throws(MuxStoreError) {
        self.events.append(.progressed(item.id))
        try self.save(item.id, self.stateEntry(item))
    }

    /// Appends the end of a change that the machine no longer has.
    package func writeEnd(_ item: OutboxStateMachine.Item) throws(MuxStoreError) {
        self.forget(item.id)
        self.events.append(.ended(item.id))
        try self.save(item.id, self.entry(.end, item.id, item.session, Self.null))
    }

    /// Removes a change at the request of the app, and appends the end of the change.
    package func discard(_ id: ID) throws(MuxStoreError) {
        guard let item = self.machine.removeItem(id) else { return }
        self.events.append(.discarded(id))
        try self.writeEnd(item)
    }

    /// Begins a session durably at a sign-out, and removes the changes of earlier sessions, also from the
    /// file.
    ///
    /// After a failure, the changes are removed from memory, and each later ``update(_:)`` tries again.
    package func beginSession(_ session: UInt64) throws(MuxStoreError) {
        self.drop(before: session, isSignOut: true)
        // Records of a later format belong to the ended session, too.
        self.mustEraseNewerRecords = true
        try self.saveSession()
    }

    /// Removes the records of earlier sessions from the file, and after a sign-out also the records of a
    /// later format.
    package func saveSession() throws(MuxStoreError) {
        let hasOld = self.oldestSession.map { $0 < self.machine.session } ?? false
        guard hasOld || self.mustEraseNewerRecords else { return }
        try self.checkLock()
        guard let file = self.file else {
            // The file could not be read or replaced before.
            if try self.fileSystem.status(at: self.path) != nil {
                throw .fileSystem(.open, code: POSIXFileSystem.ioError)
            }
            self.mustEraseNewerRecords = false
            return
        }
        do throws(MuxStoreError) {
            try self.rewrite(isErasing: self.mustEraseNewerRecords)
        } catch let error where error.isOutOfSpace {
            // An empty file needs no space. A new file, because other processes would continue to read in a
            // truncated file. ``rewrite(isErasing:)`` has closed the file: the next operation reads the file
            // again.
            guard self.contents.isEmpty else { throw error }
            do throws(MuxStoreError) {
                try self.temporaryFile.write(Data(), durability: .full)
            } catch let error where error.isOutOfSpace {
                // Without room for a new file, the data of the ended session must leave the disk
                // nevertheless.
                try self.fileSystem.truncate(file, to: 0)
                try self.fileSystem.synchronize(file)
            }
        }
        self.mustEraseNewerRecords = false
    }

    private static let null = Data("null".utf8)

    private func save(_ id: ID, _ entry: MuxStoredEntry) throws(MuxStoreError) {
        do throws(MuxStoreError) {
            try self.write([entry])
        } catch {
            self.unsaved.insert(id)
            throw error
        }
    }

    private func saveUnsaved() throws(MuxStoreError) {
        guard !self.unsaved.isEmpty else { return }
        let session = self.machine.session
        try self.write(
            self.unsaved.map { id in
                self.machine[id].map { self.stateEntry($0) } ?? self.entry(.end, id, session, Self.null)
            }
        )
        self.unsaved = []
    }

    private func stateEntry(_ item: OutboxStateMachine.Item) -> MuxStoredEntry {
        // The encoding fails only for a wall-clock time that is not a finite number.
        self.entry(.state, item.id, item.session, (try? JSONEncoder().encode(item.progress)) ?? Self.null)
    }

    private func entry(
        _ kind: Kind,
        _ id: ID,
        _ session: UInt64,
        _ payload: Data,
        at date: Date? = nil,
        lane: String? = nil
    ) -> MuxStoredEntry {
        MuxStoredEntry(
            name: MuxStoreKey(domain: kind.rawValue, key: id),
            schemaVersion: Self.version,
            sessionEpoch: session,
            fetchedAt: date ?? self.wallTime(),
            timeToLive: .zero,
            validator: lane,
            payload: payload
        )
    }

    /// Throws ``MuxStoreError/newerFormat`` if the file has records of a later format.
    package func checkVersion() throws(MuxStoreError) {
        if self.holdsNewer { throw .newerFormat }
    }

    private func checkLock() throws(MuxStoreError) {
        if !self.isLocked { throw .fileSystem(.lock, code: POSIXFileSystem.ioError) }
    }

    /// Appends records durably; after a failure, removes the written bytes, or else closes the file.
    private func write(_ entries: [MuxStoredEntry]) throws(MuxStoreError) {
        guard !entries.isEmpty else { return }
        try self.checkLock()
        var bytes: [UInt8] = self.needsLineBreak ? [0x0a] : []
        for entry in entries { _ = try self.codec.append(entry, to: &bytes) }
        let file = try self.openedFile()
        do {
            try self.fileSystem.appendAll(bytes, to: file)
            try self.synchronize(file)
        } catch {
            do { try self.fileSystem.truncate(file, to: self.end) } catch { self.close() }
            throw error
        }
        self.end += Int64(bytes.count)
        self.needsLineBreak = false
        self.oldestSession = min(self.oldestSession ?? .max, self.machine.session)
    }

    private func openedFile() throws(MuxStoreError) -> OpenFile {
        if let file = self.file { return file }
        try? self.fileSystem.setStoreAttributes(self.folder.path)
        // The file must be new: records that were not read must not be changed.
        let file = try self.fileSystem.openFile(self.path, for: .create)
        (self.file, self.identity) = (file, try self.fileSystem.status(of: file).identity)
        return file
    }

    private func synchronize(_ file: OpenFile) throws(MuxStoreError) {
        try self.fileSystem.synchronize(file)
        guard !self.isNameSafe else { return }
        try self.fileSystem.synchronizeFolder(self.folder.path)
        // Another process may have made the folder, and may have been killed before the synchronization.
        if let parent = FilePath.parent(of: self.folder.path) { try self.fileSystem.synchronizeFolder(parent) }
        self.isNameSafe = true
    }

    // MARK: - Rewriting

    /// Rewrites the file if ended changes take most of the file, and no record would be lost.
    ///
    /// A file with changes must have more than ``rewriteSize`` bytes, and more than twice the estimated size
    /// of the changes. A file without changes must have more than 1,024 bytes.
    package func rewriteIfDue() throws(MuxStoreError) {
        guard !self.holdsNewer, self.unsaved.isEmpty else { return }
        // 1,024 bytes per change estimate the other fields and the state record.
        let live = Int64(self.size) + Int64(self.contents.count) * 1_024
        let isDue = self.contents.isEmpty ? self.end > 1_024 : self.end > max(2 * live, Self.rewriteSize)
        if isDue { try self.rewrite() }
    }

    /// Rewrites the file without the records of ended changes.
    ///
    /// - Parameter isErasing: Whether to remove records of a later format, too.
    /// - Throws: `MuxStoreError`. If the file may have been replaced, the next operation reads the file
    ///   again.
    package func rewrite(isErasing: Bool = false) throws(MuxStoreError) {
        try self.checkLock()
        if !isErasing { try self.checkVersion() }
        var bytes: [UInt8] = []
        var session = self.entry(.session, "", self.machine.session, Self.null)
        session.name.key = nil
        _ = try self.codec.append(session, to: &bytes)
        for item in self.machine.all {
            guard let content = self.contents[item.id] else { continue }
            if let payload = content.payload {
                let (id, lane) = (item.id, item.lane)
                let addition = self.entry(.add, id, item.session, payload, at: content.addedAt, lane: lane)
                _ = try self.codec.append(addition, to: &bytes)
                if item.progress != Progress(key: id, since: content.addedAt.timeIntervalSince1970) {
                    _ = try self.codec.append(self.stateEntry(item), to: &bytes)
                }
            }
            bytes += content.raw
            if bytes.last != 0x0a { bytes.append(0x0a) }
        }
        try self.temporaryFile.removeLeftovers()
        do throws(MuxStoreError) {
            try self.temporaryFile.write(Data(bytes), durability: .full)
            self.close()
            let file = try self.fileSystem.openFile(self.path, for: .append)
            (self.file, self.identity) = (file, try self.fileSystem.status(of: file).identity)
        } catch {
            // The file may have been replaced: the next operation reads the file.
            self.close()
            throw error
        }
        (self.end, self.isNameSafe, self.oldestSession) = (Int64(bytes.count), true, self.machine.session)
        self.unsaved = []
    }

    var temporaryFile: DurableFile {
        DurableFile(Self.fileName, in: self.folder.path, fileSystem: self.fileSystem)
    }
}

@available(*, unavailable)
extension OutboxLog: Sendable {}
