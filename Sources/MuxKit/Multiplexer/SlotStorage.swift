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
    /// `evicted` receives the slots that had to make room, to be let go of outside the lock of whoever calls this.
    mutating func withSlot<R>(
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R

    /// Whether so many absent entries are marked as refreshed that the marks should be folded into a date.
    var hasTooManyMarks: Bool { get }

    /// Forgets the marks that refreshes left on absent entries.
    mutating func removeMarks()

    /// Forgets the entries that can be had again: all but those that are not on disk yet and have to go there.
    ///
    /// - Returns: Their values, for the caller to let go of outside its lock.
    mutating func removeClean() -> [Value]

    /// Whether there are more entries than there may be, because some may not go before they are on disk.
    var isOverBound: Bool { get }

    /// How many entries there are.
    var entryCount: Int { get }

    /// The keys of all slots that are not vacant.
    var keys: [Key] { get }

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
    ) -> R { body(&self.slot) }

    @inlinable
    package var hasTooManyMarks: Bool { false }

    @usableFromInline
    package mutating func removeMarks() {}

    @inlinable
    package var isOverBound: Bool { false }

    @inlinable
    package var entryCount: Int { self.slot.entry == nil ? 0 : 1 }

    @usableFromInline
    package mutating func removeClean() -> [Value] {
        self.slot.droppedFromMemory(keepingMark: self.isPersistent).map { [$0] } ?? []
    }

    @usableFromInline
    package var keys: [SoleKey] { self.slot.isVacant ? [] : [.sole] }

    @usableFromInline
    package mutating func removeAll() -> SingleSlot {
        defer { self = SingleSlot(isPersistent: self.isPersistent) }
        return self
    }
}
