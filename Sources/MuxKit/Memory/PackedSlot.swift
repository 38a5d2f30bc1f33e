/// A slot with an entry, as a table of a million holds it: 32 bytes and the value.
///
/// The pieces that hardly any slot has are in an object of their own.
@usableFromInline
package struct PackedSlot<Value: Sendable>: Sendable {
    /// What few slots have.
    @usableFromInline
    final class Rarities: Sendable {
        @usableFromInline let validator: String?
        @usableFromInline let renewalAge: Duration?
        @usableFromInline let stale: StaleLimits
        @usableFromInline let trouble: Slot<Value>.Trouble?
        /// The time to live, if 64 bits of nanoseconds cannot say it.
        @usableFromInline let timeToLive: Duration?

        @usableFromInline
        init(
            validator: String?,
            renewalAge: Duration?,
            stale: StaleLimits,
            trouble: Slot<Value>.Trouble?,
            timeToLive: Duration?
        ) {
            self.validator = validator
            self.renewalAge = renewalAge
            self.stale = stale
            self.trouble = trouble
            self.timeToLive = timeToLive
        }
    }

    @inlinable
    static var flagBits: UInt64 { 5 }
    @inlinable
    static var dirty: UInt64 { 1 }
    @inlinable static var refreshed: UInt64 { 2 }
    @usableFromInline static var removalPending: UInt64 { 4 }
    @inlinable
    static var persistent: UInt64 { 8 }
    @inlinable static var renewsAhead: UInt64 { 16 }

    @usableFromInline package let value: Value
    @usableFromInline let fetchedAt: Moment
    @usableFromInline let timeToLive: Int64
    /// The revision, and five flags: a table that makes a change per nanosecond wraps in 18 years.
    @usableFromInline let revisionAndFlags: UInt64
    @usableFromInline let rarities: Rarities?

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
        let isPlain =
            entry.validator == nil && entry.renewalAge == nil && entry.stale == StaleLimits() && slot.trouble == nil
            && isExact
        self.rarities =
            isPlain
            ? nil
            : Rarities(
                validator: entry.validator,
                renewalAge: entry.renewalAge,
                stale: entry.stale,
                trouble: slot.trouble,
                timeToLive: isExact ? nil : entry.timeToLive
            )
    }

    /// Whether the entry is fresh for a request without options, and not to be renewed ahead of time.
    ///
    /// Says no in the rare cases that only ``Freshness`` can tell.
    @inlinable
    func isHit(at now: Moment) -> Bool {
        guard self.revisionAndFlags & (Self.refreshed | Self.renewsAhead) == 0 else { return false }
        let (age, overflow) = now.nanoseconds.subtractingReportingOverflow(self.fetchedAt.nanoseconds)
        return max(age, 0) < self.timeToLive && !overflow
    }

    /// Whether the slot may not be evicted: the disk has yet to hear of it.
    @inlinable
    package var isPinned: Bool { self.revisionAndFlags & (Self.dirty | Self.removalPending) != 0 }

    /// Whether a fetch has to come before the entry is fresh again.
    @inlinable
    package var isRefreshed: Bool { self.revisionAndFlags & Self.refreshed != 0 }

    @inlinable
    var isRemovalPending: Bool { self.revisionAndFlags & Self.removalPending != 0 }
    @inlinable
    var trouble: Slot<Value>.Trouble? { self.rarities?.trouble }
    @inlinable
    var entry: Slot<Value>.Entry {
        Slot<Value>.Entry(
            value: self.value,
            fetchedAt: self.fetchedAt,
            timeToLive: self.rarities?.timeToLive ?? .nanoseconds(self.timeToLive),
            renewalAge: self.rarities?.renewalAge,
            stale: self.rarities?.stale ?? StaleLimits(),
            validator: self.rarities?.validator,
            revision: self.revisionAndFlags >> Self.flagBits,
            isDirty: self.revisionAndFlags & Self.dirty != 0,
            isPersistent: self.revisionAndFlags & Self.persistent != 0
        )
    }
}

extension Slot {
    /// The slot that was packed.
    @inlinable
    package init(_ packed: PackedSlot<Value>) {
        self.init(
            entry: packed.entry,
            isRefreshed: packed.isRefreshed,
            trouble: packed.trouble,
            isRemovalPending: packed.isRemovalPending
        )
    }
}
