import Foundation

extension DiskBacking {
    // MARK: - Saving

    func unsaved() -> UnsavedEntries {
        let now = self.memory.repository.time.now
        let wallTime = self.memory.repository.wallTime()
        let unsaved = self.collect()
        let refresh = self.memory.engine.withState { $0.disk.refresh }
        var entries = UnsavedEntries()
        entries.dirty = unsaved.writableEntries.map { key, entry, value, isRefreshed in
            let written = (entry.timeOfDay(wallTime, at: now), refresh.savedNumber(forSequence: entry.sequence))
            return self.unsaved(entry, value, key, isRefreshed: isRefreshed, written)
        }
        entries.unseen = unsaved.unseen.map(self.persistence.name(of:))
        entries.unchanged = max(0, self.memory.engine.withState { $0.slots.entryCount } - unsaved.entryCount)
        return entries
    }

    /// The number of unsaved entries in memory.
    var unsavedCount: Int { self.collect().entryCount }

    /// Changes that are not saved.
    private struct Unsaved {
        /// The dirty entries that may be written, each with the value to save: the server's value, without
        /// changes of the app.
        var writableEntries: [(Key, Slot<Value>.Entry, Value, isRefreshed: Bool)] = []
        /// Keys of dirty entries that must not be written before their entries on disk are read.
        var unseen: [Key] = []
        /// Keys with a pending removal on disk.
        var removals: [Key] = []
        /// Keys whose entry on disk does not have the refresh of the slot yet.
        var refreshes: [Key] = []

        var entryCount: Int { self.writableEntries.count + self.unseen.count }
    }

    /// Collects the unsaved changes, in several critical sections.
    private func collect() -> Unsaved {
        var unsaved = Unsaved()
        var seen: Set<Key> = []
        var place: Int?
        repeat {
            let (slots, next) = self.memory.engine.withState { state in
                let (keys, next) = state.slots.unsavedKeys(before: place, atMost: SlotMemory<Slots>.portion)
                let slots = keys.compactMap { key in
                    state.slots.slot(of: key).map { slot in
                        let base = state.layers.isEmpty ? nil : state.layers[key]?.base
                        return (key, slot, base, isSeen: state.disk.unseen[key] == nil)
                    }
                }
                return (slots, next)
            }
            for (key, slot, base, isSeen) in slots where seen.insert(key).inserted {
                if slot.isRemovalPending { unsaved.removals.append(key) }
                if slot.isDiskRefreshUnsaved { unsaved.refreshes.append(key) }
                guard let entry = slot.entry, entry.isDirty else { continue }
                if isSeen {
                    unsaved.writableEntries.append((key, entry, base?.value ?? entry.value, slot.isRefreshed))
                } else {
                    unsaved.unseen.append(key)
                }
            }
            place = next
        } while place != nil
        return unsaved
    }

    private func unsaved(
        _ entry: Slot<Value>.Entry,
        _ value: Value,
        _ key: Key,
        isRefreshed: Bool,
        _ written: (fetchedAt: Date, refreshNumber: UInt64?)
    ) -> UnsavedEntry {
        let (memory, persistence) = (self.memory, self.persistence)
        let name = persistence.name(of: key)
        let (schemaVersion, staleIfError) = (memory.policy.schemaVersion, memory.policy.staleIfError)
        let usableTime = self.usableTime(of: entry)
        return UnsavedEntry(
            name: name,
            fetchedAt: entry.fetchedAt,
            encode: { sessionEpoch in
                let stored = MuxStoredEntry(
                    name: name,
                    schemaVersion: schemaVersion,
                    sessionEpoch: sessionEpoch,
                    fetchedAt: written.fetchedAt,
                    timeToLive: max(entry.timeToLive, .zero),
                    validator: entry.validator,
                    staleWhileRevalidate: entry.stale.whileRevalidate.map { max($0, .zero) },
                    staleIfError: entry.stale.ifError.map { max($0, .zero) },
                    refreshNumber: written.refreshNumber,
                    tags: entry.condition?.texts ?? [],
                    tagNumber: entry.condition?.number,
                    usableUntil: usableTime.map { written.fetchedAt.addingTimeInterval($0.secondsValue) },
                    payload: try persistence.encode(value)
                )
                // A refreshed entry must be stale after a relaunch, too.
                return isRefreshed ? stored.refreshed(staleIfError: staleIfError) : stored
            },
            isCurrent: {
                // A change of the app keeps the sequence, and a save does not include the change. The
                // sequence 0 identifies no entry: all entries that a changed condition made stale have the
                // sequence 0.
                let now = memory.engine.withState { $0.slots.slot(of: key)?.entry }
                return now?.revision == entry.revision || entry.sequence > 0 && now?.sequence == entry.sequence
            },
            markSaved: {
                memory.withSlots { state in
                    state.withSlot(of: key) { $0.recordSave(of: entry, asRefreshed: isRefreshed) }
                    state.disk.cannotWrite = false
                }
            },
            markFailed: { memory.withSlots { state in state.withSlot(of: key) { $0.recordFailedSave(of: entry) } } },
            markSuperseded: { _ = self.supersede(entry, of: key) }
        )
    }

