public import Foundation

extension MultiplexerCore {
    // MARK: - Loading

    /// The state of a slot before a read of its entry from disk.
    @usableFromInline
    struct DiskLook: Sendable {
        /// Whether the entry was refreshed; the refresh may be unsaved.
        @usableFromInline let isRefreshed: Bool
        /// See ``State/clears`` and ``State/session``.
        @usableFromInline let clears: UInt64
        @usableFromInline let session: UInt64

        @inlinable
        init(isRefreshed: Bool, clears: UInt64, session: UInt64) {
            self.isRefreshed = isRefreshed
            self.clears = clears
            self.session = session
        }
    }

    /// An entry from disk.
    @usableFromInline
    struct Loaded: Sendable {
        @usableFromInline var entry: Slot<Value>.Entry
        /// The wall-clock time of the fetch.
        @usableFromInline let fetchedAt: Date
        /// Whether the entry was saved as refreshed.
        @usableFromInline let isRefreshed: Bool
        /// See ``MuxStoredEntry/refreshNumber``.
        @usableFromInline let refreshNumber: UInt64?

        @inlinable
        init(entry: Slot<Value>.Entry, fetchedAt: Date, isRefreshed: Bool, refreshNumber: UInt64?) {
            self.entry = entry
            self.fetchedAt = fetchedAt
            self.isRefreshed = isRefreshed
            self.refreshNumber = refreshNumber
        }
    }

    /// The state of the slot before a read from disk; `nil` if memory has an entry, or a removal is pending.
    @inlinable
    func look(for key: Key) -> DiskLook? { self.engine.withState { Self.look(for: key, in: $0) } }

    @inlinable
    static func look(for key: Key, in state: State) -> DiskLook? {
        let slot = state.slots.slot(of: key)
        guard !state.isDomainRemovalPending, slot?.entry == nil, !(slot?.isRemovalPending ?? false) else { return nil }
        return DiskLook(isRefreshed: slot?.isRefreshed ?? false, clears: state.clears, session: state.session)
    }

    /// Reads the entry of `key` from disk, without changing the entry in memory.
    ///
    /// - Returns: The entry; `nil` without a usable entry.
    @usableFromInline
    @concurrent
    func load(_ key: Key, _ persistence: Persistence<Key, Value>) async -> Loaded? {
        let start = self.repository.time.now
        do {
            guard let found = try await self.repository.load(persistence.name(of: key)) else { return nil }
            try await self.readRefresh(for: [found], persistence)
            return await self.loaded(found, key, persistence, since: start)
        } catch {
            self.tell(.loadFailed, key, self.repository.time.now.duration(since: start), because: error)
            return nil
        }
    }

    /// Decodes a stored entry.
    ///
    /// - Parameters:
    ///   - stored: The stored entry.
    ///   - key: The key.
    ///   - persistence: Decodes the value.
    ///   - start: The begin of the read.
    ///   - known: The age of the entry at `start`; if `nil`, the wall-clock time determines the age.
    /// - Returns: The entry; `nil` if the entry cannot be used.
    @usableFromInline
    func loaded(
        _ stored: MuxStoredEntry,
        _ key: Key,
        _ persistence: Persistence<Key, Value>,
        since start: Moment,
        age known: Duration? = nil
    ) async -> Loaded? {
        func failed(because reason: MuxEvent.Reason) -> Loaded? {
            guard self.isObserved else { return nil }
            self.told(.loadFailed, key, self.repository.time.now.duration(since: start), because: reason)
            return nil
        }
        guard stored.schemaVersion <= self.policy.schemaVersion else {
            // Written by a later version of the program: neither read nor overwritten.
            self.engine.withState { _ = $0.newerOnDisk.insert(key) }
            return failed(because: .other("of a later version"))
        }
        let (target, steps) = (self.policy.schemaVersion, self.policy.migrations)
        if let selection {
            // A migrated value has no validator, which would identify the requests that may use the value.
            let isMigrated = stored.schemaVersion < target && stored.validator.map { selection.concerns($0) } ?? false
            guard !isMigrated, selection.includes(key, stored.validator) else { return nil }
        }
        let decoded = await Self.decoded(stored.payload.count) { () -> Value? in
            let payload = try? MuxMigration.migrate(stored.payload, from: stored.schemaVersion, to: target, by: steps)
            return payload.flatMap { try? persistence.decode($0) }
        }
        guard let value = decoded else {
            self.repository.misuseLog?.write(.undecodable(persistence.domain, type: "\(Value.self)"))
            return failed(because: .decoding)
        }
        let now = self.repository.time.now
        self.tell(.loaded, key, now.duration(since: start))
        let age: Duration
        if let known {
            age = .sum(known, now.duration(since: start))
        } else {
            let seconds = self.repository.wallTime().timeIntervalSince(stored.fetchedAt)
            // If the clock was set back, the age is unknown. The entry counts as just expired; otherwise it
            // would never expire.
            age = seconds >= 0 ? Duration.saturating(seconds: seconds) : max(stored.timeToLive, .zero)
        }
        var entry = Slot<Value>.Entry(
            value: value,
            fetchedAt: now.advanced(by: .zero - age),
            timeToLive: stored.timeToLive,
            renewalAge: self.renewalAge(stored.timeToLive, stored.validator),
            stale: StaleLimits(whileRevalidate: stored.staleWhileRevalidate, ifError: stored.staleIfError),
            // A migrated value differs from the server's value, so a validator must not revalidate it.
            validator: stored.schemaVersion < target ? nil : stored.validator,
            revision: 0,
            isDirty: stored.schemaVersion < target && !self.isShared,
            isPersistent: !self.isShared
        )
        if let changed = persistence.changedAt?(key), entry.fetchedAt <= changed {
            entry.timeToLive = .zero
            entry.stale.whileRevalidate = .zero
            entry.isDirty = !self.isShared
        }
        return Loaded(
            entry: entry,
            fetchedAt: stored.fetchedAt,
            isRefreshed: stored.isRefreshed,
            refreshNumber: stored.refreshNumber
        )
    }

