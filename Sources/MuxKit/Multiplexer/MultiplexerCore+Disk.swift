import Foundation

extension MultiplexerCore {
    // MARK: - Loading

    /// What is known of an entry before the disk is asked for it.
    @usableFromInline
    struct DiskLook: Sendable {
        /// Whether the entry was refreshed, and the disk may not know it yet.
        let isRefreshed: Bool
        /// See ``State/clears`` and ``State/session``.
        let clears: UInt64
        let session: UInt64
    }

    /// What the disk has.
    @usableFromInline
    struct Loaded: Sendable {
        var entry: Slot<Value>.Entry
        /// The time of day at which it was fetched.
        let fetchedAt: Date
        /// Whether the disk knows that it was refreshed.
        let isRefreshed: Bool
    }

    /// Whether the disk may be asked for `key`: memory has no entry, and nothing that was cleared can be found there.
    @usableFromInline
    func look(for key: Key) -> DiskLook? {
        self.engine.withState { state in
            let slot = state.slots.slot(of: key)
            guard !state.isDomainRemovalPending, slot?.entry == nil, !(slot?.isRemovalPending ?? false) else {
                return nil
            }
            return DiskLook(isRefreshed: slot?.isRefreshed ?? false, clears: state.clears, session: state.session)
        }
    }

    /// Reads the entry of `key` from disk, without touching memory.
    ///
    /// - Returns: The entry; `nil` if there is none that can be used.
    @usableFromInline
    func load(_ key: Key, _ persistence: Persistence<Key, Value>) async -> Loaded? {
        let start = self.repository.time.now
        func failed() -> Loaded? {
            self.tell(.loadFailed, key, self.repository.time.now.duration(since: start))
            return nil
        }
        let stored: MuxStoredEntry
        do {
            guard let found = try await self.repository.load(persistence.name(of: key)) else { return nil }
            try await self.readRefresh(persistence)
            stored = found
        } catch {
            return failed()
        }
        guard stored.schemaVersion <= self.policy.schemaVersion else {
            // Written by a later version of the program: not for us to read, or to overwrite.
            self.engine.withState { _ = $0.newerOnDisk.insert(key) }
            return failed()
        }
        let (target, steps) = (self.policy.schemaVersion, self.policy.migrations)
        let decoded = await OffPool.run { () -> Value? in
            let payload = try? MuxMigration.migrate(stored.payload, from: stored.schemaVersion, to: target, by: steps)
            return payload.flatMap { try? persistence.decode($0) }
        }
        guard let value = decoded else { return failed() }
        let now = self.repository.time.now
        self.tell(.loaded, key, now.duration(since: start))
        let seconds = self.repository.wallTime().timeIntervalSince(stored.fetchedAt)
        // A clock that was set back would make the entry immortal: its age is unknown, so it is just past its time.
        let age = seconds >= 0 ? Duration.saturating(seconds: seconds) : max(stored.timeToLive, .zero)
        var entry = Slot<Value>.Entry(
            value: value,
            fetchedAt: now.advanced(by: .zero - age),
            timeToLive: stored.timeToLive,
            renewalAge: self.policy.renewalAge(stored.timeToLive, random: self.repository.random()),
            stale: StaleLimits(whileRevalidate: stored.staleWhileRevalidate, ifError: stored.staleIfError),
            // A migrated value is not what the server would send: it has to be fetched as a whole once.
            validator: stored.schemaVersion < target ? nil : stored.validator,
            revision: 0,
            isDirty: stored.schemaVersion < target,
            isPersistent: true
        )
        if let changed = persistence.changedAt?(key), entry.fetchedAt <= changed {
            entry.timeToLive = .zero
            entry.stale.whileRevalidate = .zero
            entry.isDirty = true
        }
        return Loaded(entry: entry, fetchedAt: stored.fetchedAt, isRefreshed: stored.isRefreshed)
    }

    /// Asks the disk for the last refresh of everything, before the first entry from there is used.
    private func readRefresh(_ persistence: Persistence<Key, Value>) async throws {
        guard Slots.hasManyKeys else { return }
        let session = self.engine.withState { $0.diskRefresh.isRead ? nil : $0.session }
        guard let session else { return }
        let found = try await self.repository.load(persistence.refreshName)
        self.engine.withState { if $0.session == session { $0.diskRefresh.read(found) } }
    }

