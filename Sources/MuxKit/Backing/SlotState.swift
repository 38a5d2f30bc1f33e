/// The options of a waiting caller; not stored for a caller with the default options.
@usableFromInline
struct WaiterOptions<Value: Sendable>: Sendable {
    @usableFromInline let limits: Freshness.Limits
    /// The end of the wait limit; `nil` without a limit.
    @usableFromInline let waitLimitEnds: Moment?
    /// A slot from the look-up in the backing, retained here because the table may have had no room.
    @usableFromInline var loaded: Slot<Value>?

    @usableFromInline
    init(limits: Freshness.Limits, waitLimitEnds: Moment?) {
        self.limits = limits
        self.waitLimitEnds = waitLimitEnds
    }
}

/// The numbers of events of a key since its first consumer; for screens that request values (`MuxUI`).
@usableFromInline
package struct StateCounts: Sendable, Hashable {
    /// The number of replacements and removals of the entry; an eviction does not count.
    @usableFromInline package var replacements: UInt64 = 0
    /// The number of changes that made the entry stale, even if memory did not have the entry.
    @usableFromInline package var refreshes: UInt64 = 0
    @usableFromInline package var fetches: UInt64 = 0
    /// The number of replacements, removals and failures, and of responses that were not kept because of
    /// changes of the app.
    @usableFromInline package var outcomes: UInt64 = 0
    /// The number of responses that must not be kept; such a response removes the entry.
    package var uncached: UInt64 = 0
    /// The value of ``refreshes`` at the last change of ``outcomes``.
    @usableFromInline package var answeredRefreshes: UInt64 = 0
    /// A counter of sign-outs, and of clears and invalidations of any key of the multiplexer.
    package var clears: UInt64 = 0
}

/// The facts about a key that consumers of ``MuxStates`` follow.
@usableFromInline
struct FollowedKey: Sendable {
    /// The number of consumers.
    @usableFromInline var count = 0
    /// The failure of the last flight since the first consumer, apart from fenced flights; `nil` after a
    /// value, a store or a clear.
    ///
    /// The number identifies the failure in the multiplexer.
    @usableFromInline var failure: (error: any Error, number: UInt64)?
    /// The numbers of events since the first consumer, without ``StateCounts/clears``.
    @usableFromInline var counts = StateCounts()
    /// The condition that the entry had when it left memory, for changes of tags while the entry is not in
    /// memory.
    @usableFromInline var lastCondition: EntryCondition?
}

/// The state of a multiplexer under the lock of its flight engine, such as slots, waiters' options, changes
/// of the app, and the state of the backing.
@usableFromInline
struct SlotState<Slots: SlotStorage>: Sendable {
    @usableFromInline typealias Key = Slots.Key
    @usableFromInline typealias Value = Slots.Value

    /// The work to do outside the lock after a change of slots.
    ///
    /// - `slots`: see ``SlotState/evicted``.
    /// - `writesBack`: whether a write-back has begun; see ``DiskState/beginWriteBackIfDue(_:isOverBound:)``.
    /// - `hasTooManyMarks`: see ``SlotStorage/hasTooManyMarks``.
    /// - `dropped`: see ``SlotState/dropped``.
    @usableFromInline typealias PendingWork = (
        slots: [(Key, Slot<Value>)], writesBack: Bool, hasTooManyMarks: Bool, dropped: [any Sendable]
    )