    /// The maximum size in bytes of a small payload.
    ///
    /// A small payload is decoded without a change of threads, which would take longer than the decoding.
    @inlinable static var smallPayload: Int { 1 << 14 }

    /// Decodes a payload of `count` bytes, never in the caller's isolation.
    @concurrent
    private static func decoded(_ count: Int, _ decode: @escaping @Sendable () -> Value?) async -> Value? {
        count <= Self.smallPayload ? decode() : await BlockingWork.run(decode)
    }

    /// Reads the mark of the last refresh of all entries.
    ///
    /// The mark is read before the first entry from disk is used, and again if another process may have
    /// refreshed since.
    ///
    /// - Parameters:
    ///   - entries: The entries from disk, whose freshness depends on the mark.
    ///   - persistence: Names the mark of the refresh.
    /// - Throws: The store's error.
    @usableFromInline
    func readRefresh(for entries: [MuxStoredEntry?], _ persistence: Persistence<Key, Value>) async throws {
        guard Slots.hasManyKeys else { return }
        let session = self.engine.withState { state in
            entries.contains(where: state.diskRefresh.needsMark) ? state.session : nil
        }
        guard let session else { return }
        let mark = try await self.repository.load(persistence.refreshName)
        let numbers = entries.compactMap { $0?.refreshNumber }
        self.engine.withState { state in
            guard state.session == session else { return }
            state.diskRefresh.read(mark, besides: numbers, at: state.lastRevision)
        }
    }

    /// Stores an entry from disk in its slot, unless memory has a newer state.
    ///
    /// - Returns: The slot, for which the table may have had no room; `nil` during a removal of the domain.
    @inlinable
    func adopt(_ loaded: Loaded, of key: Key, _ look: DiskLook, in state: inout State) -> Slot<Value>? {
        guard !state.isDomainRemovalPending else { return nil }
        var entry = loaded.entry
        entry.sequence = state.nextRevision()
        entry.revision = entry.sequence
        // A refresh may have been saved, and its mark removed, since the disk was read.
        let isFromBefore = look.isRefreshed || state.isFromBeforeRefresh(loaded)
        return state.withSlot(of: key) { slot in
            slot.loaded(entry, fromBeforeRefresh: isFromBefore)
            return slot
        }
    }

