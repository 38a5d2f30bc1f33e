import Foundation

extension MultiplexerCore {
    /// The options of a waiting caller, where they are not the default.
    @usableFromInline
    struct WaiterOptions: Sendable {
        @usableFromInline let limits: Freshness.Limits
        /// When the wait limit passes.
        @usableFromInline let waitLimitEnds: Moment?
        /// The slot that was loaded from disk, for which memory may have had no room.
        @usableFromInline var loaded: Slot<Value>?

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

    /// The state that the flight engine's lock guards.
    @usableFromInline
    struct State: Sendable {
        @usableFromInline var slots: Slots
        @usableFromInline var statistics = MuxRepository.Statistics()
        /// The last refresh of everything, to be saved.
        var diskRefresh = DiskRefresh()
        /// The number of ended sessions.
        @usableFromInline var session: UInt64 = 0
        /// By ticket; each caller removes its own.
        @usableFromInline var waiterOptions: [Ticket: WaiterOptions] = [:]
        /// Keys whose entry on disk was written by a later version of the program.
        @usableFromInline var newerOnDisk: Set<Key> = []
        /// Keys of values that were stored before the disk was read.
        var unseenOnDisk: Set<Key> = []
        /// Whether the disk may still have all entries of the domain, which were cleared; it is not read meanwhile.
        @usableFromInline var isDomainRemovalPending = false
        /// Keys that were saved meanwhile; the removal removes their entries too.
        var savedDuringRemoval: Set<Key> = []
        /// The number of clears, by which a load notices one that came meanwhile.
        @usableFromInline var clears: UInt64 = 0
        /// Evicted slots, to be reported and released outside the lock.
        @usableFromInline var evicted: [(Key, Slot<Value>)] = []
        /// Where ``sweep(at:_:)`` goes on.
        @usableFromInline var sweepPlace: Int?
        /// Whether a save is running that makes entries evictable.
        @usableFromInline var isWritingBack = false
        /// The number of entries at which the next such save is due, after one that did not help.
        @usableFromInline var writeBackCount = 0
        /// Whether the last such save could not write: entries may be evicted unsaved.
        @usableFromInline var cannotWrite = false
        /// Entries evicted unsaved, since the last report and since the last such save.
        @usableFromInline var lostCount = 0
        @usableFromInline var lostSinceTry = 0
        /// The number of entries evicted unsaved at which the disk is tried again.
        @usableFromInline var lossesBeforeTry = Self.firstLossesBeforeTry

        @usableFromInline static var firstLossesBeforeTry: Int { 64 }

        @usableFromInline var lastRevision: UInt64 = 0
        /// Facts about entries that other machines share.
        @usableFromInline var shared = SharedEntries<Key>()

        init(slots: Slots) { self.slots = slots }

        /// Changes the slot of `key`, and counts evictions; ``takeEvictions()`` has to follow.
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
            self.lostCount += lost
            self.lostSinceTry += lost
            return result
        }

        /// Checks two entries, and removes those that are beyond use; ``takeEvictions()`` has to follow.
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

        /// Has `key`, which no table holds any more, released outside the lock.
        mutating func release(_ key: Key?) {
            if let key { self.evicted.append((key, Slot())) }
        }

        /// Replaces the marks of refreshed absent entries by a refresh of everything on disk.
        ///
        /// All entries on disk count as stale then: more than were refreshed, but never fewer.
        ///
        /// - Returns: The marks, to be released outside the lock.
        mutating func foldMarks(at date: Date) -> any Sendable {
            self.diskRefresh.refreshed(at: date, upTo: nil)
            return self.slots.removeMarks()
        }

        /// The entry as the table stores it: with a revision, a new one if it renews none, and not to be saved if the disk has an
        /// entry in a newer format.
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

        /// Whether an entry on disk is older than a refresh that is saved or will be.
        @usableFromInline
        func isFromBeforeRefresh(_ loaded: Loaded) -> Bool {
            loaded.isRefreshed || self.diskRefresh.isLater(than: (loaded.refreshNumber, loaded.fetchedAt))
        }

        /// Whether a save is due that makes entries evictable; then ``wroteBack(_:failed:)`` has to follow.
        ///
        /// If the disk could not be written, the next one is due when enough entries were evicted unsaved.
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

