/// The work of flights: a look-up in the backing, then a fetch.
extension MultiplexerCore {
    /// The facts about a key at the start of its fetch.
    @usableFromInline
    struct Beginning: Sendable {
        @usableFromInline let moment: Moment
        /// The number of the last change of any tag before the fetch.
        @usableFromInline let tagNumber: UInt64
        /// The slot before the fetch, with the server's entry without changes of the app; `nil` without a
        /// usable slot.
        @usableFromInline let former: FormerSlot<Value>?
        /// Whether the key has changes of the app.
        @usableFromInline let hasChanges: Bool

        @inlinable
        init(_ moment: Moment, _ tagNumber: UInt64, _ former: FormerSlot<Value>?, hasChanges: Bool) {
            self.moment = moment
            self.tagNumber = tagNumber
            self.former = former
            self.hasChanges = hasChanges
        }
    }

    @inlinable
    func fly(_ key: Key, _ flight: FlightID) async {
        if case .none = self.backing {
            await self.fetchAndLand(key, flight, nil, nil)
        } else {
            await self.flyWithBacking(key, flight)
        }
    }

    @inlinable
    @inline(never)
    func flyWithBacking(_ key: Key, _ flight: FlightID) async {
        await self.fly(key, flight, after: await self.backing.lookUp(key, flight))
    }

    /// The work of one flight after its look-up in the backing.
    @inlinable
    @inline(__always)
    func fly(_ key: Key, _ flight: FlightID, after found: LookUp<Value>) async {
        if !found.isOver { await self.fetchAndLand(key, flight, found.loaded, found.claim) }
        self.backing.flightEnded(key)
    }

    /// Fetches, and ends the flight, after a look-up that found `loaded` and got `claim`.
    ///
    /// A flight that was cancelled before the fetch ends without a fetch.
    @inlinable
    @inline(__always)
    func fetchAndLand(_ key: Key, _ flight: FlightID, _ loaded: FormerSlot<Value>?, _ claim: FetchClaim?) async {
        guard let beginning = self.beginFetch(key, flight, loaded) else {
            claim?.giveUp()
            return
        }
        do {
            if let plainFetch, claim == nil {
                self.landValue(try await plainFetch(key), key, flight, beginning)
            } else {
                try await self.fetchWithMetadata(key, flight, beginning, claim)
            }
        } catch {
            claim?.giveUp()
            self.landFailure(error, key, flight, beginning)
        }
    }

    /// Fetches with a closure that returns lifetimes, with retries, or with a claim of the shared store.
    ///
    /// A separate function, because this fetch needs a larger frame than the fetch of a plain value.
    @inlinable
    @inline(never)
    func fetchWithMetadata(
        _ key: Key,
        _ flight: FlightID,
        _ beginning: Beginning,
        _ claim: FetchClaim?
    ) async throws {
        let before = beginning.former?.slot.fetchedBefore(at: beginning.moment)
        let fetched = try await self.fetchWithRetries(key, before)
        guard let claim, case .sharedStore(let shared) = self.backing else {
            let entry = self.entry(of: fetched, key, since: beginning.tagNumber)
            if case .sharedStore(let shared) = self.backing,
                !fetched.isKept || fetched.timeToLive.map({ $0 <= .zero }) ?? false
            {
                shared.invalidateFormerEntry(of: key)
            }
            return self.landValue(fetched, entry, key, flight, beginning)
        }
        await self.share(fetched, key, flight, beginning, claim, shared)
    }

    /// Puts a fetched value in the shared store, if the store may have the value, then ends the flight.
    @usableFromInline
    func share(
        _ fetched: Fetched<Value>,
        _ key: Key,
        _ flight: FlightID,
        _ beginning: Beginning,
        _ claim: FetchClaim,
        _ shared: SharedStoreBacking<Slots>
    ) async {
        let entry = self.entry(of: fetched, key, since: beginning.tagNumber)
        // The store knows only the tags of the key, and could not invalidate a value with other tags.
        let isKept = fetched.isKept && self.memory.isShareable(entry, of: key)
        let outcome = await shared.share(entry, isKept: isKept, key, with: claim, since: beginning.moment)
        self.landValue(fetched, entry, key, flight, beginning, outcome)
    }

