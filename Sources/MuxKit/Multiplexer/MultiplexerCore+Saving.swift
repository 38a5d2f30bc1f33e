import Foundation

extension MultiplexerCore: SessionParticipant {
    // MARK: - Sign-out

    package var domain: String? { self.persistence?.domain ?? self.sharing?.persistence.domain }

    package var detachesItself: Bool { true }

    package var isPlain: Bool { self.domain == nil && self.users == nil && !self.handsOutTokens }

    package var statistics: MuxRepository.Statistics { self.engine.withState { $0.statistics } }

    package var gauges: MuxRepository.Gauges {
        var gauges = MuxRepository.Gauges(self.engine)
        gauges.entries = self.engine.withState { $0.slots.entryCount }
        gauges.unsaved = self.persistence == nil ? 0 : self.collect().dirtyCount
        return gauges
    }

    package func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let (former, answerWaiters) = self.engine.dismissed(cancelling: true) { state in
            let former = (state.newerOnDisk, state.unseenOnDisk, state.savedDuringRemoval)
            state.session &+= 1
            state.diskRefresh = DiskRefresh()
            state.isDomainRemovalPending = false
            state.newerOnDisk = []
            state.unseenOnDisk = []
            state.savedDuringRemoval = []
            state.lostCount = 0
            return (.failure(MuxError.sessionEnded), (state.removeAll(), former))
        }
        withExtendedLifetime(former) {}
        return {
            answerWaiters()
            self.watchers.sendToAll(())
            if isTold { self.tell(.sessionEnded) }
        }
    }

    package func signOutCompleted() {
        // A caller that was resumed at the end of the session may have signed in again, and its new token
        // must stay.
        if !self.handsOutTokens { self.forgetAll() }
    }

    /// Removes all entries from memory; values of running fetches are not kept.
    ///
    /// - Parameters:
    ///   - error: The error for waiting callers; `nil` if the callers wait for the value of their fetch.
    ///   - isRemovalPending: Whether a removal of all entries on disk follows.
    func forgetAll(answering error: (any Error)? = nil, onDisk isRemovalPending: Bool = false) {
        let former = self.engine.fenceAll(answering: error) { state in
            if isRemovalPending { state.isDomainRemovalPending = true }
            state.clears &+= 1
            return state.removeAll()
        }
        withExtendedLifetime(former) {}
        self.watchers.sendToAll(())
    }

    // MARK: - Multiplexers with the same `cacheKey`

    package func cleared(_ cleared: ClearedEntries) {
        guard let persistence = self.persistence ?? self.sharing?.persistence else { return }
        guard let keys = cleared.keys else {
            return self.forgetAll(answering: cleared.endsRequests ? MuxError.cleared : nil)
        }
        let gone = Set(keys)
        var concerned = Set(self.engine.keysInFlight.filter { gone.contains(persistence.text($0)) })
        var place: Int?
        repeat {
            let (known, next) = self.engine.withState { $0.slots.keys(before: place, atMost: Self.portion) }
            concerned.formUnion(known.filter { gone.contains(persistence.text($0)) })
            place = next
        } while place != nil
        for key in concerned { self.forget(key, alsoOnDisk: false, endsRequests: cleared.endsRequests) }
    }

    // MARK: - Saving

    package func unsaved() -> UnsavedEntries {
        guard let persistence else { return UnsavedEntries() }
        let now = self.repository.time.now
        let wallTime = self.repository.wallTime()
        let unsaved = self.collect()
        let refresh = self.engine.withState { $0.diskRefresh }
        var entries = UnsavedEntries()
        entries.dirty = unsaved.dirty.map { key, entry, isRefreshed in
            let written = (entry.timeOfDay(wallTime, at: now), refresh.number(ofArrival: entry.sequence))
            return self.unsaved(entry, key, isRefreshed: isRefreshed, written, persistence)
        }
        entries.unseen = unsaved.unseen.map(persistence.name(of:))
        entries.unchanged = max(0, self.engine.withState { $0.slots.entryCount } - unsaved.dirtyCount)
        return entries
    }

    /// Changes that are not saved.
    private struct Unsaved {
        var dirty: [(Key, Slot<Value>.Entry, isRefreshed: Bool)] = []
        /// The number of dirty entries, including the entries of ``unseen``.
        var dirtyCount = 0
        /// Dirty entries that must not be written before a read of the disk.
        var unseen: [Key] = []
        var removals: [Key] = []
        var refreshes: [Key] = []
    }

    /// Collects the unsaved changes, in several critical sections.
    private func collect() -> Unsaved {
        var unsaved = Unsaved()
        var seen: Set<Key> = []
        var place: Int?
        repeat {
            let (slots, next) = self.engine.withState { state in
                let (keys, next) = state.slots.unsavedKeys(before: place, atMost: Self.portion)
                let slots = keys.compactMap { key in
                    state.slots.slot(of: key).map { (key, $0, isSeen: !state.unseenOnDisk.contains(key)) }
                }
                return (slots, next)
            }
            for (key, slot, isSeen) in slots where seen.insert(key).inserted {
                if slot.isRemovalPending { unsaved.removals.append(key) }
                if slot.isRefreshOwed { unsaved.refreshes.append(key) }
                guard let entry = slot.entry, entry.isDirty else { continue }
                unsaved.dirtyCount += 1
                if isSeen { unsaved.dirty.append((key, entry, slot.isRefreshed)) } else { unsaved.unseen.append(key) }
            }
            place = next
        } while place != nil
        return unsaved
    }

    private func unsaved(
        _ entry: Slot<Value>.Entry,
        _ key: Key,
        isRefreshed: Bool,
        _ written: (fetchedAt: Date, refreshNumber: UInt64?),
        _ persistence: Persistence<Key, Value>
    ) -> UnsavedEntry {
        let name = persistence.name(of: key)
        let (schemaVersion, staleIfError) = (self.policy.schemaVersion, self.policy.staleIfError)
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
                    usableUntil: usableTime.map { written.fetchedAt.addingTimeInterval($0.secondsValue) },
                    payload: try persistence.encode(entry.value)
                )
                // A refreshed entry must be stale after a relaunch, too.
                return isRefreshed ? stored.refreshed(staleIfError: staleIfError) : stored
            },
            isCurrent: { self.engine.withState { $0.slots.slot(of: key)?.entry?.revision == entry.revision } },
            markSaved: {
                self.withSlots { state in
                    guard state.slots.slot(of: key) != nil else { return }
                    state.withSlot(of: key) { $0.saved(entry, asRefreshed: isRefreshed) }
                    state.cannotWrite = false
                    if state.isDomainRemovalPending { state.savedDuringRemoval.insert(key) }
                }
            },
            markFailed: {
                self.withSlots { state in
                    guard state.slots.slot(of: key) != nil else { return }
                    state.withSlot(of: key) { $0.notSaved(entry) }
                }
            },
            markSuperseded: { _ = self.supersede(entry, of: key) }
        )
    }

    /// The lifetime of `entry` including the longer stale window; `nil` if unlimited.
    private func usableTime(of entry: Slot<Value>.Entry) -> Duration? {
        let staleTime = max(
            entry.stale.ifError ?? self.policy.staleIfError,
            entry.stale.whileRevalidate ?? self.policy.staleWhileRevalidate,
            .zero
        )
        let time = Duration.sum(max(entry.timeToLive, .zero), staleTime)
        // The server can revalidate an older value by its validator.
        let usable = entry.validator == nil ? time : .sum(time, .seconds(30 * 24 * 60 * 60))
        return usable < .seconds(1 << 32) ? usable : nil
    }

    /// Removes `entry` from memory, so that the next request reads the newer value on disk.
    ///
    /// - Returns: Whether memory still had `entry`.
    private func supersede(_ entry: Slot<Value>.Entry, of key: Key) -> Bool {
        let former = self.engine.withState { state -> Slot<Value>.Entry? in
            guard state.slots.slot(of: key)?.entry != nil else { return nil }
            return state.withSlot(of: key) { $0.superseded(entry) }
        }
        guard former != nil else { return false }
        self.watchers.send((), to: key)
        self.releaseEvicted()
        return true
    }

    package func takeLosses() -> Int { self.engine.withState { $0.takeLosses() } }

    package func lostOnDisk() {
        guard self.persistence != nil else { return }
        var keys: [Key] = []
        var place: Int?
        repeat {
            let (known, next) = self.engine.withState { $0.slots.keys(before: place, atMost: Self.portion) }
            keys += known
            place = next
        } while place != nil
        self.inPortions(keys) { state, key in state.withSlot(of: key) { $0.lostOnDisk() } }
    }

    // MARK: - Before a save

    package func makeGood() async -> MadeGood {
        guard let persistence else { return MadeGood() }
        let unsaved = self.collect()
        var made = MadeGood()
        if self.engine.withState({ $0.isDomainRemovalPending }) {
            made.failures += await self.removeDomain().failures
        } else if !unsaved.removals.isEmpty {
            made.failures += await self.remove(unsaved.removals).failures
        }
        // No entry is read from disk while a removal of the domain is pending.
        guard !self.engine.withState({ $0.isDomainRemovalPending }) else { return made }
        await self.lookForNewer(persistence, &made)
        do {
            made.refreshed += try await self.saveRefresh(hasWork: unsaved.dirtyCount > 0, persistence)
            try await self.saveRefreshes(unsaved.refreshes, persistence, &made)
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
    /// - Returns: 1 if the refresh was unsaved, otherwise 0.
    private func saveRefresh(hasWork: Bool, _ persistence: Persistence<Key, Value>) async throws -> Int {
        let (isSaved, session) = self.engine.withState { ($0.diskRefresh.isSaved, $0.session) }
        guard Slots.hasManyKeys, hasWork || !isSaved else { return 0 }
        let found = try await self.repository.load(persistence.refreshName)
        let refresh = self.engine.withState { state -> DiskRefresh? in
            guard state.session == session else { return nil }
            state.diskRefresh.read(found, at: state.lastRevision)
            return state.diskRefresh
        }
        let epoch = try await self.repository.settledEpoch()
        guard let refresh, let mark = refresh.mark(persistence.refreshName, epoch) else { return 0 }
        try await self.repository.write([mark])
        self.engine.withState { if $0.session == session { $0.diskRefresh.saved(mark) } }
        return refresh.isSaved ? 0 : 1
    }

    /// Marks the entries of `keys`, which are not in memory, as refreshed on disk.
    private func saveRefreshes(
        _ keys: [Key],
        _ persistence: Persistence<Key, Value>,
        _ made: inout MadeGood
    ) async throws {
        var rest = keys[...]
        while !rest.isEmpty {
            let portion = Array(rest.prefix(Self.portion))
            var entries: [MuxStoredEntry] = []
            let found = try await self.repository.load(portion.map(persistence.name(of:))).compactMap(\.self)
            for stored in found where !stored.isRefreshed {
                entries.append(stored.refreshed(staleIfError: self.policy.staleIfError))
            }
            if !entries.isEmpty { try await self.repository.write(entries) }
            made.refreshed += entries.count
            self.inPortions(portion) { state, key in state.withSlot(of: key) { $0.refreshedOnDisk() } }
            rest = rest.dropFirst(Self.portion)
        }
    }

    /// Reads the entries on disk that stored values would replace.
    ///
    /// A value of ``MultiplexerCore/store(_:_:ifRevision:)`` does not replace an entry of a later version of
    /// the program, and does not replace a newer value of another process. After this read, the store would
    /// permit this process to overwrite the newer value, so the value in memory is removed.
    ///
    /// - Parameters:
    ///   - persistence: Names the entries.
    ///   - made: Receives the removed entries and the failures.
    private func lookForNewer(_ persistence: Persistence<Key, Value>, _ made: inout MadeGood) async {
        let unseen = self.engine.withState { $0.unseenOnDisk }
        guard !unseen.isEmpty else { return }
        let latest = self.policy.schemaVersion
        var newer: [Key] = []
        var found: [(key: Key, fetchedAt: Date)] = []
        var seen: [Key] = []
        var failuresInARow = 0
        for key in unseen where failuresInARow < Self.mostFailuresInARow {
            do {
                let stored = try await self.repository.load(persistence.name(of: key))
                seen.append(key)
                failuresInARow = 0
                guard let stored else { continue }
                if stored.schemaVersion > latest { newer.append(key) } else { found.append((key, stored.fetchedAt)) }
            } catch {
                made.failures.append(error)
                failuresInARow += 1
            }
        }
        self.inPortions(newer) { state, key in
            state.newerOnDisk.insert(key)
            state.withSlot(of: key) { $0.excludeFromSaves() }
        }
        let now = self.repository.time.now
        let wallTime = self.repository.wallTime()
        // A date in the future was written before the clock was set back, and does not prove a newer value.
        for (key, fetchedAt) in found where fetchedAt <= wallTime {
            // An entry with a pending removal is never newer.
            guard let slot = self.engine.withState({ $0.slots.slot(of: key) }), !slot.isRemovalPending,
                let entry = slot.entry, entry.isDirty, fetchedAt > entry.timeOfDay(wallTime, at: now),
                self.supersede(entry, of: key)
            else { continue }
            made.superseded.append(persistence.name(of: key))
        }
        self.inPortions(seen) { state, key in state.release(state.unseenOnDisk.remove(key)) }
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
