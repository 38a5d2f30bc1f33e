/// Storage of slots: one for a ``Multiplexer``, a table for a ``MultiplexerMap``.
@usableFromInline
package protocol SlotStorage<Key, Value>: Sendable {
    associatedtype Key: Hashable & Sendable
    associatedtype Value: Sendable

    /// The slot of `key`; `nil` if it is vacant.
    func slot(of key: Key) -> Slot<Value>?

    /// The value of `key` if it is fresh, not to be renewed, and younger than so many nanoseconds; counts as a use.
    ///
    /// `nil` means that the slot has to be examined.
    mutating func hit(_ key: Key, at now: Moment, youngerThan limit: Int64) -> Value?

    /// The slot of `key`; `nil` if it is vacant. Counts as a use.
    mutating func requestedSlot(of key: Key) -> Slot<Value>?

    /// Changes the slot of `key`; a slot that is vacant afterwards is not stored.
    ///
    /// `evicted` receives evicted slots, and failures that are dropped, to be released outside the caller's lock.
    mutating func withSlot<R>(
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R

    /// Whether there can be many keys, so that a refresh of everything concerns entries that are only on disk.
    static var hasManyKeys: Bool { get }

    /// Makes every slot stale that was changed before.
    ///
    /// - Parameters:
    ///   - number: The number of the refresh, in the numbering of revisions.
    ///   - removed: Receives superfluous marks and failures, to be released outside the lock.
    /// - Complexity: O(1); with an index of users O(*n*) in the number of remembered failures.
    mutating func refreshAll(_ number: UInt64, removed: (any Sendable) -> Void)

    /// Whether so many absent entries are marked as refreshed that one date should replace the marks.
    var hasTooManyMarks: Bool { get }

    /// Removes the marks of refreshed absent entries.
    ///
    /// - Returns: The marks, for the caller to release outside its lock.
    /// - Complexity: O(1).
    mutating func removeMarks() -> any Sendable

    /// Removes all entries but the unsaved ones, if these are at most `count`.
    ///
    /// - Returns: The former storage, for the caller to release outside its lock; `nil`, with no change, if more are unsaved.
    /// - Complexity: O(*count*).
    mutating func removeClean(keeping count: Int) -> Self?

    /// Removes some of the saved entries.
    ///
    /// - Parameters:
    ///   - place: Where the last call stopped; `nil` to begin.
    ///   - count: How many entries to examine, at most.
    ///   - isUnwanted: Whether to remove an entry.
    ///   - removed: Receives the removed slots, to be released outside the lock.
    /// - Returns: Where to go on; `nil` at the end.
    mutating func removeClean(
        before place: Int?,
        atMost count: Int,
        where isUnwanted: (PackedSlot<Value>) -> Bool,
        removed: (Key, Slot<Value>) -> Void
    ) -> Int?

    /// Whether the bound is exceeded, because unsaved entries may not be evicted.
    var isOverBound: Bool { get }

    /// Whether the bound is exceeded several times, so that unsaved entries are evicted too.
    var isFarOverBound: Bool { get }

    var entryCount: Int { get }

    /// The keys of each user; `nil` if they have none, or one key each.
    var users: UserIndex<Key>? { get }

    /// Some of the keys with something to save, and perhaps others.
    ///
    /// - Parameters:
    ///   - place: Where the last call stopped; `nil` to begin. Keys added in between may be missing, and some may come twice.
    ///   - count: How many keys, at most.
    /// - Returns: The keys, and where to go on; `nil` at the end.
    func unsavedKeys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?)

    /// Some of the keys of slots that have an entry or a failure; see ``unsavedKeys(before:atMost:)``.
    func keys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?)

    /// Removes all slots.
    ///
    /// - Returns: The former storage, for the caller to release outside its lock.
    mutating func removeAll() -> Self
}

/// The one slot of a ``Multiplexer``.
@usableFromInline
package struct SingleSlot<Value: Sendable>: SlotStorage {
    @usableFromInline var slot = Slot<Value>() {
        didSet { self.packed = PackedSlot(self.slot) }
    }
    /// The slot in the form that a hit reads.
    @usableFromInline private(set) var packed: PackedSlot<Value>?
    private let isPersistent: Bool

    package init(isPersistent: Bool) { self.isPersistent = isPersistent }

    @inlinable
    package mutating func hit(_ key: SoleKey, at now: Moment, youngerThan limit: Int64) -> Value? {
        guard self.packed?.isHit(at: now, youngerThan: limit) ?? false else { return nil }
        return self.packed?.value
    }

    @inlinable
    package func slot(of key: SoleKey) -> Slot<Value>? { self.slot }

    @inlinable
    package mutating func requestedSlot(of key: SoleKey) -> Slot<Value>? { self.slot }

    @usableFromInline
    package mutating func withSlot<R>(
        of key: SoleKey,
        evicted: (SoleKey, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R {
        let former = self.slot.failureRecord
        let result = body(&self.slot)
        if let former, former !== self.slot.failureRecord { evicted(key, Slot(former)) }
        return result
    }

    @inlinable
    package static var hasManyKeys: Bool { false }

    @usableFromInline
    package mutating func refreshAll(_ number: UInt64, removed: (any Sendable) -> Void) { self.slot.refreshed() }

    @inlinable
    package var hasTooManyMarks: Bool { false }

    @usableFromInline
    package mutating func removeMarks() -> any Sendable { () }

    @inlinable
    package var isOverBound: Bool { false }

    @inlinable
    package var isFarOverBound: Bool { false }

    @inlinable
    package var entryCount: Int { self.slot.entry == nil ? 0 : 1 }

    @usableFromInline package var users: UserIndex<SoleKey>? { nil }

    @usableFromInline
    package mutating func removeClean(keeping count: Int) -> Self? {
        let former = self
        _ = self.slot.droppedFromMemory(keepingMark: self.isPersistent)
        return former
    }

    @usableFromInline
    package mutating func removeClean(
        before place: Int?,
        atMost count: Int,
        where isUnwanted: (PackedSlot<Value>) -> Bool,
        removed: (SoleKey, Slot<Value>) -> Void
    ) -> Int? { nil }

    @usableFromInline
    package func unsavedKeys(before place: Int?, atMost count: Int) -> (keys: [SoleKey], next: Int?) {
        (self.slot.isUnsaved ? [.sole] : [], nil)
    }

    @usableFromInline
    package func keys(before place: Int?, atMost count: Int) -> (keys: [SoleKey], next: Int?) {
        (self.slot.isVacant ? [] : [.sole], nil)
    }

    @usableFromInline
    package mutating func removeAll() -> SingleSlot {
        defer { self = SingleSlot(isPersistent: self.isPersistent) }
        return self
    }
}
