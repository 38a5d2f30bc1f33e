import Foundation

/// The disk format of a record: a header line and a payload line, both JSON.
///
/// ```json
/// {"mux":1,"check":"…","kind":"entry","store":"…","domain_id":"…","key_id":"…","epoch":   0,"bytes":  13,
///  "digest":"fnv64x8:…","domain":"users","fetched":1767225600.5,"key":"alice","schema":1,"ttl":1800,"validator":null}
/// {"name":"Al"}
/// ```
///
/// The header, wrapped here, is a single line on disk. The reader accepts any bytes, and returns a written
/// entry or `nil`.
package struct RecordCodec: Sendable {
    /// The maximum length of a payload, in bytes.
    package static let maximumPayload: UInt64 = 1 << 30
    /// The maximum length of a header, in bytes.
    package static let maximumHeader = 1 << 20

    private static let lineBreak: UInt8 = 0x0a
    private static let carriageReturn: UInt8 = 0x0d
    private static let null = Array("null".utf8)

    /// The identity of the store; entries of other stores are not read.
    package let store: UInt64
    package let digest: @Sendable (MuxStoreKey) -> EntryDigest

    package init(store: UInt64, digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest = { EntryDigest($0) }) {
        self.store = store
        self.digest = digest
    }

    // MARK: - Writing

    /// Appends the two lines of an entry; after an error, `bytes` may end with a part of a line.
    package func append(_ entry: MuxStoredEntry, to bytes: inout [UInt8]) throws(MuxStoreError) -> RecordHeader {
        try Self.check(entry)
        let header = RecordHeader(
            kind: .entry,
            store: self.store,
            digest: self.digest(entry.name),
            epoch: entry.sessionEpoch,
            payloadCount: Int64(entry.payload.count),
            usableUntil: Self.second(of: entry.usableUntil)
        )
        try self.append(header, entry.payload, to: &bytes) { bytes in
            RecordFields.append(entry, digest: PayloadDigest.hash(entry.payload), to: &bytes)
        }
        return header
    }

    /// Appends the two lines of a removal of an entry or of a whole domain.
    package func append(
        removal kind: RecordHeader.Kind,
        of name: MuxStoreKey,
        epoch: UInt64,
        to bytes: inout [UInt8]
    ) throws(MuxStoreError) -> RecordHeader {
        let count = Int64(Self.null.count)
        let digest = self.digest(name)
        let header = RecordHeader(kind: kind, store: self.store, digest: digest, epoch: epoch, payloadCount: count)
        try self.append(header, Self.null, to: &bytes) { RecordFields.append(removalOf: name, to: &$0) }
        return header
    }

    /// The two lines at the start of a journal.
    package func beginning(_ generation: UInt64) throws(MuxStoreError) -> [UInt8] {
        let digest = EntryDigest(domain: generation, key: 0)
        let count = Int64(Self.null.count)
        let header = RecordHeader(kind: .begin, store: self.store, digest: digest, epoch: 0, payloadCount: count)
        var bytes: [UInt8] = []
        try self.append(header, Self.null, to: &bytes) {
            RecordFields.append(removalOf: MuxStoreKey(domain: ""), to: &$0)
        }
        return bytes
    }

    /// The length in bytes of the two lines at the start of a journal.
    static let beginningCount = Int64((try? RecordCodec(store: 0).beginning(0).count) ?? 0)

    /// `date` in whole seconds since 1970, rounded up, at least 1; 0 for `nil`, and for a date that exceeds
    /// 32 bits.
    private static func second(of date: Date?) -> UInt32 {
        guard let seconds = date?.timeIntervalSince1970.rounded(.up), seconds < Double(UInt32.max) else { return 0 }
        return UInt32(max(1, seconds))
    }

    /// Rejects entries that could not be read back.
    package static func check(_ entry: MuxStoredEntry) throws(MuxStoreError) {
        guard entry.payload.count <= Int(Self.maximumPayload) else { throw .entryTooLarge(bytes: entry.payload.count) }
        let tags = entry.tags.isEmpty ? 0 : TagText.text(entry.tags).utf8.count
        let length = self.length(of: entry.name, entry.validator) + tags
        guard self.isHeaderLength(length) else { throw .entryTooLarge(bytes: length) }
        guard !self.hasLineBreak(entry.payload) else { throw .lineBreakInPayload }
        guard entry.fetchedAt.timeIntervalSinceReferenceDate.isFinite,
            entry.fetchedAt.timeIntervalSince1970.isFinite, entry.timeToLive >= .zero,
            entry.staleWhileRevalidate ?? .zero >= .zero, entry.staleIfError ?? .zero >= .zero
        else { throw .timeOutOfRange }
    }

    /// Whether an entry with the name can be written.
    package static func canHold(_ name: MuxStoreKey) -> Bool { self.isHeaderLength(self.length(of: name, nil)) }

    private static func length(of name: MuxStoreKey, _ validator: String?) -> Int {
        name.domain.utf8.count + (name.key?.utf8.count ?? 0) + (validator?.utf8.count ?? 0)
    }

    /// Whether `length` bytes of names, validator and tags fit into a header.
    ///
    /// An escaped byte takes at most six bytes, as in "\u0000"; the other fields of a header take a few
    /// hundred bytes.
    private static func isHeaderLength(_ length: Int) -> Bool { length * 6 + 1_024 <= self.maximumHeader }

    private static func hasLineBreak(_ payload: Data) -> Bool {
        unsafe payload.withUnsafeBytes { buffer in
            var found = false
            // No early exit, so the compiler can vectorize the loop.
            for index in 0..<buffer.count {
                let byte = unsafe buffer[index]
                found = found || byte == Self.lineBreak || byte == Self.carriageReturn
            }
            return found
        }
    }

    /// Appends the two lines of a record; `fields` appends the variable-width fields.
    private func append(
        _ header: RecordHeader,
        _ payload: some Sequence<UInt8>,
        to bytes: inout [UInt8],
        fields: (inout [UInt8]) -> Void
    ) throws(MuxStoreError) {
        let start = bytes.count
        ChecksummedLine.begin(&bytes)
        header.append(to: &bytes)
        fields(&bytes)
        let count = bytes.count - start
        guard count <= Self.maximumHeader else { throw .entryTooLarge(bytes: count) }
        ChecksummedLine.close(&bytes, from: start)
        bytes.append(Self.lineBreak)
        bytes += payload
        bytes.append(Self.lineBreak)
    }

    // MARK: - Reading

    /// Parses the fixed fields of a record's header; `nil` if the line is not a valid header.
    package static func parseHeader(_ line: ArraySlice<UInt8>) -> RecordHeader? {
        guard case .present(let rest)? = ChecksummedLine.open(line) else { return nil }
        return RecordHeader(rest)
    }

    /// Reads the header of an entry, as an entry with an empty payload; does not check the payload.
    ///
    /// `nil` if the header is damaged or incomplete, of another kind, or of another store.
    package func entryWithoutPayload(in record: [UInt8]) -> MuxStoredEntry? {
        self.header(of: record).flatMap { $0.fields.entry($0.header, payload: Data()) }
    }

    /// Reads an entry from two lines; `nil` if the record is damaged, of another kind, or of another store.
    package func entry(in record: [UInt8]) -> MuxStoredEntry? {
        guard let (header, fields, end) = self.header(of: record), record.last == Self.lineBreak,
            Int64(record.count - end - 2) == header.payloadCount
        else { return nil }
        let payload = record[(end + 1)...].dropLast()
        guard fields.digest == PayloadDigest.hash(payload) else { return nil }
        return fields.entry(header, payload: Data(payload))
    }

    /// The header of an entry of this store, and the offset of the line break after the header.
    private func header(of record: [UInt8]) -> (header: RecordHeader, fields: RecordFields, end: Int)? {
        guard let end = record.firstIndex(of: Self.lineBreak), let header = Self.parseHeader(record[..<end]),
            header.kind == .entry, header.store == self.store,
            let fields = RecordFields(record, from: ChecksummedLine.restOffset + 1 + RecordHeader.count, to: end)
        else { return nil }
        return (header, fields, end)
    }
}

