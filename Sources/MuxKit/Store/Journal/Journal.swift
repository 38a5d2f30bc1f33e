import Foundation

/// The synchronous core of a ``JournalStore``: blocks, and is used by a single thread at a time.
///
/// Several processes share a folder. A process holds the file lock while writing records or scanning the
/// records of other processes. With the lock, the process first checks that no other process has replaced or
/// removed the files. Single records, and folders without write permission, are read without the lock.
///
/// A class, because the optimizer of Swift 6.3.1 crashes on a struct with mutating members that throw typed
/// errors inside an actor ("Instruction does not dominate all uses!").
final class Journal {
    /// The session file as last read.
    struct Session {
        /// The status of the file that was read.
        ///
        /// A process that replaces the file sets a modification time with random nanoseconds, so the status
        /// changes.
        var status: FileStatus
        var content: SessionFile
    }

    let fileSystem: any FileSystem
    let layout: JournalLayout
    let digest: @Sendable (MuxStoreKey) -> EntryDigest
    /// The limit of the folder's size in bytes; `nil` for no limit.
    let byteLimit: Int64?
    /// The number of new records below which no index snapshot is written.
    let indexFloor: Int
    var statistics = JournalStore.Statistics()
    var lockFile: OpenFile?
    var session: Session?
    var segment: JournalSegment?
    /// The greatest session number seen; not decreased if another process removes the folder.
    var lastEpoch: UInt64 = 0
    /// The identity of the store, while the store is known to have entries; detects a loss of the entries.
    var filledStore: UInt64?
    /// Whether the segment is opened for reading only, without the lock.
    var isReadOnly = false
    /// The maximum duration of a single wait for the lock.
    let lockPatience: Duration
    /// The wall clock, which determines when entries become unusable.
    private let wallTime: @Sendable () -> Date
    /// The last lock wait that timed out; the wait continues on another thread until the lock is free.
    private var abandonedWait: LockWait?

    /// The maximum number of attempts to lock a folder that is repeatedly removed and created again.
    private static let lockAttempts = 8

    init(
        root: String,
        byteLimit: Int64?,
        indexFloor: Int,
        lockPatience: Duration,
        fileSystem: any FileSystem,
        wallTime: @escaping @Sendable () -> Date,
        digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest
    ) {
        self.wallTime = wallTime
        self.byteLimit = byteLimit
        self.indexFloor = indexFloor
        self.lockPatience = lockPatience
        self.layout = JournalLayout(root: root)
        self.fileSystem = fileSystem
        self.digest = digest
    }

    /// The wall-clock time in whole seconds since 1970, clamped to 32 bits.
    var currentSecond: UInt32 {
        let seconds = self.wallTime().timeIntervalSince1970
        guard seconds > 0 else { return 0 }
        return seconds < Double(UInt32.max) ? UInt32(seconds) : .max
    }

    // MARK: - Reading

    /// The number of the current session; before any other call, creates no file in a folder without a store.
    func sessionEpoch() throws(MuxStoreError) -> UInt64 {
        // If the store had entries, this call must detect a loss of the entries.
        guard self.session == nil, self.filledStore == nil,
            let epoch = try Self.epochOnDisk(self.layout, self.fileSystem, withoutStore: self.lastEpoch)
        else { return try self.refreshIfChanged().session.content.epoch }
        self.lastEpoch = max(self.lastEpoch, epoch)
        return epoch
    }

    /// The identity in the session file; `nil` if the session file is absent, and the folder cannot be
    /// written to.
    func identity() throws(MuxStoreError) -> UInt64? {
        if let content = try self.sessionFile.read(), case .present(let session) = SessionFile.decode(content) {
            return session.store
        }
        do throws(MuxStoreError) {
            return try self.refreshIfChanged().session.content.store
        } catch let error where error.saysUnwritable {
            return nil
        }
    }

