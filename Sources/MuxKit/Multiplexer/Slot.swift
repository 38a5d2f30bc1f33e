/// The state of one key: what is cached, and what was demanded of it.
///
/// Flights are kept beside it.
package struct Slot<Value: Sendable>: Sendable {
    /// A cached value with its facts.
    package struct Entry: Sendable {
        package var value: Value
        package var fetchedAt: Moment
        package var timeToLive: Duration
        package var validator: String?
        /// Grows with every value that the table ever held; names this one.
        package var revision: UInt64
        /// Whether the disk does not have this value yet.
        package var isDirty: Bool
    }

    /// What is cached.
    package private(set) var entry: Entry?

    /// Whether a fetch has to come before any entry is fresh again.
    package private(set) var isRefreshed = false

    /// Until when a stale entry is served without another try.
    package private(set) var heldUntil = Moment.distantPast

    /// Whether the disk may still have an entry that was cleared; it is not read meanwhile.
    package private(set) var isRemovalPending = false

    package init() {}

    init(entry: Entry?, isRefreshed: Bool, heldUntil: Moment, isRemovalPending: Bool) {
        self.entry = entry
        self.isRefreshed = isRefreshed
        self.heldUntil = heldUntil
        self.isRemovalPending = isRemovalPending
    }

    /// Nothing distinguishes this slot from one that was never used.
    package var isVacant: Bool { self.entry == nil && !self.isRefreshed && !self.isRemovalPending }

    /// How good the entry is; `nil` if there is none.
    package func freshness(at now: Moment, staleIfError: Duration) -> Freshness? {
        guard let entry else { return nil }
        let facts = Freshness.Facts(
            age: now.duration(since: entry.fetchedAt),
            timeToLive: entry.timeToLive,
            isRefreshed: self.isRefreshed,
            isInBackoff: now < self.heldUntil
        )
        return .of(facts, staleIfError: staleIfError)
    }

    /// The entry as a caller sees it; `nil` if there is none.
    package func snapshot(at now: Moment, source: MuxEntry<Value>.Source) -> MuxEntry<Value>? {
        guard let entry else { return nil }
        let age = max(now.duration(since: entry.fetchedAt), .zero)
        return MuxEntry(
            value: entry.value,
            age: age,
            timeToLive: entry.timeToLive,
            source: source,
            isStale: self.isRefreshed || age >= entry.timeToLive,
            revision: entry.revision
        )
    }

    // MARK: - What happened

    /// A fetch brought a value, or one was stored by hand.
    package mutating func committed(_ entry: Entry) {
        self.entry = entry
        self.isRefreshed = false
        self.heldUntil = .distantPast
    }

    /// The disk had a value, which is taken only where nothing newer is known.
    package mutating func loaded(_ entry: Entry, fromBeforeRefresh: Bool) {
        guard self.entry == nil, !self.isRemovalPending else { return }
        self.entry = entry
        if fromBeforeRefresh { self.isRefreshed = true }
    }

    /// A fetch failed in a way that permits to serve the entry until `moment`.
    package mutating func silenced(until moment: Moment) {
        self.heldUntil = moment
    }

    /// The owner wants a new value, and keeps the old one as a safety net.
    package mutating func refreshed() {
        self.isRefreshed = true
        self.heldUntil = .distantPast
    }

    /// The owner wants the entry gone.
    package mutating func cleared(alsoOnDisk: Bool) {
        self.entry = nil
        self.isRefreshed = false
        self.heldUntil = .distantPast
        if alsoOnDisk { self.isRemovalPending = true }
    }

    /// Memory is short: the entry goes, unless the disk has yet to hear of it.
    package mutating func droppedFromMemory(keepingMark: Bool) {
        guard let entry, !entry.isDirty, !self.isRemovalPending else { return }
        self.entry = nil
        self.heldUntil = .distantPast
        if !keepingMark { self.isRefreshed = false }
    }

    /// The disk has forgotten the entry.
    package mutating func removedFromDisk() {
        self.isRemovalPending = false
    }

    /// The disk has what the entry was at `revision`, in place of all that it had before.
    package mutating func saved(revision: UInt64) {
        self.isRemovalPending = false
        guard self.entry?.revision == revision else { return }
        self.entry?.isDirty = false
    }
}
