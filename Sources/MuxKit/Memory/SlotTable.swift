/// The slots of a ``MultiplexerMap``: entries in one bounded table, not an object per key.
///
/// Beside it is what is left where there is no entry: a few marks, and remembered failures, as many as entries at most.
@usableFromInline
package struct SlotTable<RawKey: Hashable & Sendable, Value: Sendable>: SlotStorage {
    @usableFromInline package typealias Key = ExactKey<RawKey>

    @usableFromInline var table: BoundedTable<Key, PackedSlot<Value>>
    @usableFromInline var marks: [Key: Slot<Value>] = [:]
    @usableFromInline var refreshMarkCount = 0
    @usableFromInline var failures: BoundedTable<Key, Slot<Value>.Trouble>
    @usableFromInline let costLimit: MuxCostLimit?
    private let isPersistent: Bool

    /// An empty table.
    ///
    /// - Parameters:
    ///   - maximumCount: How many entries there may be; `nil` for any number.
    ///   - maximumCost: What they may cost together; `nil` for any cost.
    ///   - isPersistent: Whether the entries have a place on disk.
    package init(maximumCount: Int?, maximumCost: MuxCostLimit? = nil, isPersistent: Bool) {
        self.table = BoundedTable(maximumCount: maximumCount, maximumCost: maximumCost?.maximum)
        self.failures = BoundedTable(maximumCount: maximumCount)
        self.costLimit = maximumCost
        self.isPersistent = isPersistent
    }

    /// How many entries are in memory.
    @usableFromInline
    package var entryCount: Int { self.table.count }

    /// How many absent entries are marked.
    package var markCount: Int { self.marks.count }

    /// How many failures are remembered of keys that have no entry.
    package var failureCount: Int { self.failures.count }

    @inlinable
    package mutating func hit(_ key: Key, at now: Moment) -> Value? {
        // In place: a copy of the slot, or of an array, would be counted in and out again.
        guard let number = self.table.place(of: key).hit?.number, self.table.elements[number].isHit(at: now) else {
            return nil
        }
        self.table.order.touched(number)
        return self.table.elements[number].value
    }

    @inlinable
    package func slot(of key: Key) -> Slot<Value>? { self.slot(of: key, at: self.table.place(of: key)) }

    @inlinable
    package mutating func requestedSlot(of key: Key) -> Slot<Value>? {
        let place = self.table.place(of: key)
        self.table.touch(place)
        if !place.isOccupied, self.failures.count > 0 { self.failures.touch(self.failures.place(of: key)) }
        return self.slot(of: key, at: place)
    }

    @inlinable
    func slot(of key: Key, at place: BoundedTable<Key, PackedSlot<Value>>.Place) -> Slot<Value>? {
        if let packed = self.table.element(at: place) { return Slot(packed) }
        let mark = self.marks.isEmpty ? nil : self.marks[key]
        guard self.failures.count > 0, let failure = self.failures.peek(key) else { return mark }
        return Slot(
            entry: nil,
            isRefreshed: mark?.isRefreshed ?? false,
            trouble: failure,
            isRemovalPending: mark?.isRemovalPending ?? false
        )
    }

    @inlinable
    package mutating func withSlot<R>(
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R {
        let place = self.table.place(of: key)
        let former = self.slot(of: key, at: place)
        var slot = former ?? Slot()
        let result = body(&slot)
        // Marks first: an eviction that follows may leave one of its own, on this key too.
        let isMark = slot.entry == nil && (slot.isRefreshed || slot.isRemovalPending)
        if isMark || !self.marks.isEmpty { self.setMark(isMark ? slot.mark : nil, of: key) }
        let failure = slot.entry == nil ? slot.trouble : nil
        if failure != nil || self.failures.count > 0 { self.setFailure(failure, of: key, evicted: evicted) }
        guard let packed = PackedSlot(slot) else {
            self.table.remove(at: place)
            return result
        }
        var lost: [(Key, PackedSlot<Value>)] = []
        let cost = self.costLimit?.cost(of: packed.value) ?? 0
        let keep = { (key: Key, packed: PackedSlot<Value>) in lost.append((key, packed)) }
        self.table.put(packed, of: key, at: place, cost: cost, mayGo: { !$0.isPinned }, evicted: keep)
        for (key, packed) in lost {
            self.leaveMark(of: packed, on: key)
            evicted(key, Slot(packed))
        }
        return result
    }

    @usableFromInline
    package var keys: [Key] {
        Array(self.table.keys) + self.marks.keys + self.failures.keys.filter { self.marks[$0] == nil }
    }

    @usableFromInline
    package mutating func removeAll() -> SlotTable {
        let former = self
        self = SlotTable(
            maximumCount: former.table.maximumCount,
            maximumCost: former.costLimit,
            isPersistent: former.isPersistent
        )
        return former
    }

    @inlinable
    package var hasTooManyMarks: Bool {
        self.table.maximumCount.map { self.refreshMarkCount > max($0, 64) } ?? false
    }

    @inlinable
    package var isOverBound: Bool { self.table.isOverBound }

    @usableFromInline
    package mutating func removeMarks() {
        self.marks = self.marks.filter(\.value.isRemovalPending)
        self.refreshMarkCount = self.marks.values.count(where: \.isRefreshed)
    }

    @usableFromInline
    package mutating func removeClean() -> [Value] {
        var values: [Value] = []
        var lost: [(Key, PackedSlot<Value>)] = []
        self.table.removeAll { key, packed in
            guard !packed.isPinned else { return false }
            values.append(packed.value)
            if packed.isRefreshed { lost.append((key, packed)) }
            return true
        }
        for (key, packed) in lost { self.leaveMark(of: packed, on: key) }
        return values
    }

    /// What is wrong, if anything.
    package func violation() -> String? {
        if let violation = self.table.violation() { return violation }
        if let violation = self.failures.violation() { return violation }
        if self.failures.keys.contains(where: { self.table.peek($0) != nil }) { return "a failure beside an entry" }
        if self.marks.values.contains(where: { $0.entry != nil || $0.trouble != nil || $0.isVacant }) {
            return "a mark that is none"
        }
        if self.marks.values.count(where: \.isRefreshed) != self.refreshMarkCount { return "marks are miscounted" }
        if self.marks.keys.contains(where: { self.table.peek($0) != nil }) { return "a mark beside an entry" }
        return nil
    }

    // MARK: - Failures

    @usableFromInline
    mutating func setFailure(
        _ failure: Slot<Value>.Trouble?,
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void
    ) {
        let place = self.failures.place(of: key)
        guard let failure else {
            self.failures.remove(at: place)
            return
        }
        var lost: [(Key, Slot<Value>.Trouble)] = []
        self.failures.put(failure, of: key, at: place, mayGo: { _ in true }, evicted: { lost.append(($0, $1)) })
        for (key, failure) in lost {
            evicted(key, Slot(entry: nil, isRefreshed: false, trouble: failure, isRemovalPending: false))
        }
    }

    // MARK: - Marks

    /// What is on disk of an entry that left memory is still to be stale when it is read.
    @usableFromInline
    mutating func leaveMark(of packed: PackedSlot<Value>, on key: Key) {
        guard self.isPersistent, packed.isRefreshed else { return }
        var mark = Slot<Value>()
        mark.refreshed()
        self.setMark(mark, of: key)
    }

    @usableFromInline
    mutating func setMark(_ mark: Slot<Value>?, of key: Key) {
        // Where there is no disk, an absent entry cannot come back, and there is nothing to remember.
        let mark = self.isPersistent ? mark : nil
        let former = mark.map { self.marks.updateValue($0, forKey: key) } ?? self.marks.removeValue(forKey: key)
        self.refreshMarkCount += (mark?.isRefreshed ?? false ? 1 : 0) - (former?.isRefreshed ?? false ? 1 : 0)
    }
}

extension Slot {
    /// What is to be remembered of a slot without an entry, besides a failure.
    @usableFromInline var mark: Slot {
        Slot(entry: nil, isRefreshed: self.isRefreshed, trouble: nil, isRemovalPending: self.isRemovalPending)
    }
}

extension SlotTable: SelfChecking {}