    /// The result of a lookup.
    enum Finding: Sendable {
        /// The entry; `nil` if no valid entry was found.
        case entry(MuxStoredEntry?)
        /// The location of a large entry, which is not read yet.
        case large(JournalPlace)
    }

    /// Looks up entries, and reads records of at most `limit` bytes; counts as a use of the entries.
    ///
    /// If a record is invalid and another process has changed the journal, the call looks up the rest of
    /// `names` in the changed journal, once.
    func find(
        _ names: [MuxStoreKey],
        upTo limit: Int64,
        isRepeated: Bool = false
    ) throws(MuxStoreError) -> [Finding] {
        let present: Present
        do {
            present = try self.refreshIfChanged()
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile) where self.isReadOnly {
            return names.map { _ in .entry(nil) }  // a store without records
        }
        var findings: [Finding] = []
        findings.reserveCapacity(names.count)
        for name in names {
            guard let place = self.place(of: name, in: present) else {
                findings.append(.entry(nil))
                continue
            }
            guard place.location.byteCount <= limit else {
                findings.append(.large(place))
                continue
            }
            let entry = try place.read()
            if entry == nil, !isRepeated, try self.unchanged() == nil {
                return findings + (try self.find(Array(names[findings.count...]), upTo: limit, isRepeated: true))
            }
            findings.append(.entry(self.validate(entry, from: place, as: name)))
        }
        return findings
    }

    /// Looks up an entry like ``find(_:upTo:)``, without a wait for a lock or a record.
    ///
    /// `nil` if the journal is not open, or was changed by another process. Also `nil` for a record that is
    /// large, or cannot be read from the system's page cache.
    ///
    /// Asks the system for the status of two files, which the system usually has in a cache.
    func findPromptly(_ name: MuxStoreKey, upTo limit: Int64) throws(MuxStoreError) -> PromptLoad? {
        guard let present = try self.unchanged() else { return nil }
        let epoch = present.session.content.epoch
        guard let place = self.place(of: name, in: present) else { return PromptLoad(entry: nil, sessionEpoch: epoch) }
        guard place.location.byteCount <= limit, let record = place.recordInMemory() else { return nil }
        let entry = self.validate(place.format.entry(in: record), from: place, as: name)
        return PromptLoad(entry: entry, sessionEpoch: epoch)
    }

    /// The location of the entry with the name; counts as a use of the entry.
    private func place(of name: MuxStoreKey, in present: Present) -> JournalPlace? {
        let (session, segment) = present
        let digest = self.digest(name)
        guard let location = segment.index[digest], location.epoch >= session.content.epoch else { return nil }
        segment.index.touch(digest)
        return JournalPlace(
            file: segment.file,
            location: location,
            format: RecordCodec(store: session.content.store, digest: self.digest),
            fileSystem: self.fileSystem
        )
    }

    /// Whether the journal still has the record at `place`.
    func isCurrent(_ place: JournalPlace) -> Bool {
        guard let present = try? self.unchanged(), present.segment.file === place.file else { return false }
        return present.segment.index[place.location.digest]?.offset == place.location.offset
    }

    /// Validates the entry that was read from `place`; the journal may have changed since the read.
    func validate(_ entry: MuxStoredEntry?, from place: JournalPlace, as name: MuxStoreKey) -> MuxStoredEntry? {
        guard let entry else {
            // Another process may have removed the entry, and may be overwriting the value.
            if self.isCurrent(place), let segment {
                self.statistics.damagedRecords += 1
                segment.noteDeadRecord(of: place.location.digest)
                segment.index.remove(place.location.digest)
                segment.isRewriteRequired = true
            }
            return nil
        }
        guard entry.name == name else {
            // A digest collision: the entry of the other name stays.
            self.statistics.damagedRecords += 1
            return nil
        }
        return entry.sessionEpoch >= self.lastEpoch ? entry : nil
    }

    // MARK: - Writing

