import Foundation

/// Keeping a copy of the index on disk, and believing it.
///
/// The copy is written after the records that it knows, under the lock, and never synchronised: what a power cut makes
/// of it is noticed. A rewritten journal begins with another number, so that a copy of what it was before is noticed too.
extension Journal {
    var indexFile: DurableFile {
        DurableFile(JournalLayout.indexName, in: self.layout.journal, fileSystem: self.fileSystem)
    }

    /// Writes the copy if enough records are new to make that worth while; under the lock.
    func keepIndexIfDue() {
        guard let segment = self.segment, let session = self.session, let generation = segment.generation,
            segment.unkept >= max(self.indexFloor, segment.index.count / 8),
            !segment.holdsNewer, !segment.holdsDeadRecords, !segment.needsLineBreak
        else { return }
        // Whatever comes of it, it is not tried again with every save.
        segment.unkept = 0
        do {
            let anchor = IndexSnapshot.Anchor(
                store: session.content.store,
                generation: generation,
                covered: segment.end,
                lastOffset: segment.lastOffset,
                lastStamp: try self.stamp(of: segment, at: segment.lastOffset)
            )
            let rows = segment.index.locations.map { digest, location in
                IndexSnapshot.Row(digest: digest, offset: location.offset, count: location.count, epoch: location.epoch)
            }
            let content = IndexSnapshot(anchor: anchor, rows: rows).encoded
            try self.indexFile.write(Data(content), durability: .relaxed)
            segment.keptBytes = Int64(content.count)
        } catch {
            self.statistics.failedIndexes += 1
        }
    }

    /// Takes over what the copy says, if it is one of this very journal; the rest of the journal is then still to be read.
    func restoreIndex(of segment: JournalSegment, size: Int64, _ session: Session) {
        // An entry takes less room in the index than in the journal.
        guard let content = try? self.indexFile.bytes(atMost: max(size, DurableFile.usualMaximum)) else { return }
        segment.keptBytes = Int64(content.count)
        guard let kept = IndexSnapshot(content), self.isOf(segment, size, session, kept.anchor) else {
            self.statistics.rebuiltIndexes += 1
            return
        }
        segment.index.reserve(kept.rows.count)
        for row in kept.rows {
            guard row.epoch >= session.content.epoch else {
                segment.holdsDeadRecords = true
                continue
            }
            let location = JournalIndex.Location(offset: row.offset, count: row.count, epoch: row.epoch)
            segment.index.insert(row.digest, location)
        }
        segment.generation = kept.anchor.generation
        segment.end = kept.anchor.covered
        segment.lastOffset = kept.anchor.lastOffset
    }

    private func isOf(
        _ segment: JournalSegment,
        _ size: Int64,
        _ session: Session,
        _ anchor: IndexSnapshot.Anchor
    ) -> Bool {
        guard anchor.store == session.content.store, anchor.covered <= size,
            let start = try? self.fileSystem.readAll(segment.file, at: 0, count: 1024),
            let end = start.firstIndex(of: 0x0a), let frame = RecordCodec.frame(start[..<end]),
            frame.kind == .begin, frame.store == anchor.store, frame.digest.domain == anchor.generation
        else { return false }
        return (try? self.stamp(of: segment, at: anchor.lastOffset)) == anchor.lastStamp
    }

    private func stamp(of segment: JournalSegment, at offset: Int64) throws(MuxStoreError) -> UInt64 {
        FNV.hash(try self.fileSystem.readAll(segment.file, at: offset, count: IndexSnapshot.stampSize))
    }
}