    /// The entry in memory, or otherwise on disk or in the shared store, fresh or stale.
    func loadCachedEntry(_ key: Key) async -> MuxEntry<Value>? {
        guard key == key else { return nil }
        if let entry = self.cachedEntry(key) { return entry }
        if self.isShared { return await self.loadSharedEntry(key) }
        guard let persistence, let look = self.look(for: key) else { return nil }
        let loaded = await self.load(key, persistence)
        let now = self.repository.time.now
        let (entry, isAdopted) = self.engine.withState { state -> (MuxEntry<Value>?, Bool) in
            let slot = state.slots.slot(of: key)
            // An entry that arrived during the read is newer than the read entry. The read entry may have
            // been cleared.
            guard slot?.entry == nil, let loaded, state.session == look.session, state.clears == look.clears else {
                return (slot?.snapshot(at: now, source: .memory), false)
            }
            return (self.adopt(loaded, of: key, look, in: &state)?.snapshot(at: now, source: .disk), true)
        }
        if isAdopted {
            self.watchers.send((), to: key)
            self.releaseEvicted()
        }
        return entry
    }

    // MARK: - Clearing

    /// Removes the entry of `key`, in memory and on disk.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - endsRequests: Whether waiting callers get ``MuxError/cleared`` instead of the outcome of their
    ///     fetch.
    /// - Returns: The failures of the removal on disk.
    func clear(_ key: Key, endsRequests: Bool) async -> MuxRepository.ClearReport {
        guard key == key else { return MuxRepository.ClearReport() }
        guard let name = (self.persistence ?? self.sharing?.persistence)?.name(of: key) else {
            self.forget(key, alsoOnDisk: false, endsRequests: endsRequests)
            return MuxRepository.ClearReport()
        }
        let forget: @Sendable () -> Void = {
            let cleared = ClearedEntries(domain: name.domain, keys: [name.key], endsRequests: endsRequests)
            self.repository.tellOthers(cleared, but: self)
            self.forget(key, alsoOnDisk: self.persistence != nil, endsRequests: endsRequests)
        }
        if let sharing { return await sharing.client.invalidate([.entry(name)], after: forget) }
        return await self.repository.clearing(forget) {
            await self.remove([key])
        }
    }

    /// Removes the entry of `key` in memory.
    func forget(_ key: Key, alsoOnDisk: Bool, endsRequests: Bool) {
        let former = self.engine.fence(key, answering: endsRequests ? MuxError.cleared : nil) { state in
            state.clears &+= 1
            defer { state.lostShared(key) }
            return state.withSlot(of: key) { $0.cleared(alsoOnDisk: alsoOnDisk) }
        }
        withExtendedLifetime(former) {}
        self.watchers.send((), to: key)
        self.releaseEvicted()
    }

    /// Removes the entries of `keys` on disk; in the lane.
    func remove(_ keys: [Key]) async -> MuxRepository.ClearReport {
        guard let persistence else { return MuxRepository.ClearReport() }
        do {
            let failures = try await self.repository.remove(keys.map(persistence.name(of:)))
            let owed = Set(failures.lazy.filter { !$0.isFinal }.map(\.name))
            let removed = owed.isEmpty ? keys : keys.filter { !owed.contains(persistence.name(of: $0)) }
            self.inPortions(removed) { state, key in
                state.withSlot(of: key) { $0.removedFromDisk() }
                state.release(state.newerOnDisk.remove(key))
            }
            return MuxRepository.ClearReport(failures: failures.map(\.error))
        } catch {
            return MuxRepository.ClearReport(failures: [error])
        }
    }

    /// Removes all entries, in memory and on disk; see ``clear(_:endsRequests:)``.
    func clearAll(endsRequests: Bool) async -> MuxRepository.ClearReport {
        let forget: @Sendable () -> Void = {
            if let domain = self.domain {
                self.repository.tellOthers(ClearedEntries(domain: domain, endsRequests: endsRequests), but: self)
            }
            self.forgetAll(answering: endsRequests ? MuxError.cleared : nil, onDisk: self.persistence != nil)
        }
        if let sharing { return await sharing.client.invalidate([.domain(sharing.persistence.domain)], after: forget) }
        guard self.persistence != nil else {
            forget()
            return MuxRepository.ClearReport()
        }
        return await self.repository.clearing(forget) {
            await self.removeDomain()
        }
    }

    /// Removes all entries of the domain on disk; in the lane.
    func removeDomain() async -> MuxRepository.ClearReport {
        guard let persistence else { return MuxRepository.ClearReport() }
        do {
            let failure = try await self.repository.removeAll(domain: persistence.domain)
            // The removal includes entries that were saved after an earlier failed removal: they are unsaved
            // again.
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
            return MuxRepository.ClearReport(failures: failure.map { [$0] } ?? [])
        } catch {
            return MuxRepository.ClearReport(failures: [error])
        }
    }
}
