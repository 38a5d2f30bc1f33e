import Foundation

/// Rewriting the journal without dead records.
extension Journal {
    typealias LiveRecords = ArraySlice<JournalIndex.Location>

    private static let batchSize = 1 << 20

    /// Rewrites the segment if due; call with the lock held.
    ///
    /// The store works without a rewrite, so a failure is counted, and a later call tries again.
    func compactIfDue() {
        guard let segment = self.segment, let session = self.session, !segment.holdsNewer else { return }
        let isOver = self.byteLimit.map { segment.footprint > $0 } ?? false
        guard isOver || segment.isCompactionDue else { return }
        let records = self.liveRecords(of: segment, session)
        let survivors = isOver ? self.survivors(records) : records[...]
        do {
            try self.replace(segment, session, with: survivors)
            self.statistics.evicted += records.count - survivors.count
        } catch {
            self.statistics.failedCompactions += 1
        }
    }

    /// The live, usable records of the session, least recently used first.
    func liveRecords(
        of segment: JournalSegment,
        _ session: Session,
        at second: UInt32? = nil
    ) -> [JournalIndex.Location] {
        let second = second ?? self.currentSecond
        return segment.index.locations.filter {
            $0.epoch >= session.content.epoch && !$0.isUnusable(at: second)
        }
    }

    /// Removes unusable entries from the index of a newly opened segment.
    ///
    /// The next rewrite removes the records. The rewrite is due at once if the records take at least an
    /// eighth of the file, or if the file is small.
    func dropUnusable(from segment: JournalSegment) {
        let second = self.currentSecond
        let size = segment.index.liveBytes
        for digest in segment.index.digests(where: { $0.isUnusable(at: second) }) {
            segment.noteDeadRecord(of: digest)
            segment.index.remove(digest)
        }
        let bytes = size - segment.index.liveBytes
        guard bytes > 0, bytes >= segment.end / 8 || segment.end <= JournalSegment.compactionFloor else { return }
        segment.isRewriteRequired = true
    }

    /// Replaces the segment by a file with the valid records among `records` only; call with the lock held.
    ///
    /// - Parameters:
    ///   - segment: The segment.
    ///   - session: The session.
    ///   - records: The records to keep.
    ///   - read: Reads a record; `nil` to read the records from the old file.
    /// - Throws: The error; the old file is unchanged.
    func replace(
        _ segment: JournalSegment,
        _ session: Session,
        with records: LiveRecords,
        reading read: ((JournalIndex.Location) throws(MuxStoreError) -> [UInt8])? = nil
    ) throws(MuxStoreError) {
        func readRecord(_ place: JournalIndex.Location) throws(MuxStoreError) -> [UInt8] {
            // No `??`: the compiler of Swift 6.3.1 crashes on an autoclosure with a typed throw.
            if let read { return try read(place) }
            return try self.fileSystem.readAll(segment.file, at: place.offset, count: Int(place.byteCount))
        }
        let temporary = self.layout.temporarySegment(.random(in: .min ... .max))
        do {
            let (compacted, damaged) = try self.rewrite(records, session, to: temporary, reading: readRecord)
            // The commit point: before this call, the old file is unchanged.
            try self.fileSystem.move(temporary, to: self.layout.segment)
            self.segment = compacted
            self.statistics.compactions += 1
            self.statistics.damagedRecords += damaged
        } catch {
            try? self.fileSystem.removeFile(temporary)
            throw error
        }
        if segment.snapshotBytes > 0 { try? self.indexFile.remove(durability: .relaxed) }
        // After a failure, the next write with full durability flushes the name.
        do {
            try self.fileSystem.synchronizeFolder(self.layout.journal)
        } catch {
            self.statistics.failedCompactions += 1
        }
    }

