import Foundation

/// The last refresh of everything, for entries on disk.
///
/// Saved as an entry of its own, whose date makes all earlier entries stale.
struct DiskRefresh: Sendable {
    /// The wall-clock time of the refresh.
    private(set) var date: Date?
    /// The monotonic time, if this process refreshed: it holds even if the wall clock is set.
    private(set) var moment: Moment?
    /// Whether the date was read from disk.
    private(set) var isRead = false
    /// Whether the date is on disk.
    private(set) var isSaved = true

    private static let payload = Data("\"mux.refreshed\"".utf8)
    /// Not a version that a value can have, so that no ``Multiplexer`` of the same name decodes this entry.
    private static let schemaVersion = -1

    /// Everything was refreshed.
    mutating func refreshed(at date: Date, _ moment: Moment) {
        self.date = max(self.date ?? date, date)
        self.moment = moment
        self.isSaved = false
    }

    /// The date was read from disk.
    mutating func read(_ entry: MuxStoredEntry?) {
        self.isRead = true
        guard let found = Self.date(entry) else { return }
        self.date = max(self.date ?? found, found)
    }

    /// The date was saved.
    mutating func saved(_ date: Date) {
        self.isRead = true
        if self.date.map({ $0 <= date }) ?? true { (self.date, self.isSaved) = (date, true) }
    }

    /// The domain was removed on disk.
    mutating func removed() { self = DiskRefresh(isRead: true) }

    init(isRead: Bool = false) { self.isRead = isRead }

    /// The date in such an entry; `nil` if it is another one.
    static func date(_ entry: MuxStoredEntry?) -> Date? {
        guard let entry, entry.payload == self.payload, entry.schemaVersion == self.schemaVersion else { return nil }
        return entry.fetchedAt
    }

    /// The entry for `date`, in a session.
    static func entry(_ date: Date, _ name: MuxStoreKey, _ sessionEpoch: UInt64) -> MuxStoredEntry {
        MuxStoredEntry(
            name: name,
            schemaVersion: self.schemaVersion,
            sessionEpoch: sessionEpoch,
            fetchedAt: date,
            timeToLive: .zero,
            payload: self.payload
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
