import Foundation

extension MultiplexerCore {
    /// What a caller wants that waits, other than what the policy says.
    @usableFromInline
    struct WaiterOptions: Sendable {
        let limits: Freshness.Limits
        /// From when on it takes what there is.
        let waitLimitEnds: Moment?
        /// What was found on disk, for which there may have been no room in memory.
        var loaded: Slot<Value>?

        @usableFromInline
        init(limits: Freshness.Limits, waitLimitEnds: Moment?) {
            self.limits = limits
            self.waitLimitEnds = waitLimitEnds
        }
    }

    /// What a change of slots leaves to be done outside the lock.
    @usableFromInline
    struct Evictions: Sendable {
        @usableFromInline let slots: [(Key, Slot<Value>)]
        /// Whether dirty entries have to be saved so that they can be evicted.
        @usableFromInline let writesBack: Bool
        /// See ``SlotStorage/hasTooManyMarks``.
        @usableFromInline let hasTooManyMarks: Bool

        @inlinable
        init(slots: [(Key, Slot<Value>)], writesBack: Bool, hasTooManyMarks: Bool) {
            self.slots = slots
            self.writesBack = writesBack
            self.hasTooManyMarks = hasTooManyMarks
        }
    }

    /// What the flight engine's lock guards for us.
    @usableFromInline
    struct State: Sendable {
        @usableFromInline var slots: Slots
        @usableFromInline var statistics = MuxStatistics()
        /// The last refresh of everything, as the disk is to know it.
        var diskRefresh = DiskRefresh()
        /// Counts the sessions.
        var session: UInt64 = 0
        /// What those want who wait with options, by their tickets; they take it back themselves.
        @usableFromInline var waiterOptions: [Ticket: WaiterOptions] = [:]
        /// Keys of which the disk has an entry that a later version of the program wrote.
        @usableFromInline var newerOnDisk: Set<Key> = []
        /// Keys of values that were stored before the disk was asked what it has of them.
        var unseenOnDisk: Set<Key> = []
        /// Whether the disk may still have entries that were cleared all together; it is not read meanwhile.
        var isDomainRemovalPending = false
        /// Keys that were saved meanwhile: they go with the rest when it is removed.
        var savedDuringRemoval: Set<Key> = []
        /// Counts what was cleared, for those who read the disk meanwhile.
        @usableFromInline var clears: UInt64 = 0
        /// What had to make room, to be told of and let go of outside the lock.
        @usableFromInline var evicted: [(Key, Slot<Value>)] = []
        /// Where ``sweep(at:_:)`` goes on.
        var sweepPlace: Int?
        /// Whether entries are being written so that they may go.
        @usableFromInline var isWritingBack = false
        /// How many entries there have to be before that is tried again, after it did not help.
        @usableFromInline var writeBackCount = 0
        /// Whether the disk could not be written when that was tried last: entries may go before they are on disk.
        @usableFromInline var cannotWrite = false
        /// How many went so since the last report, and since the last try.
        @usableFromInline var lostCount = 0
        @usableFromInline var lostSinceTry = 0
        /// How many have to go so before the disk is tried again.
        @usableFromInline var lossesBeforeTry = Self.firstLossesBeforeTry

        @usableFromInline static var firstLossesBeforeTry: Int { 64 }

        @usableFromInline var lastRevision: UInt64 = 0

        init(slots: Slots) { self.slots = slots }

        /// Changes the slot of `key`; counts what had to make room.
        ///
        /// ``MultiplexerCore/releaseEvicted()`` has to follow, outside the lock.
        @inlinable
        mutating func withSlot<R>(of key: Key, _ body: (inout Slot<Value>) -> R) -> R {
            var evicted: [(Key, Slot<Value>)] = []
            let result = self.slots.withSlot(of: key, evicted: { evicted.append(($0, $1)) }, body)
            if !evicted.isEmpty {
                self.statistics.evictions += evicted.count { $0.1.entry != nil }
                let lost = evicted.count { $0.1.entry?.isDirty ?? false }
                self.lostCount += lost
                self.lostSinceTry += lost
                self.evicted += evicted
            }
            return result
        }

