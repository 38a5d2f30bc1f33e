/// The state of a ``DiskBacking``, under the lock of the multiplexer.
@usableFromInline
struct DiskState<Key: Hashable & Sendable>: Sendable {
    /// The last refresh of all entries, for the next save.
    var refresh = DiskRefresh()
    /// Keys whose entry on disk was written by a later version of the program.
    @usableFromInline var newer: Set<Key> = []
    /// The keys whose entry on disk must be read before a save, because the entry may be newer than the value
    /// in memory; with the number of failed reads by saves.
    ///
    /// A call of `store` adds a key without an entry in memory. A fetch adds its key only after a failed
    /// read.
    @usableFromInline var unseen: [Key: Int] = [:]
    /// Whether the removal of the domain on disk is pending; until the removal, no entry is read from disk.
    @usableFromInline var isDomainRemovalPending = false
    /// Whether a write-back is running: a save that makes entries evictable.
    @usableFromInline var isWritingBack = false
    /// The number of entries at which the next write-back is due, after a write-back without success.
    @usableFromInline var writeBackCount = 0
    /// Whether the disk cannot be written, so that entries may be evicted unsaved.
    ///
    /// Set by a write-back with failures and without a saved entry; reset by any other write-back, and by any
    /// saved entry.
    @usableFromInline var cannotWrite = false
    /// The number of entries evicted unsaved since the last report.
    @usableFromInline var lostCount = 0
    /// The number of entries evicted unsaved since the start of the last write-back.
    @usableFromInline var lostSinceTry = 0
    /// The ``lostSinceTry`` at which the next write-back is due, while the disk cannot be written.
    @usableFromInline var lossesBeforeTry = Self.firstLossesBeforeTry

    @usableFromInline static var firstLossesBeforeTry: Int { 64 }

    /// Whether an entry from disk was fetched before a refresh of the entry or of all entries; the refresh of
    /// all entries may be unsaved.
    @usableFromInline
    func isFromBeforeRefresh(_ loaded: LoadedEntry<some Sendable>) -> Bool {
        loaded.stored.isRefreshed || self.refresh.isLater(than: loaded.stored)
    }

    /// Requires a read of the entry on disk before a save of `key`.
    @usableFromInline
    mutating func requireRead(_ key: Key) { if self.unseen[key] == nil { self.unseen[key] = 0 } }

    /// Records that the entry of `key` on disk was read.
    ///
    /// - Returns: The key in ``unseen``, to be released outside the lock.
    mutating func noteRead(_ key: Key) -> Key? {
        self.unseen.index(forKey: key).map { self.unseen.remove(at: $0).key }
    }

    /// Clears the state of an ended session.
    ///
    /// - Returns: The former keys, to be released outside the lock.
    mutating func sessionEnded() -> any Sendable {
        let former = (self.newer, self.unseen)
        self.refresh = DiskRefresh()
        self.isDomainRemovalPending = false
        (self.newer, self.unseen) = ([], [:])
        self.lostCount = 0
        return former
    }

    @inlinable
    mutating func countLosses(_ count: Int) {
        self.lostCount += count
        self.lostSinceTry += count
    }

    mutating func takeLosses() -> Int {
        defer { self.lostCount = 0 }
        return self.lostCount
    }

    /// Begins a due write-back; then a call of ``recordWriteBack(_:failed:of:)`` must follow, unless the
    /// multiplexer is gone.
    ///
    /// If the table exceeds its bound, a write-back is due at ``writeBackCount`` entries. Otherwise a
    /// write-back is due while the disk cannot be written, after ``lossesBeforeTry`` entries evicted unsaved.
    ///
    /// - Parameters:
    ///   - count: The number of entries in memory.
    ///   - isOverBound: Whether the table exceeds its bound.
    /// - Returns: Whether a write-back has begun.
    @inlinable
    mutating func beginWriteBackIfDue(_ count: Int, isOverBound: Bool) -> Bool {
        if !isOverBound { self.writeBackCount = 0 }
        let isDue =
            isOverBound ? count >= self.writeBackCount : self.cannotWrite && self.lostSinceTry >= self.lossesBeforeTry
        guard isDue, !self.isWritingBack else { return false }
        self.isWritingBack = true
        self.lostSinceTry = 0
        return true
    }

    /// Records the end of a write-back: `count` entries were saved, `failed` entries were not, and memory has
    /// `entries`.
    ///
    /// If `count` is zero, the next write-back of a table over its bound is due at a quarter more entries. If
    /// `failed` is also not zero, ``lossesBeforeTry`` is doubled, to at most 65,536; otherwise
    /// ``lossesBeforeTry`` is reset.
    mutating func recordWriteBack(_ count: Int, failed: Int, of entries: Int) {
        self.isWritingBack = false
        self.writeBackCount = count > 0 ? 0 : entries + entries / 4 + 1
        self.cannotWrite = count == 0 && failed > 0
        self.lossesBeforeTry = self.cannotWrite ? min(self.lossesBeforeTry * 2, 65_536) : Self.firstLossesBeforeTry
    }
}
