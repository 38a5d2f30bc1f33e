/// The slots of a ``MultiplexerMap``: entries in a bounded table, without an object for each key.
///
/// A *mark* is an unsaved refresh or a pending removal of a key without an entry in memory. Slots without an
/// entry are stored separately: marks in ``refreshes`` and ``removals``, and remembered failures in
/// ``failures``, a table with the same maximum count as the table of entries.
@usableFromInline
package struct SlotTable<RawKey: Hashable & Sendable, Value: Sendable>: SlotStorage {
    @usableFromInline package typealias Key = ExactKey<RawKey>

    @usableFromInline var table: BoundedTable<Key, PackedSlot<Value>>
    /// Keys without an entry in memory whose refresh is not saved yet.
    @usableFromInline var refreshes: Set<Key> = []
    /// Keys without an entry in memory whose removal on disk is pending.
    @usableFromInline var removals: Set<Key> = []
    @usableFromInline var failures: BoundedTable<Key, Slot<Value>.FailureRecord>
    /// The keys with unsaved changes.
    ///
    /// A table instead of a set, because the keys can be enumerated in portions while the table changes.
    @usableFromInline var unsaved = BoundedTable<Key, Void>(maximumCount: nil)
    /// The number of the last refresh of all entries.
    ///
    /// Entries with a smaller ``Slot/Entry/sequence`` are stale.
    @usableFromInline var lastRefresh: UInt64 = 0
    /// The keys with an entry or a failure, by their users; `nil` without an index.
    @usableFromInline package private(set) var users: UserIndex<Key>?
    @usableFromInline let costLimit: MuxPolicy.CostLimit?
    @usableFromInline let isPersistent: Bool

    /// An empty table with the bounds and the order of eviction of a policy.
    ///
    /// - Parameters:
    ///   - policy: The policy of the map.
    ///   - isPersistent: Whether the entries are saved.
    ///   - users: An index of the keys' users; `nil` for no index.
    package init(policy: MuxPolicy, isPersistent: Bool, users: UserIndex<Key>? = nil) {
        self.users = users?.emptied
        self.table = BoundedTable(
            maximumCount: policy.maximumCount,
            maximumCost: policy.maximumCost?.maximum,
            evictsLeastRecentlyUsed: policy.evictsLeastRecentlyUsed
        )
        self.failures = BoundedTable(maximumCount: policy.maximumCount)
        self.costLimit = policy.maximumCost
        self.isPersistent = isPersistent
    }

    private init(emptied former: SlotTable) {
        self.users = former.users?.emptied
        self.table = former.table.emptied
        self.failures = former.failures.emptied
        self.costLimit = former.costLimit
        self.isPersistent = former.isPersistent
    }

    /// The number of entries in memory.
    @usableFromInline
    package var entryCount: Int { self.table.count }

    /// The number of keys that have a mark instead of an entry.
    package var markCount: Int { self.refreshes.count + self.removals.subtracting(self.refreshes).count }

    @inlinable
    package mutating func hit(_ key: Key, at now: Moment, youngerThan limit: Int64) -> Value? {
        // In place: a copy of the slot or of an array would cause reference counting.
        guard let number = self.table.place(of: key).hit?.number,
            self.table.entries[number].element.isHit(at: now, since: self.lastRefresh, youngerThan: limit)
                || self.isHitAfterCheck(number, at: now, youngerThan: limit)
        else { return nil }
        self.table.order.touch(number)
        return self.table.entries[number].element.value
    }

    /// Checks the condition of an entry.
    ///
    /// - Returns: Whether the entry is a hit after the check.
    @usableFromInline
    @inline(never)
    func isHitAfterCheck(_ number: Int, at now: Moment, youngerThan limit: Int64) -> Bool {
        guard let condition = self.table.entries[number].element.condition, !condition.wasChecked, condition.holds
        else {
            return false
        }
        return self.table.entries[number].element.isHit(at: now, since: self.lastRefresh, youngerThan: limit)
    }

    @inlinable
    package func slot(of key: Key) -> Slot<Value>? { self.slot(of: key, at: self.table.place(of: key)) }

    @inlinable
    package func condition(of key: Key) -> EntryCondition? {
        self.table.place(of: key).hit.flatMap { self.table.entries[$0.number].element.condition }
    }

    @inlinable
    package mutating func requestedSlot(of key: Key) -> Slot<Value>? {
        let place = self.table.place(of: key)
        self.table.touch(place)
        if place.hit == nil, self.failures.count > 0 { self.failures.touch(self.failures.place(of: key)) }
        return self.slot(of: key, at: place)
    }

    /// The value of the entry of `key`, fresh or stale; counts as a use.
    ///
    /// `nil` without an entry, and for an entry that a clear of its tags has removed. Also `nil` for an entry
    /// with a time to live of zero or less, such as an entry on disk that was fetched before an external
    /// change (``Persistence/changedAt``).
    @inlinable
    package mutating func requestedValue(of key: Key) -> Value? {
        let place = self.table.place(of: key)
        self.table.touch(place)
        // In place: a copy of the slot costs more than the rest of a look-up.
        guard let number = place.hit?.number, self.table.entries[number].element.condition?.removesEntry != true else {
            return nil
        }
        return self.table.entries[number].element.timeToLive > .zero ? self.table.entries[number].element.value : nil
    }

    @inlinable
    func slot(of key: Key, at place: BoundedTable<Key, PackedSlot<Value>>.Place) -> Slot<Value>? {
        if let packed = self.table.element(at: place) { return Slot(packed, since: self.lastRefresh).current }
        let isRefreshed = !self.refreshes.isEmpty && self.refreshes.contains(key)
        let isRemovalPending = !self.removals.isEmpty && self.removals.contains(key)
        let failure = self.failures.count > 0 ? self.failures.peek(key) : nil
        guard isRefreshed || isRemovalPending || failure != nil else { return nil }
        return Slot(
            isRefreshed: isRefreshed,
            failureRecord: failure,
            isRemovalPending: isRemovalPending,
            isDiskRefreshUnsaved: isRefreshed
        )
    }

    @inlinable
    package mutating func withSlot<R>(
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R {
        let place = self.table.place(of: key)
        guard self.users != nil else { return self.changeSlot(of: key, at: place, evicted: evicted, body) }
        var gone: [Key] = []
        let result = self.changeSlot(of: key, at: place) {
            gone.append($0)
            evicted($0, $1)
        } _: {
            body(&$0)
        }
        for key in gone { self.updateIndex(of: key) { evicted($0, Slot()) } }
        self.updateIndex(of: key) { evicted($0, Slot()) }
        return result
    }

    @inlinable
    mutating func changeSlot<R>(
        of key: Key,
        at place: BoundedTable<Key, PackedSlot<Value>>.Place,
        evicted: (Key, Slot<Value>) -> Void,
        _ body: (inout Slot<Value>) -> R
    ) -> R {
        let former = self.slot(of: key, at: place)
        var slot = former ?? Slot()
        let result = body(&slot)
        // The marks are set first: the insertion below may evict an entry and set a mark, even for this key.
        let isAbsent = slot.entry == nil
        let isRemovalPending = isAbsent && slot.isRemovalPending
        // Keys and errors may hold the last references to objects whose `deinit` calls this map: the caller
        // releases keys and errors outside the lock.
        func released(_ key: Key) { evicted(key, Slot()) }
        self.setMarks(
            isRefreshed: isAbsent && slot.isRefreshed,
            isRemovalPending: isRemovalPending,
            of: key,
            released: released
        )
        let packed = self.table.element(at: place)
        // The condition has removed the entry.
        if let packed, former?.entry == nil { evicted(key, Slot(packed)) }
        if packed?.isUnsaved ?? former?.isUnsaved ?? false != slot.isUnsaved {
            self.setUnsaved(slot.isUnsaved, key, released: released)
        }
        if let failureRecord = packed?.failureRecord ?? former?.failureRecord,
            failureRecord !== slot.failureRecord
        {
            evicted(key, Slot(failureRecord: failureRecord))
        }
        let failure = isAbsent ? slot.failureRecord : nil
        if failure != nil || self.failures.count > 0 { self.setFailure(failure, of: key, evicted: evicted) }
        guard let packed = PackedSlot(slot) else {
            if let gone = self.table.remove(at: place) { released(gone.key) }
            return result
        }
        self.put(packed, of: key, at: place, evicted: evicted)
        return result
    }

    @inlinable
    package mutating func commit(
        _ entry: Slot<Value>.Entry,
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void
    ) -> Slot<Value>.Entry? {
        guard self.users == nil else { return self.withSlot(of: key, evicted: evicted) { $0.commit(entry) } }
        let place = self.table.place(of: key)
        // The entry of a new key is packed directly, without a copy in a slot, if no failures or marks can
        // change.
        guard !self.isPersistent, self.failures.count == 0, place.hit == nil else {
            return self.changeSlot(of: key, at: place, evicted: evicted) { $0.commit(entry) }
        }
        self.put(PackedSlot(entry), of: key, at: place, evicted: evicted)
        return nil
    }

    /// Stores a slot with an entry; evicted slots with unsaved changes leave marks.
    @inlinable
    mutating func put(
        _ packed: PackedSlot<Value>,
        of key: Key,
        at place: BoundedTable<Key, PackedSlot<Value>>.Place,
        evicted: (Key, Slot<Value>) -> Void
    ) {
        var lost: [(Key, PackedSlot<Value>)] = []
        let cost = self.costLimit?.cost(of: packed.value) ?? 0
        self.table.put(
            packed,
            of: key,
            at: place,
            cost: cost,
            mayGo: { !$0.isPinned },
            evicted: { key, packed in
                if packed.isUnsaved { lost.append((key, packed)) } else { evicted(key, Slot(packed)) }
            }
        )
        for (key, packed) in lost {
            self.leaveMarks(of: packed, on: key, released: { evicted($0, Slot()) })
            evicted(key, Slot(packed))
        }
    }

    @usableFromInline
    package mutating func removeAll() -> SlotTable {
        let former = self
        self = SlotTable(emptied: former)
        return former
    }

    @inlinable
    package var isOverBound: Bool { self.table.isOverBound }

    @inlinable
    package var isFarOverBound: Bool { self.table.isFarOverBound }

    // MARK: - Enumeration

    @inlinable
    package static var hasManyKeys: Bool { true }

    @usableFromInline
    package mutating func refreshAll(_ number: UInt64, removed: (any Sendable) -> Void) {
        self.lastRefresh = number
        removed(self.removeMarks())
        guard self.failures.count > 0 else { return }
        let failed = self.users == nil ? [] : self.failures.keys
        removed(self.failures)
        self.failures = self.failures.emptied
        for key in failed { self.updateIndex(of: key) { removed($0) } }
    }

    @usableFromInline
    package func unsavedKeys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?) {
        self.unsaved.keys(before: place, atMost: count)
    }

    @usableFromInline
    package func keys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?) {
        // Places in ``failures`` are encoded as negative numbers, and follow the places in ``table``.
        if let place, place < 0 {
            let (keys, next) = self.failures.keys(before: ~place, atMost: count)
            return (keys, next.map { ~$0 })
        }
        let (keys, next) = self.table.keys(before: place, atMost: count)
        return (keys, next ?? (self.failures.count > 0 ? ~self.failures.count : nil))
    }

    @usableFromInline
    package mutating func removeAllClean(ifUnsavedAtMost count: Int) -> SlotTable? {
        guard self.unsaved.count <= count else { return nil }
        let former = self
        self.table = former.table.emptied
        for key in former.unsaved.keys {
            guard let packed = former.table.peek(key), packed.isUnsaved else { continue }
            let cost = self.costLimit?.cost(of: packed.value) ?? 0
            // No entry is evicted: most unsaved entries are pinned, and the other unsaved entries fitted into
            // the former table.
            self.table.insert(packed, of: key, cost: cost, mayGo: { !$0.isPinned })
        }
        self.users = former.users?.emptied
        guard self.users != nil else { return former }
        for key in self.table.keys + self.failures.keys { self.updateIndex(of: key) { _ in } }
        return former
    }

    @inlinable
    package mutating func removeClean(
        before place: Int?,
        atMost count: Int,
        where isUnwanted: (PackedSlot<Value>) -> Bool,
        removed: (Key, Slot<Value>) -> Void
    ) -> Int? {
        var gone: [Key] = []
        let next = self.table.removeAll(before: place, atMost: count) { key, packed in
            guard !packed.isUnsaved, isUnwanted(packed) else { return false }
            removed(key, Slot(packed))
            if self.users != nil { gone.append(key) }
            return true
        }
        for key in gone { self.updateIndex(of: key) { removed($0, Slot()) } }
        return next
    }

    /// A violated invariant, for tests; `nil` without a violation.
    package func violation() -> String? {
        if let violation = self.table.violation() { return violation }
        if let violation = self.failures.violation() { return violation }
        if let violation = self.unsaved.violation() { return violation }
        if self.failures.keys.contains(where: { self.table.peek($0) != nil }) { return "a failure beside an entry" }
        let marks = self.refreshes.union(self.removals)
        if !self.isPersistent, !marks.isEmpty { return "a mark without persistence" }
        if marks.contains(where: { self.table.peek($0) != nil }) { return "a mark beside an entry" }
        let unsaved = self.table.keys.filter { self.slot(of: $0)?.isUnsaved ?? false } + marks
        if self.isPersistent, unsaved.contains(where: { self.unsaved.peek($0) == nil }) {
            return "an unsaved change is missing from the unsaved keys"
        }
        if self.unsaved.keys.contains(where: { !(self.table.peek($0)?.isUnsaved ?? marks.contains($0)) }) {
            return "a key without an unsaved change is among the unsaved keys"
        }
        if let users, users.all != Set(self.table.keys + self.failures.keys) {
            return "the index of users differs from the keys with an entry or a failure"
        }
        return nil
    }

    // MARK: - Users

    /// Updates the index of users after a change of the entry or failure of `key`.
    @usableFromInline
    mutating func updateIndex(of key: Key, released: (Key) -> Void) {
        if self.table.peek(key) != nil || self.failures.peek(key) != nil {
            self.users?.insert(key)
        } else if let removed = self.users?.remove(key) {
            released(removed)
        }
    }

    // MARK: - Failures

    @usableFromInline
    mutating func setFailure(
        _ failure: Slot<Value>.FailureRecord?,
        of key: Key,
        evicted: (Key, Slot<Value>) -> Void
    ) {
        let place = self.failures.place(of: key)
        guard let failure else {
            if let gone = self.failures.remove(at: place) { evicted(gone.key, Slot()) }
            return
        }
        func lost(_ key: Key, _ failure: Slot<Value>.FailureRecord) { evicted(key, Slot(failureRecord: failure)) }
        self.failures.put(failure, of: key, at: place, mayGo: { _ in true }, evicted: lost)
    }

    // MARK: - Unsaved changes

    @usableFromInline
    mutating func setUnsaved(_ isUnsaved: Bool, _ key: Key, released: (Key) -> Void) {
        // Without a disk, no change is saved.
        guard self.isPersistent else { return }
        let place = self.unsaved.place(of: key)
        if isUnsaved {
            self.unsaved.put((), of: key, at: place, mayGo: { _ in false }, evicted: { _, _ in })
        } else if let gone = self.unsaved.remove(at: place) {
            released(gone.key)
        }
    }

    @inlinable
    mutating func setMarks(isRefreshed: Bool, isRemovalPending: Bool, of key: Key, released: (Key) -> Void) {
        guard self.isPersistent else { return }
        Self.set(isRefreshed, key, in: &self.refreshes, released: released)
        Self.set(isRemovalPending, key, in: &self.removals, released: released)
    }

    @inlinable
    static func set(_ isMember: Bool, _ key: Key, in keys: inout Set<Key>, released: (Key) -> Void) {
        if isMember {
            keys.insert(key)
        } else if !keys.isEmpty, let former = keys.remove(key) {
            released(former)
        }
    }

    /// Sets the marks of an evicted slot with unsaved changes.
    ///
    /// If the entry is unsaved, the entry on disk is outdated, so the key is marked as refreshed. A pending
    /// removal stays pending. If the condition removes the entry, the earlier entry on disk must not return.
    @usableFromInline
    mutating func leaveMarks(of packed: PackedSlot<Value>, on key: Key, released: (Key) -> Void) {
        let isCleared = packed.isDirty && packed.condition?.removesEntry ?? false
        self.setMarks(
            isRefreshed: packed.isDirty && !isCleared,
            isRemovalPending: packed.isRemovalPending || isCleared,
            of: key,
            released: released
        )
        self.setUnsaved(packed.isUnsaved, key, released: released)
    }

    // The refresh that replaces the marks makes all entries on disk stale, so 64 marks are kept even with a
    // small maximum count. At most 65,536 marks are kept, which bounds the memory.
    @inlinable
    package var hasTooManyMarks: Bool {
        self.refreshes.count > max(min(self.table.maximumCount ?? .max, 65_536), 64)
    }

    @usableFromInline
    package mutating func removeMarks() -> any Sendable {
        let former = self.refreshes
        self.refreshes = []
        var released: [Key] = []
        for key in former where !self.removals.contains(key) { self.setUnsaved(false, key) { released.append($0) } }
        return (former, released)
    }
}

extension SlotTable: SelfChecking {}
