/// Where slots are kept: one for a ``Multiplexer``, a table for a ``MultiplexerMap``.
@usableFromInline
package protocol SlotStorage<Key, Value>: Sendable {
    /// What the caller names a slot by.
    associatedtype Key: Hashable & Sendable
    /// What a slot holds.
    associatedtype Value: Sendable

    /// The slot of `key`; `nil` if it is vacant.
    func slot(of key: Key) -> Slot<Value>?

    /// The value of `key` if it is fresh for a request without options, and not to be renewed: that somebody asked for it is
    /// a reason to keep it.
    ///
    /// The only thing on the way of a hit; `nil` means that the slot has to be looked at.
    mutating func hit(_ key: Key, at now: Moment) -> Value?

    /// The slot of `key`, which somebody asked for: that is a reason to keep it; `nil` if it is vacant.
    mutating func requestedSlot(of key: Key) -> Slot<Value>?

    /// Changes the slot of `key`, which is vacant if it was never used; a vacant one takes no room afterwards.
    ///
    /// `evicted` receives the slots that had to make room, and what remains of others, to be let go of outside the lock of
    /// whoever calls this.
    mutating func withSlot<R>(
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R

    /// Whether each key has a slot of its own, so that a refresh of everything concerns entries that are on disk only.
    static var hasManyKeys: Bool { get }

    /// Makes every slot stale that was changed before.
    ///
    /// - Parameters:
    ///   - number: The number of the refresh, among those from which revisions are taken.
    ///   - removed: Receives what marks and failures it makes superfluous, to be let go of outside the lock.
    /// - Complexity: O(1).
    mutating func refreshAll(_ number: UInt64, removed: (any Sendable) -> Void)

    /// Whether so many absent entries are marked as refreshed that the marks should be folded into a date.
    var hasTooManyMarks: Bool { get }

    /// Forgets the marks that refreshes left on absent entries.
    ///
    /// - Returns: The marks, for the caller to let go of outside its lock.
    /// - Complexity: O(1).
    mutating func removeMarks() -> any Sendable

    /// Forgets the entries that can be had again, if at most `count` others are there: those that are not on disk yet and have
    /// to go there.
    ///
    /// - Returns: What was there, for the caller to let go of outside its lock; `nil`, and nothing has changed, if there are more
    ///   that have to stay.
    /// - Complexity: O(*count*).
    mutating func removeClean(keeping count: Int) -> Self?

    /// Forgets some of the entries that can be had again.
    ///
    /// - Parameters:
    ///   - place: Where the last call stopped; `nil` to begin.
    ///   - count: How many entries to look at, at most.
    ///   - isUnwanted: Which of them to forget.
    ///   - removed: Receives what is forgotten, to be let go of outside the lock.
    /// - Returns: Where to go on; `nil` at the end.
    mutating func removeClean(
        before place: Int?,
        atMost count: Int,
        where isUnwanted: (Slot<Value>) -> Bool,
        removed: (Key, Slot<Value>) -> Void
    ) -> Int?

    /// Whether there are more entries than there may be, because some may not go before they are on disk.
    var isOverBound: Bool { get }

    /// Whether there are many times as many entries as there may be, so that no more may wait until they are on disk.
    var isFarOverBound: Bool { get }

    /// How many entries there are.
    var entryCount: Int { get }

    /// Some of the keys of slots that a save has something to do for; others may be among them.
    ///
    /// - Parameters:
    ///   - place: Where the last call stopped; `nil` to begin. A key that comes in between may be left out, and one may come
    ///     twice.
    ///   - count: How many keys, at most.
    /// - Returns: The keys, and where to go on; `nil` at the end.
    func unsavedKeys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?)

    /// Some of the keys of slots that have an entry or a failure; see ``unsavedKeys(before:atMost:)``.
    func keys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?)

    /// Forgets all slots.
    ///
    /// - Returns: What was there, for the caller to let go of outside its lock.
    mutating func removeAll() -> Self
}

/// The key of the one slot of a ``Multiplexer``.
@usableFromInline
package enum SoleKey: Hashable, Sendable {
    /// The only one.
    case sole
}

/// The one slot of a ``Multiplexer``.
@usableFromInline
package struct SingleSlot<Value: Sendable>: SlotStorage {
    @usableFromInline var slot = Slot<Value>() {
        didSet { self.packed = PackedSlot(self.slot) }
    }
    /// The slot, as a hit reads it.
    @usableFromInline private(set) var packed: PackedSlot<Value>?
    private let isPersistent: Bool

    package init(isPersistent: Bool) { self.isPersistent = isPersistent }

    @inlinable
    package mutating func hit(_ key: SoleKey, at now: Moment) -> Value? {
        guard self.packed?.isHit(at: now) ?? false else { return nil }
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
        where isUnwanted: (Slot<Value>) -> Bool,
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