        /// Looks at two entries, and forgets those that have been of no use for long; ``MultiplexerCore/releaseEvicted()`` has
        /// to follow, outside the lock.
        @usableFromInline
        mutating func sweep(at now: Moment, _ limits: Freshness.Limits) {
            var useless: [(Key, Slot<Value>)] = []
            self.sweepPlace = self.slots.removeClean(before: self.sweepPlace, atMost: 2) {
                $0.isBeyondUse(at: now, limits)
            } removed: {
                useless.append(($0, $1))
            }
            self.statistics.evictions += useless.count
            if !useless.isEmpty { self.evicted += useless }
        }

        /// Lets go of `key`, which is in no table any more, outside the lock.
        mutating func release(_ key: Key?) {
            if let key { self.evicted.append((key, Slot())) }
        }

        /// Where many absent entries are marked as refreshed, lets one date stand for all the marks.
        ///
        /// What is on disk and older than the date then counts as stale: more than was asked for, but never less.
        ///
        /// - Returns: The marks, to be let go of outside the lock.
        mutating func foldMarks(at date: Date, _ moment: Moment) -> any Sendable {
            self.diskRefresh.refreshed(at: date, moment)
            return self.slots.removeMarks()
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
            entry.sequence = self.nextRevision()
            entry.revision = revision ?? entry.sequence
            if entry.isDirty { entry.isExpendable = self.cannotWrite || self.slots.isFarOverBound }
            guard !self.newerOnDisk.isEmpty, self.newerOnDisk.contains(key) else { return entry }
            entry.isDirty = false
            entry.isPersistent = false
            return entry
        }

        /// Whether an entry on disk is from before a refresh that the disk knows of, or will.
        func isFromBeforeRefresh(_ loaded: Loaded) -> Bool {
            loaded.isRefreshed || self.diskRefresh.date.map { loaded.fetchedAt <= $0 } ?? false
                || self.diskRefresh.moment.map { loaded.entry.fetchedAt <= $0 } ?? false
        }

        /// Whether it is time to write what may not go before it is on disk; then ``wroteBack(_:failed:)`` has to follow.
        ///
        /// Where the disk could not be written, it is time for another try when enough went without.
        @inlinable
        mutating func writeBackBegins() -> Bool {
            let isOverBound = self.slots.isOverBound
            if !isOverBound { self.writeBackCount = 0 }
            let isDue =
                isOverBound
                ? self.slots.entryCount >= self.writeBackCount
                : self.cannotWrite && self.lostSinceTry >= self.lossesBeforeTry
            guard isDue, !self.isWritingBack else { return false }
            self.isWritingBack = true
            self.lostSinceTry = 0
            return true
        }

        /// So many entries were written, and so many could not be.
        ///
        /// If none was written, the next try is when there are a quarter more, or twice as many have gone as before this one.
        mutating func wroteBack(_ count: Int, failed: Int) {
            self.isWritingBack = false
            let entries = self.slots.entryCount
            self.writeBackCount = count > 0 ? 0 : entries + entries / 4 + 1
            self.cannotWrite = count == 0 && failed > 0
            self.lossesBeforeTry = self.cannotWrite ? min(self.lossesBeforeTry * 2, 65_536) : Self.firstLossesBeforeTry
        }

        /// Takes what has to be dealt with outside the lock after a change of slots, by ``MultiplexerCore/release(_:)``.
        @inlinable
        mutating func takeEvictions() -> Evictions? {
            let evicted = self.evicted
            if !evicted.isEmpty { self.evicted = [] }
            let (writesBack, hasTooManyMarks) = (self.writeBackBegins(), self.slots.hasTooManyMarks)
            guard writesBack || hasTooManyMarks || !evicted.isEmpty else { return nil }
            return Evictions(slots: evicted, writesBack: writesBack, hasTooManyMarks: hasTooManyMarks)
        }

