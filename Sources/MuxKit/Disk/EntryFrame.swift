/// The fields at the head of a record that have fixed places: what walking a journal needs, without a JSON parser.
package struct EntryFrame: Sendable, Equatable {
    /// What a record says, in raw values of one length.
    package enum Kind: String, Sendable, CaseIterable {
        /// Here is an entry.
        case entry
        /// The entry of that name is no more.
        case erase
        /// All entries of that domain are no more.
        case purge
    }

    package var kind: Kind
    /// The identity of the store that the record was written for.
    package var store: UInt64
    package var digest: EntryDigest
    package var epoch: UInt64
    /// The length of the second line, without its line break.
    package var payloadCount: Int64

    package init(kind: Kind, store: UInt64, digest: EntryDigest, epoch: UInt64, payloadCount: Int64) {
        self.kind = kind
        self.store = store
        self.digest = digest
        self.epoch = epoch
        self.payloadCount = payloadCount
    }

    /// The fields as text, from the quotation mark that closes the check to a last comma.
    package var bytes: [UInt8] {
        let text =
            "\",\"kind\":\"\(self.kind.rawValue)\",\"store\":\"\(Hex.text(of: self.store))\""
            + ",\"domain_id\":\"\(Hex.text(of: self.digest.domain))\",\"key_id\":\"\(Hex.text(of: self.digest.key))\""
            + ",\"epoch\":\(Self.aligned(self.epoch, 20)),\"bytes\":\(Self.aligned(UInt64(self.payloadCount), 10)),"
        return Array(text.utf8)
    }

    /// Reads the fields of a checked line's rest; `nil` if they are not all there, or absurd.
    package init?(_ rest: ArraySlice<UInt8>) {
        var rest = rest
        guard Self.take(",\"kind\":\"", from: &rest),
            let kind = Kind(rawValue: String(decoding: Self.take(5, from: &rest), as: UTF8.self)),
            Self.take("\",\"store\":\"", from: &rest), let store = Hex.value(of: Self.take(16, from: &rest)),
            Self.take("\",\"domain_id\":\"", from: &rest), let domain = Hex.value(of: Self.take(16, from: &rest)),
            Self.take("\",\"key_id\":\"", from: &rest), let key = Hex.value(of: Self.take(16, from: &rest)),
            Self.take("\",\"epoch\":", from: &rest), let epoch = Self.number(Self.take(20, from: &rest)),
            Self.take(",\"bytes\":", from: &rest), let count = Self.number(Self.take(10, from: &rest)),
            Self.take(",", from: &rest), count <= EntryFormat.maximumPayload
        else { return nil }
        self.init(
            kind: kind,
            store: store,
            digest: EntryDigest(domain: domain, key: key),
            epoch: epoch,
            payloadCount: Int64(count)
        )
    }

    package static func aligned(_ value: UInt64, _ width: Int) -> String {
        let digits = String(value)
        return String(repeating: " ", count: max(0, width - digits.utf8.count)) + digits
    }

    private static func take(_ text: String, from rest: inout ArraySlice<UInt8>) -> Bool {
        guard rest.starts(with: text.utf8) else { return false }
        rest = rest.dropFirst(text.utf8.count)
        return true
    }

    private static func take(_ count: Int, from rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    private static func number(_ field: ArraySlice<UInt8>) -> UInt64? {
        let digits = field.drop { $0 == UInt8(ascii: " ") }
        guard digits.first != UInt8(ascii: "+") else { return nil }
        return UInt64(String(decoding: digits, as: UTF8.self))
    }
}
