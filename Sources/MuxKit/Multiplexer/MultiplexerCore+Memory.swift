extension MultiplexerCore {
    /// What the flight engine's lock guards for us.
    struct State: Sendable {
        var slots: Slots
        var statistics = MuxStatistics()
        /// Entries on disk that were fetched at this moment or earlier are from before a refresh of everything.
        var refreshedOnDisk: Moment?
        /// Counts the sessions.
        var session: UInt64 = 0
        /// Keys in flight for which somebody waits who does not take what others take.
        var strictKeys: Set<Key> = []
        /// Keys of which the disk has an entry that a later version of the program wrote.
        var newerOnDisk: Set<Key> = []
        /// Whether the disk may still have entries that were cleared all together; it is not read meanwhile.
        var isDomainRemovalPending = false
        /// When the last refresh of a single key was: no mark on an absent entry is younger.
        var lastRefresh = Moment.distantPast
        /// What had to make room, to be told of and let go of outside the lock.
        var evicted: [(Key, Slot<Value>)] = []

        private var lastRevision: UInt64 = 0

        init(slots: Slots) { self.slots = slots }

        /// Changes the slot of `key`; counts what had to make room.
        ///
        /// ``MultiplexerCore/letGoOfEvicted()`` has to follow, outside the lock.
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
        mutating func foldMarks() {
            guard self.slots.hasTooManyMarks else { return }
            self.slots.removeMarks()
            self.refreshedOnDisk = max(self.refreshedOnDisk ?? .distantPast, self.lastRefresh)
        }

        /// The entry as this table takes it in: with a name, its own if it renews none, and kept from a disk that has a newer
        /// format.
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
    func letGoOfEvicted() {
        let evicted = self.engine.withState { state in
            let evicted = state.evicted
            if !evicted.isEmpty { state.evicted = [] }
            return evicted
        }
        for (key, slot) in evicted where slot.entry != nil { self.tell(.evicted, key) }
    }
}
