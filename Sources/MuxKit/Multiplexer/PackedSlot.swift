/// A compact slot with an entry: 32 bytes and the value; fields that few slots have are in an object.
@usableFromInline
package struct PackedSlot<Value: Sendable>: Sendable {
    /// Fields that few slots have.
    @usableFromInline
    final class ColdFields: Sendable {
        @usableFromInline let validator: String?
        @usableFromInline let renewalAge: Duration?
        @usableFromInline let stale: StaleLimits
        @usableFromInline let failureRecord: Slot<Value>.FailureRecord?
        /// The time to live, if 64 bits of nanoseconds cannot hold it.
        @usableFromInline let timeToLive: Duration?
        /// The sequence, if the entry was renewed and has kept its revision.
        @usableFromInline let sequence: UInt64?

        @usableFromInline
        init(
            validator: String?,
            renewalAge: Duration?,
            stale: StaleLimits,
            failureRecord: Slot<Value>.FailureRecord?,
            timeToLive: Duration?,
            sequence: UInt64?
        ) {
            self.validator = validator
            self.renewalAge = renewalAge
            self.stale = stale
            self.failureRecord = failureRecord
            self.timeToLive = timeToLive
            self.sequence = sequence
        }
    }

    @inlinable
    static var flagBits: UInt64 { 6 }
    @inlinable
    static var dirty: UInt64 { 1 }
    @inlinable static var refreshed: UInt64 { 2 }
    @usableFromInline static var removalPending: UInt64 { 4 }
    @inlinable
    static var persistent: UInt64 { 8 }
    @inlinable static var renewsAhead: UInt64 { 16 }
    @inlinable static var expendable: UInt64 { 32 }

    @usableFromInline package let value: Value
    @usableFromInline let fetchedAt: Moment
    @usableFromInline let timeToLive: Int64
    /// The revision, and six flags: a table that makes a change per nanosecond wraps in 9 years.
    @usableFromInline let revisionAndFlags: UInt64
    @usableFromInline let coldFields: ColdFields?

    /// Packs `slot`; `nil` if it has no entry.
    @inlinable
    package init?(_ slot: Slot<Value>) {
        guard let entry = slot.entry else { return nil }
        let nanoseconds = entry.timeToLive.saturatedNanoseconds
        let isExact = Duration.nanoseconds(nanoseconds) == entry.timeToLive
        self.value = entry.value
        self.fetchedAt = entry.fetchedAt
        self.timeToLive = nanoseconds
        self.revisionAndFlags =
            entry.revision << Self.flagBits
            | (entry.isDirty ? Self.dirty : 0)
            | (slot.isRefreshed ? Self.refreshed : 0)
            | (slot.isRemovalPending ? Self.removalPending : 0)
            | (entry.isPersistent ? Self.persistent : 0)
            | (entry.renewalAge != nil ? Self.renewsAhead : 0)
            | (entry.isExpendable ? Self.expendable : 0)
        let isPlain =
            entry.validator == nil && entry.renewalAge == nil && entry.stale == StaleLimits()
            && slot.failureRecord == nil
            && isExact && entry.sequence == entry.revision
        self.coldFields =
            isPlain
            ? nil
            : ColdFields(
                validator: entry.validator,
                renewalAge: entry.renewalAge,
                stale: entry.stale,
                failureRecord: slot.failureRecord,
                timeToLive: isExact ? nil : entry.timeToLive,
                sequence: entry.sequence == entry.revision ? nil : entry.sequence
            )
    }

    /// See ``Slot/Entry/sequence``.
    @inlinable
    var sequence: UInt64 { self.coldFields?.sequence ?? self.revisionAndFlags >> Self.flagBits }

    /// Whether the entry is fresh, and not to be renewed ahead of time.
    ///
    /// `false` in rare cases that only ``Freshness`` decides.
    ///
    /// - Parameters:
    ///   - now: The time.
    ///   - refresh: The number of the last refresh of everything.
    ///   - limit: The age in nanoseconds that it must not have reached.
    /// - Returns: Whether it is a hit.
    @inlinable
    func isHit(at now: Moment, since refresh: UInt64 = 0, youngerThan limit: Int64 = .max) -> Bool {
        guard self.revisionAndFlags & (Self.refreshed | Self.renewsAhead) == 0 else { return false }
        // The revision is the sequence, except after a renewal.
        guard self.revisionAndFlags >> Self.flagBits >= refresh || self.sequence >= refresh else { return false }
        let (age, overflow) = now.nanoseconds.subtractingReportingOverflow(self.fetchedAt.nanoseconds)
        return max(age, 0) < min(self.timeToLive, limit) && !overflow
    }

    /// Whether the entry is long past every limit up to which a stale one is served, and has no validator.
    @inlinable
    package func isBeyondUse(at now: Moment, _ limits: Freshness.Limits) -> Bool {
        // First what is nearly always so, and costs nothing.
        let (age, overflow) = now.nanoseconds.subtractingReportingOverflow(self.fetchedAt.nanoseconds)
        guard age >= self.timeToLive || overflow, self.coldFields?.validator == nil else { return false }
        return self.isBeyondUse(at: now, limits, self.coldFields?.stale ?? StaleLimits())
    }

    @usableFromInline
    func isBeyondUse(at now: Moment, _ limits: Freshness.Limits, _ stale: StaleLimits) -> Bool {
        let timeToLive = self.coldFields?.timeToLive ?? .nanoseconds(self.timeToLive)
        let use = max(stale.ifError ?? limits.staleIfError, stale.whileRevalidate ?? limits.staleWhileRevalidate)
        // As long again as it was fresh, for requests that take a value of any age.
        let grace = max(timeToLive, .seconds(60))
        return now.duration(since: self.fetchedAt) >= .sum(.sum(max(timeToLive, .zero), max(use, .zero)), grace)
    }

    /// Whether the slot may not be evicted: it is unsaved, and the disk can be written.
    @inlinable
    package var isPinned: Bool { self.revisionAndFlags & (Self.dirty | Self.expendable) == Self.dirty }

    /// Whether the entry is not saved yet.
    @inlinable
    package var isDirty: Bool { self.revisionAndFlags & Self.dirty != 0 }

    /// Whether the slot was refreshed, other than with all slots.
    @inlinable
    package var isRefreshed: Bool { self.revisionAndFlags & Self.refreshed != 0 }

    @inlinable
    var isRemovalPending: Bool { self.revisionAndFlags & Self.removalPending != 0 }
    /// Whether there is something to save.
    @inlinable
    var isUnsaved: Bool { self.isDirty || self.isRemovalPending }
    @inlinable
    var failureRecord: Slot<Value>.FailureRecord? { self.coldFields?.failureRecord }
    @inlinable
    var entry: Slot<Value>.Entry {
        Slot<Value>.Entry(
            value: self.value,
            fetchedAt: self.fetchedAt,
            timeToLive: self.coldFields?.timeToLive ?? .nanoseconds(self.timeToLive),
            renewalAge: self.coldFields?.renewalAge,
            stale: self.coldFields?.stale ?? StaleLimits(),
            validator: self.coldFields?.validator,
            revision: self.revisionAndFlags >> Self.flagBits,
            sequence: self.sequence,
            isDirty: self.isDirty,
            isPersistent: self.revisionAndFlags & Self.persistent != 0,
            isExpendable: self.revisionAndFlags & Self.expendable != 0
        )
    }
}

extension Slot {
    /// The unpacked slot, after the refresh of everything with that number.
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