    /// The time after the fetch in which `entry` is usable: fresh, stale, or for revalidation.
    ///
    /// `nil` for a time of 2^32 seconds or more.
    private func usableTime(of entry: Slot<Value>.Entry) -> Duration? {
        let staleTime = max(
            entry.stale.ifError ?? self.memory.policy.staleIfError,
            entry.stale.whileRevalidate ?? self.memory.policy.staleWhileRevalidate,
            .zero
        )
        let time = Duration.sum(max(entry.timeToLive, .zero), staleTime)
        // An entry with a validator stays for 30 more days, because the server can revalidate the value.
        let usable = entry.validator == nil ? time : .sum(time, .seconds(30 * 24 * 60 * 60))
        return usable < .seconds(Int64(1) << 32) ? usable : nil
    }

    /// Removes `entry` from memory, so that the next request reads the newer value on disk.
    ///
    /// - Returns: Whether memory still had `entry`.
    private func supersede(_ entry: Slot<Value>.Entry, of key: Key) -> Bool {
        let former = self.memory.withSlots { state -> Slot<Value>.Entry? in
            guard state.slots.slot(of: key)?.entry != nil else { return nil }
            let former = state.withSlot(of: key) { $0.removeSuperseded(entry) }
            if former != nil {
                state.countRefresh(of: key)
                state.loseBase(of: key, keepsChanges: true)
            }
            return former
        }
        guard former != nil else { return false }
        self.memory.watchers.send(.entry, to: key)
        return true
    }

    /// Marks the persistent entries in memory as dirty, because the disk has lost or removed all entries of
    /// the domain.
    func markUnsaved() {
        self.memory.inPortions(self.memory.keys) { state, key in state.withSlot(of: key) { $0.markUnsaved() } }
    }

    // MARK: - Before a save

    /// Repairs the disk before a save; runs in ``MuxRepository/lane``.
    ///
    /// Removes cleared entries from disk, writes refreshes, and removes values from memory that are older
    /// than the value on disk.
    func repairDisk() async -> DiskRepair {
        let unsaved = self.collect()
        var made = DiskRepair()
        if self.memory.engine.withState({ $0.disk.isDomainRemovalPending }) {
            made.failures += await self.removeDomain().failures
        } else if !unsaved.removals.isEmpty {
            made.failures += await self.remove(unsaved.removals).failures
        }
        // No entry is read from disk while a removal of the domain is pending.
        guard !self.memory.engine.withState({ $0.disk.isDomainRemovalPending }) else { return made }
        await self.lookForNewer(&made)
        do {
            made.refreshed += try await self.saveRefresh(hasWork: unsaved.entryCount > 0)
            try await self.saveRefreshes(unsaved.refreshes, &made)
        } catch {
            made.failures.append(error)
        }
        return made
    }

    /// Saves the mark of the last refresh of all entries, and detects a refresh by another process.
    ///
    /// Each save of entries writes the mark again, so that a store which evicts the least recently used
    /// entries keeps the mark.
    ///
    /// - Returns: 1 if a refresh was unsaved, and is now saved; otherwise 0.
    private func saveRefresh(hasWork: Bool) async throws -> Int {
        let (engine, repository) = (self.memory.engine, self.memory.repository)
        let (isSaved, session) = engine.withState { ($0.disk.refresh.isSaved, $0.session) }
        guard Slots.hasManyKeys, hasWork || !isSaved else { return 0 }
        let found = try await repository.load(self.persistence.refreshName)
        let refresh = engine.withState { state -> DiskRefresh? in
            guard state.session == session else { return nil }
            state.disk.refresh.read(found, at: state.lastRevision)
            return state.disk.refresh
        }
        let epoch = try await repository.settleEpoch()
        guard let refresh, let mark = refresh.mark(self.persistence.refreshName, epoch) else { return 0 }
        try await repository.write([mark])
        engine.withState { if $0.session == session { $0.disk.refresh.saved(mark) } }
        return refresh.isSaved ? 0 : 1
    }