    /// Saves `entries`; evicts entries if the folder exceeds the size limit, or if the disk is full.
    ///
    /// Entries of an earlier session are dropped without an error.
    ///
    /// - Returns: The names and errors of the refused and evicted entries among `entries`.
    /// - Throws: An error that concerns all entries; then no entry counts as saved.
    func save(
        _ entries: [MuxStoredEntry],
        _ durability: MuxDurability
    ) throws(MuxStoreError) -> [(name: MuxStoreKey, error: MuxStoreError)] {
        var refused: [(name: MuxStoreKey, error: MuxStoreError)] = []
        guard !entries.isEmpty else { return [] }
        try self.lock()
        defer { self.unlock() }
        let (session, segment) = try self.refresh()
        let records = JournalRecords(RecordCodec(store: session.content.store, digest: self.digest))
        let maximum = self.byteLimit.map { max(0, $0 - JournalSegment.overhead(of: 1)) } ?? .max
        var written: [MuxStoredEntry] = []
        var oversized: [MuxStoredEntry] = []
        for (entry, digest) in self.arranged(entries, in: session, &refused) {
            do throws(MuxStoreError) {
                guard !self.hasNewer(than: entry, digest, in: segment, session) else { throw .newerValue }
                try records.append(entry, atMost: maximum)
                written.append(entry)
            } catch {
                if error.concernsAll { throw error }
                if case .entryTooLarge = error { oversized.append(entry) }
                refused.append((entry.name, error))
            }
        }
        let compactions = self.statistics.compactions
        let evicted = self.byteLimit.map { records.keepLast(within: $0) } ?? 0
        // Older versions of entries that do not fit are removed.
        for entry in oversized + written.prefix(evicted) where segment.index[self.digest(entry.name)] != nil {
            try records.append(removal: .erase, of: entry.name, epoch: session.content.epoch)
        }
        do throws(MuxStoreError) {
            try self.write(records, durability)
        } catch let error where error.isOutOfSpace {
            try self.writeOnFullDisk(records, durability, after: error)
        }
        self.compactAndWriteIndexIfDue()
        self.noteFilled()
        self.statistics.evicted += oversized.count + evicted
        refused += written.prefix(evicted).map { ($0.name, .noRoom) }
        // The write or the compaction may have evicted more entries.
        guard self.statistics.compactions != compactions else { return refused }
        let now = self.wallTime()
        for entry in written.dropFirst(evicted) where self.segment?.index[self.digest(entry.name)] == nil {
            // An unusable entry may be dropped at any time.
            if let end = entry.usableUntil, end <= now { continue }
            refused.append((entry.name, .noRoom))
        }
        return refused
    }

    /// Selects the valid entries of the session, one entry for each digest, and adds refused entries to
    /// `refused`.
    ///
    /// The result is ordered by fetch time, because the oldest entries are evicted first.
    private func arranged(
        _ entries: [MuxStoredEntry],
        in session: Session,
        _ refused: inout [(name: MuxStoreKey, error: MuxStoreError)]
    ) -> [(entry: MuxStoredEntry, digest: EntryDigest)] {
        var arranged: [(entry: MuxStoredEntry, digest: EntryDigest)] = []
        var numbers: [EntryDigest: Int] = [:]
        arranged.reserveCapacity(entries.count)
        numbers.reserveCapacity(entries.count)
        for entry in entries where entry.sessionEpoch >= session.content.epoch {
            do throws(MuxStoreError) {
                try RecordCodec.check(entry)
            } catch {
                refused.append((entry.name, error))
                continue
            }
            let digest = self.digest(entry.name)
            guard let number = numbers[digest] else {
                numbers[digest] = arranged.count
                arranged.append((entry, digest))
                continue
            }
            // The later entry wins; after a digest collision of different names, the earlier entry is
            // refused.
            if arranged[number].entry.name != entry.name { refused.append((arranged[number].entry.name, .noRoom)) }
            arranged[number].entry = entry
        }
        return arranged.sorted { $0.entry.fetchedAt < $1.entry.fetchedAt }
    }

