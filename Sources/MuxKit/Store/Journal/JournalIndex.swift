/// The locations of the live records of a journal.
///
/// An entry can have several records in the file. The record that was written last is live, unless a removal
/// followed; earlier records are dead. The index is a single flat table, because the first load from a large
/// store spends most of the time on filling the table.
package struct JournalIndex: Sendable {
    /// The position of one record in the file, and the digest of the record's name.
    package struct Location: Sendable, Equatable {
        package let digest: EntryDigest
        package var offset: Int64
        private let length: UInt32
        /// The end of the entry's usability in seconds since 1970; 0 if unlimited.
        package let usableUntil: UInt32
        package var epoch: UInt64
        /// ``lastUse``, with ``wasAccessedHere`` in the lowest bit.
        private var use: UInt64 = 0

        package init(digest: EntryDigest, offset: Int64, count: Int64, epoch: UInt64, usableUntil: UInt32 = 0) {
            self.digest = digest
            self.offset = offset
            self.length = UInt32(clamping: count)
            self.usableUntil = usableUntil
            self.epoch = epoch
        }

        /// The length of the record in bytes: the lines of the header and of the payload, with line breaks.
        package var byteCount: Int64 { Int64(self.length) }

        /// Whether the entry is unusable at `second`, in seconds since 1970.
        package func isUnusable(at second: UInt32) -> Bool { self.usableUntil != 0 && self.usableUntil <= second }

        /// The number of the last use; the greatest number is the most recent use.
        package var lastUse: UInt64 {
            get { self.use >> 1 }
            set { self.use = newValue << 1 | self.use & 1 }
        }

        /// Whether this process is known to have written or read the record.
        ///
        /// If `false`, the record may be newer than an entry of this process: a save reads the header of the
        /// record before the save replaces the record.
        package var wasAccessedHere: Bool {
            get { self.use & 1 == 1 }
            set { self.use = self.use & ~1 | (newValue ? 1 : 0) }
        }
    }

    /// The live records, unordered.
    private var rows: ContiguousArray<Location> = []
    /// Finds the position of a digest in ``rows``.
    private var places = FlatIndex()
    /// The number of all uses; each use gets the next number as ``Location/lastUse``.
    private var uses: UInt64 = 0

    /// Random per index, so that the hashes of chosen digests are not predictable.
    private let multiplier = UInt64.random(in: .min ... .max) | 1

    /// The bytes of all live records.
    package private(set) var liveBytes: Int64 = 0

    package init() {}

    /// The number of live records.
    package var count: Int { self.rows.count }

    /// The location of the live record with this digest; `nil` without a live record.
    package subscript(digest: EntryDigest) -> Location? {
        self.find(digest).map { self.rows[$0.number] }
    }

    /// Makes room for `count` records in all.
    package mutating func reserve(_ count: Int) {
        guard !self.places.hasRoom(for: count) else { return }
        self.rows.reserveCapacity(count)
        self.rebuild(room: count)
    }

    private mutating func rebuild(room: Int) {
        let (rows, multiplier) = (self.rows, self.multiplier)
        self.places.rebuild(room: room, count: rows.count) { Self.hash(rows[$0].digest, multiplier) }
    }

    /// Applies a record that follows all previously applied records.
    package mutating func apply(_ header: RecordHeader, offset: Int64, count: Int64, wasAccessedHere: Bool = false) {
        switch header.kind {
        case .entry:
            var location = Location(
                digest: header.digest,
                offset: offset,
                count: count,
                epoch: header.epoch,
                usableUntil: header.usableUntil
            )
            location.wasAccessedHere = wasAccessedHere
            self.insert(location)
        case .begin: break
        case .erase:
            self.remove(header.digest)
        case .purge:
            self.rows.removeAll { $0.digest.domain == header.digest.domain }
            self.liveBytes = self.rows.reduce(0) { $0 + $1.byteCount }
            self.rebuild(room: self.rows.count)
        }
    }

    package mutating func remove(_ digest: EntryDigest) {
        guard let hit = self.find(digest) else { return }
        self.liveBytes -= self.rows[hit.number].byteCount
        let last = self.rows.count - 1
        // The last row replaces the removed row. `find` reads the rows, so the position of the last row in
        // `places` must be found before any row moves.
        let moved = hit.number == last ? nil : self.find(self.rows[last].digest)
        if let moved { self.places.renumber(at: moved.position, to: hit.number) }
        self.rows.swapAt(hit.number, last)
        self.removePlace(at: hit.position)
        self.rows.removeLast()
    }

    /// A separate function, so the copy of the rows is released before a mutation of the rows.
    private mutating func removePlace(at position: Int) {
        let (rows, multiplier) = (self.rows, self.multiplier)
        self.places.remove(at: position) { Self.hash(rows[$0].digest, multiplier) }
    }

    /// Adds or replaces a live record as the most recently used record.
    package mutating func insert(_ location: Location) {
        self.uses += 1
        var location = location
        location.lastUse = self.uses
        self.liveBytes += location.byteCount
        if let hit = self.find(location.digest) {
            self.liveBytes -= self.rows[hit.number].byteCount
            self.rows[hit.number] = location
            return
        }
        if !self.places.hasRoom(for: self.rows.count + 1) { self.reserve(self.rows.count * 2 + 1) }
        self.places.insert(self.rows.count, hash: Self.hash(location.digest, self.multiplier))
        self.rows.append(location)
    }

    /// Marks the live record, if any, as used, and as accessed by this process.
    package mutating func touch(_ digest: EntryDigest) {
        self.uses += 1
        guard let hit = self.find(digest) else { return }
        self.rows[hit.number].lastUse = self.uses
        self.rows[hit.number].wasAccessedHere = true
    }

    /// All live records, least recently used first.
    package var locations: [Location] { self.rows.sorted { $0.lastUse < $1.lastUse } }

    /// The digests of matching live records, unordered.
    func digests(where isMeant: (Location) -> Bool) -> [EntryDigest] { self.rows.filter(isMeant).map(\.digest) }

    private func find(_ digest: EntryDigest) -> FlatIndex.Hit? {
        self.places.find(hash: Self.hash(digest, self.multiplier)) { self.rows[$0].digest == digest }
    }

    /// The hash of a digest: the upper bits of the product, because lower bits depend on fewer bits of the
    /// factors.
    private static func hash(_ digest: EntryDigest, _ multiplier: UInt64) -> UInt32 {
        let word = digest.key &+ (digest.domain << 32 | digest.domain >> 32)
        return UInt32(truncatingIfNeeded: (word &* multiplier) >> (64 - FlatIndex.hashBits))
    }
}

