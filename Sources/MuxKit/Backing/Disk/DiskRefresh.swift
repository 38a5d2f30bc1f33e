import Foundation

/// The last refresh of all entries, as recorded on disk and in memory.
///
/// The refresh is saved as a separate entry, the mark. Each refresh has a number. Each entry is saved with
/// the number of the last refresh, or with zero if the last refresh came after the fetch. An entry is stale
/// if its number differs from the mark's number. With a store that does not keep the numbers, the wall-clock
/// times of the entry and of the refresh are compared instead.
///
/// Numbers ascend, and are at least the wall-clock time in units of 2⁻²⁰ milliseconds, until the year 2109.
/// So numbers also ascend if another process has removed all entries of the domain with the last number,
/// unless the wall clock is set back. The step is random, so that simultaneous refreshes of two processes
/// hardly ever get the same number.
struct DiskRefresh: Sendable {
    /// The number of the last refresh; `nil` without a refresh, or if unknown.
    private(set) var number: UInt64?
    /// The last number before a removal of all entries of the domain, or zero.
    private var formerNumber: UInt64 = 0
    /// The wall-clock time of the last refresh with a known time; `nil` without such a refresh.
    private var date: Date?
    /// Entries in memory with a sequence up to this number are from before the last refresh.
    ///
    /// A refresh that applies to no entry in memory does not change this property.
    private var revision: UInt64 = 0
    /// Whether the mark on disk was read, or is known to be absent.
    private(set) var isRead = false
    /// Whether the last refresh is saved; `true` without a refresh.
    private(set) var isSaved = true

    private static let payload = Data("\"mux.refreshed\"".utf8)
    /// Not a version of a value, so that a ``Multiplexer`` with the same `cacheKey` does not decode the mark.
    private static let schemaVersion = -1

    /// Records a refresh of all entries, or of all entries that are only on disk.
    ///
    /// - Parameters:
    ///   - date: The wall-clock time.
    ///   - revision: The sequence number of the refresh; `nil` if the refresh applies to no entry in memory.
    mutating func refreshed(at date: Date, upTo revision: UInt64?) {
        self.number = Self.number(after: self.number ?? self.formerNumber, at: date)
        self.date = date
        self.revision = revision ?? self.revision
        self.isSaved = false
    }

    /// Records that the mark was read from disk.
    ///
    /// - Parameters:
    ///   - mark: The mark; `nil` without a mark on disk.
    ///   - numbers: The refresh numbers of entries on disk, which prove a refresh if the store has lost the
    ///     mark.
    ///   - revision: The last sequence number of the multiplexer; entries in memory have no greater number.
    mutating func read(_ mark: MuxStoredEntry?, besides numbers: [UInt64] = [], at revision: UInt64) {
        let wasRead = self.isRead
        self.isRead = true
        let mark = mark.flatMap { Self.isMark($0) ? $0 : nil }
        guard self.isSaved else {
            // The refresh of this process is later than the mark, and needs a greater number.
            if let other = mark?.refreshNumber, other >= self.number ?? 0 {
                self.number = Self.number(after: other, at: self.date)
            }
            return
        }
        // A mark with a smaller number is outdated: the mark was read before a later refresh was saved.
        guard mark?.refreshNumber ?? .max >= self.number ?? 0 else { return }
        let former = self.number
        if let mark {
            (self.number, self.date) = (mark.refreshNumber, mark.fetchedAt)
        } else {
            self.number = (numbers + [self.number].compactMap(\.self)).max()
        }
        // Another process has refreshed since the first read: the fetches of entries in memory may precede
        // the refresh.
        if wasRead, self.number != former { self.revision = revision }
    }

    /// Whether the mark must be read before the freshness of an entry on disk is known.
    func needsMark(for entry: MuxStoredEntry) -> Bool {
        guard self.isRead else { return true }
        guard self.isSaved else { return false }
        guard let number, let other = entry.refreshNumber else { return self.number != entry.refreshNumber }
        return other > number
    }

    /// Whether an entry on disk counts as fetched before the refresh.
    func isLater(than entry: MuxStoredEntry) -> Bool {
        guard let number else { return entry.refreshNumber == nil && self.date.map { entry.fetchedAt <= $0 } ?? false }
        return entry.refreshNumber != number
    }

    /// The refresh number to save with an entry in memory.
    ///
    /// - Parameter revision: The entry's ``Slot/Entry/sequence``.
    /// - Returns: The number of the last refresh; zero for an entry from before the refresh; `nil` if
    ///   ``number`` is `nil`.
    func savedNumber(forSequence revision: UInt64) -> UInt64? {
        self.number.map { revision > self.revision ? $0 : 0 }
    }

    /// Records a save of the mark; a refresh during the save stays unsaved.
    mutating func saved(_ mark: MuxStoredEntry) {
        if mark.refreshNumber == self.number { self.isSaved = true }
    }

    /// Forgets the refresh after the removal of all entries of the domain on disk.
    mutating func removed() {
        let former = self.number ?? self.formerNumber
        self = DiskRefresh(isRead: true)
        self.formerNumber = former
    }

    init(isRead: Bool = false) { self.isRead = isRead }

    private static func number(after number: UInt64, at date: Date?) -> UInt64 {
        let start = max(number, min(date?.milliseconds ?? 0, 1 << 42) << 20)
        return (start &+ .random(in: 1...1 << 20)) & UInt64(Int64.max)
    }

    private static func isMark(_ entry: MuxStoredEntry) -> Bool {
        entry.payload == self.payload && entry.schemaVersion == self.schemaVersion
    }

    /// The mark for a session; `nil` without a refresh with a known time.
    func mark(_ name: MuxStoreKey, _ sessionEpoch: UInt64) -> MuxStoredEntry? {
        guard let date = self.date else { return nil }
        return MuxStoredEntry(
            name: name,
            schemaVersion: Self.schemaVersion,
            sessionEpoch: sessionEpoch,
            fetchedAt: date,
            timeToLive: .zero,
            refreshNumber: self.number,
            payload: Self.payload
        )
    }
}

extension MuxStoredEntry {
    /// The entry after a refresh: expired, without ``MuxStoredEntry/staleWhileRevalidate``, and with the same
    /// end of ``MuxStoredEntry/staleIfError`` as before.
    ///
    /// - Parameter staleIfError: The policy's limit, for an entry without a limit of the fetch.
    /// - Returns: The refreshed entry.
    func refreshed(staleIfError: Duration) -> MuxStoredEntry {
        var entry = self
        entry.staleIfError = .sum(max(entry.staleIfError ?? staleIfError, .zero), max(entry.timeToLive, .zero))
        entry.timeToLive = .zero
        entry.staleWhileRevalidate = .zero
        return entry
    }

    /// Whether the entry was saved as refreshed; also `true` for a fetched entry with the same lifetimes of
    /// zero.
    var isRefreshed: Bool { self.timeToLive <= .zero && self.staleWhileRevalidate == .zero }
}