    /// Begins the fetch of a flight.
    ///
    /// - Returns: The start of the fetch; `nil` if the flight has ended. A cancelled flight ends in this
    ///   call.
    @inlinable
    @inline(never)
    func beginFetch(_ key: Key, _ flight: FlightID, _ loaded: FormerSlot<Value>?) -> Beginning? {
        // The number is read before the slot, so that a later change of a tag applies to the fetched value.
        let tagNumber = self.repository.tagLog.lastNumber
        var former: FormerSlot<Value>?
        var (isCancelled, hasChanges) = (false, false)
        let isUnread = loaded?.isUnread ?? false
        let begins = self.engine.beginWork(flight, of: key) { state, wasFenced, wasCancelled, _ in
            isCancelled = wasCancelled
            guard !isCancelled else { return }
            state.countFetch(of: key)
            guard state.layers.isEmpty || state.layers[key] == nil else {
                former = FormerSlot(state.serverSlot(of: key), isUnread: isUnread)
                hasChanges = true
                return
            }
            guard let slot = state.slots.slot(of: key) else {
                former = wasFenced && !isUnread ? nil : loaded
                return
            }
            former = FormerSlot(slot, isUnread: isUnread)
            if slot.entry == nil, !wasFenced, let loaded { former = loaded }
        }
        guard begins else { return nil }
        guard !isCancelled else {
            self.engine.land(flight, of: key, failed: true) { _, _ in .failure(CancellationError()) }
            return nil
        }
        self.memory.tell(.fetchStarted, key)
        return Beginning(self.repository.time.now, tagNumber, former?.current, hasChanges: hasChanges)
    }

    @inlinable
    @inline(never)
    func landValue(_ value: Value, _ key: Key, _ flight: FlightID, _ beginning: Beginning) {
        let fetched = Fetched(value)
        self.landValue(fetched, self.entry(of: fetched, key, since: beginning.tagNumber), key, flight, beginning)
    }

    /// Ends a flight with a fetched value.
    ///
    /// - Parameters:
    ///   - fetched: The value.
    ///   - entry: The entry of `fetched`.
    ///   - key: The key.
    ///   - flight: The flight.
    ///   - beginning: The start of the fetch.
    ///   - outcome: The outcome of the put in the shared store.
    @inlinable
    @inline(never)
    func landValue(
        _ fetched: Fetched<Value>,
        _ entry: Slot<Value>.Entry,
        _ key: Key,
        _ flight: FlightID,
        _ beginning: Beginning,
        _ outcome: SharedOutcome<Value> = .notShared
    ) {
        var entry = entry
        let duration = entry.fetchedAt.duration(since: beginning.moment)
        let renewed = fetched.renewedRevision == beginning.former?.revision ? fetched.renewedRevision : nil
        let isOther = self.hasSelection && self.memory.isOtherVariant(key)
        // A change that begins during the fetch fences the flight.
        let changes = beginning.hasChanges ? self.memory.changes(of: key, on: entry) : nil
        // `isKept`: whether the response was permitted to replace or to remove the entry.
        var (isKept, isSuperseded) = (false, false)
        var replaced: Slot<Value>.Entry?  // released outside the lock, since a value's deinit may call this multiplexer
        var work: State.PendingWork?
        // For an entry with a condition, `land` may start another flight, whose deadline needs the current
        // time. Otherwise `land` starts no flight, and `fetchedAt` saves a reading of the clock.
        self.engine.land(flight, of: key, failed: false, at: entry.condition == nil ? entry.fetchedAt : nil) {
            $0.noteFailedCondition(entry.condition, of: key)
        } settle: { state, hasNoFence in
            let isSending = !state.layers.isEmpty && state.isSending(key)
            var mayKeep = hasNoFence && !isSending && (changes.map { state.has($0, key) } ?? true)
            state.sweep(at: entry.fetchedAt, self.memory.usualLimits)
            if mayKeep, changes == nil, case .superseded(let newer, let digest) = outcome {
                (mayKeep, isSuperseded) = (false, true)
                var newer = newer
                state.prepare(&newer, of: key)
                replaced = state.commit(newer, of: key)
                state.shared.recordDigest(digest, of: key, revision: newer.revision)
            }
            isKept = mayKeep
            if hasNoFence { state.recordOutcome(of: key, error: nil, isReplaced: !isSending) }
            state.prepare(&entry, of: key, renewing: mayKeep ? renewed : nil)
            if mayKeep, fetched.isKept {
                // The disk may have an entry of a later version of the program, which no save may overwrite.
                if entry.isPersistent, beginning.former?.isUnread ?? false { state.disk.requireRead(key) }
                replaced = state.commit(entry, of: key)
                if let changes { state.put(changes, on: entry, of: key) }
                if case .stored(let digest) = outcome {
                    state.shared.recordDigest(digest, of: key, revision: entry.revision)
                }
            } else if mayKeep {
                let isOnDisk = entry.isPersistent && beginning.former?.mayBeOnDisk ?? false
                state.recordUncacheableResponse(of: key)
                replaced = state.withSlot(of: key) { $0.removeEntryWithoutSuccessor(isOnDisk: isOnDisk) }
            }
            if !mayKeep, !isOther, let shown = state.shown(key, at: entry.fetchedAt) { return .success(shown) }
            // With the revision of the server's entry, a caller's conditional `store` could replace the
            // server's value by a value that includes the changes.
            let revision = mayKeep && changes != nil ? state.shownRevision(of: key) : nil
            return .success(
                MuxEntry(
                    value: mayKeep ? changes?.shownValue ?? entry.value : entry.value,
                    age: .zero,
                    timeToLive: entry.timeToLive,
                    source: .fetch,
                    isStale: !mayKeep || entry.timeToLive <= .zero,
                    staleReason: mayKeep ? nil : .fenced,
                    revision: revision ?? entry.revision
                )
            )
        } always: { state in
            if !isKept { state.statistics.fenceDrops += 1 }
            state.statistics.fetchTime = .sum(state.statistics.fetchTime, duration)
            work = state.takePendingWork()
        }
        withExtendedLifetime(replaced) {}
        if isKept || isSuperseded { self.changed(key) }
        self.memory.tell(.fetched, key, duration)
        self.memory.release(work)
        if !isKept { self.memory.tell(.fenceDropped, key) }
    }

