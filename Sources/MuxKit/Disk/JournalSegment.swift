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
    var holdsRefuse = false
    /// Whether this process made sure that the file's name is on the disk.
    var isNameSafe = false

    init(file: OpenFile, identity: FileStatus.Identity) {
        self.file = file
        self.identity = identity
    }

    /// Takes in a record that was appended.
    func takeIn(_ frame: EntryFrame, count: Int64) {
        self.index.apply(frame, offset: self.end, count: count)
        self.end += count
    }

    /// Smaller amounts of dead bytes are not worth a rewrite.
    static let compactionFloor: Int64 = 1 << 16

    /// Whether rewriting the file without its dead records is due.
    var isCompactionDue: Bool {
        guard !self.holdsNewer else { return false }
        return self.holdsRefuse || self.end - self.index.liveBytes > max(self.index.liveBytes, Self.compactionFloor)
    }
}

@available(*, unavailable)
extension JournalSegment: Sendable {}
