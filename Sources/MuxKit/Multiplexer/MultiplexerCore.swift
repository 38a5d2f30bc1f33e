import Foundation

/// What ``Multiplexer`` and ``MultiplexerMap`` have in common, which is all but their names: slots, flights and the disk.
///
/// Members are synchronous where the answer is immediate. What waits for the disk goes through the repository's lane.
package final class MultiplexerCore<Slots: SlotStorage>: Sendable {
    package typealias Key = Slots.Key
    package typealias Value = Slots.Value
    package typealias Fetch = @Sendable (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>

    let engine: FlightEngine<Key, MuxEntry<Value>, State>
    let policy: MuxPolicy
    let repository: MuxRepository
    let persistence: Persistence<Key, Value>?
    let watchers = Watchers<Key>()
    private let fetch: Fetch
    private let keyText: @Sendable (Key) -> String?
    /// What the policy permits to a request without options.
    let usualLimits: Freshness.Limits

    init(
        slots: Slots,
        policy: MuxPolicy,
        repository: MuxRepository,
        persistence: Persistence<Key, Value>?,
        keyText: @escaping @Sendable (Key) -> String?,
        fetch: @escaping Fetch
    ) {
        self.policy = policy
        self.usualLimits = RequestOptions().limits(policy)
        self.repository = repository
        self.persistence = persistence
        self.keyText = keyText
        self.fetch = fetch
        let linger: Duration? =
            switch policy.whenAbandoned {
            case .finish: nil
            case .cancel(let linger): linger
            }
        let options = FlightEngine<Key, MuxEntry<Value>, State>.Options(
            linger: linger,
            deadline: policy.fetchTimeout,
            timedOut: MuxError.timedOut(after: policy.fetchTimeout),
            wouldDeadlock: MuxError.wouldDeadlock
        )
        self.engine = FlightEngine(State(slots: slots), options, time: repository.time, spawn: repository.spawn)
        if persistence != nil { repository.attach(self) }
    }

    // MARK: - Requests

    /// The fresh value in memory; `nil` if there is none, or if it is to be renewed.
    func hit(_ key: Key) -> Value? {
        let now = self.repository.time.now
        let value = self.engine.withState { state -> Value? in
            guard let slot = state.slots.requestedSlot(of: key),
                slot.freshness(at: now, self.usualLimits) == .fresh(renews: false)
            else { return nil }
            state.statistics.hits += 1
            return slot.entry?.value
        }
        if value != nil { self.tell(.hit, key) }
        return value
    }

    /// The entry in memory if it is good enough, or else what the key's flight brings.
    nonisolated(nonsending) func request(_ key: Key, _ options: RequestOptions) async throws -> MuxEntry<Value> {
        guard key == key else { throw MuxError.unusableKey }  // a not-a-number is never found again
        if options.mode == .cacheOnly { return try await self.cachedOnly(key, options) }
        let now = self.repository.time.now
        let limits = options.limits(self.policy)
        // What needs no flight is answered here, without as much as a continuation.
        let immediate = self.engine.withState { state -> Result<MuxEntry<Value>, any Error>? in
            switch Self.decide(state.slots.requestedSlot(of: key), at: now, limits, options.patience) {
            case .answer(let entry):
                state.statistics.hit(isStale: entry.staleReason != nil)
                return .success(entry)
            case .fail(let error):
                state.statistics.hit(isStale: false)
                return .failure(error)
            case .answerAndFly, .fly, .flyNoLonger, .flyNoLongerOrFail:
                return nil
            }
        }
        if let immediate {
            let entry = try? immediate.get()
            self.tell(entry?.staleReason != nil ? .servedStale : .hit, key)
            return try immediate.get()
        }
        var met: MuxEvent.Kind?
        let landing = try await self.engine.enter(
            key,
            launch: .spawned(name: "mux.fetch") { [weak self] flight in await self?.fly(key, flight) },
            decide: { state in
                let decision = Self.decide(state.slots.slot(of: key), at: now, limits, options.patience)
                switch decision {
                case .answer(let entry), .answerAndFly(let entry):
                    state.statistics.hit(isStale: entry.staleReason != nil)
                    met = entry.staleReason != nil ? .servedStale : .hit
                case .fail:
                    state.statistics.hit(isStale: false)
                    met = .hit
                case .fly, .flyNoLonger, .flyNoLongerOrFail:
                    break
                }
                return decision
            },
            joined: { state, isRunning in
                if isRunning { state.statistics.joins += 1 } else { state.statistics.misses += 1 }
                if limits.isStrict { state.strictKeys.insert(key) }
                met = isRunning ? .joined : .missed
            },
            arrived: { if let met { self.tell(met, key) } }
        )
        guard case .output(let entry) = landing else { throw CancellationError() }
        return entry
    }

    private static func decide(
        _ slot: Slot<Value>?,
        at now: Moment,
        _ limits: Freshness.Limits,
        _ patience: Duration?
    ) -> FlightEngine<Key, MuxEntry<Value>, State>.Decision {
        guard let slot else { return .fly }
        guard let freshness = slot.freshness(at: now, limits), let entry = slot.snapshot(at: now, source: .memory)
        else {
            guard let error = slot.failure(at: now), !limits.isReload else { return .fly }
            return .fail(error)
        }
        switch freshness {
        case .fresh(let renews):
            return renews ? .answerAndFly(entry) : .answer(entry)
        case .servable(let renews):
            return renews
                ? .answerAndFly(entry.served(because: .revalidating)) : .answer(entry.served(because: .backingOff))
        case .fallback:
            guard let patience else { return .fly }
            return .flyNoLonger(than: patience, entry.served(because: .outOfPatience))
        case .unusable:
            return .fly
        }
    }

    /// What is in memory or else on disk.
    private nonisolated(nonsending) func cachedOnly(_ key: Key, _ options: RequestOptions) async throws -> MuxEntry<
        Value
    > {
        guard let entry = await self.loadCachedEntry(key), entry.age < options.maximumAge ?? .longest else {
            self.engine.withState { $0.statistics.misses += 1 }
            self.tell(.missed, key)
            throw MuxError.notCached
        }
        self.engine.withState { state in
            state.statistics.hits += 1
            _ = state.slots.requestedSlot(of: key)
        }
        self.tell(.hit, key)
        return entry.isStale ? entry.served(because: .cacheOnly) : entry
    }

    // MARK: - Flights

    /// The work of one flight: the disk first, where memory has nothing; then the fetch.
    private func fly(_ key: Key, _ flight: FlightID) async {
        let (entry, loaded) = await self.freshEntryFromDisk(key, flight)
        if let entry {
            self.engine.land(flight, of: key, failed: false) { state, _ in
                state.strictKeys.remove(key)
                return .success(entry)
            }
            return
        }
        var fallback: Slot<Value>?  // what there is to fall back to, even if the bound takes it away meanwhile
        let begins = self.engine.workBegins(flight, of: key) { state, wasFenced in
            let slot = state.slots.slot(of: key)
            fallback = slot?.entry == nil && !wasFenced ? loaded ?? slot : slot
        }
        guard begins else { return }
        guard !Task.isCancelled else {  // nobody waits any more: no work begins
            self.engine.land(flight, of: key, failed: true) { _, _ in .failure(CancellationError()) }
            return
        }
        self.engine.withState { $0.statistics.fetches += 1 }
        self.tell(.fetchStarted, key)
        let start = self.repository.time.now
        let result: Result<Fetched<Value>, any Error>
        do {
            result = .success(try await self.fetch(key, fallback?.fetchedBefore(at: start)))
        } catch {
            result = .failure(error)
        }
        let duration = self.repository.time.now.duration(since: start)
        self.engine.withState { $0.statistics.fetchTime = .sum($0.statistics.fetchTime, duration) }
        switch result {
        case .success(let fetched): self.landed(fetched, key, flight, fallback, after: duration)
        case .failure(let error): self.failed(error, key, flight, fallback, after: duration)
        }
    }

    /// Loads the entry of `key` into its slot, if memory has none, and gives it to those for whom it is good enough.
    ///
    /// - Returns: The entry, if it was loaded and ends the flight: it is fresh, and nobody who waits wants better. And what was
    ///   loaded in any case, which the table may not have had room for.
    private func freshEntryFromDisk(
        _ key: Key,
        _ flight: FlightID
    ) async -> (entry: MuxEntry<Value>?, loaded: Slot<Value>?) {
        guard let persistence, self.mayRead(key) else { return (nil, nil) }
        guard let entry = await self.load(key, persistence) else { return (nil, nil) }
        let now = self.repository.time.now
        var found: MuxEntry<Value>?
        var loaded: Slot<Value>?
        self.engine.answerEarly(flight, of: key) { state in
            loaded = self.adopt(entry, of: key, in: &state)
            guard !state.strictKeys.contains(key), let slot = loaded else { return nil }
            switch slot.freshness(at: now, self.usualLimits) {
            case .fresh(renews: false):
                state.statistics.diskHits += 1
                found = slot.snapshot(at: now, source: .disk)
                return nil  // the flight ends here
            case .fresh(renews: true):
                state.statistics.diskHits += 1
                return slot.snapshot(at: now, source: .disk)
            case .servable:
                state.statistics.diskHits += 1
                state.statistics.staleServed += 1
                return slot.snapshot(at: now, source: .disk)?.served(because: .revalidating)
            case .fallback, .unusable, nil:
                return nil
            }
        }
        self.watchers.changed(key)
        self.letGoOfEvicted()
        return (found, loaded)
    }

    private func landed(
        _ fetched: Fetched<Value>,
        _ key: Key,
        _ flight: FlightID,
        _ before: Slot<Value>?,
        after duration: Duration
    ) {
        let entry = self.entry(of: fetched)
        let renewed = fetched.renewedRevision == before?.entry?.revision ? fetched.renewedRevision : nil
        var isKept = false
        var replaced: Slot<Value>.Entry?  // let go of outside the lock, for a value's deinit may call us
        self.engine.land(flight, of: key, failed: false) { state, mayKeep in
            isKept = mayKeep
            if mayKeep { state.strictKeys.remove(key) }
            let entry = state.adopted(entry, of: key, renewing: mayKeep ? renewed : nil)
            if mayKeep, fetched.isKept {
                replaced = state.withSlot(of: key) { $0.committed(entry) }
            } else if mayKeep {
                let isOnDisk = entry.isPersistent && (before?.entry?.isPersistent ?? false)
                replaced = state.withSlot(of: key) { $0.passed(isOnDisk: isOnDisk) }
            } else {
                state.statistics.fenceDrops += 1
            }
            return .success(
                MuxEntry(
                    value: entry.value,
                    age: .zero,
                    timeToLive: entry.timeToLive,
                    source: .fetch,
                    isStale: !mayKeep || entry.timeToLive <= .zero,
                    staleReason: mayKeep ? nil : .fenced,
                    revision: entry.revision
                )
            )
        }
        withExtendedLifetime(replaced) {}
        if isKept { self.changed(key) }
        self.tell(.fetched, key, duration)
        self.letGoOfEvicted()
        if !isKept { self.tell(.fenceDropped, key) }
    }

    private func failed(
        _ error: any Error,
        _ key: Key,
        _ flight: FlightID,
        _ fallback: Slot<Value>?,
        after duration: Duration
    ) {
        let isSilenceable = self.policy.isSilenceable(error)
        let memory = self.policy.memory(of: error)
        let now = self.repository.time.now
        var servesStale = false
        self.engine.withState { $0.statistics.failures += 1 }
        self.engine.land(flight, of: key, failed: true) { state, isKept in
            var current = state.slots.slot(of: key)
            if isKept {
                state.strictKeys.remove(key)
                let heldUntil = isSilenceable ? now.advanced(by: self.policy.errorBackoff) : .distantPast
                current = state.withSlot(of: key) { slot in
                    if slot.entry == nil, let fallback { slot.restored(fallback) }
                    slot.failed(error, heldUntil: heldUntil, rememberedUntil: now.advanced(by: memory), at: now)
                    return slot
                }
            }
            guard isSilenceable, let slot = current,
                let freshness = slot.freshness(at: now, self.usualLimits), freshness != .unusable,
                let entry = slot.snapshot(at: now, source: .memory)
            else { return .failure(error) }
            servesStale = entry.isStale
            guard servesStale else { return .success(entry) }
            state.statistics.staleServed += 1
            return .success(entry.served(because: .fetchFailed))
        }
        self.tell(.fetchFailed, key, duration)
        self.letGoOfEvicted()
        if servesStale { self.tell(.servedStale, key) }
    }

    // MARK: - Changes by hand

    /// The entry of `key` over time.
    func values(_ key: Key) -> MuxValues<Value> {
        MuxValues(current: { self.cachedEntry(key) }, changes: { self.watchers.changes(of: key) })
    }

    /// What is in memory for `key`, however old.
    func cachedEntry(_ key: Key) -> MuxEntry<Value>? {
        let now = self.repository.time.now
        return self.engine.withState { $0.slots.slot(of: key)?.snapshot(at: now, source: .memory) }
    }

    /// Makes the entry of `key` stale; a flight that runs is not the one to keep.
    func refresh(_ key: Key) {
        guard key == key else { return }
        let marksAbsent = self.persistence != nil
        let now = self.repository.time.now
        self.engine.fence(key) { state in
            state.lastRefresh = max(state.lastRefresh, now)
            guard marksAbsent || state.slots.slot(of: key) != nil else { return }
            state.withSlot(of: key) { $0.refreshed() }
        }
        self.letGoOfEvicted()
    }

    /// Makes every entry stale, in memory and on disk.
    func refreshAll() {
        let now = self.repository.time.now
        self.engine.fenceAll { state in
            for key in state.slots.keys { state.withSlot(of: key) { $0.refreshed() } }
            // The moment says it of all that is absent.
            state.slots.removeMarks()
            state.refreshedOnDisk = now
        }
        self.letGoOfEvicted()
    }

    /// Puts `value` in place of what is cached; a flight that runs cannot overwrite it.
    ///
    /// - Returns: `false`, and nothing has changed, if the cached entry is not the one with `revision`.
    @discardableResult
    func store(_ fetched: Fetched<Value>, _ key: Key, ifRevision revision: UInt64?) -> Bool {
        guard key == key else { return false }
        let entry = self.entry(of: fetched)
        var replaced: Slot<Value>.Entry?
        let isStored = self.engine.fenceIf(key) { state in
            if let revision, state.slots.slot(of: key)?.entry?.revision != revision { return false }
            let entry = state.adopted(entry, of: key)
            replaced = state.withSlot(of: key) { $0.committed(entry) }
            return true
        }
        withExtendedLifetime(replaced) {}
        guard isStored else { return false }
        self.letGoOfEvicted()
        self.changed(key)
        return true
    }

    // MARK: - Helpers

    /// There is a new value: tells who watches, and has it saved if that is the policy.
    private func changed(_ key: Key) {
        self.watchers.changed(key)
        if self.persistence != nil { self.repository.changed() }
    }

    private func entry(of fetched: Fetched<Value>) -> Slot<Value>.Entry {
        let timeToLive =
            fetched.timeToLive
            ?? self.policy.jittered(self.policy.timeToLive, random: self.repository.random())
        return Slot<Value>.Entry(
            value: fetched.value,
            fetchedAt: self.repository.time.now,
            timeToLive: timeToLive,
            renewalAge: self.policy.renewalAge(timeToLive, random: self.repository.random()),
            stale: StaleLimits(whileRevalidate: fetched.staleWhileRevalidate, ifError: fetched.staleIfError),
            validator: fetched.validator,
            revision: 0,
            isDirty: self.persistence != nil,
            isPersistent: self.persistence != nil
        )
    }

    /// Tells the repository's observer, if there is one.
    func tell(_ kind: MuxEvent.Kind, _ key: Key? = nil, _ duration: Duration? = nil) {
        guard let observer = self.repository.observer else { return }
        let text = key.flatMap(self.keyText)
        observer.observe(MuxEvent(kind, cacheKey: self.persistence?.domain, key: text, duration: duration))
    }
}