    @usableFromInline var slots: Slots
    @usableFromInline var statistics = MuxRepository.Statistics()
    /// The number of ended sessions.
    @usableFromInline var session: UInt64 = 0
    /// The options of waiting callers, by ticket; each caller removes its options.
    @usableFromInline var waiterOptions: [Ticket: WaiterOptions<Value>] = [:]
    /// Counts clears, sign-outs, invalidations, and responses that must not be kept; see ``clearCount``.
    ///
    /// A load without a flight does not keep its result if the number has changed during the load.
    @usableFromInline var discardCount: UInt64 = 0
    /// The number of responses that must not be kept, which ``discardCount`` includes.
    @usableFromInline var uncacheableCount: UInt64 = 0
    /// Evicted slots, to be reported and released outside the lock; also removed keys and failures, to be
    /// released.
    @usableFromInline var evicted: [(Key, Slot<Value>)] = []
    /// The keys that consumers of ``MuxStates`` follow.
    @usableFromInline var followed: [Key: FollowedKey] = [:]
    /// The server's values with changes of the app.
    @usableFromInline var layers: [Key: Layers<Value>] = [:]
    /// Parts of the state to be released outside the lock, such as replaced failures of followed keys and
    /// ended changes.
    @usableFromInline var dropped: [any Sendable] = []
    /// The place at which ``sweep(at:_:)`` continues.
    @usableFromInline var sweepPlace: Int?
    /// The last number for ``Slot/Entry/revision`` and ``Slot/Entry/sequence``; see ``nextRevision()``.
    @usableFromInline var lastRevision: UInt64 = 0
    /// The callers for which a running flight may be too old.
    @usableFromInline var arrivals = LateArrivals()
    /// The state of a ``DiskBacking``.
    @usableFromInline var disk = DiskState<Key>()
    /// The state of a ``SharedStoreBacking``.
    @usableFromInline var shared = SharedEntries<Key>()

    init(slots: Slots) { self.slots = slots }

    /// Changes the slot of `key`, and counts evictions; a call of ``takePendingWork()`` must follow.
    @inlinable
    mutating func withSlot<R>(of key: Key, _ body: (inout Slot<Value>) -> R) -> R {
        self.withSlots(changing: key) { slots, evicted in slots.withSlot(of: key, evicted: evicted, body) }
    }

    /// As ``withSlot(of:_:)``; `body` changes the slot of `key`, and reports evicted slots.
    @inlinable
    mutating func withSlots<R>(
        changing key: Key,
        _ body: (inout Slots, (Key, Slot<Value>) -> Void) -> R
    ) -> R {
        if !self.followed.isEmpty { self.noteCondition(of: key) }
        var (evictions, lost) = (0, 0)
        var evicted: [(Key, Slot<Value>)] = []
        swap(&evicted, &self.evicted)
        let result = body(&self.slots) {
            evicted.append(($0, $1))
            guard $1.hasEntry else { return }
            evictions += 1
            if $1.entry?.isDirty ?? false { lost += 1 }
        }
        swap(&evicted, &self.evicted)
        // ``noteRemovals(_:)`` is not inlinable: this test saves the call in specialised copies.
        if !self.followed.isEmpty { self.noteRemovals(self.evicted) }
        self.statistics.evictions += evictions
        self.disk.countLosses(lost)
        return result
    }

    /// Keeps the conditions of entries of followed keys that were removed from memory.
    @usableFromInline
    mutating func noteRemovals(_ slots: [(Key, Slot<Value>)]) {
        guard !self.followed.isEmpty else { return }
        for (key, slot) in slots where slot.hasEntry {
            if let condition = slot.entry?.condition { self.followed[key]?.lastCondition = condition }
        }
    }

    /// Keeps the conditions of the entries of followed keys, before a removal of most entries from memory.
    mutating func keepConditions() {
        for key in self.followed.keys {
            if let condition = self.slots.condition(of: key) { self.followed[key]?.lastCondition = condition }
        }
    }

    /// Counts the effect of the entry's condition on a followed key, before the effect is applied.
    @usableFromInline
    mutating func noteCondition(of key: Key) {
        guard let place = self.followed.index(forKey: key) else { return }
        let evicted = self.followed.values[place].lastCondition
        guard let condition = self.slots.condition(of: key) ?? evicted, !condition.wasChecked else { return }
        let (effect, number) = condition.effect()
        guard effect != .none else { return }
        if effect == .refreshed { self.countRefresh(of: key) }
        if effect == .cleared { self.recordOutcome(of: key, error: nil) }
        self.followed[key]?.lastCondition = effect == .refreshed ? evicted?.marked(at: number) : nil
    }

