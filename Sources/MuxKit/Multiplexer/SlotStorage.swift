/// Where slots are kept: one for a ``Multiplexer``, a table for a ``MultiplexerMap``.
package protocol SlotStorage<Key, Value>: Sendable {
    /// What the caller names a slot by.
    associatedtype Key: Hashable & Sendable
    /// What a slot holds.
    associatedtype Value: Sendable

    /// The slot of `key`; `nil` if it is vacant.
    func slot(of key: Key) -> Slot<Value>?

    /// Changes the slot of `key`, which is vacant if it was never used; a vacant one takes no room afterwards.
    mutating func withSlot<R>(of key: Key, _ body: (inout Slot<Value>) -> R) -> R

    /// The keys of all slots that are not vacant.
    var keys: [Key] { get }

    /// Forgets all slots.
    ///
    /// - Returns: What was there, for the caller to let go of outside its lock.
    mutating func removeAll() -> Self
}

/// The key of the one slot of a ``Multiplexer``.
package enum SoleKey: Hashable, Sendable {
    /// The only one.
    case sole
}

/// The one slot of a ``Multiplexer``.
package struct SingleSlot<Value: Sendable>: SlotStorage {
    private var slot = Slot<Value>()

    package init() {}

    package func slot(of key: SoleKey) -> Slot<Value>? { self.slot }

    package mutating func withSlot<R>(of key: SoleKey, _ body: (inout Slot<Value>) -> R) -> R { body(&self.slot) }

    package var keys: [SoleKey] { self.slot.isVacant ? [] : [.sole] }

    package mutating func removeAll() -> SingleSlot {
        defer { self = SingleSlot() }
        return self
    }
}

/// The slots of a ``MultiplexerMap``: values in one table, not an object per key.
package struct SlotTable<RawKey: Hashable & Sendable, Value: Sendable>: SlotStorage {
    private var slots: [ExactKey<RawKey>: Slot<Value>] = [:]

    package init() {}

    package func slot(of key: ExactKey<RawKey>) -> Slot<Value>? { self.slots[key] }

    package mutating func withSlot<R>(of key: ExactKey<RawKey>, _ body: (inout Slot<Value>) -> R) -> R {
        let result = body(&self.slots[key, default: Slot()])
        if self.slots[key]?.isVacant ?? false { self.slots[key] = nil }
        return result
    }

    package var keys: [ExactKey<RawKey>] { Array(self.slots.keys) }

    package mutating func removeAll() -> SlotTable {
        defer { self = SlotTable() }
        return self
    }
}