/// Records for a single write, and the headers of the records.
///
/// A class for the same reason as ``Journal``: a crash of the optimizer.
final class JournalRecords {
    let format: RecordCodec
    private(set) var bytes: [UInt8] = []
    private(set) var headers: [(header: RecordHeader, count: Int64)] = []

    init(_ format: RecordCodec) { self.format = format }

    /// Appends an entry.
    ///
    /// - Throws: The error of an entry that cannot be written, or that takes more than `maximum` bytes;
    ///   `bytes` is then unchanged.
    func append(_ entry: MuxStoredEntry, atMost maximum: Int64) throws(MuxStoreError) {
        let start = self.bytes.count
        do throws(MuxStoreError) {
            let header = try self.format.append(entry, to: &self.bytes)
            let count = self.bytes.count - start
            guard count <= maximum else { throw MuxStoreError.entryTooLarge(bytes: count) }
            self.headers.append((header, Int64(count)))
        } catch {
            self.bytes.removeLast(self.bytes.count - start)
            throw error
        }
    }

    func append(removal kind: RecordHeader.Kind, of name: MuxStoreKey, epoch: UInt64) throws(MuxStoreError) {
        let start = self.bytes.count
        let header = try self.format.append(removal: kind, of: name, epoch: epoch, to: &self.bytes)
        self.headers.append((header, Int64(self.bytes.count - start)))
    }

    /// Drops the first records until the remaining records fit into a folder of `limit` bytes.
    ///
    /// - Returns: The digests of the dropped records.
    /// - Throws: `error` if no record remains.
    func keepLast(within limit: Int64, orThrow error: MuxStoreError) throws(MuxStoreError) -> Set<EntryDigest> {
        let headers = self.headers
        let dropped = self.keepLast(within: limit)
        guard dropped < headers.count else { throw error }
        return Set(headers.prefix(dropped).map(\.header.digest))
    }

    /// Drops the first records until the remaining records fit into a folder of `limit` bytes.
    ///
    /// - Returns: The number of dropped records.
    func keepLast(within limit: Int64) -> Int {
        var size = Int64(self.bytes.count) + JournalSegment.overhead(of: self.headers.count)
        guard size > limit else { return 0 }
        var (dropped, droppedBytes) = (0, 0)
        for (_, count) in self.headers where size > limit {
            size -= count + Int64(IndexSnapshot.rowSize)
            droppedBytes += Int(count)
            dropped += 1
        }
        self.headers.removeFirst(dropped)
        self.bytes.removeFirst(droppedBytes)
        return dropped
    }
}

@available(*, unavailable)
extension JournalRecords: Sendable {}
