import Foundation

/// The variable-width fields of a record's header.
struct RecordFields: Sendable {
    private var domain = ""
    private var key: String?
    private var schema: Int64?
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
    private var tags: [String] = []
    /// `nil` without tags.
    private var tagNumber: UInt64?
    /// The payload's hash.
    private(set) var digest: UInt64 = 0

    private static let attosecondsInSecond: Int64 = 1_000_000_000_000_000_000

    /// A duration as written on disk.
    private struct Span: Sendable {
        /// Whole seconds.
        var seconds: Int64?
        /// The remainder; not written if 0.
        var attoseconds: Int64 = 0

        /// Whether the numbers form a valid duration, or the duration is absent.
        var isInOrder: Bool {
            (self.seconds ?? 0) >= 0 && (0..<RecordFields.attosecondsInSecond).contains(self.attoseconds)
                && (self.seconds != .max || self.attoseconds == 0)
        }

        var duration: Duration? {
            self.seconds.map { Duration(secondsComponent: $0, attosecondsComponent: self.attoseconds) }
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
        var digest: UInt64?
        var hasDomain = false
        while let (name, value) = reader.next() {
            if reader.matches(name, "digest") {
                guard case .text(let range, hasEscapes: false) = value, range.count == 24,
                    reader.matches(range.lowerBound..<(range.lowerBound + 8), PayloadDigest.name)
                else { return nil }
                digest = Hex.value(of: bytes[(range.lowerBound + 8)..<range.upperBound])
            } else if reader.matches(name, "domain") {
                guard let text = reader.string(value) else { return nil }
                (self.domain, hasDomain) = (text, true)
            } else if reader.matches(name, "key") {
                guard Self.read(value, reader, into: &self.key) else { return nil }
            } else if reader.matches(name, "validator") {
                guard Self.read(value, reader, into: &self.validator) else { return nil }
            } else if reader.matches(name, "fetched") {
                guard let number = reader.double(value) else { return nil }
                self.fetched = number
            } else if reader.matches(name, "fetched_since_2001") {
                guard let number = reader.double(value) else { return nil }
                self.fetchedSince2001 = number
            } else if reader.matches(name, "refresh") {
                guard case .number(let range) = value,
                    let number = UInt64(String(decoding: bytes[range], as: UTF8.self))
                else { return nil }
                self.refresh = number
            } else if reader.matches(name, "tag_number") {
                guard case .number(let range) = value,
                    let number = UInt64(String(decoding: bytes[range], as: UTF8.self))
                else { return nil }
                self.tagNumber = number
            } else if reader.matches(name, "tags") {
                guard let text = reader.string(value), let tags = TagText.tags(text) else { return nil }
                self.tags = tags
            } else if reader.matches(name, "schema") {
                self.schema = reader.integer(value)
            } else if reader.matches(name, "ttl") {
                self.ttl.seconds = reader.integer(value)
            } else if reader.matches(name, "ttl_attoseconds") {
                guard let number = reader.integer(value) else { return nil }
                self.ttl.attoseconds = number
            } else if reader.matches(name, "stale_if_error") {
                guard let number = reader.integer(value) else { return nil }
                self.staleIfError.seconds = number
            } else if reader.matches(name, "stale_if_error_attoseconds") {
                guard let number = reader.integer(value) else { return nil }
                self.staleIfError.attoseconds = number
            } else if reader.matches(name, "stale_while_revalidate") {
                guard let number = reader.integer(value) else { return nil }
                self.staleWhileRevalidate.seconds = number
            } else if reader.matches(name, "stale_while_revalidate_attoseconds") {
                guard let number = reader.integer(value) else { return nil }
                self.staleWhileRevalidate.attoseconds = number
            }
        }
        guard reader.isComplete, hasDomain, let digest else { return nil }
        self.digest = digest
    }

    /// Reads a string or `null`; `false` if the value is neither.
    private static func read(_ value: FlatJSONReader.Value, _ reader: FlatJSONReader, into text: inout String?) -> Bool
    {
        if case .null = value {
            text = nil
            return true
        }
        text = reader.string(value)
        return text != nil
    }

    /// The entry of the fields; `nil` if a required field is missing or out of range.
    func entry(_ frame: RecordHeader, payload: Data) -> MuxStoredEntry? {
        guard let schema, let schemaVersion = Int(exactly: schema), let fetched,
            let ttl = self.ttl.duration, self.ttl.isInOrder, self.staleIfError.isInOrder,
            self.staleWhileRevalidate.isInOrder
        else { return nil }
        return MuxStoredEntry(
            name: MuxStoreKey(domain: self.domain, key: self.key),
            schemaVersion: schemaVersion,
            sessionEpoch: frame.epoch,
            fetchedAt: self.fetchedSince2001.map { Date(timeIntervalSinceReferenceDate: $0) }
                ?? Date(timeIntervalSince1970: fetched),
            timeToLive: ttl,
            validator: self.validator,
            staleWhileRevalidate: self.staleWhileRevalidate.duration,
            staleIfError: self.staleIfError.duration,
            refreshNumber: self.refresh,
            tags: self.tags,
            tagNumber: self.tagNumber,
            usableUntil: frame.usableUntil == 0 ? nil : Date(timeIntervalSince1970: Double(frame.usableUntil)),
            payload: payload
        )
    }
}
