extension MultiplexerCore {
    /// What a caller wants that waits, other than what the policy says.
    @usableFromInline
    struct Wish: Sendable {
        let limits: Freshness.Limits
        /// From when on it takes what there is.
        let patienceEnds: Moment?
        /// What was found on disk, for which there may have been no room in memory.
        var loaded: Slot<Value>?

        @usableFromInline
        init(limits: Freshness.Limits, patienceEnds: Moment?) {
            self.limits = limits
            self.patienceEnds = patienceEnds
        }
    }

    /// What the flight engine's lock guards for us.
    @usableFromInline
    struct State: Sendable {
        @usableFromInline var slots: Slots
        @usableFromInline var statistics = MuxStatistics()
        /// Entries on disk that were fetched at this moment or earlier are from before a refresh of everything.
        @usableFromInline var refreshedOnDisk: Moment?
        /// Counts the sessions.
        var session: UInt64 = 0
        /// What those want who wait with options, by their tickets; they take it back themselves.
        @usableFromInline var wishes: [Ticket: Wish] = [:]
        /// Keys of which the disk has an entry that a later version of the program wrote.
        @usableFromInline var newerOnDisk: Set<Key> = []
        /// Whether the disk may still have entries that were cleared all together; it is not read meanwhile.
        var isDomainRemovalPending = false
        /// When the last refresh of a single key was: no mark on an absent entry is younger.
        @usableFromInline var lastRefresh = Moment.distantPast
        /// What had to make room, to be told of and let go of outside the lock.
        @usableFromInline var evicted: [(Key, Slot<Value>)] = []
        /// Whether entries are being written so that they may go.
        @usableFromInline var isWritingBack = false
        /// How many entries there have to be before that is tried again, after it did not help.
        @usableFromInline var writeBackCount = 0

        @usableFromInline var lastRevision: UInt64 = 0

        init(slots: Slots) { self.slots = slots }

        /// Changes the slot of `key`; counts what had to make room.
        ///
        /// ``MultiplexerCore/letGoOfEvicted()`` has to follow, outside the lock.
        @inlinable
        mutating func withSlot<R>(of key: Key, _ body: (inout Slot<Value>) -> R) -> R {
            var evicted: [(Key, Slot<Value>)] = []
            let result = self.slots.withSlot(of: key, evicted: { evicted.append(($0, $1)) }, body)
            if !evicted.isEmpty {
                self.statistics.evictions += evicted.count { $0.1.entry != nil }
                self.evicted += evicted
            }
            self.foldMarks()
            return result
        }

        /// Where many absent entries are marked as refreshed, lets one moment stand for all the marks.
        ///
        /// What is on disk and older than the moment then counts as stale: more than was asked for, but never less.
        @inlinable
        mutating func foldMarks() {
            guard self.slots.hasTooManyMarks else { return }
            self.slots.removeMarks()
            self.refreshedOnDisk = max(self.refreshedOnDisk ?? .distantPast, self.lastRefresh)
        }

        /// The entry as this table takes it in: with a name, its own if it renews none, and kept from a disk that has a newer
        /// format.
        @inlinable
        mutating func adopted(
            _ entry: Slot<Value>.Entry,
            of key: Key,
            renewing revision: UInt64? = nil
        ) -> Slot<Value>.Entry {
            var entry = entry
            entry.revision = revision ?? self.nextRevision()
            guard self.newerOnDisk.contains(key) else { return entry }
            entry.isDirty = false
            entry.isPersistent = false
            return entry
        }

        /// Whether an entry on disk is from before a refresh of everything.
        func isFromBeforeRefresh(_ entry: Slot<Value>.Entry) -> Bool {
            self.refreshedOnDisk.map { entry.fetchedAt <= $0 } ?? false
        }

        /// Whether it is time to write what may not go before it is on disk; then ``wroteBack(_:)`` has to follow.
        @inlinable
        mutating func writeBackBegins() -> Bool {
            guard self.slots.isOverBound else {
                self.writeBackCount = 0
                return false
            }
            guard !self.isWritingBack, self.slots.entryCount >= self.writeBackCount else { return false }
            self.isWritingBack = true
            return true
        }

        /// So many entries were written; if none, the next try is when there are a quarter more.
        mutating func wroteBack(_ count: Int) {
            self.isWritingBack = false
            let entries = self.slots.entryCount
            self.writeBackCount = count > 0 ? 0 : entries + entries / 4 + 1
        }

        package func leftover() -> String? { self.evicted.isEmpty ? nil : "what was evicted is held" }

        package func violation() -> String? {
            if self.statistics.failures > self.statistics.fetches { return "more fetches failed than were started" }
            return (self.slots as? any SelfChecking)?.violation()
        }

        @inlinable
        mutating func nextRevision() -> UInt64 {
            self.lastRevision &+= 1
            return self.lastRevision
        }
    }

    /// Forgets what can be had again; fences nothing.
    package func clearMemory() {
        let values = self.engine.withState { state in
            let values = state.slots.removeClean()
            state.foldMarks()
            return values
        }
        withExtendedLifetime(values) {}  // let go of outside the lock
    }

    /// Lets go of what had to make room since the last time, and tells of it; not under the lock.
    ///
    /// If too much may not go before it is on disk, has it written.
    @inlinable
    func letGoOfEvicted() {
        let (evicted, writesBack) = self.engine.withState { state in
            let evicted = state.evicted
            if !evicted.isEmpty { state.evicted = [] }
            return (evicted, state.writeBackBegins())
        }
        if writesBack { self.writeBack() }
        for (key, slot) in evicted where slot.entry != nil { self.tell(.evicted, key) }
    }

    /// Saves, so that what is on disk then may go.
    @usableFromInline
    func writeBack() {
        self.repository.spawn(name: "mux.writeback") { [weak self, repository] in
            guard let self else { return }
            let report = await repository.save([self])
            self.engine.withState { $0.wroteBack(report.saved) }
            self.letGoOfEvicted()
        }
    }
}

extension MultiplexerCore.State: SelfChecking {}