    /// Examines at most two entries of a table, and removes entries beyond use; a call of
    /// ``takePendingWork()`` must follow.
    @inlinable
    mutating func sweep(at now: Moment, _ limits: Freshness.Limits) {
        var useless: [(Key, Slot<Value>)] = []
        self.sweepPlace = self.slots.removeClean(before: self.sweepPlace, atMost: 2) {
            $0.isBeyondUse(at: now, limits)
        } removed: {
            useless.append(($0, $1))
        }
        guard !useless.isEmpty else { return }
        self.statistics.evictions += useless.count
        self.evicted += useless
        self.noteRemovals(useless)
    }

    /// Schedules the release of `key` outside the lock; the tables no longer contain `key`.
    mutating func release(_ key: Key?) {
        if let key { self.evicted.append((key, Slot())) }
    }

    /// Prepares an entry for the table: sets revision and sequence number, and whether the entry may be
    /// evicted unsaved.
    ///
    /// Excludes the entry from saves if a later version of the program wrote the entry on disk.
    ///
    /// - Parameters:
    ///   - entry: The entry.
    ///   - key: The key.
    ///   - revision: The revision of the renewed entry; `nil` for a new revision.
    @inlinable
    mutating func prepare(_ entry: inout Slot<Value>.Entry, of key: Key, renewing revision: UInt64? = nil) {
        entry.sequence = self.nextRevision()
        entry.revision = revision ?? entry.sequence
        if entry.isDirty { entry.isExpendable = self.disk.cannotWrite || self.slots.isFarOverBound }
        guard !self.disk.newer.isEmpty, self.disk.newer.contains(key) else { return }
        entry.isDirty = false
        entry.isPersistent = false
    }

    /// If the condition of a fetched entry fails, records that the entry has become stale.
    ///
    /// - Returns: The first ticket of the callers that must not get the entry; `Ticket.max` if all callers
    ///   arrived before the change; `nil` if the condition holds.
    @usableFromInline
    mutating func noteFailedCondition(_ condition: EntryCondition?, of key: Key) -> Ticket? {
        guard let condition, !condition.holds else { return nil }
        self.countRefresh(of: key)  // consumers of the key need another fetch
        return self.arrivals.first(after: condition.number) ?? .max
    }

    /// Takes the pending work for ``SlotMemory/release(_:)``, which runs outside the lock; `nil` without
    /// work.
    @inlinable
    mutating func takePendingWork() -> PendingWork? {
        if !self.layers.isEmpty {
            for (key, slot) in self.evicted where slot.entry != nil { self.dropEvictedLayers(of: key) }
        }
        if self.shared.hasHadFacts {
            for (key, slot) in self.evicted where slot.entry != nil { self.forgetSharedIfAbsent(key) }
        }
        let evicted = self.evicted
        if !evicted.isEmpty { self.evicted = [] }
        let writesBack = self.disk.beginWriteBackIfDue(self.slots.entryCount, isOverBound: self.slots.isOverBound)
        let hasTooManyMarks = self.slots.hasTooManyMarks
        let dropped = self.dropped.isEmpty ? [] : self.takeDropped()
        guard writesBack || hasTooManyMarks || !evicted.isEmpty || !dropped.isEmpty else { return nil }
        return (evicted, writesBack, hasTooManyMarks, dropped)
    }

    /// Counts clears, sign-outs and invalidations, but no responses that must not be kept.
    var clearCount: UInt64 { self.discardCount &- self.uncacheableCount }

    /// Removes all slots, the failures of followed keys, and the facts of the shared store, except facts
    /// about keys with a flight.
    ///
    /// - Returns: The removed parts and ``dropped``, to be released outside the lock.
    mutating func removeAll() -> any Sendable {
        for key in self.followed.keys { self.recordOutcome(of: key, error: nil) }
        return (self.slots.removeAll(), self.shared.dropAllFacts(), self.takeDropped())
    }

