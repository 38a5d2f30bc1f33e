public import Synchronization

/// The implementation of ``Multiplexer`` and ``MultiplexerMap``: requests, flights, and changes by callers.
@usableFromInline
package final class MultiplexerCore<Slots: SlotStorage>: Sendable {
    @usableFromInline package typealias Key = Slots.Key
    @usableFromInline package typealias Value = Slots.Value
    @usableFromInline typealias State = SlotState<Slots>

    @usableFromInline let memory: SlotMemory<Slots>
    @usableFromInline let backing: Backing<Slots>
    @usableFromInline let engine: FlightEngine<Key, MuxEntry<Value>, State>
    /// The state of ``engine``; a separate reference saves indirections for each hit.
    @usableFromInline let engineState: Locked<FlightEngine<Key, MuxEntry<Value>, State>.EngineState>
    @usableFromInline let policy: MuxPolicy
    @usableFromInline let fetch: FetchFunction<Key, Value>
    /// The fetch closure, if it returns a plain value and the policy has no retries; otherwise `nil`.
    @usableFromInline let plainFetch: (@Sendable @concurrent (Key) async throws -> Value)?
    /// Whether the selection of an entry may depend on more than the key (``EntrySelection``).
    @usableFromInline let hasSelection: Bool
    /// The users of the keys; `nil` if the keys belong to no users of a ``MuxSessions``.
    let users: UsersOfKeys<Key>?
    package let handsOutTokens: Bool
    /// The multiplexer's number in the repository, for the removal by `deinit`.
    private let order = Atomic<UInt64>(0)
    @usableFromInline let coarseClock: CoarseClock
    /// The maximum number of flights for which a request for many keys waits at a time.
    ///
    /// Limits the memory; does not apply to a request with a wait limit.
    @usableFromInline let flightsAtOnce: Int
    /// Whether flights run code that is specialised for the type of the value.
    @usableFromInline let hasSpecialisedFlights = Atomic(false)
    @usableFromInline let tellsHits: Bool

    init(
        slots: Slots,
        policy: MuxPolicy,
        repository: MuxRepository,
        persistence: Persistence<Key, Value>?,
        selection: EntrySelection<Key>?,
        users: UsersOfKeys<Key>? = nil,
        handsOutTokens: Bool = false,
        flightsAtOnce: Int = 8_192,
        keyText: @escaping @Sendable (Key) -> String?,
        fetch: FetchFunction<Key, Value>
    ) {
        let linger: Duration? = if case .cancel(let linger) = policy.whenAbandoned { linger } else { nil }
        let options = FlightEngine<Key, MuxEntry<Value>, State>.Options(
            name: "mux.fetch",
            linger: linger,
            deadline: policy.fetchTimeout < .longest ? policy.fetchTimeout : nil,
            timedOut: MuxError.timedOut(after: policy.fetchTimeout),
            whenTimedOut: { state, key, isCurrent, now in
                if isCurrent {
                    state.recordOutcome(of: key, error: MuxError.timedOut(after: policy.fetchTimeout))
                    state.pauseRenewals(of: key, policy.errorBackoff, at: now)
                }
                return state.takeDropped()
            },
            wouldDeadlock: MuxError.wouldDeadlock
        )
        self.memory = SlotMemory(
            engine: FlightEngine(State(slots: slots), options, time: repository.time, spawn: repository.spawn),
            policy: policy,
            usualLimits: RequestOptions().limits(policy),
            repository: repository,
            selection: selection,
            persistence: persistence,
            keyText: keyText
        )
        if let client = repository.sharedStore, let persistence, persistence.isShared, selection == nil {
            self.backing = .sharedStore(SharedStoreBacking(self.memory, persistence, client))
        } else if let persistence, !(repository.store is NoStore), users == nil {
            self.backing = .disk(DiskBacking(self.memory, persistence))
        } else {
            // Values of users are not saved on disk: the sign-out of one user could not find the user's
            // entries on disk.
            self.backing = .none
        }
        self.engine = self.memory.engine
        self.engineState = self.engine.engineState
        self.policy = policy
        self.fetch = fetch
        self.plainFetch = if case .value(let plain) = fetch, policy.retry == nil { plain } else { nil }
        self.hasSelection = selection != nil
        self.users = users
        self.handsOutTokens = handsOutTokens
        self.coarseClock = CoarseClock(repository.time)
        self.flightsAtOnce = flightsAtOnce
        self.tellsHits = self.memory.tellsHits
        self.engine.setWork { [weak self] key, flight in await self?.fly(key, flight) }
        self.memory.participant = self
        self.order.store(repository.attach(self), ordering: .relaxed)
    }

    deinit { self.repository.detach(self.order.load(ordering: .relaxed), domain: self.domain) }

    // MARK: - Requests

    /// Makes flights run code of the caller's module, which is specialised for the value.
    ///
    /// Specialised code makes a request without a hit faster. The closure that the initialiser passes to the
    /// engine is not specialised, because the initialiser is not inlinable.
    @inlinable
    @inline(__always)
    func specialiseFlights() {
        guard !self.hasSpecialisedFlights.load(ordering: .relaxed) else { return }
        self.engine.setWork { [weak self] key, flight in await self?.fly(key, flight) }
        self.hasSpecialisedFlights.store(true, ordering: .relaxed)
    }

    /// The value in memory, if a hit; see ``SlotStorage/hit(_:at:youngerThan:)``.
    ///
    /// Inlined into the caller's module and specialised there, which makes a hit cheap.
    @inlinable
    func hit(_ key: Key) -> Value? {
        self.hit(key, at: self.coarseClock.now ?? self.engine.time.now, youngerThan: .max)
    }

    /// As ``hit(_:)``, for a request with options.
    ///
    /// Always `nil` for a reload, for a cache-only request, and with an ``EntrySelection``.
    @inlinable
    func hit(_ key: Key, _ options: RequestOptions) -> Value? {
        guard options.mode == .usual, !self.hasSelection else { return nil }
        if let now = self.coarseClock.now {
            // The coarse clock may be late, so the value may be older than the clock shows.
            let limit = options.maximumNanoseconds.map { $0 - CoarseClock.latenessNanoseconds }
            return self.hit(key, at: now, youngerThan: limit ?? .max)
        }
        return self.hit(key, at: self.engine.time.now, youngerThan: options.maximumNanoseconds ?? .max)
    }

    @inlinable
    @inline(__always)
    func hit(_ key: Key, at now: Moment, youngerThan limit: Int64) -> Value? {
        let value = self.engineState.withLock { engineState -> Value? in
            guard let value = engineState.state.slots.hit(key, at: now, youngerThan: limit) else { return nil }
            engineState.state.statistics.hits += 1
            return value
        }
        if self.tellsHits, value != nil { self.memory.sendEvent(.hit, key) }
        return value
    }

    /// The entry in memory that a request with `options` gets without a flight.
    ///
    /// Always `nil` for a reload and for a cache-only request; also `nil` if a renewal of the entry is due,
    /// or if the request must not use the entry (``EntrySelection``).
    @inlinable
    @inline(never)
    func hitEntry(_ key: Key, _ options: RequestOptions) -> MuxEntry<Value>? {
        guard options.mode == .usual, !self.hasSelection || !self.memory.isOtherVariant(key) else { return nil }
        let now = self.engine.time.now
        let limits = options.limits(self.policy)
        let entry = self.engineState.withLock { engineState -> MuxEntry<Value>? in
            let slot = engineState.state.slots.slot(of: key)
            guard case .answer(let entry) = Self.decide(slot, at: now, limits) else { return nil }
            _ = engineState.state.slots.requestedSlot(of: key)
            engineState.state.statistics.hit(isStale: entry.staleReason != nil)
            return entry
        }
        if self.memory.isObserved, let entry {
            self.memory.sendEvent(.hit, key)
            if entry.staleReason != nil { self.memory.sendEvent(.servedStale, key) }
        }
        return entry
    }

    /// A request with the default options.
    @inlinable
    nonisolated(nonsending) func request(_ key: Key) async throws -> Value {
        guard key == key else { throw MuxError.unusableKey }  // a lookup never finds a NaN
        let pending = PendingRequest(self, key)
        return try pending.value(await FlightWaiter.answer(to: pending))
    }

    /// A request with options.
    ///
    /// A cache-only request reads the backing instead of waiting for a flight.
    @inlinable
    nonisolated(nonsending) func request(_ key: Key, _ options: RequestOptions) async throws -> MuxEntry<Value> {
        guard key == key else { throw MuxError.unusableKey }
        if options.mode == .cacheOnly { return try await self.cachedOnly(key, options) }
        if let entry = self.hitEntry(key, options) { return entry }
        let pending = PendingRequest(self, key, options)
        return try pending.endWait(await FlightWaiter.answer(to: pending))
    }

    /// Refreshes the entry of `key`, then fetches.
    ///
    /// The fetch continues even if all callers leave, unless a later fence makes the fetch outdated.
    @usableFromInline
    nonisolated(nonsending) func reload(_ key: Key) async throws -> Value {
        guard key == key else { throw MuxError.unusableKey }
        self.refresh(key)
        let pending = PendingRequest(self, key, mustFinish: true)
        return try pending.value(await FlightWaiter.answer(to: pending))
    }

    /// The decision for a request at its arrival; the caller holds the engine's lock.
    @inlinable
    static func decide(
        _ slot: Slot<Value>?,
        at now: Moment,
        _ limits: Freshness.Limits
    ) -> FlightEngine<Key, MuxEntry<Value>, State>.Decision {
        guard let slot else { return .fly }
        if let served = slot.served(on: .arrival, at: now, limits) {
            return served.renews ? .answerAndFly(served.entry) : .answer(served.entry)
        }
        guard let error = slot.failure(at: now), !limits.isReload else { return .fly }
        return .fail(error)
    }

    /// The outcome of a cache-only request: the entry in memory or in the backing, fresh or stale.
    ///
    /// - Throws: ``MuxError/notCached`` without an entry below the maximum age, and if the request must not
    ///   use the entry (``EntrySelection``).
    @usableFromInline
    nonisolated(nonsending) func cachedOnly(_ key: Key, _ options: RequestOptions) async throws -> MuxEntry<
        Value
    > {
        guard let entry = await self.loadCachedEntry(key), entry.age < options.maximumAge ?? .longest,
            !self.memory.isOtherVariant(key)
        else {
            self.engine.withState { $0.statistics.misses += 1 }
            self.memory.tell(.missed, key)
            throw MuxError.notCached
        }
        self.engine.withState { state in
            state.statistics.hit(isStale: entry.isStale)
            _ = state.slots.requestedSlot(of: key)
        }
        self.memory.tell(.hit, key)
        if entry.isStale { self.memory.tell(.servedStale, key) }
        return entry.isStale ? entry.served(because: .cacheOnly) : entry
    }

    /// The entry in memory, or otherwise in the backing, fresh or stale.
    func loadCachedEntry(_ key: Key) async -> MuxEntry<Value>? {
        guard key == key else { return nil }
        if let entry = self.cachedEntry(key) { return entry }
        return await self.backing.loadEntry(key)
    }

    // MARK: - Changes by callers

    /// The sequence for ``Multiplexer/values``.
    func values(_ key: Key) -> MuxValues<Value> {
        MuxValues(
            current: { [weak self] in self.map { $0.cachedEntry(key) } },
            changes: { [weak self] in
                // No change can concern a NaN, and the watcher of a NaN could not be removed.
                guard let self, key == key else { return AsyncStream { nil } }
                return self.watchers.stream(of: key) { $0 == .entry }
            }
        )
    }

    /// The entry of `key` in memory, fresh or stale.
    @inlinable
    func cachedEntry(_ key: Key) -> MuxEntry<Value>? {
        let now = self.repository.time.now
        return self.engine.withState { $0.slots.slot(of: key)?.snapshot(at: now, source: .memory) }
    }

    /// Refreshes the entry of `key`, and fences the flights of `key`.
    ///
    /// An entry in memory or on disk becomes stale; an entry in a shared store is invalidated.
    func refresh(_ key: Key) {
        guard key == key else { return }
        let shared = self.backing.sharedStore
        let name = shared?.name(of: key)
        self.engine.fence(key) { state in
            if let name {
                shared?.addInvalidation(of: name)
                state.shared.recordRefresh(of: key, number: state.nextRevision())
            }
            state.countRefresh(of: key)
            // Without a slot, a mark is necessary only if the disk may have an entry.
            guard self.isOnDisk || state.slots.slot(of: key) != nil else { return }
            state.withSlot(of: key) { $0.markRefreshed() }
        }
        self.memory.releaseEvicted()
        self.watchers.send(.activity, to: key)
        shared?.client.sendInvalidationsLater()
    }

    /// Refreshes all entries, as ``refresh(_:)``, and fences all flights.
    func refreshAll() {
        let date = self.isOnDisk ? self.repository.wallTime() : nil
        let shared = self.backing.sharedStore
        self.memory.refreshAll { state, number in
            if let shared { shared.client.addInvalidations(of: [.domain(shared.persistence.domain)]) }
            state.shared.recordRefreshOfAll(number: number)
            // This record, which is saved on disk, replaces the marks of single entries that are not in
            // memory.
            if let date { state.disk.refresh.refreshed(at: date, upTo: number) }
        }
        shared?.client.sendInvalidationsLater()
    }

    /// Stores a new entry of `key`, and fences the flights of `key`.
    ///
    /// - Parameters:
    ///   - fetched: The new value.
    ///   - key: The key.
    ///   - revision: The revision of the entry to replace; `nil` to replace any entry.
    /// - Returns: Whether `fetched` was stored. Nothing is stored if the server's entry does not have
    ///   `revision`, or if `key` is not equal to itself.
    @inlinable
    @discardableResult
    func store(_ fetched: Fetched<Value>, _ key: Key, ifRevision revision: UInt64?) -> Bool {
        guard key == key else { return false }
        self.memory.selection?.willStore(key)
        let tagNumber = self.repository.tagLog.lastNumber
        let entry = self.entry(of: fetched, key, since: tagNumber)
        let changes = self.memory.changes(of: key, on: entry)
        let shared = self.backing.sharedStore
        let name = shared?.name(of: key)
        var isOutdated = false
        var replaced: Slot<Value>.Entry?
        let isStored = self.engine.fenceIf(key) { state in
            isOutdated = !(changes.map { state.has($0, key) } ?? (state.layers[key] == nil))
            guard !isOutdated else { return false }
            let former = state.slots.slot(of: key)?.entry
            let current = changes == nil ? former : state.serverEntry(key)
            if let revision, current?.revision != revision { return false }
            // The disk may have an entry of a later version of the program, which no save may overwrite.
            if entry.isPersistent, former == nil { state.disk.requireRead(key) }
            var entry = entry
            state.prepare(&entry, of: key)
            entry.condition = .union(entry.condition, state.slots.condition(of: key), since: tagNumber)
            replaced = state.commit(entry, of: key)
            if let changes { state.put(changes, on: entry, of: key) }
            state.recordOutcome(of: key, error: nil)
            if let name { shared?.stored(key, name, &state) }
            return true
        }
        withExtendedLifetime(replaced) {}
        // The changes of the key have changed since `changes` was computed outside the lock: try again.
        if isOutdated { return self.store(fetched, key, ifRevision: revision) }
        guard isStored else { return false }
        if let name { shared?.share(key, name) }
        self.memory.releaseEvicted()
        self.changed(key)
        return true
    }

    // MARK: - Helpers

    @inlinable var repository: MuxRepository { self.memory.repository }

    @inlinable var watchers: Broadcast<Key, SlotChange> { self.memory.watchers }

    /// Whether the backing is a disk.
    @inlinable var isOnDisk: Bool {
        if case .disk = self.backing { true } else { false }
    }

    /// Notifies the watchers of `key` of a new value, and schedules a save if the save policy requires a
    /// save.
    @inlinable
    func changed(_ key: Key) {
        self.watchers.send(.entry, to: key)
        if self.isOnDisk { self.scheduleSave() }
    }

    @usableFromInline
    func scheduleSave() { self.repository.scheduleSave(of: self) }
}
