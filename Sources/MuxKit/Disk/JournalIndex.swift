/// Where in a journal the live entries are.
package struct JournalIndex: Sendable {
    /// The place of one record.
    package struct Location: Sendable, Equatable {
        package var offset: Int64
        /// The length of both lines with their line breaks.
        package var count: Int64
        package var epoch: UInt64
        /// Grows with every use of any record.
        package var lastUse: UInt64

        package init(offset: Int64, count: Int64, epoch: UInt64, lastUse: UInt64 = 0) {
            self.offset = offset
            self.count = count
            self.epoch = epoch
            self.lastUse = lastUse
        }
    }

    private var domains: [UInt64: [UInt64: Location]] = [:]
    private var uses: UInt64 = 0

    /// The number of live records.
    package private(set) var count = 0

    /// The bytes of all live records.
    package private(set) var liveBytes: Int64 = 0

    package init() {}

    package subscript(digest: EntryDigest) -> Location? { self.domains[digest.domain]?[digest.key] }

    /// Takes in a record that stands behind all that were taken in before.
    package mutating func apply(_ frame: EntryFrame, offset: Int64, count: Int64) {
        switch frame.kind {
        case .entry:
            self.insert(frame.digest, Location(offset: offset, count: count, epoch: frame.epoch))
        case .begin: break
        case .erase:
            self.remove(frame.digest)
        case .purge:
            for location in (self.domains.removeValue(forKey: frame.digest.domain) ?? [:]).values {
                self.liveBytes -= location.count
                self.count -= 1
            }
        }
    }

    package mutating func remove(_ digest: EntryDigest) {
        guard let former = self.domains[digest.domain]?.removeValue(forKey: digest.key) else { return }
        self.liveBytes -= former.count
        self.count -= 1
    }

    /// Takes in a live record as the one last used.
    package mutating func insert(_ digest: EntryDigest, _ location: Location) {
        self.uses += 1
        var location = location
        location.lastUse = self.uses
        if let former = self.domains[digest.domain, default: [:]].updateValue(location, forKey: digest.key) {
            self.liveBytes -= former.count
            self.count -= 1
        }
        self.liveBytes += location.count
        self.count += 1
    }

    /// Notes that the record was used.
    package mutating func touch(_ digest: EntryDigest) {
        self.uses += 1
        self.domains[digest.domain]?[digest.key]?.lastUse = self.uses
    }

    /// All live records, the least recently used first.
    package var locations: [(digest: EntryDigest, location: Location)] {
        self.domains
            .flatMap { domain, keys in keys.map { (EntryDigest(domain: domain, key: $0.key), $0.value) } }
            .sorted { $0.1.lastUse < $1.1.lastUse }
    }
}
