import Foundation

/// Writing to a full disk (`ENOSPC`, `EDQUOT`): frees space step by step, and tries the write again after
/// each step.
///
/// Live entries are evicted only as a last resort. If the live entries exceed 64 MB and the disk has no room
/// for a copy, a rewrite keeps only the most recently used entries, up to 64 MB.
extension Journal {
    /// The maximum size in bytes of the live records that are held in memory while the segment is empty.
    private static let heldBytes: Int64 = 1 << 26
    /// The space in bytes that the file system may need in addition to the records.
    private static let slack: Int64 = 1 << 13

    /// Writes records after a first write failed for lack of space with `error`.
    ///
    /// - Parameters:
    ///   - records: The records; records that cannot fit are dropped from this object.
    ///   - durability: See ``MuxDurability``.
    ///   - error: The error of the first write; thrown if the write remains impossible.
    /// - Throws: `error`, or another error.
    func writeOnFullDisk(
        _ records: JournalRecords,
        _ durability: MuxDurability,
        after error: MuxStoreError
    ) throws(MuxStoreError) {
        if self.removeSpareFiles(), try self.writeIfRoom(records, durability) { return }
        guard let segment = self.segment, let session = self.session, !segment.holdsNewer else { throw error }
        let live = self.liveRecords(of: segment, session)
        if segment.hasDeadBytes || live.count < segment.index.count {
            try self.rewriteOnFullDisk(live[...])
            if try self.writeIfRoom(records, durability) { return }
        }
        guard let size = self.segment?.end else { throw error }
        let count = Int64(records.bytes.count)
        // If the quota is exhausted, the disk's free space does not help: a single record must fit into the
        // space of the segment.
        if error.isOverQuota, records.headers.count == 1, count > size { throw error }
        let space = (try? self.fileSystem.freeSpace(at: self.layout.root)) ?? .max
        // Unknown space counts as none. Limited, so that the sums below do not overflow.
        let free = space == .max ? 0 : min(space, 1 << 50)
        // The space suffices, so the error has another cause.
        if !error.isOverQuota, free - Self.slack > count { throw error }
        let dropped = try records.keepLast(within: size + free - Self.slack, orThrow: error)
        let room = max(0, size + free - Self.slack - Int64(records.bytes.count))
        var (limit, isLast) = (min(room, (size + free) / 4 * 3), false)
        while !isLast, let segment = self.segment {
            // The older version of a dropped entry is removed, too.
            let rest = self.liveRecords(of: segment, session).filter { !dropped.contains($0.digest) }
            let kept = Self.mostRecent(rest, within: limit)
            try self.rewriteOnFullDisk(kept)
            if try self.writeIfRoom(records, durability) { return }
            isLast = kept.isEmpty
            // Each further attempt evicts at least half of the remaining bytes.
            limit = (self.segment?.index.liveBytes ?? 0) / 2
        }
        // No entry is left to evict, so now the first records of the write are dropped.
        while records.headers.count > 1 {
            let half = Int64(records.bytes.count / 2) + JournalSegment.overhead(of: records.headers.count)
            _ = try records.keepLast(within: half, orThrow: error)
            if try self.writeIfRoom(records, durability) { return }
        }
        throw error
    }

    /// Writes the records; returns `false` if the disk has no room.
    private func writeIfRoom(_ records: JournalRecords, _ durability: MuxDurability) throws(MuxStoreError) -> Bool {
        do throws(MuxStoreError) {
            try self.write(records, durability)
            return true
        } catch let error where error.isOutOfSpace {
            return false
        }
    }

    /// The most recently used records that take at most `limit` bytes.
    private static func mostRecent(_ records: [JournalIndex.Location], within limit: Int64) -> LiveRecords {
        var (size, first) = (Int64(0), records.endIndex)
        while first > records.startIndex {
            size += records[first - 1].byteCount
            guard size <= limit else { break }
            first -= 1
        }
        return records[first...]
    }

