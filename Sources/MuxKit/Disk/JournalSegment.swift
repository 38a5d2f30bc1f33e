/// The open file of records, and what is known of it.
///
/// A class, so that nobody copies the index by accident.
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

    /// Smaller amounts of dead bytes are not worth a rewrite.
    static let compactionFloor: Int64 = 1 << 16

    /// Whether rewriting the file without its dead records is due.
    var isCompactionDue: Bool {
        guard !self.holdsNewer else { return false }
        return self.holdsDeadRecords
            || self.end - self.index.liveBytes > max(self.index.liveBytes, Self.compactionFloor)
    }
}

@available(*, unavailable)
extension JournalSegment: Sendable {}
