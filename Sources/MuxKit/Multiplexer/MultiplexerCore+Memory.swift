import Foundation

extension MultiplexerCore {
    /// What the flight engine's lock guards for us.
    struct State: Sendable {
        var slots: Slots
        var statistics = MuxStatistics()
        var lastRevision: UInt64 = 0
        /// Entries on disk that were fetched at this time or earlier are from before a refresh of everything.
        var refreshedOnDisk: Date?
        /// Whether the disk may still have entries that were cleared all together; it is not read meanwhile.
        var isDomainRemovalPending = false
        /// When the last refresh of a single key was: no mark on an absent entry is younger.
        var lastRefresh = Date.distantPast
        /// What was evicted and not yet told; stays empty where there is no observer.
        var untold: [Key] = []
        let hasObserver: Bool

        init(slots: Slots, hasObserver: Bool) {
            self.slots = slots
            self.hasObserver = hasObserver
        }

        /// Changes the slot of `key`; counts what had to make room.
        mutating func withSlot<R>(of key: Key, _ body: (inout Slot<Value>) -> R) -> R {
            var evicted: [Key] = []
            let result = self.slots.withSlot(of: key, evicted: { evicted.append($0) }, body)
            if !evicted.isEmpty {
                self.statistics.evictions += evicted.count
                if self.hasObserver { self.untold += evicted }
            }
            self.foldMarks()
            return result
        }

        /// Where many absent entries are marked as refreshed, lets one date stand for all the marks.
        ///
        /// What is on disk and older than the date then counts as stale: more than was asked for, but never less.
        mutating func foldMarks() {
            guard self.slots.hasTooManyMarks else { return }
            self.slots.removeMarks()
            self.refreshedOnDisk = max(self.refreshedOnDisk ?? .distantPast, self.lastRefresh)
        }

        mutating func nextRevision() -> UInt64 {
            self.lastRevision &+= 1
            return self.lastRevision
        }
    }

    /// Forgets what can be had again; fences nothing.
    package func clearMemory() {
        self.engine.withState { state in
            state.slots.removeClean()
            state.foldMarks()
        }
    }

    /// Tells of what had to make room since the last time.
    func tellEvictions() {
        guard self.repository.observer != nil else { return }
        let keys = self.engine.withState { state in
            defer { state.untold = [] }
            return state.untold
        }
        for key in keys { self.tell(.evicted, key) }
    }
}
