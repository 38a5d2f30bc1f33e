extension MultiplexerCore {
    /// The work of one flight: looks at the disk if memory has no entry, then fetches.
    @inlinable
    func fly(_ key: Key, _ flight: FlightID) async {
        var loaded: Slot<Value>?
        if self.persistence != nil {
            let (isOver, found) = await self.answerFromDisk(key, flight)
            guard !isOver else { return }
            loaded = found
        }
        await self.fly(key, flight, loaded)
    }

    /// The work of one flight after the look at the disk, which has found `loaded`.
    @inlinable
    @inline(__always)
    func fly(_ key: Key, _ flight: FlightID, _ loaded: Slot<Value>?) async {
        var fallback: Slot<Value>?  // kept here, since it may be evicted during the fetch
        var isCancelled = false
        let begins = self.engine.workBegins(flight, of: key) { state, wasFenced, wasCancelled in
            isCancelled = wasCancelled
            guard !isCancelled else { return }
            state.statistics.fetches += 1
            let slot = state.slots.slot(of: key)
            fallback = slot?.entry == nil && !wasFenced ? loaded ?? slot : slot
        }
        guard begins else { return }
        guard !isCancelled else {
            self.engine.land(flight, of: key, failed: true) { _, _ in .failure(CancellationError()) }
            return
        }
        self.tell(.fetchStarted, key)
        let start = self.repository.time.now
        let result: Result<Fetched<Value>, any Error>
        do {
            result = .success(try await self.fetched(key, fallback?.fetchedBefore(at: start)))
        } catch {
            result = .failure(error)
        }
        let duration = self.repository.time.now.duration(since: start)
        switch result {
        case .success(let fetched): self.landed(fetched, key, flight, fallback, after: duration)
        case .failure(let error): self.failed(error, key, flight, fallback, after: duration)
        }
    }

    /// Loads the entry of `key` into its slot, if memory has none, and answers the callers for which it is good enough.
    ///
    /// - Returns: Whether the flight has ended, and the loaded slot, for which the table may not have had room.
    @inlinable
    @inline(never)
    func answerFromDisk(_ key: Key, _ flight: FlightID) async -> (isOver: Bool, loaded: Slot<Value>?) {
        guard let persistence else { return (false, nil) }
        guard let look = self.look(for: key) else {
            // Another process may have ended the session. If another task is finding that out now, the value is dropped later.
            try? await self.repository.checkSession()
            return (false, nil)
        }
        guard let found = await self.load(key, persistence) else { return (false, nil) }
        return self.answer(key, flight, found, look)
    }

    /// Puts an entry from disk into its slot, and answers the callers for which it is good enough; see ``answerFromDisk(_:_:)``.
    @inlinable
    @inline(never)
    func answer(
        _ key: Key,
        _ flight: FlightID,
        _ found: Loaded,
        _ look: DiskLook
    ) -> (isOver: Bool, loaded: Slot<Value>?) {
        let now = self.repository.time.now
        var loaded: Slot<Value>?
        var servesStale = false
        var evictions: Evictions?
        let isOver = self.engine.answerEarly(flight, of: key) { state, tickets in
            defer { evictions = state.takeEvictions() }
            var early = FlightEngine<Key, MuxEntry<Value>, State>.EarlyAnswers()
            guard let slot = self.adopt(found, of: key, look, in: &state),
                let found = slot.snapshot(at: now, source: .disk)
            else { return early }
            loaded = slot
            early.isOver = !tickets.isEmpty || slot.freshness(at: now, self.usualLimits) == .fresh(renews: false)
            for ticket in tickets {
                let waiter = state.waiterOptions[ticket]
                switch slot.freshness(at: now, waiter?.limits ?? self.usualLimits) {
                case .fresh(let renews):
                    early.outputs[ticket] = found
                    if renews { early.isOver = false }
                case .servable:
                    early.outputs[ticket] = found.served(because: .revalidating)
                    early.isOver = false
                    servesStale = true
                case .fallback where waiter?.waitLimitEnds.map { $0 <= now } ?? false:
                    early.outputs[ticket] = found.served(because: .outOfPatience)
                    early.isOver = false
                case .fallback, .unusable, nil:
                    if waiter != nil { state.waiterOptions[ticket]?.loaded = slot }
                }
            }
            if tickets.isEmpty ? early.isOver : !early.outputs.isEmpty { state.statistics.diskHits += 1 }
            if servesStale { state.statistics.staleServed += 1 }
            return early
        }
        self.watchers.send((), to: key)
        self.release(evictions)
        if servesStale { self.tell(.servedStale, key) }
        return (isOver, loaded)
    }

    @inlinable
    @inline(never)
    func landed(
        _ fetched: Fetched<Value>,
        _ key: Key,
        _ flight: FlightID,
        _ before: Slot<Value>?,
        after duration: Duration
    ) {
        let entry = self.entry(of: fetched)
        let renewed = fetched.renewedRevision == before?.entry?.revision ? fetched.renewedRevision : nil
        var isKept = false
        var replaced: Slot<Value>.Entry?  // released outside the lock, since a value's deinit may call this multiplexer
        var evictions: Evictions?
        self.engine.land(flight, of: key, failed: false) { state, mayKeep in
            isKept = mayKeep
            state.sweep(at: entry.fetchedAt, self.usualLimits)
            let entry = state.adopted(entry, of: key, renewing: mayKeep ? renewed : nil)
            if mayKeep, fetched.isKept {
                replaced = state.withSlot(of: key) { $0.committed(entry) }
            } else if mayKeep {
                let isOnDisk = entry.isPersistent && (before?.entry?.isPersistent ?? false)
                state.clears &+= 1
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
        } always: { state in
            state.statistics.fetchTime = .sum(state.statistics.fetchTime, duration)
            evictions = state.takeEvictions()
        }
        withExtendedLifetime(replaced) {}
        if isKept { self.changed(key) }
        self.tell(.fetched, key, duration)
        self.release(evictions)
        if !isKept { self.tell(.fenceDropped, key) }
    }

    @usableFromInline
    func failed(
        _ error: any Error,
        _ key: Key,
        _ flight: FlightID,
        _ fallback: Slot<Value>?,
        after duration: Duration
    ) {
        let isForAnother =
            self.isForAnother(key) || !(self.selection?.includes(key, fallback?.entry?.validator) ?? true)
        let isSilenceable = self.policy.isSilenceable(error) && !isForAnother
        let memory = self.policy.memory(of: error)
        let now = self.repository.time.now
        var servesStale = false
        var evictions: Evictions?
        self.engine.land(flight, of: key, failed: true) { state, isKept in
            var current = state.slots.slot(of: key)
            if isKept {
                let hold = max(self.policy.errorBackoff, memory)
                let heldUntil = isSilenceable ? now.advanced(by: hold) : .distantPast
                let number = state.nextRevision()
                let isSaved = !state.cannotWrite && !(fallback?.entry?.isExpendable ?? false)
                current = state.withSlot(of: key) { slot in
                    if slot.entry == nil, let fallback { slot.restored(fallback, isSaved: isSaved) }
                    slot.failed(
                        error,
                        heldUntil: heldUntil,
                        rememberedUntil: now.advanced(by: memory),
                        at: now,
                        sequence: number
                    )
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
        } always: { state in
            state.statistics.failures += 1
            state.statistics.fetchTime = .sum(state.statistics.fetchTime, duration)
            evictions = state.takeEvictions()
        }
        self.tell(.fetchFailed, key, duration)
        self.release(evictions)
        if servesStale { self.tell(.servedStale, key) }
    }
}

extension MultiplexerCore {
    /// Fetches, with the retries of the policy; throws the error of the last attempt.
    @inlinable
    func fetched(_ key: Key, _ before: FetchedBefore<Value>?) async throws -> Fetched<Value> {
        guard let policy = self.policy.retry else { return try await self.fetch(key, before) }
        return try await self.fetched(key, before, policy)
    }

    @usableFromInline
    func fetched(_ key: Key, _ before: FetchedBefore<Value>?, _ policy: RetryPolicy) async throws -> Fetched<Value> {
        let loop = RetryLoop(
            policy,
            time: self.repository.time,
            random: self.repository.random,
            spawn: self.repository.spawn
        )
        return try await loop.runPlainly { attempt in
            if attempt.index > 0 {
                self.engine.withState { $0.statistics.retries += 1 }
                self.tell(.fetchRetried, key)
            }
            return try await self.fetch(key, before)
        }
    }
}
