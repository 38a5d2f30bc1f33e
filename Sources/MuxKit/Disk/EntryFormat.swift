import Foundation

/// How a record looks on disk: a line of facts and a line of value, both JSON.
///
/// ```json
/// {"mux":1,"check":"…","kind":"entry","store":"…","domain_id":"…","key_id":"…","epoch":   0,"bytes":  13,
///  "digest":"fnv1a64:…","domain":"users","fetched":1767225600.5,"key":"alice","schema":1,"ttl":1800,"validator":null}
/// {"name":"Al"}
/// ```
///
/// The first line is one line in truth. Reading is total: any bytes give an entry that was written, or none.
package struct EntryFormat: Sendable {
    /// The longest value that a record holds.
    package static let maximumPayload: UInt64 = 1 << 30
    /// The longest first line.
    package static let maximumHeader = 1 << 20

    private static let lineBreak: UInt8 = 0x0a
    private static let carriageReturn: UInt8 = 0x0d
    private static let null = Array("null".utf8)

    /// The identity of the store; records of others are foreign.
    package let store: UInt64
    package let digest: @Sendable (MuxStoreKey) -> EntryDigest

    package init(store: UInt64, digest: @escaping @Sendable (MuxStoreKey) -> EntryDigest = { EntryDigest($0) }) {
        self.store = store
        self.digest = digest
    }

    /// The two lines of an entry.
    package func record(of entry: MuxStoredEntry) throws(MuxStoreError) -> [UInt8] {
        try Self.check(entry)
        let facts = EntryFacts(entry, digest: Self.digestText(of: entry.payload))
        return try self.record(.entry, entry.name, entry.sessionEpoch, facts, payload: Array(entry.payload))
    }

    /// The two lines that end the entry of that name, or of a whole domain.
    package func removal(
        _ kind: EntryFrame.Kind,
        of name: MuxStoreKey,
        epoch: UInt64
    ) throws(MuxStoreError) -> [UInt8] {
        try self.record(kind, name, epoch, EntryFacts(domain: name.domain, key: name.key), payload: Self.null)
    }

    /// Refuses what could not be read back.
    package static func check(_ entry: MuxStoredEntry) throws(MuxStoreError) {
        guard !entry.payload.contains(where: { $0 == Self.lineBreak || $0 == Self.carriageReturn }) else {
            throw .lineBreakInPayload
        }
        guard entry.payload.count <= Int(Self.maximumPayload) else { throw .entryTooLarge(bytes: entry.payload.count) }
        let texts = [entry.name.domain, entry.name.key ?? "", entry.validator ?? ""]
        let length = texts.reduce(0) { $0 + $1.utf8.count }
        // A byte takes six at most, as in "\u0000"; the rest of a header is a few hundred bytes.
        guard length * 6 + 1_024 <= Self.maximumHeader else { throw .entryTooLarge(bytes: length) }
        guard entry.fetchedAt.timeIntervalSinceReferenceDate.isFinite,
            entry.fetchedAt.timeIntervalSince1970.isFinite, entry.timeToLive >= .zero
        else { throw .timeOutOfRange }
    }

    /// What the first line of a record says; `nil` if it is not one.
    package static func frame(_ line: ArraySlice<UInt8>) -> EntryFrame? {
        guard case .present(let rest)? = CheckedLine.open(line) else { return nil }
        return EntryFrame(rest)
    }

    /// Reads an entry from its two lines; `nil` if any byte of them is not as it was written.
    package func entry(in record: [UInt8]) -> MuxStoredEntry? {
        guard let end = record.firstIndex(of: Self.lineBreak), let frame = Self.frame(record[..<end]),
            frame.kind == .entry, frame.store == self.store, record.last == Self.lineBreak,
            Int64(record.count - end - 2) == frame.payloadCount,
            let facts = try? JSONDecoder().decode(EntryFacts.self, from: Data(record[..<end]))
        else { return nil }
        let payload = record[(end + 1)...].dropLast()
        guard facts.digest == Self.digestText(of: payload) else { return nil }
        return facts.entry(epoch: frame.epoch, payload: Data(payload))
    }

    private func record(
        _ kind: EntryFrame.Kind,
        _ name: MuxStoreKey,
        _ epoch: UInt64,
        _ facts: EntryFacts,
        payload: [UInt8]
    ) throws(MuxStoreError) -> [UInt8] {
        let frame = EntryFrame(
            kind: kind,
            store: self.store,
            digest: self.digest(name),
            epoch: epoch,
            payloadCount: Int64(payload.count)
        )
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Every field is a text or a finite number, so encoding cannot fail.
        guard let tail = try? encoder.encode(facts) else { throw .timeOutOfRange }
        let line = CheckedLine.sealed(frame.bytes + tail.dropFirst())
        guard line.count <= Self.maximumHeader else { throw .entryTooLarge(bytes: line.count) }
        return line + [Self.lineBreak] + payload + [Self.lineBreak]
    }

    private static func digestText(of payload: some Sequence<UInt8>) -> String {
        "fnv1a64:" + Hex.text(of: FNV.hash(payload))
    }
}
