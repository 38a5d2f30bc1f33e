import Foundation

/// Writing to a full disk (`ENOSPC`, `EDQUOT`): space is made step by step, and the write is tried again after each.
///
/// Live entries are evicted only if nothing else helps. Of more than 64 MB of live entries, the least recently used are evicted
/// if there is no room for a copy.
extension Journal {
    /// The maximum size of the live records, in bytes, that are held in memory while the segment is empty.
    private static let heldBytes: Int64 = 1 << 26
    /// What the file system may need beside the records, in bytes.
    private static let slack: Int64 = 1 << 13

    /// Writes records whose write failed for lack of space with `error`.
    ///
    /// - Parameters:
    ///   - records: The records; those that cannot fit are dropped from it.
    ///   - durability: See ``MuxDurability``.
    ///   - error: The error, which is thrown if nothing helps.
    /// - Throws: `error`, or another one.
    func writeOnFullDisk(
        _ records: JournalRecords,
        _ durability: MuxDurability,
        after error: MuxStoreError
    ) throws(MuxStoreError) {
        if self.hasRemovedSpareFiles(), try self.hasWritten(records, durability) { return }
        guard let segment = self.segment, let session = self.session, !segment.holdsNewer else { throw error }
        let live = self.liveRecords(of: segment, session)
        if segment.hasDeadBytes || live.count < segment.index.count {
            try self.rewriteOnFullDisk(live[...])
            if try self.hasWritten(records, durability) { return }
        }
        guard let size = self.segment?.end else { throw error }
        let count = Int64(records.bytes.count)
        // Of a quota, the free space of the disk says too much.
        if error.isOverQuota, records.frames.count == 1, count > size { throw error }
        let free = min((try? self.fileSystem.freeSpace(at: self.layout.root)) ?? 0, 1 << 50)
        // Then it is not the space that lacks.
        if !error.isOverQuota, free - Self.slack > count { throw error }
        let dropped = try records.keepLast(within: size + free - Self.slack, orThrow: error)
        let room = max(0, size + free - Self.slack - Int64(records.bytes.count))
        var (limit, isLast) = (min(room, (size + free) / 4 * 3), false)
        while !isLast, let segment = self.segment {
            // A dropped entry takes its older version with it.
            let rest = self.liveRecords(of: segment, session).filter { !dropped.contains($0.digest) }
            let kept = Self.mostRecent(rest, within: limit)
            try self.rewriteOnFullDisk(kept)
            if try self.hasWritten(records, durability) { return }
            isLast = kept.isEmpty
            limit = (self.segment?.index.liveBytes ?? 0) / 2
        }
        // The folder has no other entries by now.
        while records.frames.count > 1 {
            let half = Int64(records.bytes.count / 2) + JournalSegment.overhead(of: records.frames.count)
            _ = try records.keepLast(within: half, orThrow: error)
            if try self.hasWritten(records, durability) { return }
        }
        throw error
    }

    /// Writes the records unless space lacks.
    private func hasWritten(_ records: JournalRecords, _ durability: MuxDurability) throws(MuxStoreError) -> Bool {
        do throws(MuxStoreError) {
            try self.write(records, durability)
            return true
        } catch let error where error.isOutOfSpace {
            return false
        }
    }

    /// The most recently used ones of the records that take at most `limit` bytes.
    private static func mostRecent(_ records: [LiveRecord], within limit: Int64) -> ArraySlice<LiveRecord> {
        var (size, first) = (Int64(0), records.endIndex)
        while first > records.startIndex {
            size += records[first - 1].location.count
            guard size <= limit else { break }
            first -= 1
        }
        return records[first...]
    }

