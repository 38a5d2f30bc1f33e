/// The storage of slots: a single slot for a ``Multiplexer``, a table for a ``MultiplexerMap``.
@usableFromInline
package protocol SlotStorage<Key, Value>: Sendable {
    associatedtype Key: Hashable & Sendable
    associatedtype Value: Sendable

    /// The slot of `key` after the effect of its condition; in a table, `nil` for a vacant slot.
    ///
    /// The stored slot does not change. A ``SingleSlot`` always returns its slot.
    func slot(of key: Key) -> Slot<Value>?

    /// The entry's condition, even if the condition removes the entry; `nil` without a condition.
    func condition(of key: Key) -> EntryCondition?

    /// The value of `key`, if a hit: fresh, without a due renewal, and younger than `limit` nanoseconds.
    ///
    /// An entry that needs a selection is no hit (``Slot/Entry/needsSelection``).
    /// A hit counts as a use. `nil` is not always a miss: the caller then examines the slot.
    mutating func hit(_ key: Key, at now: Moment, youngerThan limit: Int64) -> Value?

    /// As ``slot(of:)``; counts as a use.
    mutating func requestedSlot(of key: Key) -> Slot<Value>?

    /// Changes the slot of `key`; a table does not store a vacant slot.
    ///
    /// The effect of the entry's condition is applied first. `evicted` receives evicted slots, entries that
    /// conditions removed, dropped failures and removed keys, to be released outside the caller's lock.
    mutating func withSlot<R>(
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R

    /// Stores a new entry, as ``Slot/commit(_:)``; `evicted` as in ``withSlot(of:evicted:_:)``.
    ///
    /// - Returns: The previous entry, for the caller to release outside its lock.
    mutating func commit(
        _ entry: Slot<Value>.Entry,
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void
    ) -> Slot<Value>.Entry?

    /// Whether the storage can have many keys.
    ///
    /// Then a refresh of all entries needs a separate mark on disk, for entries that are not in memory.
    static var hasManyKeys: Bool { get }

    /// Makes all entries in memory stale, and removes the failures.
    ///
    /// A table also removes the marks of refreshed keys without an entry in memory. A ``SingleSlot`` without
    /// an entry is marked as refreshed.
    ///
    /// - Parameters:
    ///   - number: The sequence number of the refresh, from the same counter as ``Slot/Entry/sequence``.
    ///   - removed: Receives the removed marks and failures, to be released outside the lock.
    /// - Complexity: O(*n*) in the number of marks; with an index of users also in the number of remembered
    ///   failures.
    mutating func refreshAll(_ number: UInt64, removed: (any Sendable) -> Void)

    /// Whether so many keys without an entry in memory are marked as refreshed that a refresh of all entries
    /// on disk should replace the marks.
    var hasTooManyMarks: Bool { get }

    /// Removes the marks of refreshed keys without an entry in memory.
    ///
    /// - Returns: The marks, for the caller to release outside its lock.
    /// - Complexity: O(*n*) in the number of marks.
    mutating func removeMarks() -> any Sendable

    /// Removes all entries without unsaved changes, if at most `count` keys have unsaved changes.
    ///
    /// A ``SingleSlot`` ignores `count`, and keeps an unsaved entry.
    ///
    /// - Returns: The former storage, for the caller to release outside its lock; `nil`, without a change, if
    ///   more than `count` keys of a table have unsaved changes.
    /// - Complexity: O(*count*); with an index of users also O(*n*) in the number of remembered failures.
    mutating func removeAllClean(ifUnsavedAtMost count: Int) -> Self?

    /// Removes some of the entries without unsaved changes; a ``SingleSlot`` removes nothing.
    ///
    /// - Parameters:
    ///   - place: The result of the last call; `nil` to begin.
    ///   - count: The maximum number of entries to examine.
    ///   - isUnwanted: Whether to remove an entry.
    ///   - removed: Receives the removed slots, to be released outside the lock.
    /// - Returns: The place for the next call; `nil` at the end.
    mutating func removeClean(
        before place: Int?,
        atMost count: Int,
        where isUnwanted: (PackedSlot<Value>) -> Bool,
        removed: (Key, Slot<Value>) -> Void
    ) -> Int?

    /// Whether the entries exceed a bound, because unsaved entries must not be evicted.
    var isOverBound: Bool { get }

    /// Whether the entries exceed a bound so far that unsaved entries may be evicted, too.
    var isFarOverBound: Bool { get }

    /// The number of entries in memory.
    var entryCount: Int { get }

    /// The keys of each user; `nil` if the keys have no users, or the users are the keys.
    var users: UserIndex<Key>? { get }

    /// Some of the keys with unsaved changes.
    ///
    /// A sequence of calls may omit keys that were added between the calls, and may return a key twice.
    ///
    /// - Parameters:
    ///   - place: The result of the last call; `nil` to begin.
    ///   - count: The maximum number of keys.
    /// - Returns: The keys, and the place for the next call; `nil` at the end.
    func unsavedKeys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?)

    /// Some of the keys with an entry or a failure; see ``unsavedKeys(before:atMost:)`` for the parameters.
    ///
    /// A ``SingleSlot`` returns its key unless the slot is vacant.
    func keys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?)

    /// Removes all slots.
    ///
    /// - Returns: The former storage, for the caller to release outside its lock.
    mutating func removeAll() -> Self
}

