package import Foundation

/// The fields of a record's header that suffice for a scan without a JSON parser: fixed-width, except
/// `until`.
package struct RecordHeader: Sendable, Equatable {
    /// The kind of a record; all raw values have the same length.
    package enum Kind: String, Sendable, CaseIterable {
        /// The start of a journal. The field of the domain's digest has a random number, which differs in
        /// each rewritten journal.
        case begin
        /// An entry.
        case entry
        /// The removal of the entry with the name.
        case erase
        /// The removal of all entries of the domain.
        case purge
    }

    package var kind: Kind
    /// The identity of the record's store.
    package var store: UInt64
    package var digest: EntryDigest
    package var epoch: UInt64
    /// The length of the payload line, without the line break.
    package var payloadCount: Int64
    /// The end of the entry's usability in seconds since 1970; 0 if unlimited, and then not written.
    package var usableUntil: UInt32

    package init(
        kind: Kind,
        store: UInt64,
        digest: EntryDigest,
        epoch: UInt64,
        payloadCount: Int64,
        usableUntil: UInt32 = 0
    ) {
        self.kind = kind
        self.store = store
        self.digest = digest
        self.epoch = epoch
        self.payloadCount = payloadCount
        self.usableUntil = usableUntil
    }

    /// The ranges of the fields' values, counted from the leading comma.
    private enum Place {
        static let kind = 9..<14
        static let store = 25..<41
        static let domain = 56..<72
        static let key = 84..<100
        static let epoch = 110..<130
        static let bytes = 139..<149
    }

    /// The text of the mandatory fields, with zero bytes in place of the values.
    private static let template: [UInt8] = {
        var text = Array(",\"kind\":\"".utf8) + Self.blank(Place.kind)
        text += Array("\",\"store\":\"".utf8) + Self.blank(Place.store)
        text += Array("\",\"domain_id\":\"".utf8) + Self.blank(Place.domain)
        text += Array("\",\"key_id\":\"".utf8) + Self.blank(Place.key)
        text += Array("\",\"epoch\":".utf8) + Self.blank(Place.epoch)
        text += Array(",\"bytes\":".utf8) + Self.blank(Place.bytes)
        return text + [UInt8(ascii: ",")]
    }()

    private static func blank(_ place: Range<Int>) -> [UInt8] { [UInt8](repeating: 0, count: place.count) }

    /// The length of the mandatory fields in bytes, from the first comma to the last.
    package static let count = template.count

    private static let usableUntil = Array("\"until\":".utf8)

    /// Appends the fields, from the quotation mark that closes the checksum to the last comma.
    package func append(to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        let start = bytes.count
        bytes += Self.template
        let kind = start + Place.kind.lowerBound
        for (index, byte) in self.kind.rawValue.utf8.enumerated() { bytes[kind + index] = byte }
        Hex.write(self.store, to: &bytes, at: start + Place.store.lowerBound)
        Hex.write(self.digest.domain, to: &bytes, at: start + Place.domain.lowerBound)
        Hex.write(self.digest.key, to: &bytes, at: start + Place.key.lowerBound)
        Self.write(self.epoch, to: &bytes, Place.epoch, start)
        Self.write(UInt64(clamping: self.payloadCount), to: &bytes, Place.bytes, start)
        guard self.usableUntil != 0 else { return }
        bytes += Self.usableUntil
        bytes += String(self.usableUntil).utf8
        bytes.append(UInt8(ascii: ","))
    }

    /// Writes a number right-aligned, padded with spaces.
    private static func write(_ value: UInt64, to bytes: inout [UInt8], _ place: Range<Int>, _ start: Int) {
        var rest = value
        for index in place.reversed() {
            let isBlank = rest == 0 && index != place.upperBound - 1
            bytes[start + index] =
                isBlank ? UInt8(ascii: " ") : UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        }
    }

    /// Reads the fields from `rest` of ``ChecksummedLine/Content/present(rest:)``.
    ///
    /// `nil` if a mandatory field is missing or out of range.
    package init?(_ rest: ArraySlice<UInt8>) {
        let start = rest.startIndex
        guard rest.count >= Self.count else { return nil }
        for index in 0..<Self.count where Self.template[index] != 0 && rest[start + index] != Self.template[index] {
            return nil
        }
        func field(_ place: Range<Int>) -> ArraySlice<UInt8> {
            rest[(start + place.lowerBound)..<(start + place.upperBound)]
        }
        guard let kind = Kind(rawValue: String(decoding: field(Place.kind), as: UTF8.self)),
            let store = Hex.value(of: field(Place.store)), let domain = Hex.value(of: field(Place.domain)),
            let key = Hex.value(of: field(Place.key)), let epoch = Self.number(field(Place.epoch)),
            let count = Self.number(field(Place.bytes)), count <= RecordCodec.maximumPayload
        else { return nil }
        self.init(
            kind: kind,
            store: store,
            digest: EntryDigest(domain: domain, key: key),
            epoch: epoch,
            payloadCount: Int64(count),
            usableUntil: Self.usableUntil(rest.dropFirst(Self.count))
        )
    }

    /// Reads the optional field `until`; 0 if the field is missing or invalid.
    private static func usableUntil(_ rest: ArraySlice<UInt8>) -> UInt32 {
        guard rest.starts(with: self.usableUntil) else { return 0 }
        let digits = rest.dropFirst(self.usableUntil.count).prefix(11).prefix { $0 != UInt8(ascii: ",") }
        return self.number(digits).flatMap { UInt32(exactly: $0) } ?? 0
    }

    /// Reads a right-aligned number; `nil` for a malformed number, or after an overflow.
    private static func number(_ field: ArraySlice<UInt8>) -> UInt64? {
        var value: UInt64 = 0
        var hasDigits = false
        for byte in field {
            if byte == UInt8(ascii: " "), !hasDigits { continue }
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
            let (product, overflows) = value.multipliedReportingOverflow(by: 10)
            let (sum, overflowsToo) = product.addingReportingOverflow(UInt64(byte - UInt8(ascii: "0")))
            guard !overflows, !overflowsToo else { return nil }
            (value, hasDigits) = (sum, true)
        }
        return hasDigits ? value : nil
    }
}

