import Foundation

/// Opening the folder, and reading changes by other processes.
extension Journal {
    /// The open session and segment, up to date.
    typealias Present = (session: Session, segment: JournalSegment)

    /// Checks without the lock for changes by other processes; reads changes with the lock if the folder is
    /// writable.
    func refreshIfChanged() throws(MuxStoreError) -> Present {
        if let present = try self.unchanged() { return present }
        guard self.lockFile != nil || self.fileSystem.isWritable(self.layout.root) else {
            return try self.refreshReadOnly(because: .fileSystem(.open, code: POSIXFileSystem.noPermission))
        }
        do {
            try self.lock()
        } catch .fileSystem(.open, let code) where POSIXFileSystem.isForbidden(code) {
            return try self.refreshReadOnly(because: .fileSystem(.open, code: code))
        }
        defer { self.unlock() }
        return try self.refresh()
    }

    /// The open session and segment; `nil` without an open segment, or after a change by another process.
    func unchanged() throws(MuxStoreError) -> Present? {
        guard let session, let segment = self.segment, try self.isInPlace(session),
            let status = try self.fileSystem.status(at: self.layout.segment),
            status.identity == segment.identity, status.size == segment.end
        else { return nil }
        return (session, segment)
    }

    /// Reads all changes; call with the lock held.
    func refresh() throws(MuxStoreError) -> Present {
        if self.isReadOnly { (self.isReadOnly, self.segment) = (false, nil) }
        let session = try self.openSession()
        let status = try self.fileSystem.status(at: self.layout.segment)
        if let segment = try self.readOn(to: status, session) {
            self.noteFilled()
            return (session, segment)
        }
        let segment = try self.openSegment(session)
        if let filledStore, filledStore != session.content.store || status == nil { self.statistics.losses += 1 }
        self.noteFilled()
        return (session, segment)
    }

    /// Reads all changes in a folder without write permission, such as a folder in an app's bundle.
    ///
    /// Takes no lock and changes no file. A writer cannot be excluded: every load verifies the record.
    ///
    /// - Parameter error: The error that writing to the folder causes.
    /// - Returns: The session and the segment, up to date.
    /// - Throws: `error` if the session file is missing or damaged, because a new session file cannot be
    ///   written; ``MuxStoreError/newerFormat``; the error of a read.
    private func refreshReadOnly(because error: MuxStoreError) throws(MuxStoreError) -> Present {
        if !self.isReadOnly { (self.isReadOnly, self.segment) = (true, nil) }
        let session = try self.openSession(readOnlyBecause: error)
        let status = try self.fileSystem.status(at: self.layout.segment)
        if let segment = try self.readOn(to: status, session) { return (session, segment) }
        self.segment = nil
        let segment = try self.restoredSegment(
            of: try self.fileSystem.openFile(self.layout.segment, for: .read),
            session
        )
        self.segment = segment
        return (session, segment)
    }

    /// Reads the unread records of the open segment.
    ///
    /// - Returns: The segment; `nil` if the file with `status` is another file, or is shorter than the part
    ///   that was read.
    private func readOn(to status: FileStatus?, _ session: Session) throws(MuxStoreError) -> JournalSegment? {
        guard let segment = self.segment, let status, status.identity == segment.identity, status.size >= segment.end
        else { return nil }
        // Stays `nil` after an error: a second read of the same records would apply the records twice.
        self.segment = nil
        try self.readOn(segment, to: status.size, session)
        self.segment = segment
        return segment
    }

    /// Updates ``filledStore``.
    func noteFilled() {
        guard let session, let segment = self.segment else { return }
        self.filledStore = segment.index.count > 0 ? session.content.store : nil
    }

    // MARK: - The session

    /// The number in the session file; `withoutStore` in a folder without a store; `nil` if the session file
    /// is lost, or has no number that this version can read.
    ///
    /// Takes no lock, and creates no file.
    static func epochOnDisk(
        _ layout: JournalLayout,
        _ fileSystem: any FileSystem,
        withoutStore: UInt64 = 0
    ) throws(MuxStoreError) -> UInt64? {
        let file = DurableFile(JournalLayout.sessionName, in: layout.root, fileSystem: fileSystem)
        guard let content = try file.read() else {
            // A journal without a session file means a lost number.
            return try fileSystem.status(at: layout.journal) == nil ? withoutStore : nil
        }
        guard case .present(let session) = SessionFile.decode(content) else { return nil }
        return session.epoch
    }

    private func isInPlace(_ session: Session) throws(MuxStoreError) -> Bool {
        guard let status = try self.fileSystem.status(at: self.sessionFile.path) else { return false }
        return status.identity == session.status.identity && status.modified == session.status.modified
            && status.size == session.status.size
    }

