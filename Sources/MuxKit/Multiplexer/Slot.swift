/// The state of one key: what is cached, and what was demanded of it.
///
/// Flights are kept beside it.
@usableFromInline
package struct Slot<Value: Sendable>: Sendable {
    /// A cached value with its facts.
    @usableFromInline
    package struct Entry: Sendable {
        @usableFromInline package var value: Value
        @usableFromInline package var fetchedAt: Moment
        @usableFromInline package var timeToLive: Duration
        /// The age from which it is renewed ahead of time; `nil` for never.
        @usableFromInline package var renewalAge: Duration?
        /// What the fetch said about its use when stale.
        @usableFromInline package var stale = StaleLimits()
        @usableFromInline package var validator: String?
        /// Grows with every value that the table ever held; names this one, however often it is renewed.
        @usableFromInline package var revision: UInt64
        /// When it came, by the numbers from which revisions are taken: a refresh of everything concerns what came before.
        @usableFromInline package var sequence: UInt64
        /// Whether the disk does not have this value yet.
        @usableFromInline package var isDirty: Bool
        /// Whether the disk is to have it at all.
        @usableFromInline package var isPersistent: Bool
        /// Whether it may be evicted though the disk does not have it, because it could not be written.
        @usableFromInline package var isExpendable = false

        @inlinable
        package init(
            value: Value,
            fetchedAt: Moment,
            timeToLive: Duration,
            renewalAge: Duration? = nil,
            stale: StaleLimits = StaleLimits(),
            validator: String? = nil,
            revision: UInt64 = 0,
            sequence: UInt64? = nil,
            isDirty: Bool = false,
            isPersistent: Bool = false,
            isExpendable: Bool = false
        ) {
            self.value = value
            self.fetchedAt = fetchedAt
            self.timeToLive = timeToLive
            self.renewalAge = renewalAge
            self.stale = stale
            self.validator = validator
            self.revision = revision
            self.sequence = sequence ?? revision
            self.isDirty = isDirty
            self.isPersistent = isPersistent
            self.isExpendable = isExpendable
        }
    }

    /// What is cached.
    @usableFromInline package private(set) var entry: Entry?

    /// Whether a fetch has to come before any entry is fresh again.
    @usableFromInline package private(set) var isRefreshed = false

    /// What went wrong last, and until when it counts; rare, so it does not take room in every slot.
    @usableFromInline package private(set) var failureRecord: FailureRecord?

    @usableFromInline
    package final class FailureRecord: Sendable {
        /// Until when a stale entry is served without another try.
        @usableFromInline let heldUntil: Moment
        /// A remembered failure, and until when it answers requests that have no entry which is good enough.
        @usableFromInline let failure: (error: any Error, until: Moment)?
        /// When it came, see ``Slot/Entry/sequence``.
        @usableFromInline let sequence: UInt64

        init(heldUntil: Moment, failure: (error: any Error, until: Moment)?, sequence: UInt64) {
            self.heldUntil = heldUntil
            self.failure = failure
            self.sequence = sequence
        }
    }

    /// Whether the disk may still have an entry that was cleared; it is not read meanwhile.
    @usableFromInline package private(set) var isRemovalPending = false

    /// Whether the disk may have an entry that it takes for fresh although it was refreshed; there is none in memory.
    @usableFromInline package private(set) var isRefreshOwed = false

    @inlinable
    package init() {}

    @inlinable
    init(
        entry: Entry?,
        isRefreshed: Bool,
        failureRecord: FailureRecord?,
        isRemovalPending: Bool,
        isRefreshOwed: Bool = false
    ) {
        self.entry = entry
        self.isRefreshed = isRefreshed
        self.failureRecord = failureRecord
        self.isRemovalPending = isRemovalPending
        self.isRefreshOwed = isRefreshOwed
    }

    /// What remains of a slot: a failure that is remembered.
    @inlinable
    init(_ failureRecord: FailureRecord) {
        self.init(entry: nil, isRefreshed: false, failureRecord: failureRecord, isRemovalPending: false)
    }

    /// Whether a save has something to do for the slot.
    @inlinable
    package var isUnsaved: Bool { self.entry?.isDirty ?? false || self.isRemovalPending || self.isRefreshOwed }

    /// Nothing distinguishes this slot from one that was never used.
    @inlinable
    package var isVacant: Bool {
        self.entry == nil && !self.isRefreshed && !self.isRemovalPending && self.failureRecord == nil
    }

    /// How good the entry is for a request; `nil` if there is none.
    @inlinable
    package func freshness(at now: Moment, _ limits: Freshness.Limits) -> Freshness? {
        guard let entry else { return nil }
        let facts = Freshness.Facts(
            age: now.duration(since: entry.fetchedAt),
            timeToLive: entry.timeToLive,
            renewalAge: entry.renewalAge,
            stale: entry.stale,
            isRefreshed: self.isRefreshed,
            isInBackoff: self.failureRecord.map { now < $0.heldUntil } ?? false,
            isFailureRemembered: self.failure(at: now) != nil
        )
        return .of(facts, limits)
    }

    /// Whether the entry has been of no use for so long that it need not take room: it is past every limit up to which a stale
    /// one answers, and the server could not say that it still holds.
    package func isBeyondUse(at now: Moment, _ limits: Freshness.Limits) -> Bool {
        guard let entry, entry.validator == nil else { return false }
        let use = max(
            entry.stale.ifError ?? limits.staleIfError,
            entry.stale.whileRevalidate ?? limits.staleWhileRevalidate
        )
        // As long again as it was fresh, for those who ask for a value however old it is.
        let grace = max(entry.timeToLive, .seconds(60))
        return now.duration(since: entry.fetchedAt) >= .sum(.sum(max(entry.timeToLive, .zero), max(use, .zero)), grace)
    }

    /// The failure that is remembered; `nil` if there is none.
    @inlinable
    package func failure(at now: Moment) -> (any Error)? {
        guard let failure = self.failureRecord?.failure, now < failure.until else { return nil }
        return failure.error
    }

    /// The entry as a caller sees it; `nil` if there is none.
    @inlinable
    package func snapshot(at now: Moment, source: MuxEntry<Value>.Source) -> MuxEntry<Value>? {
        guard let entry else { return nil }
        let age = max(now.duration(since: entry.fetchedAt), .zero)
        return MuxEntry(
            value: entry.value,
            age: age,
            timeToLive: entry.timeToLive,
            source: source,
            isStale: self.isRefreshed || age >= entry.timeToLive,
            staleReason: nil,
            revision: entry.revision
        )
    }

    // MARK: - What happened

    /// A fetch brought a value, or one was stored by hand.
    ///
    /// - Returns: The entry of before, for the caller to let go of outside its lock.
    @inlinable
    package mutating func committed(_ entry: Entry) -> Entry? {
        let former = self.entry
        self.entry = entry
        self.isRefreshed = false
        self.isRefreshOwed = false
        self.failureRecord = nil
        return former
    }

    /// A fetch brought a value that is not to be kept; that of before is not what it was any more, either.
    ///
    /// - Returns: The entry of before, for the caller to let go of outside its lock.
    @usableFromInline
    package mutating func passed(isOnDisk: Bool) -> Entry? {
        let former = self.entry
        self.entry = nil
        self.failureRecord = nil
        if isOnDisk {
            self.isRemovalPending = true
            self.isRefreshed = false
            self.isRefreshOwed = false
        }
        return former
    }

    /// The disk had a value, which is taken only where nothing newer is known.
    ///
    /// - Parameters:
    ///   - entry: The value and its facts.
    ///   - fromBeforeRefresh: Whether it is from before a refresh of which the disk knows, or will without the entry.
    package mutating func loaded(_ entry: Entry, fromBeforeRefresh: Bool) {
        guard self.entry == nil, !self.isRemovalPending else { return }
        self.entry = entry
        if self.isRefreshed { self.lostOnDisk() }
        if fromBeforeRefresh { self.isRefreshed = true }
        self.isRefreshOwed = false
    }

    /// A fetch failed whose older value had to leave memory meanwhile: it is taken back if nothing newer is known.
    ///
    /// - Parameters:
    ///   - former: The slot as it was when the fetch began.
    ///   - isSaved: Whether its entry cannot have left memory before the disk had it.
    package mutating func restored(_ former: Slot, isSaved: Bool) {
        guard var entry = former.entry else { return }
        if isSaved { entry.isDirty = false }
        self.loaded(entry, fromBeforeRefresh: former.isRefreshed)
    }

    /// A fetch failed.
    ///
    /// The entry, if there is one, is served until `heldUntil` without another try; the error is remembered until `until`.
    package mutating func failed(
        _ error: any Error,
        heldUntil: Moment,
        rememberedUntil until: Moment,
        at now: Moment,
        sequence: UInt64 = 0
    ) {
        let isHeld = heldUntil > now && self.entry != nil
        let isRemembered = until > now
        guard isHeld || isRemembered else {
            self.failureRecord = nil
            return
        }
        self.failureRecord = FailureRecord(
            heldUntil: isHeld ? heldUntil : .distantPast,
            failure: isRemembered ? (error, until) : nil,
            sequence: sequence
        )
    }

    /// The owner wants a new value, and keeps the old one as a safety net.
    package mutating func refreshed() {
        if !self.isRefreshed { self.lostOnDisk() }
        self.isRefreshed = true
        self.isRefreshOwed = self.entry == nil
        self.failureRecord = nil
    }

    /// The owner wants the entry gone.
    ///
    /// - Returns: The entry, for the caller to let go of outside its lock.
    package mutating func cleared(alsoOnDisk: Bool) -> Entry? {
        let former = self.entry
        defer { if alsoOnDisk { self.isRemovalPending = true } }
        self.entry = nil
        self.isRefreshed = false
        self.isRefreshOwed = false
        self.failureRecord = nil
        return former
    }

    /// Memory is short: the entry goes, unless the disk has yet to hear of it.
    ///
    /// - Returns: Its value, for the caller to let go of outside its lock.
    package mutating func droppedFromMemory(keepingMark: Bool) -> Value? {
        guard let entry, !entry.isDirty, !self.isRemovalPending else { return nil }
        self.entry = nil
        self.failureRecord = nil
        if !keepingMark { self.isRefreshed = false }
        return entry.value
    }

    /// The disk does not have the entry any more.
    package mutating func lostOnDisk() {
        guard let entry, entry.isPersistent else { return }
        self.entry?.isDirty = true
    }

    /// The disk has forgotten the entry.
    package mutating func removedFromDisk() {
        self.isRemovalPending = false
    }

    /// The disk has what `entry` says, refreshed or not, in place of all that it had before.
    package mutating func saved(_ entry: Entry, asRefreshed: Bool) {
        // One that was cleared or replaced meanwhile says nothing about a removal that is owed.
        guard self.entry?.revision == entry.revision else { return }
        self.isRemovalPending = false
        // One that was renewed meanwhile has another time.
        guard self.entry?.fetchedAt == entry.fetchedAt, self.isRefreshed == asRefreshed else { return }
        self.entry?.isDirty = false
        self.entry?.isExpendable = false
    }

    /// The disk could not take what `entry` says: it is no reason to keep it in memory any longer.
    package mutating func notSaved(_ entry: Entry) {
        guard self.entry?.revision == entry.revision, self.entry?.isDirty ?? false else { return }
        self.entry?.isExpendable = true
    }

    /// The disk takes for stale what it has of an entry that was refreshed.
    package mutating func refreshedOnDisk() {
        self.isRefreshOwed = false
        if self.entry == nil { self.isRefreshed = false }
    }

    /// A later version of the program wrote what the disk has: it is to stay.
    package mutating func isNotToBeSaved() {
        self.entry?.isDirty = false
        self.entry?.isPersistent = false
    }

    /// The disk has a newer value than `entry`, which another process saved: that one is read when it is asked for.
    ///
    /// - Returns: The entry, for the caller to let go of outside its lock; `nil` if there is another one by now.
    package mutating func superseded(_ entry: Entry) -> Entry? {
        guard let former = self.entry, former.revision == entry.revision, former.fetchedAt == entry.fetchedAt else {
            return nil
        }
        self.entry = nil
        self.failureRecord = nil
        // Whether the newer value is from before a refresh cannot be told: so it counts.
        self.isRefreshOwed = self.isRefreshed
        // The newer value stands in place of what was cleared.
        self.isRemovalPending = false
        return former
    }
}

extension Slot.Entry {
    /// A persistent entry without the facts that only matter to others than the slot.
    package init(value: Value, fetchedAt: Moment, timeToLive: Duration, revision: UInt64, isDirty: Bool) {
        self.init(
            value: value,
            fetchedAt: fetchedAt,
            timeToLive: timeToLive,
            renewalAge: nil,
            validator: nil,
            revision: revision,
            isDirty: isDirty,
            isPersistent: true
        )
    }
}
