import Foundation
public import Synchronization

/// The implementation of ``Multiplexer`` and ``MultiplexerMap``: slots, flights and the disk.
///
/// Members without a wait are synchronous. Changes of the disk run in the repository's lane.
@usableFromInline
package final class MultiplexerCore<Slots: SlotStorage>: Sendable {
    @usableFromInline package typealias Key = Slots.Key
    @usableFromInline package typealias Value = Slots.Value

    @usableFromInline let engine: FlightEngine<Key, MuxEntry<Value>, State>
    @usableFromInline let policy: MuxPolicy
    @usableFromInline let repository: MuxRepository
    @usableFromInline let persistence: Persistence<Key, Value>?
    /// The shared store of several machines; `nil` without a shared store.
    let sharing: Sharing<Key, Value>?
    @usableFromInline let isShared: Bool
    /// Notifies watchers of changes without the entry: a watcher then reads the newest entry.
    @usableFromInline let watchers = Broadcast<Key, Void>()
    @usableFromInline let fetch: FetchFunction<Key, Value>
    /// The fetch closure, if it returns a plain value and the policy has no retries; otherwise `nil`.
    @usableFromInline let plainFetch: (@Sendable @concurrent (Key) async throws -> Value)?
    @usableFromInline let selection: EntrySelection<Key>?
    /// The users of the keys; `nil` if the keys belong to no users of a ``MuxSessions``.
    let users: UsersOfKeys<Key>?
    package let handsOutTokens: Bool
    /// The multiplexer's `cacheKey`, for events.
    private let cacheKey: String?
    /// The multiplexer's name, for events; `nil` without an observer.
    private let name: String?
    private let keyText: @Sendable (Key) -> String?
    /// The multiplexer's number in the repository.
    ///
    /// The repository includes the multiplexer in sign-outs from the initialiser to the `deinit`.
    private let order = Atomic<UInt64>(0)
    /// The limits of a request without options.
    @usableFromInline let usualLimits: Freshness.Limits
    @usableFromInline let coarseClock: CoarseClock
    /// The state of ``engine``; a separate reference saves an indirection for each hit.
    @usableFromInline let engineState: Locked<FlightEngine<Key, MuxEntry<Value>, State>.EngineState>
    /// The maximum number of simultaneous flights of a request for many keys, which limits the memory.
    @usableFromInline let flightsAtOnce: Int
    /// Whether flights run code that is specialised for the type of the value.
    @usableFromInline let hasSpecialisedFlights = Atomic(false)
    /// Whether the repository has an observer.
    @usableFromInline let isObserved: Bool
    /// Whether the observer receives hits.
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
        self.policy = policy
        self.usualLimits = RequestOptions().limits(policy)
        self.repository = repository
        self.coarseClock = CoarseClock(repository.time)
        self.isObserved = repository.observer != nil
        self.tellsHits = repository.observer?.observesHits ?? false
        self.cacheKey = persistence?.domain
        self.name = self.isObserved ? policy.name ?? persistence?.domain ?? "\(Value.self)" : nil
        // The entries of one user could not be found on disk, so values of users are not on disk.
        self.persistence = repository.store is NoStore || users != nil ? nil : persistence
        if let client = repository.sharedStore, let persistence, persistence.isShared, selection == nil {
            self.sharing = Sharing(client: client, persistence: persistence)
        } else {
            self.sharing = nil
        }
        self.isShared = self.sharing != nil
        self.keyText = keyText
        self.fetch = fetch
        if case .value(let plainFetch) = fetch, policy.retry == nil {
            self.plainFetch = plainFetch
        } else {
            self.plainFetch = nil
        }
        self.selection = selection
        self.users = users
        self.handsOutTokens = handsOutTokens
        self.flightsAtOnce = flightsAtOnce
        let linger: Duration? =
            switch policy.whenAbandoned {
            case .finish: nil
            case .cancel(let linger): linger
            }
        let options = FlightEngine<Key, MuxEntry<Value>, State>.Options(
            name: "mux.fetch",
            linger: linger,
            deadline: policy.fetchTimeout < .longest ? policy.fetchTimeout : nil,
            timedOut: MuxError.timedOut(after: policy.fetchTimeout),
            wouldDeadlock: MuxError.wouldDeadlock
        )
        self.engine = FlightEngine(State(slots: slots), options, time: repository.time, spawn: repository.spawn)
        self.engineState = self.engine.engineState
        self.engine.flies { [weak self] key, flight in await self?.fly(key, flight) }
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
        self.engine.flies { [weak self] key, flight in await self?.fly(key, flight) }
        self.hasSpecialisedFlights.store(true, ordering: .relaxed)
    }

    /// The fresh value in memory; `nil` without a fresh value, or if the value may be due for a renewal.
    ///
    /// Inlined into the caller's module and specialised there, which makes a hit cheap.
    @inlinable
    func hit(_ key: Key) -> Value? {
        self.hit(key, at: self.coarseClock.now ?? self.engine.time.now, youngerThan: .max)
    }

    /// As ``hit(_:)``, for a request with options; also `nil` if `options` need a closer examination.
    @inlinable
    func hit(_ key: Key, _ options: RequestOptions) -> Value? {
        guard options.mode == .usual, options.takesStored, self.selection == nil else { return nil }
        if let now = self.coarseClock.now {
            // The coarse clock may be late, so the value may be older than it seems.
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
        if self.tellsHits, value != nil { self.told(.hit, key) }
        return value
    }

    /// The entry in memory that is good enough for `options`; `nil` without such an entry, or if a renewal is
    /// due.
    @inlinable
    @inline(never)
    func hitEntry(_ key: Key, _ options: RequestOptions) -> MuxEntry<Value>? {
        guard options.mode == .usual, self.selection == nil || !self.isForAnother(key) else { return nil }
        let now = self.engine.time.now
        let limits = options.limits(self.policy)
        let entry = self.engineState.withLock { engineState -> MuxEntry<Value>? in
            let slot = engineState.state.slots.slot(of: key)
            guard case .answer(let entry) = Self.decide(slot, at: now, limits) else { return nil }
            _ = engineState.state.slots.requestedSlot(of: key)
            engineState.state.statistics.hit(isStale: entry.staleReason != nil)
            return entry
        }
        if self.isObserved, let entry {
            self.told(.hit, key)
            if entry.staleReason != nil { self.told(.servedStale, key) }
        }
        return entry
    }

    /// The value in memory if it is good enough, otherwise the outcome of the key's flight.
    @inlinable
    nonisolated(nonsending) func request(_ key: Key) async throws -> Value {
        guard key == key else { throw MuxError.unusableKey }  // a lookup never finds a NaN
        let long = PendingRequest(self, key)
        return try long.value(await self.answer(to: long))
    }

    /// The entry in memory if it is good enough for `options`, otherwise the outcome of the key's flight.
    @inlinable
    nonisolated(nonsending) func request(_ key: Key, _ options: RequestOptions) async throws -> MuxEntry<Value> {
        guard key == key else { throw MuxError.unusableKey }
        if options.mode == .cacheOnly { return try await self.cachedOnly(key, options) }
        if let entry = self.hitEntry(key, options) { return entry }
        let long = PendingRequest(self, key, options)
        return try long.departed(await self.answer(to: long))
    }

    /// Waits for the outcome of a request.
    ///
    /// Contains only the wait: the stack of a waiting asynchronous function takes memory.
    @inlinable
    @inline(__always)
    nonisolated(nonsending) func answer(to long: PendingRequest) async -> FlightWaiter.Answer {
        let (engine, key, ticket) = (self.engine, long.key, long.ticket)
        return await FlightWaiter.answer(ticket) {
            long.arrive($0, mayFly: !$1)
        } onCancel: {
            engine.leave(ticket, key)
        } onEscalation: {
            engine.raise(ticket, key, to: $0)
        }
    }

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

    /// The entry in memory or on disk; throws ``MuxError/notCached`` without an entry that is young enough.
    @usableFromInline
    nonisolated(nonsending) func cachedOnly(_ key: Key, _ options: RequestOptions) async throws -> MuxEntry<
        Value
    > {
        guard let entry = await self.loadCachedEntry(key), entry.age < options.maximumAge ?? .longest,
            !self.isForAnother(key)
        else {
            self.engine.withState { $0.statistics.misses += 1 }
            self.tell(.missed, key)
            throw MuxError.notCached
        }
        self.engine.withState { state in
            state.statistics.hit(isStale: entry.isStale)
            _ = state.slots.requestedSlot(of: key)
        }
        self.tell(.hit, key)
        if entry.isStale { self.tell(.servedStale, key) }
        return entry.isStale ? entry.served(because: .cacheOnly) : entry
    }

    // MARK: - Changes by callers

    /// The entry of `key` over time.
    func values(_ key: Key) -> MuxValues<Value> {
        MuxValues(
            current: { [weak self] in self.map { $0.cachedEntry(key) } },
            changes: { [weak self] in self?.watchers.stream(of: key) ?? AsyncStream { nil } }
        )
    }

    /// The entry of `key` in memory, fresh or stale.
    func cachedEntry(_ key: Key) -> MuxEntry<Value>? {
        let now = self.repository.time.now
        return self.engine.withState { $0.slots.slot(of: key)?.snapshot(at: now, source: .memory) }
    }

    /// Makes the entry of `key` stale, and fences its flight.
    func refresh(_ key: Key) {
        guard key == key else { return }
        let marksAbsent = self.persistence != nil
        let name = self.sharing?.name(of: key)
        self.engine.fence(key) { state in
            if let name {
                // In the critical section of the fence: results of earlier calls of the store are dropped,
                // and later calls first send the invalidation.
                self.sharing?.client.owe([.entry(name.key)])
                state.shared.refreshed(key, state.nextRevision())
            }
            guard marksAbsent || state.slots.slot(of: key) != nil else { return }
            state.withSlot(of: key) { $0.refreshed() }
        }
        self.releaseEvicted()
        self.sharing?.client.settleLater()
    }

    /// Makes every entry stale, in memory and on disk.
    func refreshAll() {
        let date = self.persistence == nil ? nil : self.repository.wallTime()
        let removed = self.engine.fenceAll { state in
            if let sharing { sharing.client.owe([.domain(sharing.persistence.domain)]) }
            var removed: [any Sendable] = []
            let number = state.nextRevision()
            state.slots.refreshAll(number) { removed.append($0) }
            state.shared.refreshedAll(number)
            // One record replaces the marks of all absent entries.
            if let date { state.diskRefresh.refreshed(at: date, upTo: number) }
            return removed
        }
        withExtendedLifetime(removed) {}  // released outside the lock
        self.releaseEvicted()
        self.sharing?.client.settleLater()
    }

    /// Replaces the entry of `key`, and fences its flight.
    ///
    /// - Returns: `false`, with no change, if the cached entry does not have `revision`.
    @discardableResult
    func store(_ fetched: Fetched<Value>, _ key: Key, ifRevision revision: UInt64?) -> Bool {
        guard key == key else { return false }
        let entry = self.entry(of: fetched)
        var replaced: Slot<Value>.Entry?
        let name = self.sharing?.name(of: key)
        let isStored = self.engine.fenceIf(key) { state in
            let former = state.slots.slot(of: key)
            if let revision, former?.entry?.revision != revision { return false }
            // The disk may have an entry of a later version of the program.
            if entry.isPersistent, former?.entry == nil { state.unseenOnDisk.insert(key) }
            let entry = state.adopted(entry, of: key)
            if let name {
                self.sharing?.client.owe([.entry(name.key)])
                state.shared.begins(key, name)
            }
            replaced = state.withSlot(of: key) { $0.committed(entry) }
            if name != nil { state.sharedFlightEnded(key) }
            return true
        }
        withExtendedLifetime(replaced) {}
        guard isStored else { return false }
        if let name { self.share(key, name) }
        self.releaseEvicted()
        self.changed(key)
        return true
    }

    // MARK: - Helpers

    /// Notifies watchers of a new value, and schedules a save if the repository's save policy requires one.
    @inlinable
    func changed(_ key: Key) {
        self.watchers.send((), to: key)
        if self.persistence != nil { self.scheduleSave() }
    }

    @usableFromInline
    func scheduleSave() { self.repository.changed(self) }

    @inlinable
    func entry(of fetched: Fetched<Value>) -> Slot<Value>.Entry {
        let timeToLive =
            fetched.timeToLive
            ?? self.policy.jittered(self.policy.timeToLive, random: self.repository.random())
        return Slot<Value>.Entry(
            value: fetched.value,
            fetchedAt: self.repository.time.now,
            timeToLive: timeToLive,
            renewalAge: self.renewalAge(timeToLive, fetched.validator),
            stale: StaleLimits(whileRevalidate: fetched.staleWhileRevalidate, ifError: fetched.staleIfError),
            validator: fetched.validator,
            revision: 0,
            isDirty: self.persistence != nil,
            isPersistent: self.persistence != nil
        )
    }

    /// Reports an event to the repository's observer; does nothing without an observer.
    @inlinable
    func tell(_ kind: MuxEvent.Kind, _ key: Key? = nil, _ duration: Duration? = nil) {
        if self.isObserved { self.told(kind, key, duration) }
    }

    @usableFromInline
    func told(_ kind: MuxEvent.Kind, _ key: Key?, _ duration: Duration? = nil, because reason: MuxEvent.Reason? = nil) {
        guard kind != .hit || self.tellsHits, let observer = self.repository.observer else { return }
        let event = MuxEvent(
            kind,
            name: self.name,
            cacheKey: self.cacheKey,
            key: key.flatMap(self.keyText),
            duration: duration,
            reason: reason
        )
        observer.tell(event)
    }

    /// Reports a failure.
    @usableFromInline
    func tell(_ kind: MuxEvent.Kind, _ key: Key, _ duration: Duration?, because error: any Error) {
        if self.isObserved { self.told(kind, key, duration, because: MuxEvent.Reason(of: error)) }
    }
}
