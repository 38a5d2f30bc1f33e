/// The entries of a multiplexer on disk.
///
/// Changes of the disk run in the repository's lane, an asynchronous mutex.
@usableFromInline
final class DiskBacking<Slots: SlotStorage>: Sendable {
    @usableFromInline typealias Key = Slots.Key
    @usableFromInline typealias Value = Slots.Value
    @usableFromInline typealias State = SlotState<Slots>

    @usableFromInline let memory: SlotMemory<Slots>
    @usableFromInline let persistence: Persistence<Key, Value>

    init(_ memory: SlotMemory<Slots>, _ persistence: Persistence<Key, Value>) {
        self.memory = memory
        self.persistence = persistence
    }

    // MARK: - Loading

    /// The state of a slot before a read of its entry from disk; see ``SlotState/discardCount`` and
    /// ``SlotState/session``.
    ///
    /// `isRefreshed`: whether a refresh has made the entry stale; the refresh may be unsaved.
    @usableFromInline typealias StateBeforeRead = (isRefreshed: Bool, clears: UInt64, session: UInt64)

    /// The state of the slot before a read from disk; `nil` if memory has an entry, or a removal is pending.
    @inlinable
    func stateBeforeRead(of key: Key) -> StateBeforeRead? {
        self.memory.engine.withState { Self.stateBeforeRead(of: key, in: $0) }
    }

    @inlinable
    static func stateBeforeRead(of key: Key, in state: State) -> StateBeforeRead? {
        let slot = state.slots.slot(of: key)
        guard !state.disk.isDomainRemovalPending, slot?.entry == nil, !(slot?.isRemovalPending ?? false) else {
            return nil
        }
        return (slot?.isRefreshed ?? false, state.discardCount, state.session)
    }

    /// Loads an absent entry into its slot, and resumes callers; see ``Backing/lookUp(_:_:)``.
    @inlinable
    @inline(never)
    func lookUp(_ key: Key, _ flight: FlightID) async -> LookUp<Value> {
        guard let stateBefore = self.stateBeforeRead(of: key) else {
            // Without a read from the store, this call must detect a session that another process has ended.
            // The call may return while another task still ends the session in this process; then the fetched
            // value is dropped.
            _ = try? await self.memory.repository.checkSession()
            return LookUp()
        }
        do {
            guard let found = try await self.load(key) else { return LookUp() }
            return self.answer(key, flight, found, stateBefore)
        } catch {
            return LookUp(loaded: FormerSlot(Slot(), isUnread: true))
        }
    }

    /// Stores an entry from disk in its slot, and resumes callers.
    @inlinable
    @inline(never)
    func answer(
        _ key: Key,
        _ flight: FlightID,
        _ found: LoadedEntry<Value>,
        _ stateBefore: StateBeforeRead
    ) -> LookUp<Value> {
        let look = self.memory.resumeCallers(of: key, flight, source: .disk) {
            self.adopt(found, of: key, stateBefore, in: &$0)
        }
        // An entry that was not adopted, such as after a refresh during the read, is still on disk.
        return look.isOver || look.loaded != nil ? look : LookUp(loaded: FormerSlot(Slot(), isUnread: true))
    }

    /// Reads the entry of `key` from disk, without changing the entry in memory.
    ///
    /// - Returns: The entry; `nil` without a usable entry.
    /// - Throws: The error of the store: then the disk may have an entry.
    @usableFromInline
    @concurrent
    func load(_ key: Key) async throws -> LoadedEntry<Value>? {
        let repository = self.memory.repository
        let start = repository.time.now
        do {
            guard let found = try await repository.load(self.persistence.name(of: key)) else { return nil }
            try await self.readChanges(for: [found])
            return await self.memory.loaded(found, key, self.persistence, isPersistent: true, since: start)
        } catch {
            self.memory.tell(.loadFailed, key, repository.time.now.duration(since: start), because: error)
            throw error
        }
    }

    /// Reads the changes on disk that determine the freshness of entries from disk: the last refresh of all
    /// entries, and the changes of tags.
    ///
    /// - Throws: The store's error.
    func readChanges(for entries: [MuxStoredEntry]) async throws {
        try await self.readRefresh(for: entries)
        guard entries.contains(where: { !$0.tags.isEmpty || self.memory.tagsOfKey != nil }) else { return }
        try await self.memory.repository.readTags(isExpected: entries.contains { $0.tagNumber != nil })
    }