    /// Records that the entry of a followed key has become stale.
    ///
    /// - Parameter key: The key; `nil` for all followed keys.
    mutating func countRefresh(of key: Key?) {
        for key in key.map({ [$0] }) ?? Array(self.followed.keys) { self.followed[key]?.counts.refreshes += 1 }
    }

    @inlinable
    mutating func countFetch(of key: Key) {
        self.statistics.fetches += 1
        guard !self.followed.isEmpty else { return }
        self.followed[key]?.counts.fetches += 1
    }

    /// Counts a response that must not be kept, and removes the changes of its key, except uncommitted
    /// changes of an outbox.
    @usableFromInline
    mutating func recordUncacheableResponse(of key: Key) {
        self.discardCount &+= 1
        self.uncacheableCount &+= 1
        self.loseBase(of: key, keepsChanges: false)
        self.followed[key]?.counts.uncached += 1
    }

    /// Takes ``dropped``, to be released outside the lock.
    @usableFromInline
    mutating func takeDropped() -> [any Sendable] {
        defer { self.dropped = [] }
        return self.dropped
    }

    /// Records a new outcome of a followed key; a call of ``takePendingWork()`` must follow.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - error: The error of a flight; `nil` without a failure.
    ///   - isReplaced: Whether the entry was replaced or removed; `false` for a response that is not kept
    ///     because of uncommitted changes. Ignored with an error.
    @inlinable
    mutating func recordOutcome(of key: Key, error: (any Error)?, isReplaced: Bool = true) {
        guard !self.followed.isEmpty, let place = self.followed.index(forKey: key) else { return }
        if let former = self.followed.values[place].failure { self.dropped.append(former) }
        if error == nil, isReplaced {
            self.followed.values[place].counts.replacements += 1
            self.followed.values[place].lastCondition = nil
        }
        self.followed.values[place].counts.outcomes += 1
        self.followed.values[place].counts.answeredRefreshes = self.followed.values[place].counts.refreshes
        self.followed.values[place].failure = error.map { ($0, self.nextRevision()) }
    }

    /// Pauses background renewals of `key` after a fetch took too long; no effect without an entry.
    ///
    /// A call of ``takePendingWork()`` must follow.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - first: The pause after a first failure; consecutive failures extend the pause.
    ///   - now: The current time.
    mutating func pauseRenewals(of key: Key, _ first: Duration, at now: Moment) {
        guard self.slots.slot(of: key)?.entry != nil else { return }
        let number = self.nextRevision()
        self.withSlot(of: key) { $0.pauseRenewals(first, at: now, sequence: number) }
    }

    package func leftover() -> String? {
        if !self.waiterOptions.isEmpty { return "the options of \(self.waiterOptions.count) callers are left" }
        if !self.dropped.isEmpty { return "replaced failures or changes are held" }
        return self.evicted.isEmpty ? nil : "evicted slots are held"
    }

    package func violation() -> String? {
        if self.statistics.failures > self.statistics.fetches { return "more fetches failed than were started" }
        return self.shared.violation { self.slots.slot(of: $0)?.entry != nil }
            ?? (self.slots as? any SelfChecking)?.violation()
    }

    /// Counts a hit on disk; counts a hit in the shared store only if no answered caller needs a fetch.
    ///
    /// - Parameters:
    ///   - source: The source of the entry.
    ///   - isOver: Whether no answered caller needs a fetch.
    @inlinable
    mutating func countHit(in source: MuxEntry<Value>.Source, isOver: Bool) {
        switch source {
        case .disk: self.statistics.diskHits += 1
        case .sharedStore: if isOver { self.statistics.sharedHits += 1 }
        case .memory, .fetch: break
        }
    }

    /// Increments the counter of revisions and sequence numbers.
    ///
    /// - Returns: The new number.
    @inlinable
    mutating func nextRevision() -> UInt64 {
        self.lastRevision &+= 1
        return self.lastRevision
    }
}

extension SlotState: SelfChecking {}