    /// Whether the journal has a newer value, or changes of tags, that this process has neither read nor
    /// written.
    ///
    /// Reads the header of the record. A record that cannot be read does not count.
    private func hasNewer(
        than entry: MuxStoredEntry,
        _ digest: EntryDigest,
        in segment: JournalSegment,
        _ session: Session
    ) -> Bool {
        guard let location = segment.index[digest], !location.wasAccessedHere, location.epoch >= entry.sessionEpoch
        else {
            return false
        }
        let format = RecordCodec(store: session.content.store, digest: self.digest)
        // A read error does not fail the whole save.
        guard let line = try? self.headerLine(at: location, in: segment),
            let found = format.entryWithoutPayload(in: line),
            found.name == entry.name
        else { return false }
        // Changes of tags are merged: this process has to read the changes on disk first.
        return entry.schemaVersion == MuxStoredEntry.tagChangesVersion || found.fetchedAt > entry.fetchedAt
    }

    /// The header line of a record with the line break; `nil` without a line break within the maximum length.
    func headerLine(at location: JournalIndex.Location, in segment: JournalSegment) throws(MuxStoreError) -> [UInt8]? {
        // The first size is enough for most headers.
        for count in [1 << 10, Int64(RecordCodec.maximumHeader) + 1] {
            let count = Int(max(0, min(count, segment.end - location.offset)))
            let start = try self.fileSystem.readAll(segment.file, at: location.offset, count: count)
            if let end = start.firstIndex(of: 0x0a) { return Array(start[...end]) }
        }
        return nil
    }

    func raiseSessionEpoch(to epoch: UInt64) throws(MuxStoreError) {
        try self.lock()
        defer { self.unlock() }
        let session = try self.openSession()
        guard epoch > session.content.epoch else { return }
        // Reset before the write, so that the next call reads the file again, even after a failed write.
        self.session = nil
        try self.writeSession(SessionFile(epoch: epoch, store: session.content.store))
        self.lastEpoch = max(self.lastEpoch, epoch)
    }

    func removeEverything() throws(MuxStoreError) {
        try self.lock()
        defer { self.unlock() }
        (self.segment, self.filledStore) = (nil, nil)
        do {
            try self.fileSystem.move(self.layout.journal, to: self.layout.trash(.random(in: .min ... .max)))
            try self.fileSystem.synchronizeFolder(self.layout.root)
        } catch .fileSystem(.rename, code: POSIXFileSystem.noSuchFile) {
            // The folder has no journal, but an interrupted removal may have left a renamed journal.
        } catch .fileSystem(.rename, code: POSIXFileSystem.noSpace),
            .fileSystem(.rename, code: POSIXFileSystem.overQuota)
        {
            try self.removeFiles()
        }
        // The entries are already removed; the next opening tries again to delete remaining files.
        self.removeTrash(among: (try? self.fileSystem.names(in: self.layout.root)) ?? [])
    }

    /// Deletes the folders that ``removeEverything()`` renamed, as far as possible.
    ///
    /// - Parameter names: The names in the store's folder.
    func removeTrash(among names: [String]) {
        for name in names where JournalLayout.isTrash(name) {
            try? self.fileSystem.removeTree(FilePath.join(self.layout.root, name))
        }
    }

