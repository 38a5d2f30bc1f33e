import Foundation

/// The synchronous inside of a ``JournalStore``: blocks, and belongs to one thread at a time.
///
/// Several processes share a folder: a process holds the lock of one file while it writes or reads records, and
/// looks first whether the files it has open are still the ones that the names stand for.
///
/// A class, because the optimizer of Swift 6.3.1 breaks on a struct with mutating members that throw typed errors inside
/// an actor ("Instruction does not dominate all uses!").
final class Journal {
    /// The session file as last read.
    struct Session {
        /// Held open: its link count drops to 0 when a sibling replaces the file.
        var file: OpenFile
        var content: SessionFile
    }

    let fileSystem: any FileSystem
    let layout: JournalLayout
    let digest: @Sendable (MuxStoreKey) -> EntryDigest
    /// How many bytes the folder may take; `nil` for as many as there are.
    let byteLimit: Int64?
    /// How many records have to be new before the index is kept again, at least.
    let indexFloor: Int
    var statistics = MuxStoreStatistics()
    var lockFile: OpenFile?
    var session: Session?
    var segment: JournalSegment?
    /// The greatest session number seen: it does not fall even if another process removes the folder.
    var lastEpoch: UInt64 = 0
    /// The identity of the store that this process last knew to have entries; `nil` if there were none.
    var filledStore: UInt64?
    /// How long a call waits for a process that has the lock.
    let lockPatience: Duration
    /// A wait for the lock that no call waits for any more.
    private var abandonedWait: LockWait?

    /// Attempts to lock a folder that is being removed and made again all the while.
    private static let lockAttempts = 8

    init(
        root: String,
        byteLimit: Int64?,
        indexFloor: Int,
        lockPatience: Duration,
        fileSystem: any FileSystem,
        digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest
    ) {
        self.byteLimit = byteLimit
        self.indexFloor = indexFloor
        self.lockPatience = lockPatience
        self.layout = JournalLayout(root: root)
        self.fileSystem = fileSystem
        self.digest = digest
    }

    // MARK: - Reading

    /// The number of the session; a look at it makes nothing, neither the folder nor a file in it.
    func sessionEpoch() throws(MuxStoreError) -> UInt64 {
        guard self.session == nil else { return try self.refreshIfChanged().session.content.epoch }
        if let content = try self.sessionFile.read() {
            guard case .present(let file) = SessionFile.decode(content) else {
                return try self.refreshIfChanged().session.content.epoch
            }
            self.lastEpoch = max(self.lastEpoch, file.epoch)
            return file.epoch
        }
        guard try self.fileSystem.status(at: self.layout.journal) == nil else {
            return try self.refreshIfChanged().session.content.epoch  // the number was lost
        }
        return self.lastEpoch
    }

    /// Where the entry of that name is, if there is one; counts as a use of it.
    func place(of name: MuxStoreKey) throws(MuxStoreError) -> JournalPlace? {
        let (session, segment) = try self.refreshIfChanged()
        let digest = self.digest(name)
        guard let location = segment.index[digest], location.epoch >= session.content.epoch else { return nil }
        segment.index.touch(digest)
        return JournalPlace(
            file: segment.file,
            digest: digest,
            location: location,
            format: RecordCodec(store: session.content.store, digest: self.digest),
            fileSystem: self.fileSystem
        )
    }

    /// Judges what was found there, perhaps a while ago.
    func accept(_ entry: MuxStoredEntry?, from place: JournalPlace, as name: MuxStoreKey) -> MuxStoredEntry? {
        guard let entry else {
            if let segment = self.segment, segment.file === place.file, let location = segment.index[place.digest],
                location.offset == place.location.offset
            {
                self.statistics.damagedRecords += 1
                segment.index.remove(place.digest)
                segment.holdsDeadRecords = true
            }
            return nil
        }
        guard entry.name == name else {
            // Another name of the same digest: its entry stays.
            self.statistics.damagedRecords += 1
            return nil
        }
        return entry.sessionEpoch >= self.lastEpoch ? entry : nil
    }

    // MARK: - Writing

