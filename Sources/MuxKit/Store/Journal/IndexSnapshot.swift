import Foundation

/// A copy of a journal's index on disk, which saves a scan at the opening of the journal.
///
/// A checksummed line of JSON, then five little-endian 64-bit numbers per entry, least recently used first:
/// the digests of domain and key, the offset, the length with ``JournalIndex/Location/usableUntil`` in the
/// upper half, and the session number. The reader returns `nil` for damaged bytes. Every load verifies the
/// record, so even a wrongly accepted snapshot never causes a value of another name.
package struct IndexSnapshot: Sendable, Equatable {
    /// Identifies the journal of a snapshot, and the state of the journal at the time of the snapshot.
    package struct Anchor: Sendable, Equatable {
        /// The identity of the store.
        package var store: UInt64
        /// The number in the journal's `begin` record.
        package var generation: UInt64
        /// The length in bytes of the covered part, from the start of the journal.
        package var covered: Int64
        /// The offset of the last record in the covered part.
        package var lastOffset: Int64
        /// A hash of the first bytes of the last record, which include the checksum of the header.
        package var lastStamp: UInt64

        package init(store: UInt64, generation: UInt64, covered: Int64, lastOffset: Int64, lastStamp: UInt64) {
            self.store = store
            self.generation = generation
            self.covered = covered
            self.lastOffset = lastOffset
            self.lastStamp = lastStamp
        }
    }

    package var anchor: Anchor
    package var rows: [JournalIndex.Location]

    package init(anchor: Anchor, rows: [JournalIndex.Location]) {
        self.anchor = anchor
        self.rows = rows
    }

    /// The length of a row in bytes.
    package static let rowSize = 40
    /// The number of bytes that ``Anchor/lastStamp`` hashes.
    package static let stampSize = ChecksummedLine.restOffset

    private static let lineBreak: UInt8 = 0x0a

    // MARK: - Writing

    package var encoded: [UInt8] {
        var hash = FNV()
        var body: [UInt8] = []
        body.reserveCapacity(self.rows.count * Self.rowSize)
        func append(_ word: UInt64) {
            hash.combine(word: word)
            unsafe withUnsafeBytes(of: word.littleEndian) { unsafe body.append(contentsOf: $0) }
        }
        for row in self.rows {
            append(row.digest.domain)
            append(row.digest.key)
            append(UInt64(bitPattern: row.offset))
            append(UInt64(UInt32(clamping: row.byteCount)) | UInt64(row.usableUntil) << 32)
            append(row.epoch)
        }
        var line: [UInt8] = []
        ChecksummedLine.begin(&line)
        let anchor = self.anchor
        line += "\",\"kind\":\"index\",\"store\":\"\(Hex.text(of: anchor.store))\"".utf8
        line += ",\"generation\":\"\(Hex.text(of: anchor.generation))\",\"covered\":\(anchor.covered)".utf8
        line += ",\"last\":\(anchor.lastOffset),\"last_stamp\":\"\(Hex.text(of: anchor.lastStamp))\"".utf8
        line += ",\"rows\":\(self.rows.count),\"rows_digest\":\"\(Hex.text(of: hash.value))\"}".utf8
        ChecksummedLine.close(&line, from: 0)
        line.append(Self.lineBreak)
        return line + body
    }

    // MARK: - Reading

    /// Reads a snapshot; `nil` if the snapshot is damaged, or of a later version.
    package init?(_ bytes: [UInt8]) {
        // The first line takes fewer than 1,024 bytes.
        guard let end = bytes.prefix(1024).firstIndex(of: Self.lineBreak),
            case .present? = ChecksummedLine.open(bytes[..<end])
        else { return nil }
        var reader = FlatJSONReader(bytes, from: ChecksummedLine.restOffset + 2, to: end)
        var (hashes, numbers): ([String: UInt64], [String: Int64]) = ([:], [:])
        while let (name, value) = reader.next() {
            let name = String(decoding: name, as: UTF8.self)
            if case .text(let range, _) = value { hashes[name] = Hex.value(of: bytes[range]) }
            if case .number = value { numbers[name] = reader.integer(value) }
        }
        guard reader.isComplete, let store = hashes["store"], let generation = hashes["generation"],
            let covered = numbers["covered"], let last = numbers["last"], let stamp = hashes["last_stamp"],
            let digest = hashes["rows_digest"], let count = numbers["rows"],
            count >= 0, count <= Int64(bytes.count / Self.rowSize), last >= 0, last < covered,
            bytes.count - end - 1 == Int(count) * Self.rowSize,
            let rows = Self.rows(bytes, from: end + 1, count: Int(count), covered: covered, digest: digest)
        else { return nil }
        self.rows = rows
        self.anchor = Anchor(
            store: store,
            generation: generation,
            covered: covered,
            lastOffset: last,
            lastStamp: stamp
        )
    }

    /// Reads the rows; `nil` if the digest differs, or if a row is invalid.
    private static func rows(
        _ bytes: [UInt8],
        from start: Int,
        count: Int,
        covered: Int64,
        digest: UInt64
    ) -> [JournalIndex.Location]? {
        // Reads whole words, because a large index may have a million words; the caller has checked the
        // length.
        unsafe bytes[start...].withUnsafeBytes { buffer -> [JournalIndex.Location]? in
            guard count * Self.rowSize <= buffer.count else { return nil }
            var hash = FNV()
            var rows: [JournalIndex.Location] = []
            rows.reserveCapacity(count)
            var position = 0
            func word() -> UInt64 {
                let word = unsafe buffer.loadUnaligned(fromByteOffset: position, as: UInt64.self)
                position += 8
                hash.combine(word: UInt64(littleEndian: word))
                return UInt64(littleEndian: word)
            }
            for _ in 0..<count {
                let (domain, key) = (word(), word())
                let offset = Int64(bitPattern: word())
                let lengthAndTime = word()
                let length = Int64(lengthAndTime & UInt64(UInt32.max))
                guard offset >= 0, length > 0, length <= covered, offset <= covered - length else { return nil }
                rows.append(
                    JournalIndex.Location(
                        digest: EntryDigest(domain: domain, key: key),
                        offset: offset,
                        count: length,
                        epoch: word(),
                        usableUntil: UInt32(lengthAndTime >> 32)
                    )
                )
            }
            return hash.value == digest ? rows : nil
        }
    }
}

