/// A compact slot with an entry: 32 bytes and the value.
///
/// Rarely used fields are in a separate object.
@usableFromInline
package struct PackedSlot<Value: Sendable>: Sendable {
    /// The rarely used fields.
    @usableFromInline
    final class ColdFields: Sendable {
        @usableFromInline let validator: String?
        @usableFromInline let renewalAge: Duration?
        @usableFromInline let stale: StaleLimits
        @usableFromInline let failureRecord: Slot<Value>.FailureRecord?
        /// The time to live, if different from ``PackedSlot/hitAge``.
        @usableFromInline let timeToLive: Duration?
        /// The sequence, if different from the revision.
        @usableFromInline let sequence: UInt64?
        @usableFromInline let condition: EntryCondition?

        @usableFromInline
        init(
            validator: String?,
            renewalAge: Duration?,
            stale: StaleLimits,
            failureRecord: Slot<Value>.FailureRecord?,
            timeToLive: Duration?,
            sequence: UInt64?,
            condition: EntryCondition?
        ) {
            self.validator = validator
            self.renewalAge = renewalAge
            self.stale = stale
            self.failureRecord = failureRecord
            self.timeToLive = timeToLive
            self.sequence = sequence
            self.condition = condition
        }
    }

    @inlinable
    static var flagBits: UInt64 { 7 }
    @inlinable
    static var dirty: UInt64 { 1 }
    @inlinable static var refreshed: UInt64 { 2 }
    @inlinable static var removalPending: UInt64 { 4 }
    @inlinable
    static var persistent: UInt64 { 8 }
    @inlinable static var needsSelection: UInt64 { 16 }
    @inlinable static var expendable: UInt64 { 32 }
    @inlinable static var conditional: UInt64 { 64 }

    @usableFromInline package let value: Value
    @usableFromInline let fetchedAt: Moment
    /// The age in nanoseconds below which the entry is a hit: the smaller of the time to live and the age for
    /// an early renewal.
    ///
    /// 0 for an entry that needs a selection (``Slot/Entry/needsSelection``).
    @usableFromInline let hitAge: Int64
    /// The revision and seven flags; with one change per nanosecond, the revision wraps after 4.5 years.
    @usableFromInline let revisionAndFlags: UInt64
    @usableFromInline let coldFields: ColdFields?

    /// Packs `slot`; `nil` for a slot without an entry.
    @inlinable
    package init?(_ slot: Slot<Value>) {
        guard let entry = slot.entry else { return nil }
        self.init(
            entry,
            isRefreshed: slot.isRefreshed,
            isRemovalPending: slot.isRemovalPending,
            failureRecord: slot.failureRecord
        )
    }

    /// Packs the parts of a slot.
    @inlinable
    init(
        _ entry: Slot<Value>.Entry,
        isRefreshed: Bool = false,
        isRemovalPending: Bool = false,
        failureRecord: Slot<Value>.FailureRecord? = nil
    ) {
        let hitAge = min(entry.timeToLive, entry.renewalAge ?? entry.timeToLive).saturatedNanoseconds
        self.value = entry.value
        self.fetchedAt = entry.fetchedAt
        self.hitAge = entry.needsSelection ? 0 : hitAge
        let isExact = Duration.nanoseconds(self.hitAge) == entry.timeToLive
        self.revisionAndFlags =
            entry.revision << Self.flagBits
            | (entry.isDirty ? Self.dirty : 0)
            | (isRefreshed ? Self.refreshed : 0)
            | (isRemovalPending ? Self.removalPending : 0)
            | (entry.isPersistent ? Self.persistent : 0)
            | (entry.needsSelection ? Self.needsSelection : 0)
            | (entry.isExpendable ? Self.expendable : 0)
            | (entry.condition != nil ? Self.conditional : 0)
        let isPlain =
            entry.validator == nil && entry.renewalAge == nil && entry.stale == StaleLimits()
            && failureRecord == nil
            && isExact && entry.sequence == entry.revision && entry.condition == nil
        self.coldFields =
            isPlain
            ? nil
            : ColdFields(
                validator: entry.validator,
                renewalAge: entry.renewalAge,
                stale: entry.stale,
                failureRecord: failureRecord,
                timeToLive: isExact ? nil : entry.timeToLive,
                sequence: entry.sequence == entry.revision ? nil : entry.sequence,
                condition: entry.condition
            )
    }

    /// See ``Slot/Entry/timeToLive``.
    @inlinable
    var timeToLive: Duration { self.coldFields?.timeToLive ?? .nanoseconds(self.hitAge) }

    /// See ``Slot/Entry/sequence``.
    @inlinable
    var sequence: UInt64 { self.coldFields?.sequence ?? self.revisionAndFlags >> Self.flagBits }

    /// Whether the entry is fresh, and needs no early renewal and no selection.
    ///
    /// `false` does not always mean a miss: then ``Freshness`` decides. The function does not check the
    /// condition of an entry with tags, only whether the condition was checked since the last change of any
    /// tag: a check would add reference counting to each hit.
    ///
    /// - Parameters:
    ///   - now: The time.
    ///   - refresh: The number of the last refresh of all entries.
    ///   - limit: The maximum age in nanoseconds, exclusive.
    /// - Returns: Whether the entry is a hit.
    @inlinable
    @inline(__always)
    func isHit(at now: Moment, since refresh: UInt64 = 0, youngerThan limit: Int64 = .max) -> Bool {
        guard self.revisionAndFlags & Self.refreshed == 0 else { return false }
        // A new value sets both numbers. A renewal increases only the sequence. A change by the app
        // (``Layers``) increases only the revision; an outdated entry then has the flag `refreshed`.
        guard self.revisionAndFlags >> Self.flagBits >= refresh || self.sequence >= refresh else { return false }
        guard self.revisionAndFlags & Self.conditional == 0 || self.coldFields?.condition?.wasChecked ?? true else {
            return false
        }
        let (age, overflow) = now.nanoseconds.subtractingReportingOverflow(self.fetchedAt.nanoseconds)
        return max(age, 0) < min(self.hitAge, limit) && !overflow
    }

    /// Whether the entry has no validator, and is too old for any use as a stale entry.
    ///
    /// An additional period (the time to live, but at least 60 seconds) keeps the entry for requests that
    /// accept a value of any age.
    @inlinable
    package func isBeyondUse(at now: Moment, _ limits: Freshness.Limits) -> Bool {
        // First the cheap check, which nearly always ends the function.
        let (age, overflow) = now.nanoseconds.subtractingReportingOverflow(self.fetchedAt.nanoseconds)
        guard age >= self.hitAge || overflow, self.coldFields?.validator == nil else { return false }
        return self.isBeyondUse(at: now, limits, self.coldFields?.stale ?? StaleLimits())
    }

    @usableFromInline
    func isBeyondUse(at now: Moment, _ limits: Freshness.Limits, _ stale: StaleLimits) -> Bool {
        let timeToLive = self.timeToLive
        let use = max(stale.ifError ?? limits.staleIfError, stale.whileRevalidate ?? limits.staleWhileRevalidate)
        // The additional period.
        let grace = max(timeToLive, .seconds(60))
        return now.duration(since: self.fetchedAt) >= .sum(.sum(max(timeToLive, .zero), max(use, .zero)), grace)
    }

    /// Whether the slot must not be evicted: the entry is unsaved, and not expendable.
    @inlinable
    package var isPinned: Bool { self.revisionAndFlags & (Self.dirty | Self.expendable) == Self.dirty }

    /// Whether the entry is unsaved.
    @inlinable
    package var isDirty: Bool { self.revisionAndFlags & Self.dirty != 0 }

    /// Whether the slot is marked as refreshed; ``SlotTable/refreshAll(_:removed:)`` does not mark slots.
    @inlinable
    package var isRefreshed: Bool { self.revisionAndFlags & Self.refreshed != 0 }

    @inlinable
    var isRemovalPending: Bool { self.revisionAndFlags & Self.removalPending != 0 }
    /// Whether the slot has unsaved changes.
    @inlinable
    var isUnsaved: Bool { self.isDirty || self.isRemovalPending }
    @inlinable
    var failureRecord: Slot<Value>.FailureRecord? { self.coldFields?.failureRecord }
    @inlinable
    var entry: Slot<Value>.Entry {
        var entry = Slot<Value>.Entry(
            value: self.value,
            fetchedAt: self.fetchedAt,
            timeToLive: self.timeToLive,
            renewalAge: self.coldFields?.renewalAge,
            stale: self.coldFields?.stale ?? StaleLimits(),
            validator: self.coldFields?.validator,
            revision: self.revisionAndFlags >> Self.flagBits,
            sequence: self.sequence,
            isDirty: self.isDirty,
            isPersistent: self.revisionAndFlags & Self.persistent != 0,
            isExpendable: self.revisionAndFlags & Self.expendable != 0
        )
        entry.condition = self.condition
        entry.needsSelection = self.revisionAndFlags & Self.needsSelection != 0
        return entry
    }

    @inlinable
    var condition: EntryCondition? {
        self.revisionAndFlags & Self.conditional == 0 ? nil : self.coldFields?.condition
    }
}

extension Slot {
    /// Unpacks a slot; does not apply the entry's condition (``Slot/applyCondition()``).
    ///
    /// An entry with a ``Slot/Entry/sequence`` below `refresh` is stale. A failure is dropped if the
    /// failure's own sequence is below `refresh`.
    @inlinable
    package init(_ packed: PackedSlot<Value>, since refresh: UInt64 = 0) {
        let failureRecord = packed.failureRecord
        self.init(
            entry: packed.entry,
            isRefreshed: packed.isRefreshed || packed.sequence < refresh,
            failureRecord: failureRecord.map { $0.sequence < refresh } ?? false ? nil : failureRecord,
            isRemovalPending: packed.isRemovalPending
        )
    }
}
