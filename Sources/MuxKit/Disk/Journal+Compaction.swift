import Foundation

/// Rewriting the records without those that are dead.
extension Journal {
    private static let batchSize = 1 << 20

    /// Rewrites the file if that is due; under the lock.
    ///
    /// The store is in order without it, so a failure is counted and the next occasion tries again.
    func compactIfDue() {
        guard let segment = self.segment, segment.isCompactionDue, let session = self.session else { return }
        let temporary = self.layout.temporarySegment(.random(in: .min ... .max))
        do {
            let (compacted, damaged) = try self.rewrite(segment, session, to: temporary)
            // Here the new form becomes the journal; before, the old one is untouched.
            try self.fileSystem.move(temporary, to: self.layout.segment)
            self.segment = compacted
            self.statistics.compactions += 1
            self.statistics.damagedRecords += damaged
        } catch {
            self.statistics.failedCompactions += 1
            try? self.fileSystem.removeFile(temporary)
            return
        }
        // If this fails, the next durable save does it before it reports anything as saved.
        do {
            try self.fileSystem.synchronizeFolder(self.layout.journal)
        } catch {
            self.statistics.failedCompactions += 1
        }
    }

    /// Copies the live records, as far as they are in order, to a new file and waits until they are on the disk.
    private func rewrite(
        _ segment: JournalSegment,
        _ session: Session,
        to path: String
    ) throws(MuxStoreError) -> (JournalSegment, damaged: Int) {
        let format = EntryFormat(store: session.content.store, digest: self.digest)
        let file = try self.fileSystem.openFile(path, for: .create)
        let compacted = JournalSegment(file: file, identity: try self.fileSystem.status(of: file).identity)
        var damaged = 0
        var batch: [UInt8] = []
        for (digest, location) in segment.index.locations where location.epoch >= session.content.epoch {
            let record = try self.fileSystem.readAll(segment.file, at: location.offset, count: Int(location.count))
            guard let entry = format.entry(in: record), self.digest(entry.name) == digest else {
                damaged += 1
                continue
            }
            let frame = EntryFrame(
                kind: .entry,
                store: format.store,
                digest: digest,
                epoch: location.epoch,
                payloadCount: Int64(entry.payload.count)
            )
            compacted.index.apply(frame, offset: compacted.end, count: location.count)
            compacted.end += location.count
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