    /// Rewrites the segment with these records only.
    ///
    /// The new file is written next to the old file if the space suffices. Otherwise the records are held in
    /// memory while the old file is emptied. If the process is killed while the file is empty, the entries
    /// are lost, but no entry is incomplete.
    ///
    /// - Throws: The error; the entries are lost if the old file was emptied.
    func rewriteOnFullDisk(_ records: LiveRecords) throws(MuxStoreError) {
        guard let segment = self.segment, let session = self.session else { return }
        let count = self.liveRecords(of: segment, session).count
        do throws(MuxStoreError) {
            try self.replace(segment, session, with: records)
            // The old file takes space as long as a process has the file open.
            try? self.fileSystem.truncate(segment.file, to: 0)
        } catch let error where error.isOutOfSpace {
            var held: [(record: JournalIndex.Location, bytes: [UInt8])] = []
            for record in Self.mostRecent(Array(records), within: Self.heldBytes) {
                let count = Int(record.byteCount)
                held.append((record, try self.fileSystem.readAll(segment.file, at: record.offset, count: count)))
            }
            try self.fileSystem.truncate(segment.file, to: 0)
            // Removed, so that a process with the old file open detects the new file.
            try? self.fileSystem.removeFile(self.layout.segment)
            self.segment = nil
            while true {
                let bytes = Dictionary(held.map { ($0.record.offset, $0.bytes) }) { first, _ in first }
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

    /// Removes dispensable files: the index snapshot, and leftovers of killed processes.
    ///
    /// - Returns: Whether a file was removed.
    @discardableResult
    private func removeSpareFiles() -> Bool {
        func names() -> Set<String> {
            let names =
                try? self.fileSystem.names(in: self.layout.root) + self.fileSystem.names(in: self.layout.journal)
            return Set(names ?? [])
        }
        let before = names()
        try? self.removeLeftovers()
        try? self.indexFile.remove(durability: .relaxed)
        self.segment?.snapshotBytes = 0
        return names() != before
    }

    /// Replaces the session file; on a full disk, removes all entries if necessary.
    ///
    /// The modification time gets random nanoseconds, which distinguish this file from a later session file.
    func writeSession(_ content: SessionFile) throws(MuxStoreError) {
        defer {
            let second = Int64(min(max(Date.now.timeIntervalSince1970, 0), 9e9))
            let time = second * 1_000_000_000 + .random(in: 0..<1_000_000_000)
            try? self.fileSystem.setModified(self.sessionFile.path, to: time)
        }
        for attempt in 0..<3 {
            do throws(MuxStoreError) {
                return try self.sessionFile.write(content.encoded)
            } catch let error where error.isOutOfSpace {
                switch attempt {
                case 0: self.removeSpareFiles()
                case 1: self.emptySegment()
                default:
                    // If the process is killed here, the session file is missing. If the journal's folder
                    // exists, the next opening treats the session number as lost, and starts a new session.
                    try self.sessionFile.remove()
                }
            }
        }
        try self.sessionFile.write(content.encoded)
    }

    /// Empties and removes the segment file to free disk space; the folder stays.
    private func emptySegment() {
        self.segment = nil
        guard (try? self.fileSystem.status(at: self.layout.segment)) ?? nil != nil,
            let file = try? self.fileSystem.openFile(self.layout.segment, for: .append)
        else { return }
        try? self.fileSystem.truncate(file, to: 0)
        try? self.fileSystem.removeFile(self.layout.segment)
    }

    /// Removes the journal's files separately, if the file system has no room for a rename of the folder.
    func removeFiles() throws(MuxStoreError) {
        self.emptySegment()
        for name in try self.fileSystem.names(in: self.layout.journal) {
            try self.fileSystem.removeFile(FilePath.join(self.layout.journal, name))
        }
        try self.fileSystem.synchronizeFolder(self.layout.journal)
    }
}

extension MuxStoreError {
    /// Whether the disk is full, or the user's disk quota is exhausted.
    package var isOutOfSpace: Bool {
        guard case .fileSystem(_, let code) = self else { return false }
        return code == POSIXFileSystem.noSpace || code == POSIXFileSystem.overQuota
    }

    /// Whether the user's disk quota is exhausted; the free space of the disk does not reflect the quota.
    fileprivate var isOverQuota: Bool {
        guard case .fileSystem(_, POSIXFileSystem.overQuota) = self else { return false }
        return true
    }
}