/// The open file of records, and the index of the file.
///
/// A class, to prevent accidental copies of the index.
final class JournalSegment {
    let file: OpenFile
    let identity: FileStatus.Identity
    var index = JournalIndex()
    /// The end of the part of the file that this process has read or written.
    var end: Int64 = 0
    /// Whether the file lacks a final line break.
    var needsLineBreak = false
    /// Whether the file has records of a later version; no compaction runs, because a compaction would lose
    /// such records.
    var holdsNewer = false
    /// Whether a rewrite is due, regardless of the number of dead bytes.
    ///
    /// Examples: the file has damage, records of earlier sessions or of other stores, or many unusable
    /// entries.
    var isRewriteRequired = false
    /// Whether ``Journal/synchronize(_:)`` has flushed the file's name to disk.
    var isNameSynchronized = false

    init(file: OpenFile, identity: FileStatus.Identity) {
        self.file = file
        self.identity = identity
    }

    /// The random number in the `begin` record; `nil` without a `begin` record at the start of the file.
    var generation: UInt64?
    /// The offset of the last record that was applied.
    var lastOffset: Int64 = 0
    /// The number of records that were applied to the index since the last attempt to write a snapshot, or
    /// since the opening of the file.
    var recordsSinceSnapshot = 0
    /// The size of the index snapshot in bytes, as far as this process knows.
    var snapshotBytes: Int64 = 0
    /// The records of entries that are in the file, but no longer in the index; `nil` until a removal looks
    /// for such records.
    var deadRecords: [EntryDigest: [JournalIndex.Location]]?

    /// Whether the file may have dead records.
    var hasDeadBytes: Bool {
        self.end > self.index.liveBytes + (self.generation == nil ? 0 : RecordCodec.beginningCount)
    }

    /// Applies a record that follows all others.
    ///
    /// - Parameters:
    ///   - header: The record's header.
    ///   - offset: The record's start.
    ///   - count: The record's length.
    ///   - wasAccessedHere: Whether this process wrote or read the record.
    func applyRecord(_ header: RecordHeader, offset: Int64, count: Int64, wasAccessedHere: Bool = false) {
        self.noteDeadRecords(replacedBy: header)
        self.index.apply(header, offset: offset, count: count, wasAccessedHere: wasAccessedHere)
        self.lastOffset = offset
        self.recordsSinceSnapshot += 1
        if header.kind == .begin, offset == 0 { self.generation = header.digest.domain }
    }

    /// An estimate of the folder's size in bytes: the records, the index snapshot, and the small files.
    var footprint: Int64 { self.end + max(self.snapshotBytes, Self.overhead(of: self.index.count)) }

    /// An upper bound of the size in bytes of the index snapshot for `count` entries, and of the small files.
    static func overhead(of count: Int) -> Int64 { 2048 + Int64(count) * Int64(IndexSnapshot.rowSize) }
}

@available(*, unavailable)
extension JournalSegment: Sendable {}
