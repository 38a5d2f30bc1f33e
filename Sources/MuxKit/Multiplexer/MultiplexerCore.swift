import Foundation

/// What ``Multiplexer`` and ``MultiplexerMap`` have in common, which is all but their names: slots, flights and the disk.
///
/// Members are synchronous where the answer is immediate. What waits for the disk goes through the repository's lane.
package final class MultiplexerCore<Slots: SlotStorage>: Sendable {
    package typealias Key = Slots.Key
    package typealias Value = Slots.Value
    package typealias Fetch = @Sendable (Key) async throws -> Fetched<Value>

    let engine: FlightEngine<Key, MuxEntry<Value>, State>
    let policy: MuxPolicy
    let repository: MuxRepository
    let persistence: Persistence<Key, Value>?
    private let fetch: Fetch
    private let keyText: @Sendable (Key) -> String?

    init(
        slots: Slots,
        policy: MuxPolicy,
        repository: MuxRepository,
        persistence: Persistence<Key, Value>?,
        keyText: @escaping @Sendable (Key) -> String?,
        fetch: @escaping Fetch
    ) {
        self.policy = policy
        self.repository = repository
        self.persistence = persistence
        self.keyText = keyText
        self.fetch = fetch
        let linger: Duration? =
            switch policy.whenAbandoned {
            case .finish: nil
            case .cancel(let linger): linger
            }
        self.engine = FlightEngine(
            State(slots: slots, hasObserver: repository.observer != nil),
            linger: linger,
            time: repository.time,
            spawn: repository.spawn
        )
        if persistence != nil { repository.attach(self) }
    }

    // MARK: - Requests

    /// The fresh value in memory; `nil` if there is none.
    func hit(_ key: Key) -> Value? {
        let now = self.repository.time.now
        let value = self.engine.withState { state -> Value? in
            guard let slot = state.slots.requestedSlot(of: key),
                slot.freshness(at: now, staleIfError: self.policy.staleIfError) == .fresh
            else { return nil }
            state.statistics.hits += 1
            return slot.entry?.value
        }
        if value != nil { self.tell(.hit, key) }
        return value
    }

    /// The entry in memory if it needs no fetch, or else what the key's flight brings.
    nonisolated(nonsending) func request(_ key: Key) async throws -> MuxEntry<Value> {
        guard key == key else { throw MuxError.unusableKey }  // a not-a-number is never found again
        let now = self.repository.time.now
        var met: MuxEvent.Kind?
        let landing = try await self.engine.enter(
            key,
            launch: .spawned(name: "mux.fetch") { [weak self] flight in await self?.fly(key, flight) },
            decide: { state in
                guard let answer = Self.answer(for: key, in: &state, at: now, policy: self.policy) else { return .fly }
                met = answer.isStale ? .servedStale : .hit
                return .answer(answer)
            },
            joined: { state, isRunning in
                if isRunning { state.statistics.joins += 1 } else { state.statistics.misses += 1 }
                met = isRunning ? .joined : .missed
            },
            arrived: { if let met { self.tell(met, key) } }
        )
        guard case .output(let entry) = landing else { throw CancellationError() }
        return entry
    }

    private static func answer(
        for key: Key,
        in state: inout State,
        at now: Moment,
        policy: MuxPolicy
    ) -> MuxEntry<Value>? {
        guard let slot = state.slots.requestedSlot(of: key) else { return nil }
        switch slot.freshness(at: now, staleIfError: policy.staleIfError) {
        case .fresh: break
        case .held: state.statistics.staleServed += 1
        case .fallback, .unusable, nil: return nil
        }
        state.statistics.hits += 1
        return slot.snapshot(at: now, source: .memory)
    }

    // MARK: - Flights

    /// The work of one flight: the disk first, where memory has nothing; then the fetch.
    private func fly(_ key: Key, _ flight: FlightID) async {
        if let entry = await self.freshEntryFromDisk(key, flight) {
            self.engine.land(flight, of: key, failed: false) { state, isKept in
                if isKept { state.statistics.diskHits += 1 }
                return .success(entry)
            }
            return
        }
        // The bound may take the entry away meanwhile; it is still what to fall back to.
        let fallback = self.engine.withState { state in
            state.statistics.fetches += 1
            return state.slots.slot(of: key)
        }
        self.tell(.fetchStarted, key)
        do {
            self.landed(try await self.fetch(key), key, flight)
        } catch {
            self.failed(error, key, flight, fallback)
        }
    }

    /// Loads the entry of `key` into its slot, if memory has none.
    ///
    /// - Returns: The entry, if it was loaded and is fresh.
    private func freshEntryFromDisk(_ key: Key, _ flight: FlightID) async -> MuxEntry<Value>? {
        guard let persistence, self.mayRead(key) else { return nil }
        guard let (entry, fetchedAt) = await self.load(key, persistence) else { return nil }
        let now = self.repository.time.now
        var found: MuxEntry<Value>?
        self.engine.report(from: flight, of: key) { state in
            guard let slot = self.adopt(entry, fetchedAt: fetchedAt, of: key, in: &state),
                slot.freshness(at: now, staleIfError: self.policy.staleIfError) == .fresh
            else { return }
            found = slot.snapshot(at: now, source: .disk)
        }
        self.tellEvictions()
        return found
    }

    private func landed(_ fetched: Fetched<Value>, _ key: Key, _ flight: FlightID) {
        let entry = self.entry(of: fetched)
        var isKept = false
        self.engine.land(flight, of: key, failed: false) { state, mayKeep in
            isKept = mayKeep
            var entry = entry
            entry.revision = state.nextRevision()
            if mayKeep {
                state.withSlot(of: key) { $0.committed(entry) }
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
                    revision: entry.revision
                )
            )
        }
        self.tell(.fetched, key)
        self.tellEvictions()
        if !isKept { self.tell(.fenceDropped, key) }
    }

    private func failed(_ error: any Error, _ key: Key, _ flight: FlightID, _ fallback: Slot<Value>?) {
        let isSilenceable = self.policy.isSilenceable(error)
        let now = self.repository.time.now
        var servesStale = false
        self.engine.withState { $0.statistics.failures += 1 }
        self.engine.land(flight, of: key, failed: true) { state, isKept in
            var current = state.slots.slot(of: key)
            if isKept, current?.entry == nil, let fallback, let entry = fallback.entry {
                current = state.withSlot(of: key) { slot in
                    slot.loaded(entry, fromBeforeRefresh: fallback.isRefreshed)
                    return slot
                }
            }
            guard isSilenceable,
                let slot = current,
                let freshness = slot.freshness(at: now, staleIfError: self.policy.staleIfError),
                freshness != .unusable,
                let entry = slot.snapshot(at: now, source: .memory)
            else { return .failure(error) }
            servesStale = true
            state.statistics.staleServed += 1
            let heldUntil = now.advanced(by: self.policy.errorBackoff)
            if isKept { state.withSlot(of: key) { $0.silenced(until: heldUntil) } }
            return .success(entry)
        }
        self.tell(.fetchFailed, key)
        if servesStale { self.tell(.servedStale, key) }
    }

    // MARK: - Changes by hand

    /// What is in memory for `key`, however old.
    func cachedEntry(_ key: Key) -> MuxEntry<Value>? {
        let now = self.repository.time.now
        return self.engine.withState { $0.slots.slot(of: key)?.snapshot(at: now, source: .memory) }
    }

    /// Makes the entry of `key` stale; a flight that runs is not the one to keep.
    func refresh(_ key: Key) {
        guard key == key else { return }
        let marksAbsent = self.persistence != nil
        let wallTime = marksAbsent ? self.repository.wallTime() : .distantPast
        self.engine.fence(key) { state in
            state.lastRefresh = max(state.lastRefresh, wallTime)
            guard marksAbsent || state.slots.slot(of: key) != nil else { return }
            state.withSlot(of: key) { $0.refreshed() }
        }
    }

    /// Makes every entry stale, in memory and on disk.
    func refreshAll() {
        let wallTime = self.repository.wallTime()
        self.engine.fenceAll { state in
            for key in state.slots.keys { state.withSlot(of: key) { $0.refreshed() } }
            // The date says it of all that is absent.
            state.slots.removeMarks()
            state.refreshedOnDisk = wallTime
        }
        self.tellEvictions()
    }

    /// Puts `value` in place of what is cached; a flight that runs cannot overwrite it.
    ///
    /// - Returns: `false`, and nothing has changed, if the cached entry is not the one with `revision`.
    @discardableResult
    func store(_ fetched: Fetched<Value>, _ key: Key, ifRevision revision: UInt64?) -> Bool {
        guard key == key else { return false }
        let entry = self.entry(of: fetched)
        defer { self.tellEvictions() }
        return self.engine.fenceIf(key) { state in
            if let revision, state.slots.slot(of: key)?.entry?.revision != revision { return false }
            var entry = entry
            entry.revision = state.nextRevision()
            state.withSlot(of: key) { $0.committed(entry) }
            return true
        }
    }

    // MARK: - Helpers

    private func entry(of fetched: Fetched<Value>) -> Slot<Value>.Entry {
        let timeToLive =
            fetched.timeToLive
            ?? self.policy.jittered(self.policy.timeToLive, random: self.repository.random())
        return Slot<Value>.Entry(
            value: fetched.value,
            fetchedAt: self.repository.time.now,
            timeToLive: timeToLive,
            validator: fetched.validator,
            revision: 0,
            isDirty: self.persistence != nil
        )
    }

    /// Tells the repository's observer, if there is one.
    func tell(_ kind: MuxEvent.Kind, _ key: Key? = nil) {
        guard let observer = self.repository.observer else { return }
        observer.observe(MuxEvent(kind, cacheKey: self.persistence?.domain, key: key.flatMap(self.keyText)))
    }
}