    /// Takes over an entry from disk, where memory knows nothing newer.
    ///
    /// - Returns: The slot, which the table may not have had room for; `nil` if the disk is not to be believed.
    func adopt(_ loaded: Loaded, of key: Key, _ look: DiskLook, in state: inout State) -> Slot<Value>? {
        guard !state.isDomainRemovalPending else { return nil }
        var entry = loaded.entry
        entry.sequence = state.nextRevision()
        entry.revision = entry.sequence
        // A refresh may have been written to disk since it was asked, and be forgotten here.
        let isFromBefore = look.isRefreshed || state.isFromBeforeRefresh(loaded)
        return state.withSlot(of: key) { slot in
            slot.loaded(entry, fromBeforeRefresh: isFromBefore)
            return slot
        }
    }

    /// The value in memory or on disk, however old.
    func loadCachedEntry(_ key: Key) async -> MuxEntry<Value>? {
        guard key == key else { return nil }
        if let entry = self.cachedEntry(key) { return entry }
        guard let persistence, let look = self.look(for: key) else { return nil }
        let loaded = await self.load(key, persistence)
        let now = self.repository.time.now
        let (entry, isAdopted) = self.engine.withState { state -> (MuxEntry<Value>?, Bool) in
            let slot = state.slots.slot(of: key)
            // What came meanwhile is newer, and what was cleared meanwhile may be this.
            guard slot?.entry == nil, let loaded, state.session == look.session, state.clears == look.clears else {
                return (slot?.snapshot(at: now, source: .memory), false)
            }
            return (self.adopt(loaded, of: key, look, in: &state)?.snapshot(at: now, source: .disk), true)
        }
        if isAdopted {
            self.watchers.changed(key)
            self.letGoOfEvicted()
        }
        return entry
    }

    // MARK: - Clearing

    /// Forgets the entry of `key`, in memory and on disk.
    func clear(_ key: Key) async -> MuxClearReport {
        guard key == key else { return MuxClearReport() }
        guard self.persistence != nil else {
            self.forget(key, alsoOnDisk: false)
            return MuxClearReport()
        }
        let name = self.persistence?.name(of: key)
        return await self.repository.inLane {
            if let name { self.repository.tellOthers(.entries(domain: name.domain, keys: [name.key]), but: self) }
            self.forget(key, alsoOnDisk: true)
            return await self.remove([key])
        }
    }

    /// Forgets the entry of `key` in memory.
    private func forget(_ key: Key, alsoOnDisk: Bool) {
        let former = self.engine.fence(key) { state in
            state.clears &+= 1
            return state.withSlot(of: key) { $0.cleared(alsoOnDisk: alsoOnDisk) }
        }
        withExtendedLifetime(former) {}
        self.watchers.changed(key)
        self.letGoOfEvicted()
    }

    /// Tells the disk to forget the entries of `keys`; in the lane.
    private func remove(_ keys: [Key]) async -> MuxClearReport {
        guard let persistence else { return MuxClearReport() }
        do {
            try await self.repository.remove(keys.map(persistence.name(of:)))
            self.inPortions(keys) { state, key in
                state.withSlot(of: key) { $0.removedFromDisk() }
                state.newerOnDisk.remove(key)
            }
            return MuxClearReport()
        } catch {
            return MuxClearReport(failures: [error])
        }
    }

    /// Forgets every entry, in memory and on disk.
    func clearAll() async -> MuxClearReport {
        guard self.persistence != nil else {
            _ = self.engine.fenceAll { $0.slots.removeAll() }
            self.watchers.changedAll()
            return MuxClearReport()
        }
        return await self.repository.inLane {
            if let domain = self.persistence?.domain { self.repository.tellOthers(.domain(domain), but: self) }
            _ = self.engine.fenceAll { state in
                state.isDomainRemovalPending = true
                state.clears &+= 1
                return state.slots.removeAll()
            }
            self.watchers.changedAll()
            return await self.removeDomain()
        }
    }

    /// Tells the disk to forget the domain; in the lane.
    private func removeDomain() async -> MuxClearReport {
        guard let persistence else { return MuxClearReport() }
        do {
            try await self.repository.removeAll(domain: persistence.domain)
            // What was saved since the first try has gone with the rest.
            let saved = self.engine.withState { state in
                defer { state.savedDuringRemoval = [] }
                return state.savedDuringRemoval
            }
            self.inPortions(Array(saved)) { state, key in state.withSlot(of: key) { $0.lostOnDisk() } }
            let former = self.engine.withState { state in
                state.isDomainRemovalPending = false
                state.diskRefresh.removed()
                defer { state.newerOnDisk = [] }
                return state.newerOnDisk
            }
            withExtendedLifetime(former) {}
            return MuxClearReport()
        } catch {
            return MuxClearReport(failures: [error])
        }
    }
}