    /// The records that stay in a full folder: the most recently used records, up to about three quarters of
    /// the limit.
    ///
    /// The rest of the limit stays free, so that not every save rewrites the journal.
    private func survivors(_ records: [JournalIndex.Location]) -> LiveRecords {
        guard let byteLimit else { return records[...] }
        let row = Int64(IndexSnapshot.rowSize)
        var size = JournalSegment.overhead(of: 0)
        var first = records.endIndex
        while first > records.startIndex {
            size += records[first - 1].byteCount + row
            // The most recently used record alone may take the whole limit.
            guard size <= (first == records.endIndex ? byteLimit : byteLimit / 4 * 3) else { break }
            first -= 1
        }
        return records[first...]
    }

    /// Copies the valid records to a new file, and flushes the file to disk.
    private func rewrite(
        _ records: LiveRecords,
        _ session: Session,
        to path: String,
        reading read: (JournalIndex.Location) throws(MuxStoreError) -> [UInt8]
    ) throws(MuxStoreError) -> (JournalSegment, damaged: Int) {
        let format = RecordCodec(store: session.content.store, digest: self.digest)
        let file = try self.fileSystem.openFile(path, for: .create)
        let compacted = JournalSegment(file: file, identity: try self.fileSystem.status(of: file).identity)
        var damaged = 0
        var batch: [UInt8] = []
        if !records.isEmpty {
            let generation = UInt64.random(in: .min ... .max)
            batch = try format.beginning(generation)
            (compacted.generation, compacted.end) = (generation, Int64(batch.count))
        }
        for var location in records {
            let record = try read(location)
            guard let entry = format.entry(in: record), self.digest(entry.name) == location.digest else {
                damaged += 1
                continue
            }
            location.offset = compacted.end
            compacted.index.insert(location)
            compacted.lastOffset = compacted.end
            compacted.recordsSinceSnapshot += 1
            compacted.end += location.byteCount
            batch += record
            if batch.count >= Self.batchSize {
                try self.fileSystem.appendAll(batch, to: file)
                batch = []
            }
        }
        try self.fileSystem.appendAll(batch, to: file)
        try self.fileSystem.synchronize(file)
        return (compacted, damaged)
    }
}

/// Invariants, for tests.
extension Journal {
    /// Descriptions of the violations; empty without violations.
    func brokenInvariants() throws(MuxStoreError) -> [String] {
        try self.lock()
        defer { self.unlock() }
        let (session, segment) = try self.refresh()
        var broken: [String] = []

        // A scan of the whole file must give the same entries.
        let rescan = JournalSegment(file: segment.file, identity: segment.identity)
        try self.readOn(rescan, to: segment.end, session)
        let second = self.currentSecond
        func places(_ segment: JournalSegment) -> [EntryDigest: JournalIndex.Location] {
            self.liveRecords(of: segment, session, at: second).reduce(into: [:]) { places, location in
                var place = location
                (place.lastUse, place.wasAccessedHere) = (0, false)
                places[place.digest] = place
            }
        }
        if places(segment) != places(rescan) { broken.append("the index differs from the index of a rescan") }
        let known = segment.index.locations.filter { $0.epoch >= session.content.epoch }
        if Set(known.map(\.digest)).count != segment.index.count
            || segment.index.liveBytes != known.reduce(0, { $0 + $1.byteCount })
        {
            broken.append("the index has a wrong count or size")
        }
        if let byteLimit, !segment.holdsNewer, segment.footprint > byteLimit {
            broken.append("the folder is too large")
        }
        for name in try self.fileSystem.names(in: self.layout.root) + self.fileSystem.names(in: self.layout.journal)
        where name.hasSuffix(".tmp") || JournalLayout.isTrash(name) {
            broken.append("\(name) was not removed")
        }
        return broken
    }
}

extension JournalSegment {
    /// The number of dead bytes above which the dead bytes alone may make a rewrite due; also the maximum
    /// size of a small file in ``Journal/dropUnusable(from:)``.
    static let compactionFloor: Int64 = 1 << 16

    var isCompactionDue: Bool {
        self.isRewriteRequired
            || self.end - self.index.liveBytes > max(self.index.liveBytes, Self.compactionFloor)
    }
}