    /// Marks the entries of `keys` as refreshed on disk.
    private func saveRefreshes(_ keys: [Key], _ made: inout DiskRepair) async throws {
        let repository = self.memory.repository
        let (size, staleIfError) = (SlotMemory<Slots>.portion, self.memory.policy.staleIfError)
        var rest = keys[...]
        while !rest.isEmpty {
            let portion = Array(rest.prefix(size))
            let found = try await repository.load(portion.map(self.persistence.name(of:))).compactMap(\.self)
            let entries = found.filter { !$0.isRefreshed }.map { $0.refreshed(staleIfError: staleIfError) }
            if !entries.isEmpty { try await repository.write(entries) }
            made.refreshed += entries.count
            self.memory.inPortions(portion) { state, key in state.withSlot(of: key) { $0.recordSavedRefresh() } }
            rest = rest.dropFirst(size)
        }
    }

    /// Reads the entries on disk that values of ``DiskState/unseen`` keys would replace.
    ///
    /// After this read, the store permits this process to overwrite the entry. So the read decides: a value
    /// older than the entry on disk is removed from memory, and a value is excluded from saves if a later
    /// version of the program wrote the entry on disk.
    ///
    /// - Parameter made: Receives the removed entries and the failures.
    private func lookForNewer(_ made: inout DiskRepair) async {
        let unseen = self.memory.engine.withState { $0.disk.unseen }
        var failuresInARow = 0
        // The keys with the fewest failed reads come first: each key is read after a limited number of saves.
        for (key, _) in unseen.sorted(by: { $0.value < $1.value }) where failuresInARow < Self.mostFailuresInARow {
            let name = self.persistence.name(of: key)
            do {
                let stored = try await self.memory.repository.load(name)
                failuresInARow = 0
                if let stored, self.supersede(key, by: stored) { made.superseded.append(name) }
                self.memory.withSlots { state in state.release(state.disk.noteRead(key)) }
            } catch {
                made.failures.append(error)
                made.unread[name] = error
                failuresInARow += 1
                // Permits the eviction of the unsaved entry: entries that cannot be saved must not exceed the
                // bounds of memory.
                self.memory.withSlots { state in
                    state.disk.unseen[key]? += 1
                    state.withSlot(of: key) { slot in if let entry = slot.entry { slot.recordFailedSave(of: entry) } }
                }
            }
        }
    }

    /// Removes the entry of `key` from memory if the entry on disk is newer, and excludes the entry from
    /// saves if a later version of the program wrote the entry on disk.
    ///
    /// - Returns: Whether the entry was removed.
    private func supersede(_ key: Key, by stored: MuxStoredEntry) -> Bool {
        guard self.memory.policy.canRead(stored.schemaVersion) else {
            self.memory.withSlots { state in
                state.disk.newer.insert(key)
                state.withSlot(of: key) { $0.excludeFromSaves() }
            }
            return false
        }
        let (now, wallTime) = (self.memory.repository.time.now, self.memory.repository.wallTime())
        // A date in the future was written before the clock was set back, and does not prove a newer value.
        // An entry with a pending removal is never newer.
        guard stored.fetchedAt <= wallTime, let slot = self.memory.engine.withState({ $0.slots.slot(of: key) }),
            !slot.isRemovalPending, let entry = slot.entry, entry.isDirty,
            stored.fetchedAt > entry.timeOfDay(wallTime, at: now)
        else { return false }
        return self.supersede(entry, of: key)
    }

    /// The number of consecutive failures after which the reads stop.
    private static var mostFailuresInARow: Int { 8 }
}

extension Slot.Entry {
    /// The wall-clock time of the fetch; `wallTime` is the wall-clock time at `now`.
    fileprivate func timeOfDay(_ wallTime: Date, at now: Moment) -> Date {
        wallTime.addingTimeInterval(-now.duration(since: self.fetchedAt).secondsValue)
    }
}
