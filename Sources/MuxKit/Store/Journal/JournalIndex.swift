/// Where in a journal the live entries are.
///
/// One flat table: a large repository's first hit is little more than filling it.
package struct JournalIndex: Sendable {
    /// The place of one record.
    package struct Location: Sendable, Equatable {
        package var offset: Int64
        /// The length of both lines with their line breaks.
        package var count: Int64
        package var epoch: UInt64
        /// ``lastUse``, and in the lowest bit ``isKnown``.
        private var use: UInt64 = 0

        package init(offset: Int64, count: Int64, epoch: UInt64) {
            self.offset = offset
            self.count = count
            self.epoch = epoch
        }

        /// Grows with every use of any record.
        package var lastUse: UInt64 {
            get { self.use >> 1 }
            set { self.use = newValue << 1 | self.use & 1 }
        }

        /// Whether this process wrote the record or has read it: what it saves then is meant to replace it.
        package var isKnown: Bool {
            get { self.use & 1 == 1 }
            set { self.use = self.use & ~1 | (newValue ? 1 : 0) }
        }
    }

    private struct Row: Sendable {
        var digest: EntryDigest
        var location: Location
    }

    /// In no order, and without gaps.
    private var rows: ContiguousArray<Row> = []
    private var places = FlatIndex()
    private var uses: UInt64 = 0

    /// Random in each process, so that no attacker can choose keys with colliding hashes.
    private let multiplier = UInt64.random(in: .min ... .max) | 1

    /// The bytes of all live records.
    package private(set) var liveBytes: Int64 = 0

    package init() {}

    /// The number of live records.
    package var count: Int { self.rows.count }

    package subscript(digest: EntryDigest) -> Location? {
        self.find(digest).map { self.rows[$0.number].location }
    }

    /// Makes room for so many records in all.
    package mutating func reserve(_ count: Int) {
        guard !self.places.hasRoom(for: count) else { return }
        self.rows.reserveCapacity(count)
        self.rebuild(room: count)
    }

    private mutating func rebuild(room: Int) {
        let (rows, multiplier) = (self.rows, self.multiplier)
        self.places.rebuild(room: room, count: rows.count) { Self.hash(rows[$0].digest, multiplier) }
    }

    /// Takes in a record that stands behind all that were taken in before.
    package mutating func apply(_ frame: RecordHeader, offset: Int64, count: Int64, isKnown: Bool = false) {
        switch frame.kind {
        case .entry:
            var location = Location(offset: offset, count: count, epoch: frame.epoch)
            location.isKnown = isKnown
            self.insert(frame.digest, location)
        case .begin: break
        case .erase:
            self.remove(frame.digest)
        case .purge:
            self.rows.removeAll { $0.digest.domain == frame.digest.domain }
            self.liveBytes = self.rows.reduce(0) { $0 + $1.location.count }
            self.rebuild(room: self.rows.count)
        }
    }

    package mutating func remove(_ digest: EntryDigest) {
        guard let hit = self.find(digest) else { return }
        self.liveBytes -= self.rows[hit.number].location.count
        let last = self.rows.count - 1
        // The last row takes the place of this one; first it has to be found, while all rows are where they were.
        let moved = hit.number == last ? nil : self.find(self.rows[last].digest)
        if let moved { self.places.renumber(at: moved.position, to: hit.number) }
        self.rows.swapAt(hit.number, last)
        self.removePlace(at: hit.position)
        self.rows.removeLast()
    }

    /// By itself, so that its copy of the rows is gone before they change.
    private mutating func removePlace(at position: Int) {
        let (rows, multiplier) = (self.rows, self.multiplier)
        self.places.remove(at: position) { Self.hash(rows[$0].digest, multiplier) }
    }

    /// Takes in a live record as the one last used.
    package mutating func insert(_ digest: EntryDigest, _ location: Location) {
        self.uses += 1
        var location = location
        location.lastUse = self.uses
        self.liveBytes += location.count
        if let hit = self.find(digest) {
            self.liveBytes -= self.rows[hit.number].location.count
            self.rows[hit.number].location = location
            return
        }
        if !self.places.hasRoom(for: self.rows.count + 1) { self.reserve(self.rows.count * 2 + 1) }
        self.places.insert(self.rows.count, hash: Self.hash(digest, self.multiplier))
        self.rows.append(Row(digest: digest, location: location))
    }

    /// Notes that the record was used, and is known.
    package mutating func touch(_ digest: EntryDigest) {
        self.uses += 1
        guard let hit = self.find(digest) else { return }
        self.rows[hit.number].location.lastUse = self.uses
        self.rows[hit.number].location.isKnown = true
    }

    /// All live records, the least recently used first.
    package var locations: [(digest: EntryDigest, location: Location)] {
        self.rows.map { ($0.digest, $0.location) }.sorted { $0.1.lastUse < $1.1.lastUse }
    }

    private func find(_ digest: EntryDigest) -> FlatIndex.Hit? {
        self.places.find(hash: Self.hash(digest, self.multiplier)) { self.rows[$0].digest == digest }
    }

    /// As many bits as the table uses: the highest ones of a product, which all bits of both factors went into.
    private static func hash(_ digest: EntryDigest, _ multiplier: UInt64) -> UInt32 {
        let word = digest.key &+ (digest.domain << 32 | digest.domain >> 32)
        return UInt32(truncatingIfNeeded: (word &* multiplier) >> (64 - FlatIndex.hashBits))
    }
}

/// The open file of records, and what is known of it.
///
/// A class, so that the index is not copied by accident.
final class JournalSegment {
    let file: OpenFile
    let identity: FileStatus.Identity
    var index = JournalIndex()
    /// How far the file was read; what stands before is in the index or dead.
    var end: Int64 = 0
    /// Whether the file lacks a line break at its end.
    var needsLineBreak = false
    /// Whether records of a later version were seen: then the file is never rewritten.
    var holdsNewer = false
    /// Whether there is something in the file that should not be: damage, or entries of earlier sessions.
    var holdsDeadRecords = false
    /// Whether this process made sure that the file's name is on the disk.
    var isNameSafe = false

    init(file: OpenFile, identity: FileStatus.Identity) {
        self.file = file
        self.identity = identity
    }

    /// The random number that the file begins with; `nil` if it begins with something else.
    var generation: UInt64?
    /// Where the last record that was taken in begins.
    var lastOffset: Int64 = 0
    /// How many records were taken in that the kept index does not know.
    var unkept = 0
    /// The size of the kept index, as far as this process knows.
    var keptBytes: Int64 = 0

    /// Takes in a record that stands behind all others.
    ///
    /// - Parameters:
    ///   - frame: What the record is.
    ///   - offset: Where it begins.
    ///   - count: Its length.
    ///   - isKnown: Whether this process wrote it, or has read it.
    func takeIn(_ frame: RecordHeader, offset: Int64, count: Int64, isKnown: Bool = false) {
        self.index.apply(frame, offset: offset, count: count, isKnown: isKnown)
        self.lastOffset = offset
        self.unkept += 1
        if frame.kind == .begin, offset == 0 { self.generation = frame.digest.domain }
    }

    /// The most that the folder takes on disk: the records, their index, and the small files.
    var footprint: Int64 { self.end + max(self.keptBytes, Self.overhead(of: self.index.count)) }

    /// The most that `count` entries take besides their records.
    static func overhead(of count: Int) -> Int64 { 2048 + Int64(count) * Int64(IndexSnapshot.rowSize) }
}

@available(*, unavailable)
extension JournalSegment: Sendable {}