    /// The session in the session file; if the file is missing or damaged, throws `refusal`, or writes a new
    /// file if `refusal` is `nil`.
    func openSession(readOnlyBecause refusal: MuxStoreError? = nil) throws(MuxStoreError) -> Session {
        if let session, try self.isInPlace(session) { return session }
        let (former, segment) = (self.session, self.segment)
        (self.session, self.segment) = (nil, nil)
        let opened = try self.sessionFile.open()
        switch opened.map({ SessionFile.decode(Data($0.content)) }) {
        case .present(let content)?:
            if let file = opened?.file { return self.adopt(try self.fileSystem.status(of: file), content) }
        case .newer?: throw .newerFormat
        case .damaged?:
            if let refusal { throw refusal }
            self.statistics.damagedRecords += 1
        case nil:
            if let refusal { throw refusal }
            // The file was deleted. A sign-out would have removed the records, so the session has not
            // changed.
            guard let former, let segment, former.content.epoch >= self.lastEpoch,
                try self.fileSystem.status(at: self.layout.segment)?.identity == segment.identity
            else { break }
            return try self.makeSession(former.content)
        }
        // The session file is created before the journal: a journal without a session file means a lost
        // number.
        let hasJournal = try self.fileSystem.status(at: self.layout.journal) != nil
        // A lost number is replaced by 2^20 times the seconds since 1970: much greater than any count of
        // sign-outs, if the clock is right.
        var epoch = self.lastEpoch
        if opened != nil || hasJournal { epoch = max(epoch, UInt64(max(0, Date.now.timeIntervalSince1970)) << 20) }
        // The store gets a new identity, so that no leftover record counts as a record of this store.
        return try self.makeSession(SessionFile(epoch: epoch, store: .random(in: .min ... .max)))
    }

    /// Creates the session file.
    private func makeSession(_ content: SessionFile) throws(MuxStoreError) -> Session {
        try? self.fileSystem.setStoreAttributes(self.layout.root)
        try self.writeSession(content)
        guard let file = try self.sessionFile.open()?.file else {
            throw .fileSystem(.open, code: POSIXFileSystem.noSuchFile)
        }
        return self.adopt(try self.fileSystem.status(of: file), content)
    }

    private func adopt(_ status: FileStatus, _ content: SessionFile) -> Session {
        let session = Session(status: status, content: content)
        self.session = session
        // After the end of a session, missing entries are not a loss.
        if content.epoch > self.lastEpoch { self.filledStore = nil }
        self.lastEpoch = max(self.lastEpoch, content.epoch)
        return session
    }

    // MARK: - The segment

    /// Opens or creates the segment, reads the index, and compacts the journal if due.
    private func openSegment(_ session: Session) throws(MuxStoreError) -> JournalSegment {
        self.segment = nil
        try self.removeLeftovers()
        let file: OpenFile
        do {
            file = try self.fileSystem.openFile(self.layout.segment, for: .append)
        } catch .fileSystem(.open, code: POSIXFileSystem.noSuchFile) {
            _ = try self.fileSystem.makeFolder(self.layout.journal)
            file = try self.fileSystem.openFile(self.layout.segment, for: .append)
        }
        let segment = try self.restoredSegment(of: file, session)
        self.dropUnusable(from: segment)
        self.segment = segment
        self.compactAndWriteIndexIfDue()
        return self.segment ?? segment
    }

    /// Restores the index snapshot of the file, and reads the records that the snapshot does not cover.
    private func restoredSegment(of file: OpenFile, _ session: Session) throws(MuxStoreError) -> JournalSegment {
        let status = try self.fileSystem.status(of: file)
        let segment = JournalSegment(file: file, identity: status.identity)
        self.restoreIndex(of: segment, size: status.size, session)
        try self.readOn(segment, to: status.size, session)
        return segment
    }

    /// Reads the unread records; truncates an incomplete record at the end, unless the segment is read-only.
    func readOn(
        _ segment: JournalSegment,
        to size: Int64,
        _ session: Session
    ) throws(MuxStoreError) {
        guard size > segment.end else { return }
        var damaged = 0
        var walker = self.walker(over: segment, from: segment.end, to: size)
        while let step = try walker.next() {
            switch step {
            case .newer: segment.holdsNewer = true
            case .damage: damaged += 1
            case .record(let header, _, _) where header.store != session.content.store:
                segment.isRewriteRequired = true
                if header.kind != .begin { damaged += 1 }
            case .record(let header, _, _) where header.kind != .begin && header.epoch < session.content.epoch:
                segment.isRewriteRequired = true
            case .record(let header, let offset, let count): segment.applyRecord(header, offset: offset, count: count)
            }
        }
        if walker.endsTorn, !self.isReadOnly {
            try self.fileSystem.truncate(segment.file, to: walker.position)
            self.statistics.tornBytes += Int(size - walker.position)
        }
        segment.end = walker.position
        segment.needsLineBreak = !walker.endsWithLineBreak
        segment.isRewriteRequired = segment.isRewriteRequired || damaged > 0
        self.statistics.damagedRecords += damaged
    }

    func walker(over segment: JournalSegment, from start: Int64, to end: Int64) -> JournalWalker {
        let (fileSystem, file) = (self.fileSystem, segment.file)
        return JournalWalker(from: start, to: end) { offset, count throws(MuxStoreError) in
            try fileSystem.readAll(file, at: offset, count: count)
        }
    }

    /// Removes temporary files and renamed folders of killed processes, as far as possible.
    func removeLeftovers() throws(MuxStoreError) {
        let names = try self.fileSystem.names(in: self.layout.root)
        self.removeTrash(among: names)
        for name in names where self.sessionFile.isLeftover(name) {
            try? self.fileSystem.removeFile(FilePath.join(self.layout.root, name))
        }
        let others = (try? self.fileSystem.names(in: self.layout.journal)) ?? []
        for name in others where JournalLayout.isLeftoverSegment(name) || self.indexFile.isLeftover(name) {
            try? self.fileSystem.removeFile(FilePath.join(self.layout.journal, name))
        }
    }
}