/// The index key of an entry: a hash of the domain and a hash of the key.
///
/// Two names may collide: readers compare the name of the found entry.
package struct EntryDigest: Sendable, Hashable {
    package var domain: UInt64
    package var key: UInt64

    package init(domain: UInt64, key: UInt64) {
        self.domain = domain
        self.key = key
    }

    /// The digest that journals use.
    package init(_ name: MuxStoreKey) {
        var domain = FNV()
        domain.combine(field: name.domain)
        var key = FNV()
        if let text = name.key { key.combine(field: text) }
        self.init(domain: domain.value, key: key.value)
    }
}

/// The checksum of a payload: the hash step of ``FNV``, applied to eight bytes at a time.
///
/// Not a protection against an adversary. Every step is a bijection of the state, so a change of any single
/// byte changes the result. A bytewise hash would take longer than reading a large payload from disk.
package enum PayloadDigest {
    /// The prefix of the digest in a record's header.
    package static let name: StaticString = "fnv64x8:"

    private static let start: UInt64 = 0xcbf2_9ce4_8422_2325

    /// The digest of `bytes`.
    package static func hash(_ bytes: some ContiguousBytes) -> UInt64 {
        unsafe bytes.withUnsafeBytes { buffer in
            var value = self.start
            var offset = 0
            while offset + 8 <= buffer.count {
                let word = unsafe buffer.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                value = FNV.step(value, UInt64(littleEndian: word))
                offset += 8
            }
            var rest: UInt64 = 0
            for index in offset..<buffer.count { rest = rest << 8 | UInt64(unsafe buffer[index]) }
            return FNV.step(FNV.step(value, rest), UInt64(buffer.count))
        }
    }
}
