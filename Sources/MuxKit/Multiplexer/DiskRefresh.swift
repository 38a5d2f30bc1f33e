import Foundation

/// The last refresh of everything, as far as it concerns what is on disk.
///
/// It is one entry of its own on disk, which says when it was: what was fetched earlier is stale.
struct DiskRefresh: Sendable {
    /// What was fetched at this time of day or earlier is from before a refresh.
    private(set) var date: Date?
    /// The same on the process's own time line, if the refresh was here: it holds though the clock is set meanwhile.
    private(set) var moment: Moment?
    /// Whether the disk was asked for the date.
    private(set) var isRead = false
    /// Whether the disk has the date.
    private(set) var isSaved = true

    private static let payload = Data("\"mux.refreshed\"".utf8)
    /// Not one that a value has: a ``Multiplexer`` that was given the name of a map does not take this for its value.
    private static let schemaVersion = -1

    /// There was a refresh.
    mutating func refreshed(at date: Date, _ moment: Moment) {
        self.date = max(self.date ?? date, date)
        self.moment = moment
        self.isSaved = false
    }

    /// The disk was asked.
    mutating func read(_ entry: MuxStoredEntry?) {
        self.isRead = true
        guard let found = Self.date(entry) else { return }
        self.date = max(self.date ?? found, found)
    }

    /// The disk has the date.
    mutating func saved(_ date: Date) {
        self.isRead = true
        if self.date.map({ $0 <= date }) ?? true { (self.date, self.isSaved) = (date, true) }
    }

    /// The disk has nothing at all.
    mutating func removed() { self = DiskRefresh(isRead: true) }

    init(isRead: Bool = false) { self.isRead = isRead }

    /// What the disk says in such an entry; `nil` if it is none.
    static func date(_ entry: MuxStoredEntry?) -> Date? {
        guard let entry, entry.payload == self.payload, entry.schemaVersion == self.schemaVersion else { return nil }
        return entry.fetchedAt
    }

    /// The entry that says `date`, in a session.
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
    /// The entry as it is after a refresh: no time to live, and the same end to its use when a fetch fails.
    ///
    /// - Parameter staleIfError: How long after its time to live it may answer for a failed fetch, unless it says so itself.
    /// - Returns: The entry that is to replace it.
    func refreshed(staleIfError: Duration) -> MuxStoredEntry {
        var entry = self
        entry.staleIfError = .sum(max(entry.staleIfError ?? staleIfError, .zero), max(entry.timeToLive, .zero))
        entry.timeToLive = .zero
        entry.staleWhileRevalidate = .zero
        return entry
    }

    /// Whether a refresh concerned the entry.
    var isRefreshed: Bool { self.timeToLive <= .zero && self.staleWhileRevalidate == .zero }
}
