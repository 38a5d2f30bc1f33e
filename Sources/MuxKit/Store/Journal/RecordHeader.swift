import Foundation

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

/// The variable-width fields of a record's header.
struct RecordFields: Sendable {
    private var domain: String?
    private var key: String?
    private var schema: Int?
    /// Seconds since 1970.
    private var fetched: Double?
    /// Seconds since 2001, as in `Date`; only present if ``fetched`` is not exactly the same time.
    private var fetchedSince2001: Double?
    private var ttl = Span()
    /// Empty if the fetch gave no duration.
    private var staleIfError = Span()
    /// Empty if the fetch gave no duration.
    private var staleWhileRevalidate = Span()
    private var validator: String?
    /// `nil` without a previous refresh.
    private var refresh: UInt64?
    private var tags: [String]?
    /// `nil` without tags.
    private var tagNumber: UInt64?
    /// The payload's hash.
    private(set) var digest: UInt64?

    private static let attosecondsInSecond: Int64 = 1_000_000_000_000_000_000

    /// A duration as written on disk.
    private struct Span: Sendable {
        /// Whole seconds.
        var seconds: Int64?
        /// The remainder; not written if 0.
        var attoseconds: Int64?

        /// Whether the numbers form a valid duration, or the duration is absent.
        var isInOrder: Bool {
            let attoseconds = self.attoseconds ?? 0
            return (self.seconds ?? 0) >= 0 && (0..<RecordFields.attosecondsInSecond).contains(attoseconds)
                && (self.seconds != .max || attoseconds == 0)
        }

        var duration: Duration? {
            self.seconds.map { Duration(secondsComponent: $0, attosecondsComponent: self.attoseconds ?? 0) }
        }
    }

    // MARK: - Writing

    /// Appends the fields of a removal, and the end of the object.
    static func append(removalOf name: MuxStoreKey, to bytes: inout [UInt8]) {
        bytes += "\"domain\":".utf8
        JSONText.append(name.domain, to: &bytes)
        // `null` means no key, which differs from "".
        bytes += ",\"key\":".utf8
        JSONText.append(name.key, to: &bytes)
        bytes.append(UInt8(ascii: "}"))
    }

    /// Appends the fields of an entry in alphabetical order, and the end of the object.
    static func append(_ entry: MuxStoredEntry, digest: UInt64, to bytes: inout [UInt8]) {
        bytes += "\"digest\":\"\(PayloadDigest.name)".utf8
        bytes += Hex.bytes(of: digest)
        bytes += "\",\"domain\":".utf8
        JSONText.append(entry.name.domain, to: &bytes)
        let fetched = entry.fetchedAt.timeIntervalSince1970
        bytes += ",\"fetched\":".utf8
        JSONText.append(fetched, to: &bytes)
        if Date(timeIntervalSince1970: fetched) != entry.fetchedAt {
            bytes += ",\"fetched_since_2001\":".utf8
            JSONText.append(entry.fetchedAt.timeIntervalSinceReferenceDate, to: &bytes)
        }
        bytes += ",\"key\":".utf8
        JSONText.append(entry.name.key, to: &bytes)
        if let number = entry.refreshNumber { bytes += ",\"refresh\":\(number)".utf8 }
        bytes += ",\"schema\":".utf8
        bytes += String(entry.schemaVersion).utf8
        self.append(entry.staleIfError, "stale_if_error", to: &bytes)
        self.append(entry.staleWhileRevalidate, "stale_while_revalidate", to: &bytes)
        if let number = entry.tagNumber { bytes += ",\"tag_number\":\(number)".utf8 }
        if !entry.tags.isEmpty {
            bytes += ",\"tags\":".utf8
            JSONText.append(TagText.text(entry.tags), to: &bytes)
        }
        self.append(entry.timeToLive, "ttl", to: &bytes)
        bytes += ",\"validator\":".utf8
        JSONText.append(entry.validator, to: &bytes)
        bytes.append(UInt8(ascii: "}"))
    }

