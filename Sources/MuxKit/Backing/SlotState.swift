/// The options of a waiting caller, if not the default options.
@usableFromInline
struct WaiterOptions<Value: Sendable>: Sendable {
    @usableFromInline let limits: Freshness.Limits
    /// The end of the wait limit; `nil` without a limit.
    @usableFromInline let waitLimitEnds: Moment?
    /// A slot from disk or from the shared store, retained here because the table may have had no room.
    @usableFromInline var loaded: Slot<Value>?

    @usableFromInline
    init(limits: Freshness.Limits, waitLimitEnds: Moment?) {
        self.limits = limits
        self.waitLimitEnds = waitLimitEnds
    }
}

/// The facts about a key that consumers of ``MuxStates`` follow.
@usableFromInline
struct FollowedKey: Sendable {
    /// The number of consumers.
    @usableFromInline var count = 0
    /// The failure of the last flight since the first consumer; `nil` after a value, a store or a clear.
    @usableFromInline var failure: FetchFailure?
    /// The number of replacements and removals of the entry; an eviction does not count.
    @usableFromInline var replacements: UInt64 = 0
    /// The number of changes that made the entry stale, even if memory did not have the entry.
    @usableFromInline var refreshes: UInt64 = 0
    /// The number of fetches.
    @usableFromInline var fetches: UInt64 = 0
    /// The number of replacements, removals and failures.
    @usableFromInline var outcomes: UInt64 = 0
    /// The value of ``refreshes`` at the last replacement, removal or failure.
    @usableFromInline var answeredRefreshes: UInt64 = 0
}

/// The failure of a flight.
@usableFromInline
struct FetchFailure: Sendable {
    @usableFromInline let error: any Error
    /// Identifies the failure in the multiplexer.
    @usableFromInline let number: UInt64

    @inlinable
    init(error: any Error, number: UInt64) {
        self.error = error
        self.number = number
    }
}

/// The state of a multiplexer under the lock of its flight engine: slots, waiters' options, statistics, and
/// the state of the backing.
@usableFromInline
struct SlotState<Slots: SlotStorage>: Sendable {
    @usableFromInline typealias Key = Slots.Key
    @usableFromInline typealias Value = Slots.Value

    /// The work to do outside the lock after a change of slots.
    @usableFromInline
    struct Evictions: Sendable {
        @usableFromInline let slots: [(Key, Slot<Value>)]
        /// Whether dirty entries must be saved to become evictable.
        @usableFromInline let writesBack: Bool
        /// See ``SlotStorage/hasTooManyMarks``.
        @usableFromInline let hasTooManyMarks: Bool
        @usableFromInline let failures: [FetchFailure]

        @inlinable
        init(
            slots: [(Key, Slot<Value>)],
            writesBack: Bool,
            hasTooManyMarks: Bool,
            failures: [FetchFailure]
        ) {
            self.slots = slots
            self.writesBack = writesBack
            self.hasTooManyMarks = hasTooManyMarks
            self.failures = failures
        }
    }

    @usableFromInline var slots: Slots
    @usableFromInline var statistics = MuxRepository.Statistics()
    /// The number of ended sessions.
    @usableFromInline var session: UInt64 = 0
    /// The options of waiting callers, by ticket; each caller removes its options.
    @usableFromInline var waiterOptions: [Ticket: WaiterOptions<Value>] = [:]
    /// The number of clears, by which a load detects a clear during the load.
    @usableFromInline var clears: UInt64 = 0
    /// Evicted slots, to be reported and released outside the lock.
    @usableFromInline var evicted: [(Key, Slot<Value>)] = []
    /// The keys that consumers of ``MuxStates`` follow.
    @usableFromInline var followed: [Key: FollowedKey] = [:]
    /// Replaced failures of followed keys, to be released outside the lock.
    @usableFromInline var formerFailures: [FetchFailure] = []
    /// The place at which ``sweep(at:_:)`` continues.
    @usableFromInline var sweepPlace: Int?
    @usableFromInline var lastRevision: UInt64 = 0
    /// The state of a ``DiskBacking``.
    @usableFromInline var disk = DiskState<Key>()
    /// The state of a ``SharedStoreBacking``.
    @usableFromInline var shared = SharedEntries<Key>()

    init(slots: Slots) { self.slots = slots }

    /// Changes the slot of `key`, and counts evictions; a call of ``takeEvictions()`` must follow.
    @inlinable
    mutating func withSlot<R>(of key: Key, _ body: (inout Slot<Value>) -> R) -> R {
        var (evictions, lost) = (0, 0)
        var evicted: [(Key, Slot<Value>)] = []
        swap(&evicted, &self.evicted)
        let result = self.slots.withSlot(of: key) {
            evicted.append(($0, $1))
            if $1.entry != nil { evictions += 1 }
            if $1.entry?.isDirty ?? false { lost += 1 }
        } _: {
            body(&$0)
        }
        swap(&evicted, &self.evicted)
        self.statistics.evictions += evictions
        self.disk.lost(lost)
        return result
    }

