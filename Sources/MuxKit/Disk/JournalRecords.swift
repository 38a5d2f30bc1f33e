/// Records that go out in one write, and what is to be known of each once they are there.
///
/// A class for the same reason as ``Journal``.
final class JournalRecords {
    private let format: RecordCodec
    private(set) var bytes: [UInt8] = []
    private(set) var frames: [(frame: RecordHeader, count: Int64)] = []

    init(_ format: RecordCodec) { self.format = format }

    /// Appends an entry, or nothing if it cannot be written, or takes more than `maximum` bytes.
    func append(_ entry: MuxStoredEntry, atMost maximum: Int64) throws(MuxStoreError) {
        let start = self.bytes.count
        do throws(MuxStoreError) {
            let frame = try self.format.append(entry, to: &self.bytes)
            let count = self.bytes.count - start
            guard count <= maximum else { throw MuxStoreError.entryTooLarge(bytes: count) }
            self.frames.append((frame, Int64(count)))
        } catch {
            self.bytes.removeLast(self.bytes.count - start)
            throw error
        }
    }

    func append(removal kind: RecordHeader.Kind, of name: MuxStoreKey, epoch: UInt64) throws(MuxStoreError) {
        let start = self.bytes.count
        let frame = try self.format.append(removal: kind, of: name, epoch: epoch, to: &self.bytes)
        self.frames.append((frame, Int64(self.bytes.count - start)))
    }

    /// Drops the first records until the rest fits into a folder of so many bytes.
    ///
    /// - Returns: How many were dropped.
    func keepLast(within limit: Int64) -> Int {
        var size = Int64(self.bytes.count) + JournalSegment.overhead(of: self.frames.count)
        guard size > limit else { return 0 }
        var (dropped, droppedBytes) = (0, 0)
        for (_, count) in self.frames where size > limit {
            size -= count + Int64(IndexSnapshot.rowSize)
            droppedBytes += Int(count)
            dropped += 1
        }
        self.frames.removeFirst(dropped)
        self.bytes.removeFirst(droppedBytes)
        return dropped
    }
}

@available(*, unavailable)
extension JournalRecords: Sendable {}
