import Foundation

extension MultiplexerCore {
    // MARK: - Loading

    /// Whether the disk may be asked for `key`: memory has no entry, and nothing that was cleared can be found there.
    func mayRead(_ key: Key) -> Bool {
        self.engine.withState { state in
            guard !state.isDomainRemovalPending else { return false }
            guard let slot = state.slots.slot(of: key) else { return true }
            return slot.entry == nil && !slot.isRemovalPending
        }
    }

    /// Reads the entry of `key` from disk, without touching memory.
    ///
    /// - Returns: The entry; `nil` if there is none that can be used.
    func load(_ key: Key, _ persistence: Persistence<Key, Value>) async -> Slot<Value>.Entry? {
        let start = self.repository.time.now
        func failed() -> Slot<Value>.Entry? {
            self.tell(.loadFailed, key, self.repository.time.now.duration(since: start))
            return nil
        }
        let stored: MuxStoredEntry
        do {
            guard let found = try await self.repository.load(persistence.name(of: key)) else { return nil }
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
        return entry
    }

    /// Takes over an entry from disk, where memory knows nothing newer.
    ///
    /// - Returns: The slot, which the table may not have had room for; `nil` if the disk is not to be believed.
    func adopt(_ entry: Slot<Value>.Entry, of key: Key, in state: inout State) -> Slot<Value>? {
        guard !state.isDomainRemovalPending else { return nil }
        var entry = entry
        entry.revision = state.nextRevision()
        let isFromBefore = state.isFromBeforeRefresh(entry)
        return state.withSlot(of: key) { slot in
            slot.loaded(entry, fromBeforeRefresh: isFromBefore)
            return slot
        }
    }

    /// The value in memory or on disk, however old.
    func loadCachedEntry(_ key: Key) async -> MuxEntry<Value>? {
        guard key == key else { return nil }
        if let entry = self.cachedEntry(key) { return entry }
        guard let persistence, self.mayRead(key) else { return nil }
        let session = self.engine.withState { $0.session }
        let loaded = await self.load(key, persistence)
        let now = self.repository.time.now
        return self.engine.withState { state in
            var slot = state.slots.slot(of: key) ?? Slot()
            // What came meanwhile is newer.
            guard slot.entry == nil, let loaded, state.session == session, !state.isDomainRemovalPending else {
                return slot.snapshot(at: now, source: .memory)
            }
            // Not put into memory: only a flight, which a fence can stop, does that.
            slot.loaded(loaded, fromBeforeRefresh: state.isFromBeforeRefresh(loaded))
            return slot.snapshot(at: now, source: .disk)
        }
    }

    // MARK: - Clearing

    /// Forgets the entry of `key`, in memory and on disk.
    func clear(_ key: Key) async -> MuxClearReport {
        guard key == key else { return MuxClearReport() }
        guard self.persistence != nil else {
            _ = self.engine.fence(key) { state in state.withSlot(of: key) { $0.cleared(alsoOnDisk: false) } }
            self.watchers.changed(key)
            self.letGoOfEvicted()
            return MuxClearReport()
        }
        let name = self.persistence?.name(of: key)
        return await self.repository.inLane {
            if let name { self.repository.tellOthers(.entries(domain: name.domain, keys: [name.key]), but: self) }
            _ = self.engine.fence(key) { state in state.withSlot(of: key) { $0.cleared(alsoOnDisk: true) } }
            self.watchers.changed(key)
            self.letGoOfEvicted()
            return await self.remove([key])
        }
    }

    /// Tells the disk to forget the entries of `keys`; in the lane.
    private func remove(_ keys: [Key]) async -> MuxClearReport {
        guard let persistence else { return MuxClearReport() }
        do {
            try await self.repository.remove(keys.map(persistence.name(of:)))
            self.engine.withState { state in
                for key in keys { state.withSlot(of: key) { $0.removedFromDisk() } }
                state.newerOnDisk.subtract(keys)
            }
            self.letGoOfEvicted()
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
            self.engine.withState { state in
                guard state.isDomainRemovalPending else { return }
                state.isDomainRemovalPending = false
                state.refreshedOnDisk = nil
                state.newerOnDisk = []
                // What was saved since the first try has gone with the rest.
                for key in state.slots.keys { state.withSlot(of: key) { $0.lostOnDisk() } }
            }
            self.letGoOfEvicted()
            return MuxClearReport()
        } catch {
            return MuxClearReport(failures: [error])
        }
    }
}

/// What the disk still has although it was cleared.
private enum OwedRemoval<Key: Sendable>: Sendable {
    case everything
    case keys([Key])
}

extension MultiplexerCore: SessionParticipant {
    // MARK: - Sign-out

