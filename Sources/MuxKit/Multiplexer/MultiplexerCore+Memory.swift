import Foundation

extension MultiplexerCore {
    /// The options of a waiting caller, if not the default options.
    @usableFromInline
    struct WaiterOptions: Sendable {
        @usableFromInline let limits: Freshness.Limits
        /// The end of the wait limit; `nil` without a limit.
        @usableFromInline let waitLimitEnds: Moment?
        /// A slot from disk or from the shared store, for which the table may have had no room.
        @usableFromInline var loaded: Slot<Value>?

        @usableFromInline
        init(limits: Freshness.Limits, waitLimitEnds: Moment?) {
            self.limits = limits
            self.waitLimitEnds = waitLimitEnds
        }
    }

    /// The work to do outside the lock after a change of slots.
    @usableFromInline
    struct Evictions: Sendable {
        @usableFromInline let slots: [(Key, Slot<Value>)]
        /// Whether dirty entries must be saved to become evictable.
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

    /// The state under the lock of the flight engine.
    @usableFromInline
    struct State: Sendable {
        @usableFromInline var slots: Slots
        @usableFromInline var statistics = MuxRepository.Statistics()
        /// The last refresh of all entries, for the next save.
        var diskRefresh = DiskRefresh()
        /// The number of ended sessions.
        @usableFromInline var session: UInt64 = 0
        /// The options of waiting callers, by ticket; each caller removes its options.
        @usableFromInline var waiterOptions: [Ticket: WaiterOptions] = [:]
        /// Keys whose entry on disk was written by a later version of the program.
        @usableFromInline var newerOnDisk: Set<Key> = []
        /// Keys of values that were stored before the disk was read.
        var unseenOnDisk: Set<Key> = []
        /// Whether the removal of the domain on disk is pending; until the removal, no entry is read from
        /// disk.
        @usableFromInline var isDomainRemovalPending = false
        /// Keys of entries that were saved before the pending removal of the domain, which removes these
        /// entries.
        var savedDuringRemoval: Set<Key> = []
        /// The number of clears, by which a load detects a clear during the load.
        @usableFromInline var clears: UInt64 = 0
        /// Evicted slots, to be reported and released outside the lock.
        @usableFromInline var evicted: [(Key, Slot<Value>)] = []
        /// The place at which ``sweep(at:_:)`` continues.
        @usableFromInline var sweepPlace: Int?
        /// Whether a write-back is running: a save that makes entries evictable.
        @usableFromInline var isWritingBack = false
        /// The number of entries at which the next write-back is due, after a write-back without success.
        @usableFromInline var writeBackCount = 0
        /// Whether the disk cannot be written, so that entries may be evicted unsaved.
        ///
        /// Set by a write-back with failures and without a saved entry; reset by a saved entry.
        @usableFromInline var cannotWrite = false
        /// The number of entries evicted unsaved since the last report.
        @usableFromInline var lostCount = 0
        /// The number of entries evicted unsaved since the begin of the last write-back.
        @usableFromInline var lostSinceTry = 0
        /// The ``lostSinceTry`` at which the next write-back is due, while the disk cannot be written.
        @usableFromInline var lossesBeforeTry = Self.firstLossesBeforeTry

        @usableFromInline static var firstLossesBeforeTry: Int { 64 }

        @usableFromInline var lastRevision: UInt64 = 0
        /// Facts about entries that other machines share.
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
            self.lostCount += lost
            self.lostSinceTry += lost
            return result
        }

        /// Checks two entries, and removes useless entries; a call of ``takeEvictions()`` must follow.
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

        /// Schedules the release of `key` outside the lock; no table contains `key` any more.
        mutating func release(_ key: Key?) {
            if let key { self.evicted.append((key, Slot())) }
        }

        /// Replaces the marks of refreshed absent entries by a refresh of all entries on disk.
        ///
        /// Then all entries on disk count as stale, including entries that were not refreshed.
        ///
        /// - Returns: The marks, to be released outside the lock.
        mutating func foldMarks(at date: Date) -> any Sendable {
            self.diskRefresh.refreshed(at: date, upTo: nil)
            return self.slots.removeMarks()
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
            if entry.isDirty { entry.isExpendable = self.cannotWrite || self.slots.isFarOverBound }
            guard !self.newerOnDisk.isEmpty, self.newerOnDisk.contains(key) else { return entry }
            entry.isDirty = false
            entry.isPersistent = false
            return entry
        }

        /// Whether an entry from disk was fetched before the last refresh, which may be unsaved.
        @usableFromInline
        func isFromBeforeRefresh(_ loaded: Loaded) -> Bool {
            loaded.isRefreshed || self.diskRefresh.isLater(than: (loaded.refreshNumber, loaded.fetchedAt))
        }

        /// Whether a write-back is due; then a call of ``wroteBack(_:failed:)`` must follow.
        ///
        /// A write-back is due if the table exceeds its bound. If the last write-back could not write, the
        /// next write-back is due when enough entries were evicted unsaved.
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

        /// A write-back wrote `count` entries, and failed to write `failed` entries.
        ///
        /// If `count` is zero, the next write-back is due at a quarter more entries. After a failure it is
        /// due at twice as many entries evicted unsaved as before, at most 65,536.
        mutating func wroteBack(_ count: Int, failed: Int) {
            self.isWritingBack = false
            let entries = self.slots.entryCount
            self.writeBackCount = count > 0 ? 0 : entries + entries / 4 + 1
            self.cannotWrite = count == 0 && failed > 0
            self.lossesBeforeTry = self.cannotWrite ? min(self.lossesBeforeTry * 2, 65_536) : Self.firstLossesBeforeTry
        }

        /// Takes the work of ``MultiplexerCore/release(_:)`` outside the lock after a change of slots.
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

        /// The entry of `key` was evicted; a new entry may have replaced it since.
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
        /// - Returns: The slots and facts, to be released outside the lock.
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

    /// Removes all saved entries, without a fence.
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

    /// The maximum number of entries in one critical section, which limits the wait of a request.
    @inlinable static var portion: Int { 128 }

    /// Calls `body` for each key, in several critical sections.
    func inPortions(_ keys: some Collection<Key>, _ body: (inout State, Key) -> Void) {
        var rest = keys[...]
        while !rest.isEmpty {
            self.withSlots { state in for key in rest.prefix(Self.portion) { body(&state, key) } }
            rest = rest.dropFirst(Self.portion)
        }
    }

    /// Changes slots, then releases evicted slots outside the lock.
    @inlinable
    func withSlots<R>(_ body: (inout State) -> sending R) -> sending R {
        let (result, evictions) = self.engine.withState { (body(&$0), $0.takeEvictions()) }
        self.release(evictions)
        return result
    }

    /// Releases evicted slots after a change of slots without ``withSlots(_:)``; not under the lock.
    @inlinable
    func releaseEvicted() { self.release(self.engine.withState { $0.takeEvictions() }) }

    /// Releases and reports evicted slots, and starts the due work of ``State/takeEvictions()``.
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

    /// Starts a write-back: a save, after which entries can be evicted.
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
    /// Permits the eviction of unsaved entries, because the disk cannot be written.
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