extension MultiplexerCore: SessionParticipant {
    // MARK: - Sign-out

    package var domain: String? { self.persistence?.domain }

    package var statistics: MuxStatistics { self.engine.withState { $0.statistics } }

    package func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let (former, farewell) = self.engine.dismissed(cancelling: true) { state in
            let former = (state.newerOnDisk, state.unseenOnDisk, state.savedDuringRemoval)
            state.session &+= 1
            state.diskRefresh = DiskRefresh()
            state.isDomainRemovalPending = false
            state.newerOnDisk = []
            state.unseenOnDisk = []
            state.savedDuringRemoval = []
            state.lostCount = 0
            return (.failure(MuxError.sessionEnded), (state.slots.removeAll(), former))
        }
        withExtendedLifetime(former) {}
        return {
            farewell()
            self.watchers.changedAll()
            if isTold { self.tell(.sessionEnded) }
        }
    }

    package func signOutCompleted() {
        let former = self.engine.fenceAll { state in
            state.clears &+= 1
            return state.slots.removeAll()
        }
        withExtendedLifetime(former) {}
        self.watchers.changedAll()
    }

    // MARK: - Others with the same name

    package func cleared(_ cleared: ClearedEntries) {
        guard let persistence else { return }
        switch cleared {
        case .domain(let domain):
            guard domain == persistence.domain else { return }
            _ = self.engine.fenceAll { state in
                state.clears &+= 1
                return state.slots.removeAll()
            }
            self.watchers.changedAll()
        case .entries(let domain, let keys):
            guard domain == persistence.domain else { return }
            let gone = Set(keys)
            var concerned = Set(self.engine.keysInFlight.filter { gone.contains(persistence.text($0)) })
            var place: Int?
            repeat {
                let (known, next) = self.engine.withState { $0.slots.keys(before: place, atMost: Self.portion) }
                concerned.formUnion(known.filter { gone.contains(persistence.text($0)) })
                place = next
            } while place != nil
            for key in concerned { self.forget(key, alsoOnDisk: false) }
        }
    }

    // MARK: - Saving

    package func unsaved() -> UnsavedEntries {
        guard let persistence else { return UnsavedEntries() }
        let now = self.repository.time.now
        let wallTime = self.repository.wallTime()
        let unsaved = self.collect()
        var entries = UnsavedEntries()
        entries.dirty = unsaved.dirty.map { key, entry, isRefreshed in
            let fetchedAt = wallTime.addingTimeInterval(-now.duration(since: entry.fetchedAt).secondsValue)
            return self.unsaved(entry, key, isRefreshed: isRefreshed, fetchedAt: fetchedAt, persistence)
        }
        entries.unseen = unsaved.unseen.map(persistence.name(of:))
        entries.unchanged = max(0, self.engine.withState { $0.slots.entryCount } - unsaved.dirtyCount)
        return entries
    }

    /// What the disk has yet to hear of.
    private struct Unsaved {
        var dirty: [(Key, Slot<Value>.Entry, isRefreshed: Bool)] = []
        /// How many entries are dirty, those in ``unseen`` included.
        var dirtyCount = 0
        /// Those that may not be written yet.
        var unseen: [Key] = []
        var removals: [Key] = []
        var refreshes: [Key] = []
    }

    /// Goes through what changed, a few at a time.
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
        fetchedAt: Date,
        _ persistence: Persistence<Key, Value>
    ) -> UnsavedEntry {
        let name = persistence.name(of: key)
        let (schemaVersion, staleIfError) = (self.policy.schemaVersion, self.policy.staleIfError)
        return UnsavedEntry(
            name: name,
            fetchedAt: entry.fetchedAt,
            encode: { sessionEpoch in
                let stored = MuxStoredEntry(
                    name: name,
                    schemaVersion: schemaVersion,
                    sessionEpoch: sessionEpoch,
                    fetchedAt: fetchedAt,
                    timeToLive: max(entry.timeToLive, .zero),
                    validator: entry.validator,
                    staleWhileRevalidate: entry.stale.whileRevalidate.map { max($0, .zero) },
                    staleIfError: entry.stale.ifError.map { max($0, .zero) },
                    payload: try persistence.encode(entry.value)
                )
                // What a refresh made stale is stale after a relaunch, too.
                return isRefreshed ? stored.refreshed(staleIfError: staleIfError) : stored
            },
            isCurrent: { self.engine.withState { $0.slots.slot(of: key)?.entry?.revision == entry.revision } },
            markSaved: {
                self.engine.withState { state in
                    guard state.slots.slot(of: key) != nil else { return }
                    state.withSlot(of: key) { $0.saved(entry, asRefreshed: isRefreshed) }
                    state.cannotWrite = false
                    if state.isDomainRemovalPending { state.savedDuringRemoval.insert(key) }
                }
                self.letGoOfEvicted()
            },
            markFailed: {
                self.engine.withState { state in
                    guard state.slots.slot(of: key) != nil else { return }
                    state.withSlot(of: key) { $0.notSaved(entry) }
                }
                self.letGoOfEvicted()
            }
        )
    }

    package func takeLosses() -> Int { self.engine.withState { $0.takeLosses() } }

    // MARK: - What comes before a save

    package func makeGood() async -> [any Error] {
        guard let persistence else { return [] }
        let unsaved = self.collect()
        var failures: [any Error] = []
        if self.engine.withState({ $0.isDomainRemovalPending }) {
            failures += await self.removeDomain().failures
        } else if !unsaved.removals.isEmpty {
            failures += await self.remove(unsaved.removals).failures
        }
        // While everything that was cleared may still be there, nothing of it is to be looked at.
        guard !self.engine.withState({ $0.isDomainRemovalPending }) else { return failures }
        do {
            try await self.saveRefresh(hasWork: unsaved.dirtyCount > 0, persistence)
            try await self.saveRefreshes(unsaved.refreshes, persistence)
        } catch {
            failures.append(error)
        }
        do {
            try await self.lookForNewer(persistence)
        } catch {
            failures.append(error)
        }
        return failures
    }

    /// Tells the disk when everything was refreshed last.
    ///
    /// With every save, so that a store which gives up what was not used for long does not give up this.
    private func saveRefresh(hasWork: Bool, _ persistence: Persistence<Key, Value>) async throws {
        let refresh = self.engine.withState { $0.diskRefresh }
        guard Slots.hasManyKeys, let date = refresh.date, hasWork || !refresh.isSaved else { return }
        // Another process may have refreshed later.
        let known = DiskRefresh.date(try await self.repository.load(persistence.refreshName, isInLane: true))
        let latest = max(date, known ?? date)
        let epoch = try await self.repository.settledEpoch()
        try await self.repository.write([DiskRefresh.entry(latest, persistence.refreshName, epoch)])
        self.engine.withState { $0.diskRefresh.saved(latest) }
    }

    /// Has the disk take for stale what was refreshed and is not in memory.
    private func saveRefreshes(_ keys: [Key], _ persistence: Persistence<Key, Value>) async throws {
        var rest = keys[...]
        while !rest.isEmpty {
            let portion = Array(rest.prefix(Self.portion))
            var entries: [MuxStoredEntry] = []
            for key in portion {
                let found = try await self.repository.load(persistence.name(of: key), isInLane: true)
                guard let stored = found else { continue }
                if !stored.isRefreshed { entries.append(stored.refreshed(staleIfError: self.policy.staleIfError)) }
            }
            if !entries.isEmpty { try await self.repository.write(entries) }
            self.inPortions(portion) { state, key in state.withSlot(of: key) { $0.refreshedOnDisk() } }
            rest = rest.dropFirst(Self.portion)
        }
    }

    /// Looks at what the disk has of values that were stored by hand: what a later version of the program wrote is to stay.
    private func lookForNewer(_ persistence: Persistence<Key, Value>) async throws {
        let unseen = self.engine.withState { $0.unseenOnDisk }
        guard !unseen.isEmpty else { return }
        let latest = self.policy.schemaVersion
        var newer: [Key] = []
        for key in unseen {
            let found = try await self.repository.load(persistence.name(of: key), isInLane: true)
            guard let stored = found else { continue }
            if stored.schemaVersion > latest { newer.append(key) }
        }
        self.inPortions(newer) { state, key in
            state.newerOnDisk.insert(key)
            state.withSlot(of: key) { $0.isNotToBeSaved() }
        }
        self.inPortions(Array(unseen)) { state, key in state.unseenOnDisk.remove(key) }
    }
}