    /// Rewrites the segment with these records only: beside the old file if that fits; otherwise they are held in memory
    /// while the old file is emptied.
    ///
    /// A process that is killed while the file is empty loses the entries, but never tears one.
    ///
    /// - Throws: The error; the entries are lost if the old file was emptied.
    func rewriteOnFullDisk(_ records: ArraySlice<LiveRecord>) throws(MuxStoreError) {
        guard let segment = self.segment, let session = self.session else { return }
        let count = self.liveRecords(of: segment, session).count
        do throws(MuxStoreError) {
            try self.replace(segment, session, with: records) { [fileSystem] place throws(MuxStoreError) in
                try fileSystem.readAll(segment.file, at: place.offset, count: Int(place.count))
            }
            // The old file takes space as long as a process has it open.
            try? self.fileSystem.truncate(segment.file, to: 0)
        } catch let error where error.isOutOfSpace {
            var held: [(record: LiveRecord, bytes: [UInt8])] = []
            for record in Self.mostRecent(Array(records), within: Self.heldBytes) {
                let (offset, count) = (record.location.offset, Int(record.location.count))
                held.append((record, try self.fileSystem.readAll(segment.file, at: offset, count: count)))
            }
            try self.fileSystem.truncate(segment.file, to: 0)
            // A process that has the old file open finds that it is another one now.
            try? self.fileSystem.removeFile(self.layout.segment)
            self.segment = nil
            while true {
                let bytes = Dictionary(held.map { ($0.record.location.offset, $0.bytes) }) { first, _ in first }
                do throws(MuxStoreError) {
                    try self.replace(segment, session, with: held.map(\.record)[...]) { place throws(MuxStoreError) in
                        bytes[place.offset] ?? []
                    }
                    break
                } catch let error where error.isOutOfSpace && !held.isEmpty {
                    held.removeFirst((held.count + 1) / 2)
                }
            }
        }
        self.statistics.evicted += max(0, count - (self.segment?.index.count ?? 0))
    }

    /// Removes files that the store can do without: the index snapshot, and what killed processes have left.
    ///
    /// - Returns: Whether there were any.
    @discardableResult
    private func hasRemovedSpareFiles() -> Bool {
        func names() -> Set<String> {
            let names =
                try? self.fileSystem.names(in: self.layout.root) + self.fileSystem.names(in: self.layout.journal)
            return Set(names ?? [])
        }
        let before = names()
        try? self.removeLeftovers()
        try? self.indexFile.remove(durability: .relaxed)
        self.segment?.keptBytes = 0
        return names() != before
    }

    /// Replaces the session file; on a full disk, all entries make room for it.
    ///
    /// Its modification time is random, so that no later file can be taken for this one.
    func writeSession(_ content: SessionFile) throws(MuxStoreError) {
        defer {
            let second = Int64(min(max(Date.now.timeIntervalSince1970, 0), 9e9))
            let time = second * 1_000_000_000 + .random(in: 0..<1_000_000_000)
            try? self.fileSystem.setModified(self.sessionFile.path, to: time)
        }
        do throws(MuxStoreError) {
            return try self.sessionFile.write(content.encoded)
        } catch let error where !error.isOutOfSpace {
            throw error
        } catch {
            self.hasRemovedSpareFiles()
        }
        do throws(MuxStoreError) {
            return try self.sessionFile.write(content.encoded)
        } catch let error where !error.isOutOfSpace {
            throw error
        } catch {
            self.emptySegment()
        }
        do throws(MuxStoreError) {
            return try self.sessionFile.write(content.encoded)
        } catch let error where !error.isOutOfSpace {
            throw error
        } catch {
            // A journal without a session file means a lost number: if the process ends here, the session ends.
            try self.sessionFile.remove()
        }
        try self.sessionFile.write(content.encoded)
    }

    /// Empties the file of records, so that the disk has room; the folder stays.
    private func emptySegment() {
        self.segment = nil
        guard (try? self.fileSystem.status(at: self.layout.segment)) ?? nil != nil,
            let file = try? self.fileSystem.openFile(self.layout.segment, for: .append)
        else { return }
        try? self.fileSystem.truncate(file, to: 0)
        try? self.fileSystem.removeFile(self.layout.segment)
    }

    /// Removes the journal's files one by one, where the file system has no room to rename the folder.
    func removeFiles() throws(MuxStoreError) {
        self.emptySegment()
        for name in try self.fileSystem.names(in: self.layout.journal) {
            try self.fileSystem.removeFile(FilePath.join(self.layout.journal, name))
        }
        try self.fileSystem.synchronizeFolder(self.layout.journal)
    }
}

extension MuxStoreError {
    /// Whether the disk, or the user's share of it, is full.
    var isOutOfSpace: Bool {
        guard case .fileSystem(_, let code) = self else { return false }
        return code == POSIXFileSystem.noSpace || code == POSIXFileSystem.overQuota
    }

    /// Whether the user's share of the disk is full, of which the free space says nothing.
    fileprivate var isOverQuota: Bool {
        guard case .fileSystem(_, POSIXFileSystem.overQuota) = self else { return false }
        return true
    }
}