    /// - Returns: The entries that were not kept, and why.
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
        // What does not fit is not to be found in an older form either.
        for entry in oversized + written.prefix(evicted) where segment.index[self.digest(entry.name)] != nil {
            try records.append(removal: .erase, of: entry.name, epoch: session.content.epoch)
        }
        try self.append(records, durability)
        self.statistics.evicted += oversized.count + evicted
        refused += written.prefix(evicted).map { ($0.name, .noRoom) }
        // Rewriting the folder, to keep it within its limit, may have evicted more.
        guard self.statistics.compactions != compactions else { return refused }
        for entry in written.dropFirst(evicted) where self.segment?.index[self.digest(entry.name)] == nil {
            refused.append((entry.name, .noRoom))
        }
        return refused
    }

    /// The entries of the present session that can be written, the last of each name, those fetched last at the end: the first
    /// ones are the first to be evicted.
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
            // The later one takes the place; under another name it leaves the earlier one none.
            if arranged[number].entry.name != entry.name { refused.append((arranged[number].entry.name, .noRoom)) }
            arranged[number].entry = entry
        }
        return arranged.sorted { $0.entry.fetchedAt < $1.entry.fetchedAt }
    }

    /// Whether another process has saved a newer value, which this process has not read.
    private func hasNewer(
        than entry: MuxStoredEntry,
        _ digest: EntryDigest,
        in segment: JournalSegment,
        _ session: Session
    ) -> Bool {
        guard let location = segment.index[digest], !location.isKnown, location.epoch >= entry.sessionEpoch else {
            return false
        }
        let format = RecordCodec(store: session.content.store, digest: self.digest)
        // Enough for most first lines.
        for count in [1 << 10, Int64(RecordCodec.maximumHeader) + 1] {
            let count = min(count, location.count)
            // What cannot be read is no reason to lose all that is to be saved.
            guard let start = try? self.fileSystem.readAll(segment.file, at: location.offset, count: Int(count)) else {
                return false
            }
            guard let found = format.facts(in: start) else { continue }
            return found.name == entry.name && found.fetchedAt > entry.fetchedAt
        }
        return false
    }

    func remove(
        _ kind: RecordHeader.Kind,
        _ names: [MuxStoreKey],
        _ durability: MuxDurability
    ) throws(MuxStoreError) {
        // No entry can be there of a name that cannot be written.
        let names = names.filter(RecordCodec.canHold)
        guard !names.isEmpty else { return }
        try self.lock()
        defer { self.unlock() }
        let (session, _) = try self.refresh()
        let format = RecordCodec(store: session.content.store, digest: self.digest)
        let records = JournalRecords(format)
        for name in names { try records.append(removal: kind, of: name, epoch: session.content.epoch) }
        try self.append(records, durability)
    }

    func raiseSessionEpoch(to epoch: UInt64) throws(MuxStoreError) {
        try self.lock()
        defer { self.unlock() }
        let (session, _) = try self.refresh()
        guard epoch > session.content.epoch else { return }
        // Whatever comes of it, the file is read again before the next call.
        self.session = nil
        let content = SessionFile(epoch: epoch, store: session.content.store)
        try self.sessionFile.write(content.encoded)
        self.lastEpoch = max(self.lastEpoch, epoch)
    }

    func removeEverything() throws(MuxStoreError) {
        try self.lock()
        defer { self.unlock() }
        (self.segment, self.filledStore) = (nil, nil)
        let trash = self.layout.trash(.random(in: .min ... .max))
        do {
            try self.fileSystem.move(self.layout.journal, to: trash)
        } catch .fileSystem(.rename, code: POSIXFileSystem.noSuchFile) {
            return
        }
        try self.fileSystem.synchronizeFolder(self.layout.root)
        // The entries are gone already; what cannot be deleted now is deleted when the folder is next opened.
        try? self.fileSystem.removeTree(trash)
    }

    /// Writes the records in one go, and takes them in.
    private func append(_ records: JournalRecords, _ durability: MuxDurability) throws(MuxStoreError) {
        guard !records.frames.isEmpty, let segment = self.segment else { return }
        let start = segment.end
        let prefix = try self.prefix(of: segment)
        do {
            // In one write, so that nothing of a sibling's comes in between.
            try self.fileSystem.appendAll(prefix.isEmpty ? records.bytes : prefix + records.bytes, to: segment.file)
            if durability == .full { try self.synchronize(segment) }
        } catch {
            // Neither torn nor unsynchronised bytes stay; if even that fails, everything is looked at anew.
            do { try self.fileSystem.truncate(segment.file, to: start) } catch { self.segment = nil }
            throw error
        }
        if start == 0, let end = prefix.firstIndex(of: 0x0a), let frame = RecordCodec.frame(prefix[..<end]) {
            segment.takeIn(frame, offset: 0, count: Int64(prefix.count))
        }
        segment.end += Int64(prefix.count)
        segment.needsLineBreak = false
        for (frame, count) in records.frames {
            segment.takeIn(frame, offset: segment.end, count: count, isKnown: true)
            segment.end += count
        }
        self.settle()
        self.noteFilled()
    }

    /// What has to stand before the next record.
    private func prefix(of segment: JournalSegment) throws(MuxStoreError) -> [UInt8] {
        guard segment.end == 0, let session = self.session else { return segment.needsLineBreak ? [0x0a] : [] }
        let format = RecordCodec(store: session.content.store, digest: self.digest)
        return try format.beginning(.random(in: .min ... .max))
    }

    /// Rewrites the records if that is due, and the kept index; under the lock.
    func settle() {
        self.compactIfDue()
        self.keepIndexIfDue()
    }

    /// The file's content first, then the names that lead to it.
    private func synchronize(_ segment: JournalSegment) throws(MuxStoreError) {
        try self.fileSystem.synchronize(segment.file)
        guard !segment.isNameSafe else { return }
        try self.fileSystem.synchronizeFolder(self.layout.journal)
        try self.fileSystem.synchronizeFolder(self.layout.root)
        segment.isNameSafe = true
    }

    // MARK: - The lock

    var sessionFile: DurableFile {
        DurableFile(JournalLayout.sessionName, in: self.layout.root, fileSystem: self.fileSystem)
    }

    /// Keeps other processes out until ``unlock()``; the calls in between do not wait for anybody.
    func lock() throws(MuxStoreError) {
        for _ in 0..<Self.lockAttempts {
            let file = try self.openLockFile()
            if self.abandonedWait != nil, try !self.isPresent(file) {
                // No process can hold the lock of the present folder from before it was made.
                (self.abandonedWait, self.lockFile, self.session, self.segment) = (nil, nil, nil, nil)
                continue
            }
            try self.take(file)
            // Another process may have removed and recreated the folder: then this is not the lock that others take.
            do {
                if try self.isPresent(file) { return }
            } catch {
                self.unlock()
                throw error
            }
            self.unlock()
            (self.lockFile, self.session, self.segment) = (nil, nil, nil)
        }
        throw .fileSystem(.lock, code: POSIXFileSystem.staleFile)
    }

    /// Whether `file` is the lock that other processes would take.
    private func isPresent(_ file: OpenFile) throws(MuxStoreError) -> Bool {
        let status = try self.fileSystem.status(of: file)
        return try self.fileSystem.status(at: self.layout.lock)?.identity == status.identity
    }

    /// Takes the lock of `file`, and waits for it for as long as patience lasts.
    ///
    /// While an earlier wait goes on, there is no other one: a process that was stopped with the lock, or is busy for longer,
    /// costs one wait, not one for each call.
    private func take(_ file: OpenFile) throws(MuxStoreError) {
        if let wait = self.abandonedWait, !wait.isOver { throw .fileSystem(.lock, code: POSIXFileSystem.wouldBlock) }
        self.abandonedWait = nil
        if try self.fileSystem.tryLock(file) { return }
        let wait = LockWait(file, self.fileSystem)
        if try wait.finish(within: self.lockPatience) { return }
        self.abandonedWait = wait
        throw .fileSystem(.lock, code: POSIXFileSystem.wouldBlock)
    }

    /// Lets others in; if even that fails, by closing the file.
    func unlock() {
        guard let file = self.lockFile else { return }
        do { try self.fileSystem.unlock(file) } catch { self.lockFile = nil }
    }

    private func openLockFile() throws(MuxStoreError) -> OpenFile {
        if let file = self.lockFile { return file }
        let file: OpenFile
        do {
            file = try self.fileSystem.openFile(self.layout.lock, for: .append)
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile) {
            try self.fileSystem.makeFolders(self.layout.root)
            file = try self.fileSystem.openFile(self.layout.lock, for: .append)
        }
        self.lockFile = file
        return file
    }
}

@available(*, unavailable)
extension Journal: Sendable {}
