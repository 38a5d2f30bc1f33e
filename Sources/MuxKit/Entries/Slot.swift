/// The state of one key, without its flights: the entry, and the effects of refreshes, clears and failures.
@usableFromInline
package struct Slot<Value: Sendable>: Sendable {
    /// A cached value with its metadata.
    @usableFromInline
    package struct Entry: Sendable {
        @usableFromInline package var value: Value
        @usableFromInline package var fetchedAt: Moment
        @usableFromInline package var timeToLive: Duration
        /// The age at which an early renewal is due; `nil` for no early renewal.
        @usableFromInline package var renewalAge: Duration?
        /// The limits that the fetch set for the use of the stale entry.
        @usableFromInline package var stale = StaleLimits()
        @usableFromInline package var validator: String?
        /// The condition of an entry with tags; `nil` without tags.
        @usableFromInline var condition: EntryCondition?
        /// Identifies the value.
        ///
        /// A later value has a greater revision; a renewed value keeps the revision.
        @usableFromInline package var revision: UInt64
        /// The number of the entry's last load, commit or renewal, from the same counter as ``revision``.
        ///
        /// A refresh of all entries has such a number, too: the refresh applies to all entries with a smaller
        /// number. 0 for an entry made stale by its condition.
        @usableFromInline package var sequence: UInt64
        /// Whether the entry has to be saved.
        @usableFromInline package var isDirty: Bool
        /// Whether saves include the entry.
        @usableFromInline package var isPersistent: Bool
        /// Whether the entry may be evicted unsaved: a save failed, or memory is far above its limit.
        @usableFromInline package var isExpendable = false
        /// Whether each request must ask the multiplexer's selection whether to use the entry
        /// (``EntrySelection``).
        @usableFromInline package var needsSelection = false

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

    /// Whether the entry is stale because of a refresh.
    ///
    /// Without an entry in memory, the refresh applies to the entry on disk.
    @usableFromInline package private(set) var isRefreshed: Bool

    /// The effects of the last failures; an object, because few slots have a failure.
    @usableFromInline package private(set) var failureRecord: FailureRecord?

    @usableFromInline
    package final class FailureRecord: Sendable {
        /// The end of the time in which the entry, even if stale, is served without another fetch.
        @usableFromInline let heldUntil: Moment
        /// A remembered failure, and the end of its lifetime.
        @usableFromInline let failure: (error: any Error, until: Moment)?
        /// The pause of background renewals.
        @usableFromInline let pause: FailurePause
        /// The number of the failure, from the same counter as ``Slot/Entry/sequence``.
        ///
        /// A refresh of all entries ends the failure if the refresh has a greater number.
        @usableFromInline let sequence: UInt64

        init(heldUntil: Moment, failure: (error: any Error, until: Moment)?, pause: FailurePause, sequence: UInt64) {
            self.heldUntil = heldUntil
            self.failure = failure
            self.pause = pause
            self.sequence = sequence
        }
    }

    /// Whether the removal of a cleared entry on disk is pending; until the removal, the entry is not read.
    @usableFromInline package private(set) var isRemovalPending: Bool

    /// Whether an entry that is only on disk was refreshed, and the refresh is unsaved.
    @usableFromInline package private(set) var isDiskRefreshUnsaved: Bool

    @inlinable
    package init(
        entry: Entry? = nil,
        isRefreshed: Bool = false,
        failureRecord: FailureRecord? = nil,
        isRemovalPending: Bool = false,
        isDiskRefreshUnsaved: Bool = false
    ) {
        self.entry = entry
        self.isRefreshed = isRefreshed
        self.failureRecord = failureRecord
        self.isRemovalPending = isRemovalPending
        self.isDiskRefreshUnsaved = isDiskRefreshUnsaved
    }

    /// Whether the slot has unsaved changes.
    @inlinable
    package var isUnsaved: Bool { self.entry?.isDirty ?? false || self.isRemovalPending || self.isDiskRefreshUnsaved }

    /// Whether the slot equals a new slot.
    @inlinable
    package var isVacant: Bool {
        self.entry == nil && !self.isRefreshed && !self.isRemovalPending && self.failureRecord == nil
    }

    /// The usability of the entry for a request; `nil` without an entry.
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

    /// The failure that is remembered at `now`; `nil` without such a failure.
    @inlinable
    package func failure(at now: Moment) -> (any Error)? {
        guard let failure = self.failureRecord?.failure, now < failure.until else { return nil }
        return failure.error
    }

    /// The entry for a caller; `nil` without an entry.
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

    /// Stores a new entry, which ends the effects of refreshes and failures.
    ///
    /// A pending removal stays pending, because the disk still has the previous entry.
    ///
    /// - Returns: The previous entry, for the caller to release outside its lock.
    @inlinable
    package mutating func commit(_ entry: Entry) -> Entry? {
        let former = self.entry
        self.entry = entry
        self.isRefreshed = false
        self.isDiskRefreshUnsaved = false
        self.failureRecord = nil
        return former
    }

    /// Sets the entry, and leaves the other state of the slot unchanged.
    package mutating func replaceEntry(with entry: Entry) { self.entry = entry }

    /// A fetch returned a value that must not be kept: the previous entry is removed.
    ///
    /// - Parameter isOnDisk: Whether the previous entry may be on disk.
    /// - Returns: The previous entry, for the caller to release outside its lock.
    @usableFromInline
    package mutating func removeEntryWithoutSuccessor(isOnDisk: Bool) -> Entry? {
        if isOnDisk { return self.clear(alsoOnDisk: true) }
        defer { (self.entry, self.failureRecord) = (nil, nil) }
        return self.entry
    }

    /// Adds an entry from disk, or an entry evicted during a fetch.
    ///
    /// The entry is ignored if memory has an entry, or if a removal on disk is pending.
    ///
    /// - Parameters:
    ///   - entry: The entry.
    ///   - fromBeforeRefresh: Whether the entry is older than a refresh that is already saved, or that is
    ///     saved separately. Such an entry becomes stale, but this refresh does not make the entry unsaved.
    @inlinable
    package mutating func adoptLoaded(_ entry: Entry, fromBeforeRefresh: Bool) {
        guard self.entry == nil, !self.isRemovalPending else { return }
        self.entry = entry
        // The next save of the entry includes the refresh, so the refresh needs no separate save.
        if self.isRefreshed { self.markUnsaved() }
        if fromBeforeRefresh { self.isRefreshed = true }
        self.isDiskRefreshUnsaved = false
        if entry.condition != nil { _ = self.applyCondition() }  // the caller retains the entry
    }

    /// Makes the entry stale, or removes the entry, if a change of its tags requires this.
    ///
    /// The changes of tags are saved separately, so the entry does not become unsaved.
    ///
    /// - Returns: The entry removed by a clear, for the caller to release outside its lock.
    @usableFromInline
    mutating func applyCondition() -> Entry? {
        guard let condition = self.entry?.condition, !condition.wasChecked else { return nil }
        let (effect, number) = condition.effect()
        switch effect {
        case .none: return nil
        case .refreshed:
            self.isRefreshed = true
            self.failureRecord = nil
            self.entry?.condition = condition.marked(at: number)
            // As if a refresh of all entries had come later: a shared store must not get the entry again.
            self.entry?.sequence = 0
            return nil
        case .cleared:
            // The disk may have an earlier entry, which must not return.
            return self.clear(alsoOnDisk: self.entry?.isDirty ?? false)
        }
    }

    /// If the condition holds, renews the condition: only changes after this call then have an effect.
    mutating func markCondition() { self.entry?.markCondition() }

    /// A copy of the slot after ``applyCondition()``.
    @inlinable
    var current: Slot {
        guard self.entry?.condition != nil else { return self }
        var slot = self
        _ = slot.applyCondition()
        return slot
    }

    /// Whether the slot has an entry, and its condition does not remove the entry.
    @inlinable var hasEntry: Bool { self.entry.map { $0.condition?.removesEntry != true } ?? false }

    /// A fetch failed, and its previous entry was evicted during the fetch: the entry is restored.
    ///
    /// The entry is not restored if memory has another entry, or if a removal on disk is pending.
    ///
    /// - Parameters:
    ///   - former: The slot at the start of the fetch.
    ///   - isSaved: Whether the entry of `former` is certainly saved.
    package mutating func restoreEntry(of former: Slot, isSaved: Bool) {
        guard var entry = former.entry else { return }
        if isSaved { entry.isDirty = false }
        self.adoptLoaded(entry, fromBeforeRefresh: former.isRefreshed)
    }

    /// A fetch failed.
    ///
    /// - Parameters:
    ///   - error: The error.
    ///   - heldUntil: The end of the time in which the entry, even if stale, is served without another fetch.
    ///   - until: The end of the time in which the error is remembered.
    ///   - firstPause: The pause of background renewals after a first failure; consecutive failures extend
    ///     the pause.
    ///   - retryAfter: The server's `Retry-After`.
    ///   - now: The time.
    ///   - sequence: See ``Entry/sequence``.
    package mutating func recordFailure(
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

    /// A fetch took too long: background renewals pause.
    ///
    /// The other state is unchanged. Without an entry, the call has no effect.
    package mutating func pauseRenewals(_ first: Duration, at now: Moment, sequence: UInt64) {
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
    package mutating func markRefreshed() {
        // If the entry on disk is stale already, the refresh needs no save.
        if !self.isRefreshed || self.isDiskRefreshUnsaved { self.markUnsaved() }
        self.isRefreshed = true
        self.isDiskRefreshUnsaved = self.entry == nil
        self.failureRecord = nil
    }

    /// A clear: the entry is removed, and the effects of refreshes and failures end.
    ///
    /// - Parameter alsoOnDisk: Whether the entry on disk must be removed; a removal that is pending already
    ///   stays pending.
    /// - Returns: The entry, for the caller to release outside the lock.
    package mutating func clear(alsoOnDisk: Bool) -> Entry? {
        defer { self = Slot(isRemovalPending: self.isRemovalPending || alsoOnDisk) }
        return self.entry
    }

    /// Removes the entry from memory, unless the slot has unsaved changes.
    ///
    /// - Parameter keepingMark: Whether ``isRefreshed`` keeps its value.
    /// - Returns: The value, for the caller to release outside the lock.
    package mutating func dropSavedEntry(keepingMark: Bool) -> Value? {
        guard let entry, !entry.isDirty, !self.isRemovalPending else { return nil }
        self.entry = nil
        self.failureRecord = nil
        if !keepingMark { self.isRefreshed = false }
        return entry.value
    }

    /// The entry on disk is missing or outdated: a persistent entry becomes unsaved.
    @usableFromInline
    package mutating func markUnsaved() {
        if self.entry?.isPersistent ?? false { self.entry?.isDirty = true }
    }

    /// The entry was removed on disk.
    package mutating func recordRemovalOnDisk() { self.isRemovalPending = false }

    /// `entry` was saved, and has replaced any earlier entry on disk.
    package mutating func recordSave(of entry: Entry, asRefreshed: Bool) {
        // If the entry was cleared or replaced during the save, a pending removal stays pending.
        guard self.entry?.revision == entry.revision else { return }
        self.isRemovalPending = false
        // If the entry was renewed or refreshed during the save, the change is unsaved.
        guard self.entry?.fetchedAt == entry.fetchedAt, self.isRefreshed == asRefreshed else { return }
        self.entry?.isDirty = false
        self.entry?.isExpendable = false
    }

    /// `entry` could not be saved, and may be evicted.
    package mutating func recordFailedSave(of entry: Entry) {
        guard self.entry?.revision == entry.revision, self.entry?.isDirty ?? false else { return }
        self.entry?.isExpendable = true
    }

    /// The refresh of an entry that is only on disk was saved.
    package mutating func recordSavedRefresh() {
        self.isDiskRefreshUnsaved = false
        if self.entry == nil { self.isRefreshed = false }
    }

    /// Keeps the entry in memory only.
    ///
    /// The disk has an entry of a later version of the program, which no save may overwrite.
    package mutating func excludeFromSaves() {
        self.entry?.isDirty = false
        self.entry?.isPersistent = false
    }

    /// The disk has a newer value: `entry` is removed, and the next request reads the newer value.
    ///
    /// Another process, or another multiplexer with the same `cacheKey`, has saved the newer value.
    ///
    /// - Returns: The entry, for the caller to release outside its lock; `nil` if memory has another entry
    ///   now.
    package mutating func removeSuperseded(_ entry: Entry) -> Entry? {
        guard let former = self.entry, former.revision == entry.revision, former.fetchedAt == entry.fetchedAt else {
            return nil
        }
        self.entry = nil
        self.failureRecord = nil
        // If `entry` was refreshed, the value on disk may be from before the refresh: the value on disk
        // counts as refreshed, too.
        self.isDiskRefreshUnsaved = self.isRefreshed
        // The newer value has replaced the cleared entry.
        self.isRemovalPending = false
        return former
    }
}

extension Slot.Entry {
    /// See ``Slot/markCondition()``.
    mutating func markCondition() {
        guard let condition = self.condition else { return }
        let (effect, number) = condition.effect()
        if effect == .none { self.condition = condition.marked(at: number) }
    }
}