    /// Reads the mark of the last refresh of all entries.
    ///
    /// The mark is read before the first entry from disk is used, and again if another process may have
    /// refreshed since.
    private func readRefresh(for entries: [MuxStoredEntry]) async throws {
        guard Slots.hasManyKeys else { return }
        let session = self.memory.engine.withState { state in
            entries.contains(where: state.disk.refresh.needsMark) ? state.session : nil
        }
        guard let session else { return }
        let mark = try await self.memory.repository.load(self.persistence.refreshName)
        let numbers = entries.compactMap(\.refreshNumber)
        self.memory.engine.withState { state in
            guard state.session == session else { return }
            state.disk.refresh.read(mark, besides: numbers, at: state.lastRevision)
        }
    }

    /// Stores an entry from disk in its slot, unless memory has a newer state.
    ///
    /// - Returns: The slot, even if the table has no room for the slot; `nil` while the removal of the domain
    ///   is pending. For a key with changes of the app, see
    ///   ``SlotState/storeLoaded(_:fromBeforeRefresh:_:of:)``.
    @inlinable
    func adopt(
        _ loaded: LoadedEntry<Value>,
        of key: Key,
        _ stateBefore: StateBeforeRead,
        in state: inout State
    ) -> Slot<Value>? {
        guard !state.disk.isDomainRemovalPending else { return nil }
        var entry = loaded.entry
        entry.sequence = state.nextRevision()
        entry.revision = entry.sequence
        // During the read, a refresh may have been saved, and the mark in the slot removed: `stateBefore`
        // still has the mark.
        let isFromBefore = stateBefore.isRefreshed || state.disk.isFromBeforeRefresh(loaded)
        guard state.layers.isEmpty || state.layers[key] == nil else {
            return state.storeLoaded(entry, fromBeforeRefresh: isFromBefore, loaded.layers, of: key)
        }
        return state.withSlot(of: key) { slot in
            slot.adoptLoaded(entry, fromBeforeRefresh: isFromBefore)
            return slot
        }
    }

    /// The entry on disk, for a read without a fetch; see ``Backing/loadEntry(_:)``.
    func loadEntry(_ key: Key) async -> MuxEntry<Value>? {
        guard let stateBefore = self.stateBeforeRead(of: key) else {
            // An entry may have arrived since the caller looked in memory.
            let now = self.memory.repository.time.now
            return self.memory.engine.withState { $0.slots.slot(of: key)?.snapshot(at: now, source: .memory) }
        }
        let loaded = try? await self.load(key)
        let now = self.memory.repository.time.now
        let (entry, isAdopted) = self.memory.withSlots { state -> (MuxEntry<Value>?, Bool) in
            let slot = state.slots.slot(of: key)
            // An entry that arrived during the read is newer than the read entry. The read entry may have
            // been cleared.
            guard slot?.entry == nil, let loaded, state.session == stateBefore.session,
                state.discardCount == stateBefore.clears
            else {
                return (slot?.snapshot(at: now, source: .memory), false)
            }
            return (self.adopt(loaded, of: key, stateBefore, in: &state)?.snapshot(at: now, source: .disk), true)
        }
        if isAdopted { self.memory.watchers.send(.entry, to: key) }
        return entry
    }

    // MARK: - Removing

    /// Removes the entries of `keys` from disk; runs in the lane.
    func remove(_ keys: [Key]) async -> MuxRepository.ClearReport {
        do {
            let failures = try await self.memory.repository.remove(keys.map(self.persistence.name(of:)))
            let owed = Set(failures.lazy.filter { !$0.isFinal }.map(\.name))
            let removed = owed.isEmpty ? keys : keys.filter { !owed.contains(self.persistence.name(of: $0)) }
            self.memory.inPortions(removed) { state, key in
                state.withSlot(of: key) { $0.recordRemovalOnDisk() }
                state.release(state.disk.newer.remove(key))
            }
            return MuxRepository.ClearReport(failures: failures.map(\.error))
        } catch {
            return MuxRepository.ClearReport(failures: [error])
        }
    }

    /// Removes all entries of the domain from disk; runs in the lane.
    func removeDomain() async -> MuxRepository.ClearReport {
        do {
            let failure = try await self.memory.repository.removeAll(domain: self.persistence.domain)
            // If an earlier attempt failed, saves may have written entries since then. This removal has
            // removed these entries, so all saved entries in memory are unsaved again.
            if self.memory.engine.withState({ $0.disk.isDomainRemovalPending }) { self.markUnsaved() }
            let former = self.memory.engine.withState { state in
                state.disk.isDomainRemovalPending = false
                state.disk.refresh.removed()
                defer { state.disk.newer = [] }
                return state.disk.newer
            }
            withExtendedLifetime(former) {}
            return MuxRepository.ClearReport(failures: failure.map { [$0] } ?? [])
        } catch {
            return MuxRepository.ClearReport(failures: [error])
        }
    }
}