    package var domain: String? { self.persistence?.domain }

    package var statistics: MuxStatistics { self.engine.withState { $0.statistics } }

    package func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let (former, farewell) = self.engine.dismissed(cancelling: true) { state in
            state.session &+= 1
            state.refreshedOnDisk = nil
            state.isDomainRemovalPending = false
            state.newerOnDisk = []
            return (.failure(MuxError.sessionEnded), state.slots.removeAll())
        }
        withExtendedLifetime(former) {}
        return {
            farewell()
            self.watchers.changedAll()
            if isTold { self.tell(.sessionEnded) }
        }
    }

    package func signOutCompleted() {
        let former = self.engine.fenceAll { $0.slots.removeAll() }
        withExtendedLifetime(former) {}
        self.watchers.changedAll()
    }

    // MARK: - Others with the same name

    package func cleared(_ cleared: ClearedEntries) {
        guard let persistence else { return }
        switch cleared {
        case .domain(let domain):
            guard domain == persistence.domain else { return }
            _ = self.engine.fenceAll { $0.slots.removeAll() }
            self.watchers.changedAll()
        case .entries(let domain, let keys):
            guard domain == persistence.domain else { return }
            let gone = Set(keys)
            let known = Set(self.engine.keysInFlight + self.engine.withState { $0.slots.keys })
            for key in known where gone.contains(persistence.text(key)) {
                _ = self.engine.fence(key) { state in state.withSlot(of: key) { $0.cleared(alsoOnDisk: false) } }
                self.watchers.changed(key)
            }
            self.letGoOfEvicted()
        }
    }

    // MARK: - Saving

    package func unsaved() -> UnsavedEntries {
        guard let persistence else { return UnsavedEntries() }
        let now = self.repository.time.now
        let wallTime = self.repository.wallTime()
        let (entries, unchanged, owed) = self.engine.withState { state in
            var dirty: [(Key, Slot<Value>.Entry, isRefreshed: Bool)] = []
            var unchanged = 0
            var owed: [Key] = []
            for key in state.slots.keys {
                guard let slot = state.slots.slot(of: key) else { continue }
                if slot.isRemovalPending { owed.append(key) }
                guard let entry = slot.entry else { continue }
                if entry.isDirty { dirty.append((key, entry, slot.isRefreshed)) } else { unchanged += 1 }
            }
            return (dirty, unchanged, state.isDomainRemovalPending ? OwedRemoval.everything : .keys(owed))
        }
        let dirty = entries.map { key, entry, isRefreshed in
            let fetchedAt = wallTime.addingTimeInterval(-now.duration(since: entry.fetchedAt).secondsValue)
            return self.unsaved(entry, key, isRefreshed: isRefreshed, fetchedAt: fetchedAt, persistence)
        }
        var unsaved = UnsavedEntries(dirty: dirty, unchanged: unchanged)
        switch owed {
        case .everything:
            unsaved.repair = { await self.removeDomain() }
        case .keys(let keys) where !keys.isEmpty:
            unsaved.repair = { await self.remove(keys) }
        case .keys:
            break
        }
        return unsaved
    }

    private func unsaved(
        _ entry: Slot<Value>.Entry,
        _ key: Key,
        isRefreshed: Bool,
        fetchedAt: Date,
        _ persistence: Persistence<Key, Value>
    ) -> UnsavedEntry {
        // What a refresh made stale is stale after a relaunch, too.
        let timeToLive = isRefreshed ? .zero : max(entry.timeToLive, .zero)
        let name = persistence.name(of: key)
        let schemaVersion = self.policy.schemaVersion
        return UnsavedEntry(
            name: name,
            fetchedAt: entry.fetchedAt,
            encode: { sessionEpoch in
                MuxStoredEntry(
                    name: name,
                    schemaVersion: schemaVersion,
                    sessionEpoch: sessionEpoch,
                    fetchedAt: fetchedAt,
                    timeToLive: timeToLive,
                    validator: entry.validator,
                    staleWhileRevalidate: entry.stale.whileRevalidate.map { max($0, .zero) },
                    staleIfError: entry.stale.ifError.map { max($0, .zero) },
                    payload: try persistence.encode(entry.value)
                )
            },
            isCurrent: { self.engine.withState { $0.slots.slot(of: key)?.entry?.revision == entry.revision } },
            markSaved: {
                self.engine.withState { state in
                    guard state.slots.slot(of: key) != nil else { return }
                    state.withSlot(of: key) { $0.saved(entry, asRefreshed: isRefreshed) }
                }
                self.letGoOfEvicted()
            }
        )
    }
}