    private static func append(_ duration: Duration?, _ name: String, to bytes: inout [UInt8]) {
        guard let duration else { return }
        let (seconds, rest) = self.split(duration)
        bytes += ",\"\(name)\":".utf8
        bytes += String(seconds).utf8
        guard rest != 0 else { return }
        bytes += ",\"\(name)_attoseconds\":".utf8
        bytes += String(rest).utf8
    }

    /// Whole seconds and the rest in attoseconds; a duration of at least `Int64.max` seconds (292 billion
    /// years) becomes that number of seconds.
    private static func split(_ duration: Duration) -> (Int64, Int64) {
        let longest = Duration.seconds(Int64.max)
        guard duration < longest else { return (.max, 0) }
        return duration.components
    }

    // MARK: - Reading

    /// Reads the fields of an entry from `start` to the end of the object; `nil` for invalid fields.
    init?(_ bytes: [UInt8], from start: Int, to end: Int) {
        var reader = FlatJSONReader(bytes, from: start, to: end)
        while let (name, value) = reader.next() {
            let isValid =
                switch name {
                case "digest": Self.set(&self.digest, Self.digest(value, bytes))
                case "domain": Self.set(&self.domain, reader.string(value))
                case "fetched": Self.set(&self.fetched, reader.double(value))
                case "fetched_since_2001": Self.set(&self.fetchedSince2001, reader.double(value))
                case "key": value == .null || Self.set(&self.key, reader.string(value))
                case "refresh": Self.set(&self.refresh, reader.integer(value))
                case "schema": Self.set(&self.schema, reader.integer(value))
                case "stale_if_error": Self.set(&self.staleIfError.seconds, reader.integer(value))
                case "stale_if_error_attoseconds": Self.set(&self.staleIfError.attoseconds, reader.integer(value))
                case "stale_while_revalidate": Self.set(&self.staleWhileRevalidate.seconds, reader.integer(value))
                case "stale_while_revalidate_attoseconds":
                    Self.set(&self.staleWhileRevalidate.attoseconds, reader.integer(value))
                case "tag_number": Self.set(&self.tagNumber, reader.integer(value))
                case "tags": Self.set(&self.tags, reader.string(value).flatMap(TagText.tags))
                case "ttl": Self.set(&self.ttl.seconds, reader.integer(value))
                case "ttl_attoseconds": Self.set(&self.ttl.attoseconds, reader.integer(value))
                case "validator": value == .null || Self.set(&self.validator, reader.string(value))
                default: true
                }
            guard isValid else { return nil }
        }
        guard reader.isComplete, self.digest != nil else { return nil }
    }

    /// Sets a field; `false` without a value.
    private static func set<Value>(_ field: inout Value?, _ value: Value?) -> Bool {
        field = value
        return value != nil
    }

    private static func digest(_ value: FlatJSONReader.Value, _ bytes: [UInt8]) -> UInt64? {
        guard case .text(let range, hasEscapes: false) = value, PayloadDigest.name ~= bytes[range].prefix(8) else {
            return nil
        }
        return Hex.value(of: bytes[range].dropFirst(8))
    }

    /// The entry of the fields; `nil` if a required field is missing or out of range.
    func entry(_ header: RecordHeader, payload: Data) -> MuxStoredEntry? {
        guard let domain, let schema, let fetched, let ttl = self.ttl.duration, self.ttl.isInOrder,
            self.staleIfError.isInOrder, self.staleWhileRevalidate.isInOrder
        else { return nil }
        return MuxStoredEntry(
            name: MuxStoreKey(domain: domain, key: self.key),
            schemaVersion: schema,
            sessionEpoch: header.epoch,
            fetchedAt: self.fetchedSince2001.map { Date(timeIntervalSinceReferenceDate: $0) }
                ?? Date(timeIntervalSince1970: fetched),
            timeToLive: ttl,
            validator: self.validator,
            staleWhileRevalidate: self.staleWhileRevalidate.duration,
            staleIfError: self.staleIfError.duration,
            refreshNumber: self.refresh,
            tags: self.tags ?? [],
            tagNumber: self.tagNumber,
            usableUntil: header.usableUntil == 0 ? nil : Date(timeIntervalSince1970: Double(header.usableUntil)),
            payload: payload
        )
    }
}
