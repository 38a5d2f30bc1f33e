import Foundation

/// Removing entries, and erasing the values of the entries from the files.
///
/// First, a removal appends records of the removal (tombstones), unless the disk is full. Then the removal
/// overwrites the payloads of all records of the entries, including replaced records, or rewrites the journal
/// without the records. At any point, a reader gets the entry or `nil`.
extension Journal {
    /// Removes entries and erases the values; returns after the removal has the given durability.
    func remove(
        _ kind: RecordHeader.Kind,
        _ names: [MuxStoreKey],
        _ durability: MuxDurability
    ) throws(MuxStoreError) {
        // A name that cannot be written has no entry.
        let names = names.filter(RecordCodec.canHold)
        guard !names.isEmpty else { return }
        try self.lock()
        defer { self.unlock() }
        let (session, segment) = try self.refresh()
        // Temporary files of killed processes may also contain the values.
        try self.removeLeftovers()
        let records = JournalRecords(RecordCodec(store: session.content.store, digest: self.digest))
        for name in names { try records.append(removal: kind, of: name, epoch: session.content.epoch) }
        let digests = Set(names.map(self.digest))
        let domains = Set(kind == .purge ? digests.map(\.domain) : [])
        try self.findDeadRecords(in: segment)
        let doomed = segment.records(of: digests, domains: domains)
        do throws(MuxStoreError) {
            try self.write(records, .relaxed)
        } catch let error where error.isOutOfSpace {
            // The disk has no room for the tombstones. If the payloads are overwritten below, the records
            // count as damaged at a later read.
            guard self.segment === segment else { throw error }
            for location in doomed { segment.index.remove(location.digest) }
            segment.isRewriteRequired = segment.isRewriteRequired || !doomed.isEmpty
        }
        try self.erase(doomed, in: segment, session)
        if durability == .full, let segment = self.segment { try self.synchronize(segment) }
        self.compactAndWriteIndexIfDue()
        self.noteFilled()
    }

    /// Overwrites the payloads of `doomed`, or rewrites the file without these records.
    private func erase(
        _ doomed: [JournalIndex.Location],
        in segment: JournalSegment,
        _ session: Session
    ) throws(MuxStoreError) {
        guard !doomed.isEmpty || segment.isRewriteRequired else { return }
        let bytes = doomed.reduce(0) { $0 + $1.byteCount }
        if !segment.holdsNewer,
            segment.isRewriteRequired || bytes > max(segment.index.liveBytes, Self.maximumOverwrite)
        {
            do throws(MuxStoreError) {
                try self.replace(segment, session, with: self.liveRecords(of: segment, session)[...])
                // The old file takes space, and has the values, as long as a process has the file open.
                try? self.fileSystem.truncate(segment.file, to: 0)
                return
            } catch let error where !error.isOutOfSpace {
                throw error
            } catch {
                // Overwriting needs no free space.
            }
        }
        for location in doomed.sorted(by: { $0.offset < $1.offset }) {
            guard let payload = try self.payload(at: location, in: segment) else { continue }
            let file = try self.fileSystem.openFile(self.layout.segment, for: .overwrite(from: payload.lowerBound))
            guard try self.fileSystem.status(of: file).identity == segment.identity else { return }
            // Every line stays JSON.
            var (blank, rest) = ([UInt8(ascii: "0")], payload.count)
            while rest > 0 {
                blank += [UInt8](repeating: UInt8(ascii: " "), count: min(rest, 1 << 16) - blank.count)
                try self.fileSystem.appendAll(blank, to: file)
                rest -= blank.count
                blank = []
            }
        }
        for location in doomed { segment.deadRecords?[location.digest] = nil }
    }

    /// The number of bytes to erase above which a rewrite of the file may be less work than overwriting.
    private static let maximumOverwrite: Int64 = 1 << 16

    /// The range of a record's payload in the file; `nil` for an empty payload, or if the file has no entry
    /// with the digest at this location.
    private func payload(
        at location: JournalIndex.Location,
        in segment: JournalSegment
    ) throws(MuxStoreError) -> Range<Int64>? {
        guard let line = try self.headerLine(at: location, in: segment),
            let header = RecordCodec.parseHeader(line.dropLast()),
            header.kind == .entry, header.digest == location.digest
        else { return nil }
        let first = location.offset + Int64(line.count)
        // The length in the index may be wrong, because an index snapshot may be wrong.
        let end = min(first + header.payloadCount, segment.end - 1)
        return first < end ? first..<end : nil
    }

    /// Finds the dead entries of the file, which are not in the index; the result is kept for later calls.
    private func findDeadRecords(in segment: JournalSegment) throws(MuxStoreError) {
        guard segment.deadRecords == nil else { return }
        var found: [EntryDigest: [JournalIndex.Location]] = [:]
        if segment.hasDeadBytes {
            var walker = self.walker(over: segment, from: 0, to: segment.end)
            while let step = try walker.next() {
                guard case .record(let header, let offset, let count) = step, header.kind == .entry,
                    segment.index[header.digest]?.offset != offset
                else { continue }
                found[header.digest, default: []].append(
                    .init(digest: header.digest, offset: offset, count: count, epoch: header.epoch)
                )
            }
        }
        segment.deadRecords = found
    }
}

extension JournalSegment {
    /// The live and dead records with the given digests, or in the given domains.
    func records(
        of digests: Set<EntryDigest>,
        domains: Set<UInt64>
    ) -> [JournalIndex.Location] {
        var meant = digests
        if !domains.isEmpty {
            meant.formUnion(self.index.digests { domains.contains($0.digest.domain) })
            for digest in (self.deadRecords ?? [:]).keys where domains.contains(digest.domain) { meant.insert(digest) }
        }
        return meant.flatMap { (self.deadRecords?[$0] ?? []) + [self.index[$0]].compactMap(\.self) }
    }

    /// Notes the record with `digest`, which is about to leave the index; no effect if ``deadRecords`` is
    /// `nil`.
    func noteDeadRecord(of digest: EntryDigest) {
        guard self.deadRecords != nil, let location = self.index[digest] else { return }
        self.deadRecords?[digest, default: []].append(location)
    }

    /// Notes the records that `header` is about to replace or remove.
    func noteDeadRecords(replacedBy header: RecordHeader) {
        guard self.deadRecords != nil else { return }
        switch header.kind {
        case .begin: break
        case .entry, .erase: self.noteDeadRecord(of: header.digest)
        case .purge:
            let domain = header.digest.domain
            for digest in self.index.digests(where: { $0.digest.domain == domain }) { self.noteDeadRecord(of: digest) }
        }
    }
}
