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
    /// - Returns: The entry and when it was fetched, by the wall clock; `nil` if there is none that can be used.
    func load(_ key: Key, _ persistence: Persistence<Key, Value>) async -> (Slot<Value>.Entry, Date)? {
        let stored: MuxStoredEntry
        do {
            guard let found = try await self.repository.load(persistence.name(of: key)) else { return nil }
            stored = found
        } catch {
            self.tell(.loadFailed, key)
            return nil
        }
        guard stored.schemaVersion == self.policy.schemaVersion,
            let value = try? persistence.decode(stored.payload)
        else {
            self.tell(.loadFailed, key)
            return nil
        }
        self.tell(.loaded, key)
        let now = self.repository.time.now
        let age = Duration.saturating(seconds: self.repository.wallTime().timeIntervalSince(stored.fetchedAt))
        // A clock that was set back would make the entry immortal: its age is unknown, so it is just past its time.
        let knownAge = age < .zero ? max(stored.timeToLive, .zero) : age
        let entry = Slot<Value>.Entry(
            value: value,
            fetchedAt: now.advanced(by: .zero - knownAge),
            timeToLive: stored.timeToLive,
            validator: stored.validator,
            revision: 0,
            isDirty: false
        )
        return (entry, stored.fetchedAt)
    }

    /// Takes over an entry from disk, where memory knows nothing newer.
    ///
    /// - Returns: The slot, which the table may not have had room for; `nil` if the disk is not to be believed.
    func adopt(_ entry: Slot<Value>.Entry, fetchedAt: Date, of key: Key, in state: inout State) -> Slot<Value>? {
        guard !state.isDomainRemovalPending else { return nil }
        var entry = entry
        entry.revision = state.nextRevision()
        let isFromBefore = state.refreshedOnDisk.map { fetchedAt <= $0 } ?? false
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
        guard let (entry, _) = await self.load(key, persistence) else { return self.cachedEntry(key) }
        // Not put into memory: only a flight, which a fence can stop, does that.
        var slot = Slot<Value>()
        slot.committed(entry)
        return slot.snapshot(at: self.repository.time.now, source: .disk)
    }

    // MARK: - Clearing

    /// Forgets the entry of `key`, in memory and on disk.
    func clear(_ key: Key) async -> MuxClearReport {
        guard key == key else { return MuxClearReport() }
        guard self.persistence != nil else {
            self.engine.fence(key) { state in state.withSlot(of: key) { $0.cleared(alsoOnDisk: false) } }
            return MuxClearReport()
        }
        return await self.repository.lane.run {
            self.engine.fence(key) { state in state.withSlot(of: key) { $0.cleared(alsoOnDisk: true) } }
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
            }
            return MuxClearReport()
        } catch {
            return MuxClearReport(failures: [error])
        }
    }

    /// Forgets every entry, in memory and on disk.
    func clearAll() async -> MuxClearReport {
        guard self.persistence != nil else {
            self.engine.fenceAll { $0.slots.removeAll() }
            return MuxClearReport()
        }
        return await self.repository.lane.run {
            self.engine.fenceAll { state in
                state.slots.removeAll()
                state.isDomainRemovalPending = true
            }
            return await self.removeDomain()
        }
    }

    /// Tells the disk to forget the domain; in the lane.
    private func removeDomain() async -> MuxClearReport {
        guard let persistence else { return MuxClearReport() }
        do {
            try await self.repository.removeAll(domain: persistence.domain)
            self.engine.withState { state in
                state.isDomainRemovalPending = false
                state.refreshedOnDisk = nil
            }
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

    package func sessionEnded() {
        self.engine.dismissAll(cancelling: true) { state in
            state.slots.removeAll()
            state.refreshedOnDisk = nil
            state.isDomainRemovalPending = false
            return .failure(MuxError.sessionEnded)
        }
        self.tell(.sessionEnded)
    }

    // MARK: - Saving

    package func unsaved() -> UnsavedEntries {
        guard let persistence else { return UnsavedEntries() }
        let now = self.repository.time.now
        let wallTime = self.repository.wallTime()
        let (entries, unchanged, owed) = self.engine.withState { state in
            var dirty: [(Key, Slot<Value>.Entry)] = []
            var unchanged = 0
            var owed: [Key] = []
            for key in state.slots.keys {
                guard let slot = state.slots.slot(of: key) else { continue }
                if slot.isRemovalPending { owed.append(key) }
                guard let entry = slot.entry else { continue }
                if entry.isDirty { dirty.append((key, entry)) } else { unchanged += 1 }
            }
            return (dirty, unchanged, state.isDomainRemovalPending ? OwedRemoval.everything : .keys(owed))
        }
        let dirty = entries.map { key, entry in
            let fetchedAt = wallTime.addingTimeInterval(-now.duration(since: entry.fetchedAt).secondsValue)
            return self.unsaved(entry, key, fetchedAt: fetchedAt, persistence)
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
        fetchedAt: Date,
        _ persistence: Persistence<Key, Value>
    ) -> UnsavedEntry {
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
                    timeToLive: entry.timeToLive,
                    validator: entry.validator,
                    payload: try persistence.encode(entry.value)
                )
            },
            isCurrent: { self.engine.withState { $0.slots.slot(of: key)?.entry?.revision == entry.revision } },
            markSaved: {
                self.engine.withState { state in
                    guard state.slots.slot(of: key) != nil else { return }
                    state.withSlot(of: key) { $0.saved(revision: entry.revision) }
                }
                self.tellEvictions()
            }
        )
    }
}