        /// Takes note of what went before it was saved, for a report.
        mutating func takeLosses() -> Int {
            defer { self.lostCount = 0 }
            return self.lostCount
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
        let former = self.engine.withState { $0.slots.removeClean(keeping: Self.portion) }
        guard former == nil else { return withExtendedLifetime(former) {} }  // let go of outside the lock
        var place: Int?
        repeat {
            let (gone, next) = self.engine.withState { state in
                var gone: [(Key, Slot<Value>)] = []
                let next = state.slots.removeClean(before: place, atMost: Self.portion) { _ in
                    true
                } removed: {
                    gone.append(($0, $1))
                }
                return (gone, next)
            }
            withExtendedLifetime(gone) {}
            place = next
        } while place != nil
    }

    /// How many entries are looked at while the lock is held, where there may be a million: so no request waits for long.
    static var portion: Int { 128 }

    /// Does something for many keys, a few at a time.
    func inPortions(_ keys: some Collection<Key>, _ body: (inout State, Key) -> Void) {
        var rest = keys[...]
        while !rest.isEmpty {
            self.engine.withState { state in for key in rest.prefix(Self.portion) { body(&state, key) } }
            rest = rest.dropFirst(Self.portion)
        }
        self.releaseEvicted()
    }

    /// Changes slots, then releases outside the lock what that evicted.
    @inlinable
    func withSlots<R>(_ body: (inout State) -> sending R) -> sending R {
        let (result, evictions) = self.engine.withState { (body(&$0), $0.takeEvictions()) }
        self.release(evictions)
        return result
    }

    /// Releases what was evicted, for changes of slots that do not use ``withSlots(_:)``; not under the lock.
    @inlinable
    func releaseEvicted() { self.release(self.engine.withState { $0.takeEvictions() }) }

    /// Releases what was evicted, reports it, and starts the work that ``State/takeEvictions()`` found due.
    @inlinable
    func release(_ evictions: Evictions?) {
        guard let evictions else { return }
        if evictions.hasTooManyMarks { self.foldMarks() }
        if evictions.writesBack { self.writeBack() }
        for (key, slot) in evictions.slots {
            guard let entry = slot.entry else { continue }
            self.tell(.evicted, key)
            if entry.isDirty { self.tell(.evictedUnsaved, key) }
        }
    }

    @usableFromInline
    func foldMarks() {
        let (date, now) = (self.repository.wallTime(), self.repository.time.now)
        let marks = self.engine.withState { $0.foldMarks(at: date, now) }
        withExtendedLifetime(marks) {}
    }

    /// Saves, so that what is on disk then may go.
    @usableFromInline
    func writeBack() {
        ReentrantAsyncMutex.outside {
            _ = self.repository.spawn(name: "mux.writeback") { [weak self, repository] in
                guard let self else { return }
                let report = await repository.save([self])
                self.engine.withState { state in
                    state.wroteBack(report.saved, failed: report.failed.count)
                    state.lostCount += report.letGo
                }
                if report.saved == 0, !report.failed.isEmpty { self.makeUnsavedExpendable() }
                self.releaseEvicted()
            }
        }
    }
}

extension MultiplexerCore {
    /// The disk cannot be written: what waits for it may go.
    private func makeUnsavedExpendable() {
        var place: Int?
        repeat {
            place = self.engine.withState { state in
                let (keys, next) = state.slots.unsavedKeys(before: place, atMost: Self.portion)
                for key in keys {
                    state.withSlot(of: key) { slot in if let entry = slot.entry { slot.notSaved(entry) } }
                }
                return next
            }
        } while place != nil
    }
}

extension MultiplexerCore.State: SelfChecking {}