/// The single slot of a ``Multiplexer``.
@usableFromInline
package struct SingleSlot<Value: Sendable>: SlotStorage {
    @usableFromInline var slot = Slot<Value>() {
        didSet { self.packed = PackedSlot(self.slot) }
    }
    /// The slot in the compact form for hits.
    @usableFromInline private(set) var packed: PackedSlot<Value>?
    private let isPersistent: Bool

    package init(isPersistent: Bool) { self.isPersistent = isPersistent }

    @inlinable
    package mutating func hit(_ key: SoleKey, at now: Moment, youngerThan limit: Int64) -> Value? {
        guard self.packed?.isHit(at: now, youngerThan: limit) ?? false || self.isHitAfterCheck(at: now, limit) else {
            return nil
        }
        return self.packed?.value
    }

    /// See ``SlotTable/isHitAfterCheck(_:at:youngerThan:)``.
    @usableFromInline
    @inline(never)
    func isHitAfterCheck(at now: Moment, _ limit: Int64) -> Bool {
        guard let packed, let condition = packed.condition, !condition.wasChecked, condition.holds else { return false }
        return packed.isHit(at: now, youngerThan: limit)
    }

    @inlinable
    package func slot(of key: SoleKey) -> Slot<Value>? { self.slot.current }

    @usableFromInline
    package func condition(of key: SoleKey) -> EntryCondition? { self.slot.entry?.condition }

    @inlinable
    package mutating func requestedSlot(of key: SoleKey) -> Slot<Value>? { self.slot.current }

    @usableFromInline
    package mutating func withSlot<R>(
        of key: SoleKey,
        evicted: (SoleKey, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R {
        let former = self.slot.failureRecord
        if self.slot.entry?.condition != nil {
            let raw = self.slot
            if self.slot.applyCondition() != nil { evicted(key, raw) }
        }
        let result = body(&self.slot)
        if let former, former !== self.slot.failureRecord { evicted(key, Slot(failureRecord: former)) }
        return result
    }

    @inlinable
    package mutating func commit(
        _ entry: Slot<Value>.Entry,
        of key: SoleKey,
        evicted: (SoleKey, Slot<Value>) -> Void
    ) -> Slot<Value>.Entry? {
        self.withSlot(of: key, evicted: evicted) { $0.commit(entry) }
    }

    @inlinable
    package static var hasManyKeys: Bool { false }

    @usableFromInline
    package mutating func refreshAll(_ number: UInt64, removed: (any Sendable) -> Void) {
        if let failure = self.slot.failureRecord { removed(failure) }
        self.slot.markRefreshed()
    }

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
    package mutating func removeAllClean(ifUnsavedAtMost count: Int) -> Self? {
        let former = self
        _ = self.slot.dropSavedEntry(keepingMark: self.isPersistent)
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
