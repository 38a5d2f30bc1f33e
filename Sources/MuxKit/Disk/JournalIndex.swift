/// Where in a journal the live entries are.
package struct JournalIndex: Sendable {
    /// The place of one record.
    package struct Location: Sendable, Equatable {
        package var offset: Int64
        /// The length of both lines with their line breaks.
        package var count: Int64
        package var epoch: UInt64

        package init(offset: Int64, count: Int64, epoch: UInt64) {
            self.offset = offset
            self.count = count
            self.epoch = epoch
        }
    }

    private var domains: [UInt64: [UInt64: Location]] = [:]

    /// The bytes of all live records.
    package private(set) var liveBytes: Int64 = 0

    package init() {}

    package subscript(digest: EntryDigest) -> Location? { self.domains[digest.domain]?[digest.key] }

    /// Takes in a record that stands behind all that were taken in before.
    package mutating func apply(_ frame: EntryFrame, offset: Int64, count: Int64) {
        switch frame.kind {
        case .entry:
            let location = Location(offset: offset, count: count, epoch: frame.epoch)
            let former = self.domains[frame.digest.domain, default: [:]].updateValue(location, forKey: frame.digest.key)
            self.liveBytes += count - (former?.count ?? 0)
        case .begin: break
        case .erase:
            self.remove(frame.digest)
        case .purge:
            for location in (self.domains.removeValue(forKey: frame.digest.domain) ?? [:]).values {
                self.liveBytes -= location.count
            }
        }
    }

    package mutating func remove(_ digest: EntryDigest) {
        guard let former = self.domains[digest.domain]?.removeValue(forKey: digest.key) else { return }
        self.liveBytes -= former.count
    }

    /// All live records in the order of the file.
    package var locations: [(digest: EntryDigest, location: Location)] {
        self.domains
            .flatMap { domain, keys in keys.map { (EntryDigest(domain: domain, key: $0.key), $0.value) } }
            .sorted { $0.1.offset < $1.1.offset }
    }
}
