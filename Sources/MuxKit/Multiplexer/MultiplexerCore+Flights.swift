extension MultiplexerCore {
    /// The slot of a flight's key before the fetch.
    ///
    /// The flight retains the slot, because the table may evict the slot during the fetch.
    ///
    /// An object, not a struct: flights of new keys have no former slot, and the stack of the asynchronous
    /// function takes memory during the whole fetch.
    @usableFromInline
    final class FormerSlot: Sendable {
        @usableFromInline let slot: Slot<Value>

        @inlinable
        init(_ slot: Slot<Value>) { self.slot = slot }
    }

    /// The beginning of a fetch.
    @usableFromInline
    struct Beginning: Sendable {
        @usableFromInline let moment: Moment
        @usableFromInline let former: FormerSlot?

        @inlinable
        init(_ moment: Moment, _ former: FormerSlot?) {
            self.moment = moment
            self.former = former
        }
    }

    /// The work of one flight: reads an absent entry from disk, or calls the shared store; then fetches.
    @inlinable
    func fly(_ key: Key, _ flight: FlightID) async {
        if self.persistence != nil {
            await self.flyByDisk(key, flight)
        } else if self.isShared {
            await self.flyBySharedStore(key, flight)
        } else {
            await self.fly(key, flight, nil)
        }
    }

    @inlinable
    @inline(never)
    func flyByDisk(_ key: Key, _ flight: FlightID) async {
        let (isOver, loaded) = await self.answerFromDisk(key, flight)
        if !isOver { await self.fly(key, flight, loaded) }
    }

    /// Fetches, after a read of the disk or the shared store that found `loaded`.
    @inlinable
    @inline(__always)
    func fly(_ key: Key, _ flight: FlightID, _ loaded: FormerSlot?) async {
        guard let beginning = self.fetchBegins(key, flight, loaded) else { return }
        do {
            if let plainFetch {
                self.landed(try await plainFetch(key), key, flight, beginning)
            } else {
                try await self.fetchWithFacts(key, flight, beginning)
            }
        } catch {
            self.failed(error, key, flight, beginning)
        }
    }

    /// Fetches a value with its lifetime and validator, or with retries.
    ///
    /// A separate function, because this fetch needs a larger stack than the fetch of a plain value.
    @inlinable
    @inline(never)
    func fetchWithFacts(_ key: Key, _ flight: FlightID, _ beginning: Beginning) async throws {
        let before = beginning.former?.slot.fetchedBefore(at: beginning.moment)
        let fetched = try await self.fetched(key, before)
        self.landed(fetched, self.entry(of: fetched), key, flight, beginning)
    }

    /// Begins the fetch of a flight; `nil` if the flight has ended or is cancelled.
    @inlinable
    @inline(never)
    func fetchBegins(_ key: Key, _ flight: FlightID, _ loaded: FormerSlot?) -> Beginning? {
        var former: FormerSlot?
        var isCancelled = false
        let begins = self.engine.workBegins(flight, of: key) { state, wasFenced, wasCancelled in
            isCancelled = wasCancelled
            guard !isCancelled else { return }
            state.statistics.fetches += 1
            guard let slot = state.slots.slot(of: key) else {
                former = wasFenced ? nil : loaded
                return
            }
            former = slot.entry == nil && !wasFenced ? loaded ?? FormerSlot(slot) : FormerSlot(slot)
        }
        guard begins else { return nil }
        guard !isCancelled else {
            self.engine.land(flight, of: key, failed: true) { _, _ in .failure(CancellationError()) }
            return nil
        }
        self.tell(.fetchStarted, key)
        return Beginning(self.repository.time.now, former)
    }

    /// Loads an absent entry from disk into its slot, and resumes callers.
    ///
    /// Resumes the callers for which the entry is good enough.
    ///
    /// - Returns: Whether the flight has ended. If not, also the loaded slot, for which the table may have
    ///   had no room.
    @inlinable
    @inline(never)
    func answerFromDisk(_ key: Key, _ flight: FlightID) async -> (isOver: Bool, loaded: FormerSlot?) {
        guard let persistence else { return (false, nil) }
        guard let look = self.look(for: key) else {
            // Another process may have ended the session. If another task detects the end at the same time,
            // the value is dropped later.
            try? await self.repository.checkSession()
            return (false, nil)
        }
        guard let found = await self.load(key, persistence) else { return (false, nil) }
        return self.answer(key, flight, found, look)
    }

    /// Stores an entry from disk in its slot, and resumes callers; see ``answerFromDisk(_:_:)``.
    @inlinable
    @inline(never)
    func answer(
        _ key: Key,
        _ flight: FlightID,
        _ found: Loaded,
        _ look: DiskLook
    ) -> (isOver: Bool, loaded: FormerSlot?) {
        self.answer(key, flight, source: .disk) { self.adopt(found, of: key, look, in: &$0) }
    }

    /// Resumes callers with the slot that `adopt` returns; see ``answerFromDisk(_:_:)``.
    ///
    /// Resumes the callers for which the slot is good enough, and all callers with tickets up to `last`.
    @inlinable
    @inline(never)
    func answer(
        _ key: Key,
        _ flight: FlightID,
        source: MuxEntry<Value>.Source,
        upTo last: Ticket = 0,
        _ adopt: (inout State) -> Slot<Value>?
    ) -> (isOver: Bool, loaded: FormerSlot?) {
        let now = self.repository.time.now
        var loaded: Slot<Value>?
        var replaced: [Slot<Value>?] = []  // released outside the lock
        var evictions: Evictions?
        let isOver = self.engine.answerEarly(flight, of: key) { state, tickets in
            defer { evictions = state.takeEvictions() }
            var early = FlightEngine<Key, MuxEntry<Value>, State>.EarlyAnswers()
            guard let slot = adopt(&state), let found = slot.snapshot(at: now, source: source) else { return early }
            loaded = slot
            let isFresh = slot.freshness(at: now, self.usualLimits) == .fresh(renews: false)
            early.isOver = !tickets.isEmpty || isFresh
            early.isRenewed = isFresh && source == .sharedStore
            for ticket in tickets {
                guard ticket > last else {
                    early.outputs[ticket] = found
                    continue
                }
                let waiter = state.waiterOptions[ticket]
                let limits = waiter?.limits ?? self.usualLimits
                var served = slot.served(on: .arrival, at: now, limits, source: source)
                if served == nil, let end = waiter?.waitLimitEnds, end <= now {
                    served = slot.served(on: .waitLimit, at: now, limits, source: source)
                }
                if let served {
                    early.outputs[ticket] = served.entry
                    if served.renews { early.isOver = false }
                } else if waiter != nil {
                    replaced.append(waiter?.loaded)
                    state.waiterOptions[ticket]?.loaded = slot
                }
            }
            if tickets.isEmpty ? early.isOver : !early.outputs.isEmpty {
                state.found(in: source, isOver: early.isOver)
            }
            return early
        }
        withExtendedLifetime(replaced) {}
        self.watchers.send((), to: key)
        self.release(evictions)
        return (isOver, isOver ? nil : loaded.map(FormerSlot.init))
    }

    @inlinable
    @inline(never)
    func landed(_ value: Value, _ key: Key, _ flight: FlightID, _ beginning: Beginning) {
        let fetched = Fetched(value)
        self.landed(fetched, self.entry(of: fetched), key, flight, beginning)
    }

    /// Ends a flight with a fetched value.
    ///
    /// - Parameters:
    ///   - fetched: The value.
    ///   - entry: The entry of `fetched`.
    ///   - key: The key.
    ///   - flight: The flight.
    ///   - beginning: The beginning of the fetch.
    ///   - outcome: The outcome in the shared store.
    @inlinable
    @inline(never)
    func landed(
        _ fetched: Fetched<Value>,
        _ entry: Slot<Value>.Entry,
        _ key: Key,
        _ flight: FlightID,
        _ beginning: Beginning,
        _ outcome: SharedOutcome<Value> = .notShared
    ) {
        let before = beginning.former?.slot
        let duration = entry.fetchedAt.duration(since: beginning.moment)
        let renewed = fetched.renewedRevision == before?.entry?.revision ? fetched.renewedRevision : nil
        var (isKept, isSuperseded) = (false, false)
        var replaced: Slot<Value>.Entry?  // released outside the lock, since a value's deinit may call this multiplexer
        var evictions: Evictions?
        self.engine.land(flight, of: key, failed: false) { state, hasNoFence in
            var mayKeep = hasNoFence
            state.sweep(at: entry.fetchedAt, self.usualLimits)
            if hasNoFence, case .superseded(let newer, let digest) = outcome {
                (mayKeep, isSuperseded) = (false, true)
                let newer = state.adopted(newer, of: key, renewing: nil)
                replaced = state.withSlot(of: key) { $0.committed(newer) }
                state.shared.keeps(key, digest: digest, revision: newer.revision)
            }
            isKept = mayKeep
            let entry = state.adopted(entry, of: key, renewing: mayKeep ? renewed : nil)
            if mayKeep, fetched.isKept {
                replaced = state.withSlot(of: key) { $0.committed(entry) }
                if case .stored(let digest) = outcome {
                    state.shared.keeps(key, digest: digest, revision: entry.revision)
                }
            } else if mayKeep {
                let isOnDisk = entry.isPersistent && (before?.entry?.isPersistent ?? false)
                state.clears &+= 1
                replaced = state.withSlot(of: key) { $0.passed(isOnDisk: isOnDisk) }
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
            if !isKept { state.statistics.fenceDrops += 1 }
            state.statistics.fetchTime = .sum(state.statistics.fetchTime, duration)
            evictions = state.takeEvictions()
        }
        withExtendedLifetime(replaced) {}
        if isKept || isSuperseded { self.changed(key) }
        self.tell(.fetched, key, duration)
        self.release(evictions)
        if !isKept { self.tell(.fenceDropped, key) }
    }

    @usableFromInline
    func failed(
        _ error: any Error,
        _ key: Key,
        _ flight: FlightID,
        _ beginning: Beginning
    ) {
        let error = error.ofUncancelledWork  // a flight without callers keeps no error
        let fallback = beginning.former?.slot
        let isForAnother =
            self.isForAnother(key) || !(self.selection?.includes(key, fallback?.entry?.validator) ?? true)
        let isSilenceable = self.policy.isSilenceable(error) && !isForAnother
        let memory = self.policy.memory(of: error)
        let retryAfter = RetryAdvice.retryAfter(of: error)
        let now = self.repository.time.now
        let duration = now.duration(since: beginning.moment)
        var evictions: Evictions?
        let hasTimedOut = self.engine.land(flight, of: key, failed: true) { state, isKept in
            var current = state.slots.slot(of: key)
            if isKept {
                let hold = max(max(self.policy.errorBackoff, memory), FailurePause.obeyed(retryAfter))
                let heldUntil = isSilenceable ? now.advanced(by: hold) : .distantPast
                let number = state.nextRevision()
                let isSaved = !state.cannotWrite && !(fallback?.entry?.isExpendable ?? false)
                current = state.withSlot(of: key) { slot in
                    if slot.entry == nil, let fallback { slot.restored(fallback, isSaved: isSaved) }
                    slot.failed(
                        error,
                        heldUntil: heldUntil,
                        rememberedUntil: now.advanced(by: memory),
                        pausing: self.policy.errorBackoff,
                        retryAfter: retryAfter,
                        at: now,
                        sequence: number
                    )
                    return slot
                }
            }
            guard isSilenceable, let served = current?.served(on: .failure, at: now, self.usualLimits) else {
                return .failure(error)
            }
            return .success(served.entry)
        } always: { state in
            state.statistics.failures += 1
            state.statistics.fetchTime = .sum(state.statistics.fetchTime, duration)
            evictions = state.takeEvictions()
        }
        if hasTimedOut { self.pauseAfterTimeout(key, fallback?.entry?.revision) }
        // A fetch that took too long was cancelled, so its own error is a cancellation.
        self.tell(.fetchFailed, key, duration, because: hasTimedOut ? self.engine.options.timedOut : error)
        self.release(evictions)
    }

    /// Pauses renewals of `key` behind requests, after a fetch took too long.
    private func pauseAfterTimeout(_ key: Key, _ revision: UInt64?) {
        let now = self.repository.time.now
        self.withSlots { state in
            // A value that arrived after the timeout ends the pause.
            guard let entry = state.slots.slot(of: key)?.entry, entry.revision == revision else { return }
            let number = state.nextRevision()
            state.withSlot(of: key) { $0.paused(self.policy.errorBackoff, at: now, sequence: number) }
        }
    }
}

extension MultiplexerCore {
    /// Fetches with the retries of the policy; throws the error of the last attempt.
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
        var last: (any Error)?
        return try await loop.runPlainly { _ in
            if let last {
                self.engine.withState { $0.statistics.retries += 1 }
                self.tell(.fetchRetried, key, nil, because: last)
            }
            do {
                return try await self.fetch(key, before)
            } catch {
                let failure = Task.isCancelled ? error : error.ofUncancelledWork
                last = failure
                throw failure
            }
        }
    }
}
