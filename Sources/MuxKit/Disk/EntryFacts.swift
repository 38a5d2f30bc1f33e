import Foundation

/// The fields of a record's first line that are ordinary JSON.
struct EntryFacts: Codable, Sendable {
    private var domain: String
    private var key: String?
    private var schema: Int?
    /// Seconds since 1970.
    private var fetched: Double?
    /// Seconds since 2001, which is how `Date` counts; there only if the other number is not exactly the same time.
    private var fetchedSince2001: Double?
    /// Whole seconds.
    private var ttl: Int64?
    /// What the whole seconds leave over; not there if that is nothing.
    private var ttlAttoseconds: Int64?
    private var validator: String?
    /// The name of a hash function and the payload's hash; `nil` for a removal.
    private(set) var digest: String?

    private enum CodingKeys: String, CodingKey {
        case domain
        case key
        case schema
        case fetched
        case fetchedSince2001 = "fetched_since_2001"
        case ttl
        case ttlAttoseconds = "ttl_attoseconds"
        case validator
        case digest
    }

    /// What a removal says.
    init(domain: String, key: String?) {
        self.domain = domain
        self.key = key
    }

    init(_ entry: MuxStoredEntry, digest: String) {
        self.init(domain: entry.name.domain, key: entry.name.key)
        self.schema = entry.schemaVersion
        let fetched = entry.fetchedAt.timeIntervalSince1970
        self.fetched = fetched
        if Date(timeIntervalSince1970: fetched) != entry.fetchedAt {
            self.fetchedSince2001 = entry.fetchedAt.timeIntervalSinceReferenceDate
        }
        (self.ttl, self.ttlAttoseconds) = Self.split(entry.timeToLive)
        self.validator = entry.validator
        self.digest = digest
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(self.domain, forKey: .domain)
        try fields.encode(self.key, forKey: .key)  // null where there is none: not the same as ""
        guard self.digest != nil else { return }
        try fields.encode(self.schema, forKey: .schema)
        try fields.encode(self.fetched, forKey: .fetched)
        try fields.encodeIfPresent(self.fetchedSince2001, forKey: .fetchedSince2001)
        try fields.encode(self.ttl, forKey: .ttl)
        try fields.encodeIfPresent(self.ttlAttoseconds, forKey: .ttlAttoseconds)
        try fields.encode(self.validator, forKey: .validator)
        try fields.encode(self.digest, forKey: .digest)
    }

    /// The entry that these facts and the rest of its record make; `nil` if a fact is missing or absurd.
    func entry(epoch: UInt64, payload: Data) -> MuxStoredEntry? {
        guard let schema, let fetched, fetched.isFinite, let ttl, ttl >= 0 else { return nil }
        guard self.fetchedSince2001?.isFinite ?? true else { return nil }
        let rest = self.ttlAttoseconds ?? 0
        guard (0..<1_000_000_000_000_000_000).contains(rest) else { return nil }
        return MuxStoredEntry(
            name: MuxStoreKey(domain: self.domain, key: self.key),
            schemaVersion: schema,
            sessionEpoch: epoch,
            fetchedAt: self.fetchedSince2001.map { Date(timeIntervalSinceReferenceDate: $0) }
                ?? Date(timeIntervalSince1970: fetched),
            timeToLive: Duration(secondsComponent: ttl, attosecondsComponent: rest),
            validator: self.validator,
            payload: payload
        )
    }

    /// Whole seconds and the rest; 292 billion years stand for all that is longer.
    private static func split(_ duration: Duration) -> (Int64, Int64?) {
        let (seconds, rest) = duration.attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000_000_000_000)
        guard let whole = Int64(exactly: seconds) else { return (.max, nil) }
        return (whole, rest == 0 ? nil : Int64(rest))
    }
}