    @usableFromInline
    func landFailure(
        _ error: any Error,
        _ key: Key,
        _ flight: FlightID,
        _ beginning: Beginning
    ) {
        let error = error.ofUncancelledWork  // a cancellation becomes `fetchCancelled`, which is not remembered
        let fallback = beginning.former?.slot
        let isOtherVariant =
            self.memory.isOtherVariant(key)
            || !(self.memory.selection?.includes(key, fallback?.entry?.validator) ?? true)
        let isSilenceable = self.policy.isSilenceable(error) && !isOtherVariant
        let memory = self.policy.rememberedDuration(of: error)
        let retryAfter = RetryAdvice.retryAfter(of: error)
        let now = self.repository.time.now
        let duration = now.duration(since: beginning.moment)
        var work: State.PendingWork?
        let hasTimedOut = self.engine.land(flight, of: key, failed: true, at: now) { state, isKept in
            if !state.layers.isEmpty { state.showLayers(of: key) }
            var current = state.slots.slot(of: key)
            if isKept {
                state.recordOutcome(of: key, error: error)
                let hold = max(max(self.policy.errorBackoff, memory), FailurePause.limitedRetryAfter(retryAfter))
                let heldUntil = isSilenceable ? now.advanced(by: hold) : .distantPast
                let number = state.nextRevision()
                let isSaved = !state.disk.cannotWrite && !(fallback?.entry?.isExpendable ?? false)
                current = state.withSlot(of: key) { slot in
                    if slot.entry == nil, let fallback { slot.restoreEntry(of: fallback, isSaved: isSaved) }
                    slot.recordFailure(
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
            guard isSilenceable, let served = current?.served(on: .failure, at: now, self.memory.usualLimits) else {
                return .failure(error)
            }
            return .success(served.entry)
        } always: { state in
            state.statistics.failures += 1
            state.statistics.fetchTime = .sum(state.statistics.fetchTime, duration)
            work = state.takePendingWork()
        }
        // A fetch that took too long was cancelled, and may have failed because of the cancellation: the
        // event has the time-out error instead of this error.
        self.memory.tell(.fetchFailed, key, duration, because: hasTimedOut ? self.engine.options.timedOut : error)
        self.memory.release(work)
    }

    /// Fetches with the retries of the policy; for the errors, see ``RetryLoop/runPlainly(_:)``.
    @inlinable
    func fetchWithRetries(_ key: Key, _ before: FetchedBefore<Value>?) async throws -> Fetched<Value> {
        guard let policy = self.policy.retry else { return try await self.fetch(key, before) }
        return try await self.fetchWithRetries(key, before, policy)
    }

    @usableFromInline
    func fetchWithRetries(_ key: Key, _ before: FetchedBefore<Value>?, _ policy: RetryPolicy) async throws -> Fetched<
        Value
    > {
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
                self.memory.tell(.fetchRetried, key, nil, because: last)
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

    @usableFromInline typealias Launch = FlightEngine<Key, MuxEntry<Value>, State>.Launch
    /// A flight to start, with its key.
    @usableFromInline typealias KeyedLaunch = (key: Key, launch: Launch)

    /// Starts flights; with a disk, several flights start in portions, and one call of the store reads the
    /// entries of a portion.
    @inlinable
    func launch(_ launches: [KeyedLaunch]) {
        guard case .disk(let disk) = self.backing, launches.count > 1 else {
            for (key, launch) in launches { self.engine.launch(launch, of: key) }
            return
        }
        let size = SlotMemory<Slots>.portion
        for start in stride(from: 0, to: launches.count, by: size) {
            let portion = Array(launches[start..<min(start + size, launches.count)])
            self.startLoading(portion) { await self.begin(portion, disk) }
        }
    }

    /// Starts `work` in one task for all flights of a portion.
    ///
    /// An escalation of a flight without a separate task escalates this task. The cancellation of a flight
    /// does not cancel this task.
    @usableFromInline
    func startLoading(_ portion: [KeyedLaunch], _ work: @escaping @Sendable @concurrent () async -> Void) {
        let task = self.repository.spawn(
            name: "mux.load",
            priority: portion.first?.launch.priority.ofTask,
            otherwiseOn: FlightExecutor.shared,
            work
        )
        self.engine.setSharedTask(task, of: portion.map(\.launch.flight))
    }

    /// Reads the entries of flights from disk in one call, then ends or starts each flight.
    ///
    /// A small entry is decoded in the current task. If the flight is then over, the flight needs no separate
    /// task. Each other flight starts in a separate task.
    @inlinable
    func begin(_ portion: [KeyedLaunch], _ disk: DiskBacking<Slots>) async {
        let statesBefore = disk.statesBeforeRead(of: portion.map(\.key))
        // Flights with an entry in memory or a pending removal do not need the disk.
        for ((key, launch), stateBefore) in zip(portion, statesBefore) where stateBefore == nil {
            self.engine.launch(launch, of: key)
        }
        let others = zip(portion, statesBefore).compactMap { flight, stateBefore in stateBefore.map { (flight, $0) } }
        let keys = others.map { (key: $0.0.key, stateBefore: $0.1) }
        guard let reads = await disk.read(keys, for: portion.map(\.launch.flight)) else {
            for ((key, launch), _) in others { self.engine.launch(launch, of: key) }
            return
        }
        for (((key, launch), _), read) in zip(others, reads) where !read.isSmall {
            self.launch(launch, of: key) { await disk.lookUp(key, $0, after: read) }
        }
        for (((key, launch), _), read) in zip(others, reads) where read.isSmall {
            let found = await disk.lookUp(key, launch.flight, after: read)
            if !found.isOver { self.launch(launch, of: key) { _ in found } }
        }
    }

    /// Starts a flight whose task calls `lookUp` instead of ``Backing/lookUp(_:_:)``.
    @inlinable
    func launch(
        _ launch: Launch,
        of key: Key,
        after lookUp: @escaping @Sendable @concurrent (FlightID) async -> LookUp<Value>
    ) {
        var launch = launch
        launch.work = { [weak self] key, flight in
            let found = await lookUp(flight)
            await self?.fly(key, flight, after: found)
        }
        self.engine.launch(launch, of: key)
    }
}