    /// Examines two entries, and removes entries beyond use; a call of ``takeEvictions()`` must follow.
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
    }

    /// Schedules the release of `key`, which the tables no longer contain, outside the lock.
    mutating func release(_ key: Key?) {
        if let key { self.evicted.append((key, Slot())) }
    }

    /// Prepares an entry for the table.
    ///
    /// - Parameters:
    ///   - entry: The entry.
    ///   - key: The key.
    ///   - revision: The revision of the renewed entry; `nil` for a new revision.
    /// - Returns: The entry with its revision; excluded from saves if the disk has an entry in a newer
    ///   format.
    @inlinable
    mutating func adopted(
        _ entry: Slot<Value>.Entry,
        of key: Key,
        renewing revision: UInt64? = nil
    ) -> Slot<Value>.Entry {
        var entry = entry
        entry.sequence = self.nextRevision()
        entry.revision = revision ?? entry.sequence
        if entry.isDirty { entry.isExpendable = self.disk.cannotWrite || self.slots.isFarOverBound }
        guard !self.disk.newer.isEmpty, self.disk.newer.contains(key) else { return entry }
        entry.isDirty = false
        entry.isPersistent = false
        return entry
    }

    /// Takes the pending work for ``SlotMemory/release(_:)``, which runs outside the lock.
    @inlinable
    mutating func takeEvictions() -> Evictions? {
        if self.shared.hasFacts {
            for (key, slot) in self.evicted where slot.entry != nil { self.evictedShared(key) }
        }
        let evicted = self.evicted
        if !evicted.isEmpty { self.evicted = [] }
        let writesBack = self.disk.writeBackBegins(self.slots.entryCount, isOverBound: self.slots.isOverBound)
        let hasTooManyMarks = self.slots.hasTooManyMarks
        let failures = self.formerFailures.isEmpty ? [] : self.takeFormerFailures()
        guard writesBack || hasTooManyMarks || !evicted.isEmpty || !failures.isEmpty else { return nil }
        return Evictions(
            slots: evicted,
            writesBack: writesBack,
            hasTooManyMarks: hasTooManyMarks,
            failures: failures
        )
    }

    /// Removes all slots, and the failures of followed keys.
    ///
    /// - Returns: The removed parts, to be released outside the lock.
    mutating func removeAll() -> any Sendable {
        for key in self.followed.keys { self.ended(key, with: nil) }
        return (self.slots.removeAll(), self.shared.lostAll(), self.takeFormerFailures())
    }

    /// Records that the entry of a followed key has become stale.
    ///
    /// - Parameter key: The key; `nil` for all followed keys.
    mutating func becameStale(_ key: Key?) {
        for key in key.map({ [$0] }) ?? Array(self.followed.keys) { self.followed[key]?.refreshes += 1 }
    }

    /// Counts a fetch.
    @inlinable
    mutating func fetchBegins(_ key: Key) {
        self.statistics.fetches += 1
        guard !self.followed.isEmpty else { return }
        self.followed[key]?.fetches += 1
    }

    /// Takes the replaced failures of followed keys, to be released outside the lock.
    @usableFromInline
    mutating func takeFormerFailures() -> [FetchFailure] {
        defer { self.formerFailures = [] }
        return self.formerFailures
    }

    /// Records a new outcome of a followed key; a call of ``takeEvictions()`` must follow.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - error: The error of a flight; `nil` if the entry was replaced or removed.
    @inlinable
    mutating func ended(_ key: Key, with error: (any Error)?) {
        guard !self.followed.isEmpty, let place = self.followed.index(forKey: key) else { return }
        if let former = self.followed.values[place].failure { self.formerFailures.append(former) }
        if error == nil { self.followed.values[place].replacements += 1 }
        self.followed.values[place].outcomes += 1
        self.followed.values[place].answeredRefreshes = self.followed.values[place].refreshes
        self.followed.values[place].failure = error.map { FetchFailure(error: $0, number: self.nextRevision()) }
    }

    package func leftover() -> String? {
        if !self.waiterOptions.isEmpty { return "the options of \(self.waiterOptions.count) callers are left" }
        if !self.formerFailures.isEmpty { return "replaced failures are held" }
        return self.evicted.isEmpty ? nil : "evicted slots are held"
    }

    package func violation() -> String? {
        if self.statistics.failures > self.statistics.fetches { return "more fetches failed than were started" }
        return self.shared.violation { self.slots.slot(of: $0)?.entry != nil }
            ?? (self.slots as? any SelfChecking)?.violation()
    }

    /// Counts a flight with callers that got a stored entry; `isOver` is whether the flight has ended.
    @inlinable
    mutating func found(in source: MuxEntry<Value>.Source, isOver: Bool) {
        switch source {
        case .disk: self.statistics.diskHits += 1
        case .sharedStore: if isOver { self.statistics.sharedHits += 1 }
        case .memory, .fetch: break
        }
    }

    @inlinable
    mutating func nextRevision() -> UInt64 {
        self.lastRevision &+= 1
        return self.lastRevision
    }
}

extension SlotState: SelfChecking {}