        /// That save wrote `count` entries, and `failed` could not be written.
        ///
        /// If it wrote none, the next one is due at a quarter more entries, or at twice as many evicted unsaved.
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
            if self.shared.hasFacts {
                for (key, slot) in self.evicted where slot.entry != nil { self.evictedShared(key) }
            }
            let evicted = self.evicted
            if !evicted.isEmpty { self.evicted = [] }
            let (writesBack, hasTooManyMarks) = (self.writeBackBegins(), self.slots.hasTooManyMarks)
            guard writesBack || hasTooManyMarks || !evicted.isEmpty else { return nil }
            return Evictions(slots: evicted, writesBack: writesBack, hasTooManyMarks: hasTooManyMarks)
        }

        /// Takes the number of entries evicted unsaved since the last report.
        mutating func takeLosses() -> Int {
            defer { self.lostCount = 0 }
            return self.lostCount
        }

        /// The entry of `key` was evicted, and may have come back since.
        @usableFromInline
        mutating func evictedShared(_ key: Key) { if self.slots.slot(of: key)?.entry == nil { self.lostShared(key) } }

        /// The entry of `key` has left memory.
        @usableFromInline
        mutating func lostShared(_ key: Key) { for known in self.shared.lost(key) { self.release(known) } }

        /// A flight of an entry that other machines share has ended.
        mutating func sharedFlightEnded(_ key: Key) {
            let hasEntry = self.slots.slot(of: key)?.entry != nil
            for known in self.shared.ended(key, hasEntry: hasEntry) { self.release(known) }
        }

        /// Removes all slots.
        ///
        /// - Returns: What is to be released outside the lock.
        mutating func removeAll() -> any Sendable { (self.slots.removeAll(), self.shared.lostAll()) }

        package func leftover() -> String? {
            if !self.waiterOptions.isEmpty { return "the options of \(self.waiterOptions.count) callers are left" }
            return self.evicted.isEmpty ? nil : "evicted slots are held"
        }

        package func violation() -> String? {
            if self.statistics.failures > self.statistics.fetches { return "more fetches failed than were started" }
            return self.shared.violation { self.slots.slot(of: $0)?.entry != nil }
                ?? (self.slots as? any SelfChecking)?.violation()
        }

        /// Counts a flight some of whose callers a store has answered; the flight may be over then.
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

    /// Removes all entries that need not be saved; fences nothing.
    package func clearMemory() {
        let former = self.engine.withState { state in
            state.slots.removeClean(keeping: Self.portion).map { ($0, state.shared.lostAll()) }
        }
        guard former == nil else { return withExtendedLifetime(former) {} }  // released outside the lock
        var place: Int?
        repeat {
            let (gone, next) = self.engine.withState { state in
                var gone: [(Key, Slot<Value>)] = []
                let next = state.slots.removeClean(before: place, atMost: Self.portion) { _ in
                    true
                } removed: {
                    gone.append(($0, $1))
                }
                for (key, _) in gone { state.lostShared(key) }
                return (gone, next)
            }
            withExtendedLifetime(gone) {}
            place = next
        } while place != nil
    }

    /// The keys with an entry or a failure, read in several critical sections.
    func keysInMemory() -> [Key] {
        var keys: [Key] = []
        var place: Int?
        repeat {
            let (some, next) = self.engine.withState { $0.slots.keys(before: place, atMost: Self.portion) }
            keys += some
            place = next
        } while place != nil
        return keys
    }

    /// How many entries one critical section handles, so that no request waits for long.
    @inlinable static var portion: Int { 128 }

    /// Calls `body` for many keys, in several critical sections.
    func inPortions(_ keys: some Collection<Key>, _ body: (inout State, Key) -> Void) {
        var rest = keys[...]
        while !rest.isEmpty {
            self.withSlots { state in for key in rest.prefix(Self.portion) { body(&state, key) } }
            rest = rest.dropFirst(Self.portion)
        }
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
        let date = self.repository.wallTime()
        let marks = self.engine.withState { $0.foldMarks(at: date) }
        withExtendedLifetime(marks) {}
    }

    /// Saves, so that entries can be evicted.
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
    /// Lets unsaved entries be evicted, since the disk cannot be written.
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