    /// Appends the records to the file and the index; undoes a failed write if possible.
    func write(_ records: JournalRecords, _ durability: MuxDurability) throws(MuxStoreError) {
        guard !records.headers.isEmpty else { return }
        // The segment is `nil` if an earlier write or rewrite failed, and could not be undone.
        guard let segment = self.segment else { throw .fileSystem(.write, code: POSIXFileSystem.staleFile) }
        let start = segment.end
        // An empty file begins with a `begin` record.
        let generation = start == 0 ? UInt64.random(in: .min ... .max) : nil
        let prefix: [UInt8] =
            if let generation {
                try records.format.beginning(generation)
            } else {
                segment.needsLineBreak ? [0x0a] : []
            }
        do {
            // An append may need several writes; the lock prevents writes of other processes in between.
            try self.fileSystem.appendAll(prefix.isEmpty ? records.bytes : prefix + records.bytes, to: segment.file)
            if durability == .full { try self.synchronize(segment) }
        } catch {
            // Removes incomplete and unsynchronized bytes. If the removal fails, the next call opens the
            // segment again.
            do { try self.fileSystem.truncate(segment.file, to: start) } catch { self.segment = nil }
            throw error
        }
        if let generation {
            segment.generation = generation
            segment.recordsSinceSnapshot += 1
        }
        segment.end += Int64(prefix.count)
        segment.needsLineBreak = false
        for (header, count) in records.headers {
            segment.applyRecord(header, offset: segment.end, count: count, wasAccessedHere: true)
            segment.end += count
        }
    }

    /// Compacts the journal and writes an index snapshot, if due; call with the lock held.
    func compactAndWriteIndexIfDue() {
        self.compactIfDue()
        self.writeIndexIfDue()
    }

    /// Flushes the file's content to disk; the first call for `segment` also flushes the names of the file
    /// and of the journal's folder.
    func synchronize(_ segment: JournalSegment) throws(MuxStoreError) {
        try self.fileSystem.synchronize(segment.file)
        guard !segment.isNameSynchronized else { return }
        try self.fileSystem.synchronizeFolder(self.layout.journal)
        try self.fileSystem.synchronizeFolder(self.layout.root)
        segment.isNameSynchronized = true
    }

    // MARK: - The lock

    var sessionFile: DurableFile {
        DurableFile(JournalLayout.sessionName, in: self.layout.root, fileSystem: self.fileSystem)
    }

    /// Takes the folder's lock until ``unlock()``: excludes other processes, and other stores of this
    /// process.
    func lock() throws(MuxStoreError) {
        for _ in 0..<Self.lockAttempts {
            let file =
                if let file = self.lockFile { file } else {
                    try self.fileSystem.openFileAndFolders(self.layout.lock, for: .append)
                }
            self.lockFile = file
            if self.abandonedWait != nil, try !self.isPresent(file) {
                // The lock file was removed: the abandoned wait is for the removed file.
                (self.abandonedWait, self.lockFile, self.session, self.segment) = (nil, nil, nil, nil)
                continue
            }
            try self.take(file)
            // If the folder was removed and created again, other processes use another lock file.
            var isUsable = false
            defer { if !isUsable { self.unlock() } }
            isUsable = try self.isPresent(file)
            if isUsable { return }
            (self.session, self.segment) = (nil, nil)
        }
        throw .fileSystem(.lock, code: POSIXFileSystem.staleFile)
    }

    /// Whether `file` is still the file at the lock's path.
    private func isPresent(_ file: OpenFile) throws(MuxStoreError) -> Bool {
        let status = try self.fileSystem.status(of: file)
        return try self.fileSystem.status(at: self.layout.lock)?.identity == status.identity
    }

    /// Takes the lock of `file`; waits for the lock up to ``lockPatience``.
    ///
    /// During an abandoned wait, calls fail at once: a stopped or busy process that holds the lock causes a
    /// single wait, not a wait per call.
    private func take(_ file: OpenFile) throws(MuxStoreError) {
        if let wait = self.abandonedWait, !wait.isOver { throw .fileSystem(.lock, code: POSIXFileSystem.wouldBlock) }
        self.abandonedWait = nil
        if try self.fileSystem.tryLock(file) { return }
        let wait = LockWait(file, self.fileSystem)
        if try wait.finish(within: self.lockPatience) { return }
        self.abandonedWait = wait
        throw .fileSystem(.lock, code: POSIXFileSystem.wouldBlock)
    }

    /// Releases the lock, and closes the lock file to save a descriptor.
    func unlock() {
        guard let file = self.lockFile else { return }
        self.lockFile = nil
        try? self.fileSystem.unlock(file)
    }
}

@available(*, unavailable)
extension Journal: Sendable {}