/// Writing and restoring index snapshots.
///
/// A snapshot is written after the covered records, with the lock held, and never synchronized: damage by a
/// power cut is detected. A rewritten journal has another generation, so older snapshots do not match.
extension Journal {
    var indexFile: DurableFile {
        DurableFile(JournalLayout.indexName, in: self.layout.journal, fileSystem: self.fileSystem)
    }

    /// Writes a snapshot if due; call with the lock held.
    ///
    /// The next opening does not read the records that a snapshot covers, so a snapshot must not hide records
    /// of a newer version, or the need for a rewrite or for a line break.
    func writeIndexIfDue() {
        guard let segment = self.segment, let session = self.session, let generation = segment.generation,
            segment.recordsSinceSnapshot >= max(self.indexFloor, segment.index.count / 8),
            !segment.holdsNewer, !segment.isRewriteRequired, !segment.needsLineBreak
        else { return }
        // Also reset after a failure, so that not every save tries again.
        segment.recordsSinceSnapshot = 0
        do {
            let anchor = IndexSnapshot.Anchor(
                store: session.content.store,
                generation: generation,
                covered: segment.end,
                lastOffset: segment.lastOffset,
                lastStamp: try self.stamp(of: segment, at: segment.lastOffset)
            )
            let content = IndexSnapshot(anchor: anchor, rows: segment.index.locations).encoded
            try self.indexFile.write(Data(content), durability: .relaxed)
            segment.snapshotBytes = Int64(content.count)
        } catch {
            self.statistics.failedIndexes += 1
        }
    }

    /// Restores the index from the snapshot, if the snapshot matches the journal; the caller then reads the
    /// records after ``JournalSegment/end``.
    func restoreIndex(of segment: JournalSegment, size: Int64, _ session: Session) {
        // An entry takes less space in the snapshot than in the journal.
        guard let content = try? self.indexFile.open(atMost: max(size, DurableFile.usualMaximum))?.content else {
            return
        }
        segment.snapshotBytes = Int64(content.count)
        guard let kept = IndexSnapshot(content), self.anchorMatches(segment, size, session, kept.anchor) else {
            self.statistics.rebuiltIndexes += 1
            return
        }
        segment.index.reserve(kept.rows.count)
        for row in kept.rows {
            guard row.epoch >= session.content.epoch else {
                segment.isRewriteRequired = true
                continue
            }
            segment.index.insert(row)
        }
        segment.generation = kept.anchor.generation
        segment.end = kept.anchor.covered
        segment.lastOffset = kept.anchor.lastOffset
    }

    private func anchorMatches(
        _ segment: JournalSegment,
        _ size: Int64,
        _ session: Session,
        _ anchor: IndexSnapshot.Anchor
    ) -> Bool {
        guard anchor.store == session.content.store, anchor.covered <= size,
            let start = try? self.fileSystem.readAll(segment.file, at: 0, count: 1024),
            let end = start.firstIndex(of: 0x0a), let header = RecordCodec.parseHeader(start[..<end]),
            header.kind == .begin, header.store == anchor.store, header.digest.domain == anchor.generation
        else { return false }
        return (try? self.stamp(of: segment, at: anchor.lastOffset)) == anchor.lastStamp
    }

    private func stamp(of segment: JournalSegment, at offset: Int64) throws(MuxStoreError) -> UInt64 {
        FNV.hash(try self.fileSystem.readAll(segment.file, at: offset, count: IndexSnapshot.stampSize))
    }
}
