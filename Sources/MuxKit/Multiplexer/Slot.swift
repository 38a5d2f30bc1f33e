/// The state of one key, without flights: its entry, and the refreshes, clears and failures that concern it.
@usableFromInline
package struct Slot<Value: Sendable>: Sendable {
    /// A cached value with its metadata.
    @usableFromInline
    package struct Entry: Sendable {
        @usableFromInline package var value: Value
        @usableFromInline package var fetchedAt: Moment
        @usableFromInline package var timeToLive: Duration
        /// The age from which it is renewed ahead of time; `nil` for never.
        @usableFromInline package var renewalAge: Duration?
        /// The fetch's own limits for its use when stale.
        @usableFromInline package var stale = StaleLimits()
        @usableFromInline package var validator: String?
        /// Identifies the value; ascending, and kept when the value is renewed.
        @usableFromInline package var revision: UInt64
        /// The order of its arrival, in the numbering of revisions: a refresh of everything concerns all that arrived before.
        @usableFromInline package var sequence: UInt64
        /// Whether it is not saved yet.
        @usableFromInline package var isDirty: Bool
        /// Whether it is to be saved at all.
        @usableFromInline package var isPersistent: Bool
        /// Whether it may be evicted unsaved, because the disk cannot be written.
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

    @usableFromInline package private(set) var entry: Entry?

    /// Whether the entry was refreshed, and is stale until the next fetch.
    @usableFromInline package private(set) var isRefreshed = false

    /// The last failure; an object, since few slots have one.
    @usableFromInline package private(set) var failureRecord: FailureRecord?

    @usableFromInline
    package final class FailureRecord: Sendable {
        /// Until when a stale entry is served without another fetch.
        @usableFromInline let heldUntil: Moment
        /// A remembered failure, and until when it answers requests without a usable entry.
        @usableFromInline let failure: (error: any Error, until: Moment)?
        /// The pause of fetches behind requests.
        @usableFromInline let pause: FailurePause
        /// See ``Slot/Entry/sequence``.
        @usableFromInline let sequence: UInt64

        init(heldUntil: Moment, failure: (error: any Error, until: Moment)?, pause: FailurePause, sequence: UInt64) {
            self.heldUntil = heldUntil
            self.failure = failure
            self.pause = pause
            self.sequence = sequence
        }
    }

    /// Whether the disk may still have an entry that was cleared; it is not read meanwhile.
    @usableFromInline package private(set) var isRemovalPending = false

    /// Whether an entry that is only on disk was refreshed, which is not saved yet.
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

    /// A slot with nothing but a failure.
    @inlinable
    init(_ failureRecord: FailureRecord) {
        self.init(entry: nil, isRefreshed: false, failureRecord: failureRecord, isRemovalPending: false)
    }

    /// Whether there is something to save.
    @inlinable
    package var isUnsaved: Bool { self.entry?.isDirty ?? false || self.isRemovalPending || self.isRefreshOwed }

    /// Whether the slot equals a new one.
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
            isFailureRemembered: self.failure(at: now) != nil,
            isRenewalPaused: self.failureRecord.map { !$0.pause.isOver(at: now) } ?? false
        )
        return .of(facts, limits)
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

    // MARK: - Events

    /// A fetch brought a value, or one was stored by hand.
    ///
    /// - Returns: The former entry, for the caller to release outside its lock.
    @inlinable
    package mutating func committed(_ entry: Entry) -> Entry? {
        let former = self.entry
        self.entry = entry
        self.isRefreshed = false
        self.isRefreshOwed = false
        self.failureRecord = nil
        return former
    }

    /// More is known about the present entry.
    package mutating func amended(_ entry: Entry) { self.entry = entry }

    /// A fetch brought a value that is not to be kept; the former entry is removed too.
    ///
    /// - Returns: The former entry, for the caller to release outside its lock.
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

    /// An entry was loaded from disk; it is ignored if memory has a newer state.
    ///
    /// - Parameters:
    ///   - entry: The entry.
    ///   - fromBeforeRefresh: Whether it is older than a refresh that is saved, or will be without the entry.
    @inlinable
    package mutating func loaded(_ entry: Entry, fromBeforeRefresh: Bool) {
        guard self.entry == nil, !self.isRemovalPending else { return }
        self.entry = entry
        if self.isRefreshed { self.lostOnDisk() }
        if fromBeforeRefresh { self.isRefreshed = true }
        self.isRefreshOwed = false
    }

    /// A fetch failed whose older entry was evicted meanwhile: it is restored if memory has nothing newer.
    ///
    /// - Parameters:
    ///   - former: The slot when the fetch began.
    ///   - isSaved: Whether its entry cannot have been evicted unsaved.
    package mutating func restored(_ former: Slot, isSaved: Bool) {
        guard var entry = former.entry else { return }
        if isSaved { entry.isDirty = false }
        self.loaded(entry, fromBeforeRefresh: former.isRefreshed)
    }

    /// A fetch failed.
    ///
    /// - Parameters:
    ///   - error: The error.
    ///   - heldUntil: Until when the entry, if there is one, is served without another fetch.
    ///   - until: Until when the error is remembered.
    ///   - firstPause: The pause of fetches behind requests after a first failure; it grows with each failure in a row.
    ///   - retryAfter: The server's `Retry-After`.
    ///   - now: The time.
    ///   - sequence: See ``Entry/sequence``.
    package mutating func failed(
        _ error: any Error,
        heldUntil: Moment,
        rememberedUntil until: Moment,
        pausing firstPause: Duration = .zero,
        retryAfter: Duration? = nil,
        at now: Moment,
        sequence: UInt64 = 0
    ) {
        var pause = self.failureRecord?.pause ?? FailurePause()
        pause.failed(at: now, first: firstPause, retryAfter: retryAfter)
        let isHeld = heldUntil > now && self.entry != nil
        let isRemembered = until > now
        let isPaused = !pause.isOver(at: now) && self.entry != nil
        guard isHeld || isRemembered || isPaused else {
            self.failureRecord = nil
            return
        }
        self.failureRecord = FailureRecord(
            heldUntil: isHeld ? heldUntil : .distantPast,
            failure: isRemembered ? (error, until) : nil,
            pause: pause,
            sequence: sequence
        )
    }

    /// A fetch took too long, and its flight is over: fetches behind requests pause, and nothing else changes.
    package mutating func paused(_ first: Duration, at now: Moment, sequence: UInt64) {
        let record = self.failureRecord
        var pause = record?.pause ?? FailurePause()
        pause.failed(at: now, first: first)
        guard self.entry != nil, !pause.isOver(at: now) else { return }
        self.failureRecord = FailureRecord(
            heldUntil: record?.heldUntil ?? .distantPast,
            failure: record?.failure,
            pause: pause,
            sequence: record?.sequence ?? sequence
        )
    }

    /// A refresh: the entry is stale, and remains as a fallback.
    package mutating func refreshed() {
        if !self.isRefreshed { self.lostOnDisk() }
        self.isRefreshed = true
        self.isRefreshOwed = self.entry == nil
        self.failureRecord = nil
    }

    /// A clear: the entry is removed.
    ///
    /// - Returns: The entry, for the caller to release outside its lock.
    package mutating func cleared(alsoOnDisk: Bool) -> Entry? {
        let former = self.entry
        defer { if alsoOnDisk { self.isRemovalPending = true } }
        self.entry = nil
        self.isRefreshed = false
        self.isRefreshOwed = false
        self.failureRecord = nil
        return former
    }

    /// Memory is short: the entry is removed, unless it is unsaved.
    ///
    /// - Returns: Its value, for the caller to release outside its lock.
    package mutating func droppedFromMemory(keepingMark: Bool) -> Value? {
        guard let entry, !entry.isDirty, !self.isRemovalPending else { return nil }
        self.entry = nil
        self.failureRecord = nil
        if !keepingMark { self.isRefreshed = false }
        return entry.value
    }

    /// The disk has lost the entry.
    @usableFromInline
    package mutating func lostOnDisk() {
        guard let entry, entry.isPersistent else { return }
        self.entry?.isDirty = true
    }

    /// The entry was removed on disk.
    package mutating func removedFromDisk() {
        self.isRemovalPending = false
    }

    /// `entry` was saved, refreshed or not, in place of any earlier one.
    package mutating func saved(_ entry: Entry, asRefreshed: Bool) {
        // If it was cleared or replaced meanwhile, a removal is still pending.
        guard self.entry?.revision == entry.revision else { return }
        self.isRemovalPending = false
        // If it was renewed meanwhile, the renewal is unsaved.
        guard self.entry?.fetchedAt == entry.fetchedAt, self.isRefreshed == asRefreshed else { return }
        self.entry?.isDirty = false
        self.entry?.isExpendable = false
    }

    /// `entry` could not be saved: it may be evicted.
    package mutating func notSaved(_ entry: Entry) {
        guard self.entry?.revision == entry.revision, self.entry?.isDirty ?? false else { return }
        self.entry?.isExpendable = true
    }

    /// The refresh of an entry that is only on disk was saved.
    package mutating func refreshedOnDisk() {
        self.isRefreshOwed = false
        if self.entry == nil { self.isRefreshed = false }
    }

    /// Keeps the entry in memory only: the disk has an entry of a later version of the program, which no save overwrites.
    package mutating func excludeFromSaves() {
        self.entry?.isDirty = false
        self.entry?.isPersistent = false
    }

    /// The disk has a newer value than `entry`, saved by another process; the next request reads it.
    ///
    /// - Returns: The entry, for the caller to release outside its lock; `nil` if memory has another one by now.
    package mutating func superseded(_ entry: Entry) -> Entry? {
        guard let former = self.entry, former.revision == entry.revision, former.fetchedAt == entry.fetchedAt else {
            return nil
        }
        self.entry = nil
        self.failureRecord = nil
        // The newer value may be older than a refresh, so it counts as refreshed.
        self.isRefreshOwed = self.isRefreshed
        // The newer value has replaced the cleared one.
        self.isRemovalPending = false
        return former
    }
}

extension Slot.Entry {
    /// A persistent entry without renewal, limits and validator.
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
