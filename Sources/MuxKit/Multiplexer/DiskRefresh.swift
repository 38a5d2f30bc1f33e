import Foundation

/// The last refresh of everything, for entries on disk.
///
/// Saved as an entry of its own, the mark. Each refresh has a number, and each entry is saved with the number of the last
/// refresh before its fetch: an entry with another number than the mark is stale. The wall clock is only used for stores
/// that do not keep the numbers.
///
/// Numbers ascend. The step is random, so that two processes that refresh at the same time do not draw one number.
struct DiskRefresh: Sendable {
    /// The number of the last refresh; `nil` if none is known.
    private(set) var number: UInt64?
    /// The wall-clock time of that refresh.
    private var date: Date?
    /// The last revision at the time of the refresh, or when the refresh of another process was noticed.
    private var revision: UInt64 = 0
    /// Whether the mark was read from disk.
    private(set) var isRead = false
    /// Whether the mark is on disk.
    private(set) var isSaved = true

    private static let payload = Data("\"mux.refreshed\"".utf8)
    /// Not a version that a value can have, so that no ``Multiplexer`` of the same name decodes this entry.
    private static let schemaVersion = -1

    /// Everything was refreshed, or everything that is only on disk.
    ///
    /// - Parameters:
    ///   - date: The wall-clock time.
    ///   - revision: The last revision that the refresh concerns; `nil` if it concerns no entry in memory.
    mutating func refreshed(at date: Date, upTo revision: UInt64?) {
        self.number = Self.number(after: self.number)
        self.date = date
        self.revision = revision ?? self.revision
        self.isSaved = false
    }

    /// The mark was read from disk.
    ///
    /// - Parameters:
    ///   - mark: The mark; `nil` if the disk has none.
    ///   - numbers: The numbers of entries on disk: of a store that has lost the mark, they prove a refresh.
    ///   - revision: The last revision of an entry in memory.
    mutating func read(_ mark: MuxStoredEntry?, besides numbers: [UInt64] = [], at revision: UInt64) {
        let wasRead = self.isRead
        self.isRead = true
        let mark = mark.flatMap { Self.isMark($0) ? $0 : nil }
        guard self.isSaved else {
            // The refresh of this process is later than the mark, and needs a greater number.
            if let other = mark?.refreshNumber, other >= self.number ?? 0 { self.number = Self.number(after: other) }
            return
        }
        // A smaller number was read before a later refresh was saved.
        guard mark?.refreshNumber ?? .max >= self.number ?? 0 else { return }
        let former = self.number
        if let mark {
            (self.number, self.date) = (mark.refreshNumber, mark.fetchedAt)
        } else {
            self.number = (numbers + [self.number].compactMap(\.self)).max()
        }
        // Another process has refreshed since the first look: entries in memory may be older than that.
        if wasRead, self.number != former { self.revision = revision }
    }

    /// Whether the mark has to be read before an entry on disk is judged.
    func needsMark(for entry: MuxStoredEntry?) -> Bool {
        guard let entry else { return false }
        guard self.isRead else { return true }
        guard self.isSaved else { return false }
        guard let number, let other = entry.refreshNumber else { return self.number != entry.refreshNumber }
        return other > number
    }

    /// Whether an entry on disk was fetched before the refresh.
    func isLater(than entry: (number: UInt64?, fetchedAt: Date)) -> Bool {
        guard let number else { return entry.number == nil && self.date.map { entry.fetchedAt <= $0 } ?? false }
        return entry.number != number
    }

    /// The number to save with an entry in memory that is not refreshed, given the revision of its arrival.
    func number(ofArrival revision: UInt64) -> UInt64? {
        self.number.map { revision > self.revision ? $0 : 0 }
    }

    /// The mark was saved.
    mutating func saved(_ mark: MuxStoredEntry) {
        if mark.refreshNumber == self.number { self.isSaved = true }
    }

    /// The domain was removed on disk.
    mutating func removed() { self = DiskRefresh(isRead: true) }

    init(isRead: Bool = false) { self.isRead = isRead }

    private static func number(after number: UInt64?) -> UInt64 {
        ((number ?? 0) &+ .random(in: 1...1 << 32)) & UInt64(Int64.max)
    }

    private static func isMark(_ entry: MuxStoredEntry) -> Bool {
        entry.payload == self.payload && entry.schemaVersion == self.schemaVersion
    }

    /// The mark for a session; `nil` if there was no refresh.
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
    /// The entry after a refresh: expired, and as long usable as a fallback as before.
    ///
    /// - Parameter staleIfError: The policy's limit, for an entry without its own.
    /// - Returns: The refreshed entry.
    func refreshed(staleIfError: Duration) -> MuxStoredEntry {
        var entry = self
        entry.staleIfError = .sum(max(entry.staleIfError ?? staleIfError, .zero), max(entry.timeToLive, .zero))
        entry.timeToLive = .zero
        entry.staleWhileRevalidate = .zero
        return entry
    }

    /// Whether the entry was saved as refreshed.
    var isRefreshed: Bool { self.timeToLive <= .zero && self.staleWhileRevalidate == .zero }
}
