import Foundation

/// Flights with a shared store of several machines: as a rule, one machine fetches an entry for all machines.
extension MultiplexerCore {
    // MARK: - Flights

    /// The work of one flight: reads the shared store, waits for another machine's fetch, or fetches.
    @usableFromInline
    func flyBySharedStore(_ key: Key, _ flight: FlightID) async {
        guard let sharing else { return }
        let name = sharing.name(of: key)
        self.engine.withState { $0.shared.begins(key, name) }
        switch await self.look(key, flight, name, sharing) {
        case .nothing: break
        case .fetch(let loaded): await self.fly(key, flight, loaded)
        case .fetchAndPut(let right, let loaded): await self.fly(key, flight, loaded, right, sharing)
        }
        self.withSlots { $0.sharedFlightEnded(key) }
    }

    /// A claim of this machine: the right to fetch for all machines.
    private struct FetchRight: Sendable {
        let ticket: MuxShared.Ticket
        /// Whether the store has an older entry.
        let replaces: Bool
        /// The remaining time that the flight may wait for the store.
        let budget: Duration
    }

    /// The next step of a flight after its calls of the shared store.
    private enum NextStep {
        /// The flight has ended.
        case nothing
        /// The flight fetches for this machine only.
        case fetch(FormerSlot?)
        /// The flight fetches for all machines.
        case fetchAndPut(FetchRight, FormerSlot?)
    }

    /// Claims the entry, resumes callers with the store's entry, and waits for another machine's fetch.
    private func look(
        _ key: Key,
        _ flight: FlightID,
        _ name: MuxShared.Name,
        _ sharing: Sharing<Key, Value>
    ) async -> NextStep {
        let (client, start) = (sharing.client, self.repository.time.now)
        let duration = Duration.sum(min(self.policy.fetchTimeout, Self.longestClaim), client.policy.budget)
        let patience = min(client.policy.patience, self.policy.fetchTimeout / 2)
        var loaded: FormerSlot?
        // The remaining time for waits for the store, apart from the wait for another machine's fetch.
        var budget = client.policy.budget
        // Whether the store's entry is not fresh enough for all callers.
        var wantsNewer = false
        // The begin of the wait for another machine's fetch, and the last ticket at that time.
        var waits: (since: Moment, last: Ticket)?
        let wait = client.wait(for: name.key)
        while true {
            let (isOn, known) = self.known(key, flight)
            guard isOn else { return .nothing }
            guard let known else { return .fetch(loaded) }  // a cancelled flight ends at the begin of the fetch
            // The fence may have removed the entry that was found before the fence.
            if known.wasFenced { (loaded, wantsNewer, waits) = (nil, false, nil) }
            let asked = self.repository.time.now
            var maximumAge = wantsNewer ? .zero : known.maximumAge
            // An entry that another machine fetched during the wait is as new as an entry that this flight
            // would fetch.
            if let waits, let age = maximumAge { maximumAge = max(age, asked.duration(since: waits.since)) }
            wait.begins()
            let limit = waits == nil ? budget : client.policy.budget
            let claim = await client.claim(
                name,
                maximumAge: maximumAge,
                digest: known.digest,
                for: duration,
                within: limit
            ) { self.tellNotShared(key, $0) }
            if waits == nil { budget -= self.repository.time.now.duration(since: asked) }
            switch claim {
            case nil:
                guard known.isUnverified else { return .fetch(loaded) }
                let found = self.answerUnverified(key, flight)
                return found.isOver ? .nothing : .fetch(found.loaded ?? loaded)
            case .entry(let entry):
                let isJoined = waits.map { entry.age <= self.repository.time.now.duration(since: $0.since) } ?? false
                guard entry.schemaVersion <= self.policy.schemaVersion, isJoined || !wantsNewer else {
                    return .fetch(loaded)
                }
                let last = isJoined ? waits?.last ?? 0 : 0
                let found = await self.adopt(entry, at: asked, key, flight, known, sharing, upTo: last)
                if found?.isOver ?? false { return .nothing }
                loaded = found?.loaded ?? loaded
                // After a fence (`found` without a slot), the claim is repeated.
                if found == nil || found?.loaded != nil { (wantsNewer, waits) = (true, nil) }
            case .granted(let ticket, let entry):
                guard entry?.schemaVersion ?? 0 <= self.policy.schemaVersion else {
                    // A later version of the program wrote the entry, which must not be overwritten.
                    client.giveUp(ticket)
                    return .fetch(loaded)
                }
                if entry == nil, known.mayBeOffered, !wantsNewer, let offered = self.offered(key, known) {
                    (wantsNewer, waits) = (true, nil)
                    let began = self.repository.time.now
                    let outcome = await self.put(
                        offered,
                        key,
                        ticket,
                        since: offered.fetchedAt,
                        within: budget,
                        sharing
                    )
                    budget -= self.repository.time.now.duration(since: began)
                    let digest: String?
                    switch outcome {
                    case .stored(let stored): digest = stored
                    // The store has no entry, and refuses the entry: the value in memory is the newest.
                    case .refused: digest = nil
                    case .notShared, .superseded: continue
                    }
                    let found = self.answer(key, flight, keeping: offered, digest)
                    if found.isOver { return .nothing }
                    loaded = found.loaded ?? loaded
                    continue
                }
                let right = FetchRight(ticket: ticket, replaces: entry != nil, budget: budget)
                let fallback = await self.fallback(entry, at: asked, key, flight, known, sharing)
                return .fetchAndPut(right, fallback ?? loaded)
            case .taken(let rest, let entry):
                loaded = await self.fallback(entry, at: asked, key, flight, known, sharing) ?? loaded
                let left = patience - self.repository.time.now.duration(since: start)
                let end = self.repository.time.now.advanced(by: rest)
                // Another claim would end later. The delay of replies shifts the computed end of a claim.
                let isInVain = known.vainClaimEnd.map { end <= $0.advanced(by: client.policy.budget) } ?? false
                // After failed fetches of two machines, all waiting machines fetch at the same time.
                guard left > .zero, wait.failureCount < 2, !isInVain, !Task.isCancelled else {
                    if left <= .zero { self.engine.withState { $0.shared.waitedInVain(key, until: end) } }
                    return .fetch(loaded)
                }
                waits = waits ?? (asked, self.engine.nextID())
                // The store's report of a change may be lost: each wait is limited, and the claim is
                // repeated.
                let limit = min(max(rest, .milliseconds(1)), min(client.policy.budget, left))
                await wait.next(within: limit, self.repository.time, self.repository.spawn)
            }
        }
    }

    /// The limit of a claim's duration, without the budget.
    ///
    /// A machine that has ended may keep its claim that long.
    private static var longestClaim: Duration { .seconds(600) }

    /// The facts of a flight before a claim.
    private struct Known {
        /// Whether a fence came since the last claim of the flight.
        var wasFenced: Bool
        /// The maximum age of an entry for all callers; `nil` for the entry's time to live.
        var maximumAge: Duration?
        var entry: Slot<Value>.Entry?
        /// The digest of the entry in memory.
        var digest: String?
        /// Whether ``entry`` is stale only because this machine may have missed changes.
        var isUnverified = false
        /// Whether the store has lost ``entry``.
        var mayBeOffered = false
        /// The end of the last claim that a flight stopped waiting for.
        var vainClaimEnd: Moment?
    }

    /// The facts of a flight, `nil` for a cancelled flight, and whether the flight continues.
    private func known(_ key: Key, _ flight: FlightID) -> (isOn: Bool, known: Known?) {
        var known: Known?
        // A fence during the last claim invalidates the result of the claim, not the flight.
        let isOn = self.engine.workBegins(flight, of: key, withTickets: true) {
            state,
            wasFenced,
            isCancelled,
            tickets in
            guard !isCancelled else { return }
            var facts = Known(wasFenced: wasFenced)
            facts.vainClaimEnd = state.shared.vainClaimEnd(key)
            if let slot = state.slots.slot(of: key), let entry = slot.entry {
                facts.entry = entry
                facts.digest = state.shared.digest(key, of: entry.revision)
                facts.isUnverified = state.shared.isUnverified(slot, key)
                facts.mayBeOffered = facts.isUnverified && state.shared.mayBeOffered(entry)
                facts.maximumAge = entry.renewalAge
            }
            for ticket in tickets {
                let limits = state.waiterOptions[ticket]?.limits ?? self.usualLimits
                let age = limits.isReload || !limits.takesStored ? .zero : limits.maximumAge
                if let age { facts.maximumAge = min(facts.maximumAge ?? age, age) }
            }
            known = facts
        }
        return (isOn, known)
    }

    /// Stores an entry of the shared store in memory, and resumes callers with the entry.
    ///
    /// Resumes the callers for which the entry is fresh enough, and all callers with tickets up to `last`.
    ///
    /// - Returns: Whether the flight has ended. If not, also the slot, which is `nil` after a fence. `nil` if
    ///   the entry cannot be used.
    private func adopt(
        _ entry: MuxShared.Entry,
        at asked: Moment,
        _ key: Key,
        _ flight: FlightID,
        _ known: Known,
        _ sharing: Sharing<Key, Value>,
        upTo last: Ticket = 0
    ) async -> (isOver: Bool, loaded: FormerSlot?)? {
        if entry.payload != nil {
            guard let loaded = await self.loaded(entry, at: asked, key, sharing) else { return nil }
            return self.answer(key, flight, keeping: loaded.entry, entry.digest, upTo: last)
        }
        // The store's entry has the payload of the entry in memory.
        guard let own = known.entry, known.digest == entry.digest else { return nil }
        let timeToLive = max(entry.timeToLive, .zero)
        let renewed = Slot<Value>.Entry(
            value: own.value,
            fetchedAt: asked.advanced(by: .zero - max(entry.age, .zero)),
            timeToLive: timeToLive,
            renewalAge: self.renewalAge(timeToLive, entry.validator),
            stale: StaleLimits(whileRevalidate: entry.staleWhileRevalidate, ifError: entry.staleIfError),
            // A migrated value differs from the server's value, so a validator must not revalidate it.
            validator: entry.schemaVersion < self.policy.schemaVersion ? nil : entry.validator,
            revision: own.revision
        )
        return self.answer(key, flight, keeping: renewed, entry.digest, upTo: last)
    }

    /// Stores an entry that is too old, for callers that accept stale entries and for a failed fetch.
    private func fallback(
        _ entry: MuxShared.Entry?,
        at asked: Moment,
        _ key: Key,
        _ flight: FlightID,
        _ known: Known,
        _ sharing: Sharing<Key, Value>
    ) async -> FormerSlot? {
        guard let entry, entry.schemaVersion <= self.policy.schemaVersion else { return nil }
        if let own = known.entry, asked.duration(since: own.fetchedAt) <= entry.age { return nil }
        return await self.adopt(entry, at: asked, key, flight, known, sharing)?.loaded
    }

    /// Decodes an entry of the shared store; `nil` if the entry cannot be used.
    private func loaded(
        _ entry: MuxShared.Entry,
        at asked: Moment,
        _ key: Key,
        _ sharing: Sharing<Key, Value>
    ) async -> Loaded? {
        guard let payload = entry.payload else { return nil }
        let stored = MuxStoredEntry(
            name: sharing.persistence.name(of: key),
            schemaVersion: entry.schemaVersion,
            sessionEpoch: 0,
            fetchedAt: Date(timeIntervalSinceReferenceDate: 0),
            timeToLive: max(entry.timeToLive, .zero),
            validator: entry.validator,
            staleWhileRevalidate: entry.staleWhileRevalidate,
            staleIfError: entry.staleIfError,
            payload: payload
        )
        return await self.loaded(stored, key, sharing.persistence, since: asked, age: max(entry.age, .zero))
    }

    /// Stores `entry` in its slot, and resumes callers with the entry.
    ///
    /// Resumes the callers for which the entry is fresh enough, and all callers with tickets up to `last`.
    private func answer(
        _ key: Key,
        _ flight: FlightID,
        keeping entry: Slot<Value>.Entry,
        _ digest: String?,
        upTo last: Ticket = 0
    ) -> (isOver: Bool, loaded: FormerSlot?) {
        var replaced: Slot<Value>.Entry?
        defer { withExtendedLifetime(replaced) {} }  // released outside the lock
        return self.answer(key, flight, source: .sharedStore, upTo: last) { state in
            let entry = state.adopted(entry, of: key, renewing: entry.revision == 0 ? nil : entry.revision)
            let slot = state.withSlot(of: key) { slot in
                replaced = slot.committed(entry)
                return slot
            }
            if let digest { state.shared.keeps(key, digest: digest, revision: entry.revision) }
            return slot
        }
    }

    /// Resumes callers with an unverified entry while the store is unavailable; the entry stays unverified.
    private func answerUnverified(_ key: Key, _ flight: FlightID) -> (isOver: Bool, loaded: FormerSlot?) {
        self.answer(key, flight, source: .memory) { state in
            guard let slot = state.slots.slot(of: key), state.shared.isUnverified(slot, key) else { return nil }
            return Slot(
                entry: slot.entry,
                isRefreshed: false,
                failureRecord: slot.failureRecord,
                isRemovalPending: slot.isRemovalPending
            )
        }
    }

    // MARK: - Putting

    /// The work of one flight with a claim: fetches, puts the value in the store, then resumes the callers.
    private func fly(
        _ key: Key,
        _ flight: FlightID,
        _ loaded: FormerSlot?,
        _ right: FetchRight,
        _ sharing: Sharing<Key, Value>
    ) async {
        let client = sharing.client
        guard let beginning = self.fetchBegins(key, flight, loaded) else { return client.giveUp(right.ticket) }
        do {
            let before = beginning.former?.slot.fetchedBefore(at: beginning.moment)
            let fetched = try await self.fetched(key, before)
            let entry = self.entry(of: fetched)
            var outcome = SharedOutcome<Value>.notShared
            if fetched.isKept, entry.timeToLive > .zero {
                let began = beginning.moment
                outcome = await self.put(entry, key, right.ticket, since: began, within: right.budget, sharing)
            } else {
                client.giveUp(right.ticket)
                // The fetch has replaced the store's entry, which no later request may get.
                if right.replaces {
                    client.owe([.entry(right.ticket.name.key)])
                    client.settleLater()
                }
            }
            self.landed(fetched, entry, key, flight, beginning, outcome)
        } catch {
            client.giveUp(right.ticket)
            self.failed(error, key, flight, beginning)
        }
    }

    /// Puts an entry.
    private func put(
        _ entry: Slot<Value>.Entry,
        _ key: Key,
        _ ticket: MuxShared.Ticket,
        since began: Moment,
        within limit: Duration,
        _ sharing: Sharing<Key, Value>
    ) async -> SharedOutcome<Value> {
        guard let shared = self.shared(entry, sharing) else {
            sharing.client.giveUp(ticket)
            return .notShared
        }
        let start = self.repository.time.now
        switch await sharing.client.put(shared, with: ticket, within: limit) {
        // After an unknown outcome, memory keeps the value: the store reports each later change, or a gap in
        // its reports.
        case .stored, .unknown: return .stored(digest: shared.digest)
        case .refused(let reason):
            self.tellNotShared(key, reason)
            return .refused
        case .claimLost:
            let left = limit - self.repository.time.now.duration(since: start)
            return await self.newerEntry(since: began, key, ticket.name, within: left, sharing)
        }
    }

    /// Loads a newer entry: another machine has fetched the entry since the fetch of this machine began.
    ///
    /// Without a newer entry, the claim was invalidated, evicted, or too short. The store reports an
    /// invalidation to this machine, and the report fences the flight or removes the value. Until then the
    /// value is as current as any value in memory.
    private func newerEntry(
        since began: Moment,
        _ key: Key,
        _ name: MuxShared.Name,
        within limit: Duration,
        _ sharing: Sharing<Key, Value>
    ) async -> SharedOutcome<Value> {
        let asked = self.repository.time.now
        let found = await sharing.client.load([name], within: limit)?.first ?? nil
        guard let found, found.schemaVersion <= self.policy.schemaVersion, found.isFresh(nil),
            found.age < asked.duration(since: began),
            let newer = await self.loaded(found, at: asked, key, sharing)
        else { return .notShared }
        return .superseded(by: newer.entry, digest: found.digest)
    }

    /// Reports the refusal of an entry by the store.
    private func tellNotShared(_ key: Key, _ reason: MuxEvent.Reason) {
        if self.isObserved { self.told(.notShared, key, because: reason) }
    }

    /// Encodes an entry in memory for the shared store; `nil` if the value cannot be encoded.
    private func shared(_ entry: Slot<Value>.Entry, _ sharing: Sharing<Key, Value>) -> MuxShared.Entry? {
        guard let payload = try? sharing.persistence.encode(entry.value) else { return nil }
        return MuxShared.Entry(
            payload: payload,
            digest: SHA256.text(Array(SHA256.hash(payload).prefix(16))),
            timeToLive: entry.timeToLive,
            age: max(self.repository.time.now.duration(since: entry.fetchedAt), .zero),
            schemaVersion: self.policy.schemaVersion,
            validator: entry.validator,
            staleWhileRevalidate: entry.stale.whileRevalidate,
            staleIfError: entry.stale.ifError
        )
    }

    /// The entry in memory if it can replace an entry that the store has lost.
    private func offered(_ key: Key, _ known: Known) -> Slot<Value>.Entry? {
        let now = self.repository.time.now
        return self.engine.withState { state in
            // The entry may have been cleared since the claim.
            guard let slot = state.slots.slot(of: key), let entry = slot.entry, entry.revision == known.entry?.revision,
                state.shared.isUnverified(slot, key), state.shared.mayBeOffered(entry),
                now.duration(since: entry.fetchedAt) < min(known.maximumAge ?? entry.timeToLive, entry.timeToLive)
            else { return nil }
            return entry
        }
    }

    /// Puts a value of `store` in the shared store, after an invalidation of the entry on other machines.
    func share(_ key: Key, _ name: MuxShared.Name) {
        guard let sharing else { return }
        let client = sharing.client
        client.settleLater()
        ReentrantAsyncMutex.outside {
            _ = self.repository.spawn(name: "mux.share") { [weak self] in
                let budget = client.policy.budget
                let duration = Duration.sum(budget, budget)
                // No caller waits.
                let claim = await client.claim(
                    name,
                    maximumAge: .zero,
                    digest: nil,
                    for: duration,
                    within: duration
                ) { self?.tellNotShared(key, $0) }
                guard case .granted(let ticket, _) = claim else { return }
                // Read after the claim was granted: a later invalidation ends the claim, so no outdated value
                // is put.
                let entry = self?.engine.withState { state in
                    state.slots.slot(of: key).flatMap { $0.isRefreshed ? nil : $0.entry }
                }
                guard let self, let entry, entry.timeToLive > .zero else { return client.giveUp(ticket) }
                let outcome = await self.put(entry, key, ticket, since: entry.fetchedAt, within: budget, sharing)
                guard case .stored(let digest) = outcome else { return }
                self.engine.withState { $0.shared.keeps(key, digest: digest, revision: entry.revision) }
            }
        }
    }

    // MARK: - Reading without a fetch

    /// Reads the value from the shared store, without storing it in memory.
    func loadSharedEntry(_ key: Key) async -> MuxEntry<Value>? {
        guard let sharing else { return nil }
        let asked = self.repository.time.now
        let before = self.engine.withState { ($0.session, $0.clears) }
        guard let entry = await sharing.client.load([sharing.name(of: key)])?.first ?? nil,
            entry.schemaVersion <= self.policy.schemaVersion,
            let loaded = await self.loaded(entry, at: asked, key, sharing),
            self.engine.withState({ ($0.session, $0.clears) }) == before
        else { return nil }
        let slot = Slot(entry: loaded.entry, isRefreshed: false, failureRecord: nil, isRemovalPending: false)
        return slot.snapshot(at: self.repository.time.now, source: .sharedStore)
    }

    // MARK: - Changes

    package func sharedStoreChanged(_ change: MuxShared.Change) {
        // The missed changes may be sign-outs of users: values of signed-out users must not serve as a
        // fallback, and must not be put in the store again.
        if self.users != nil, [.unknown, .emptied, .invalidated(.everything)].contains(change) {
            // ``MuxSessions`` removes its tokens after the same change.
            return self.handsOutTokens ? () : self.forgetAll()
        }
        guard let domain = self.sharing?.persistence.domain else { return }
        switch change {
        case .invalidated(.entry(let name)): self.forget([self.engine.withState { $0.shared.key(of: name) }])
        case .invalidated(.tag(let tag)): self.forget(Array(self.engine.withState { $0.shared.keys(tagged: tag) }))
        case .invalidated(let scope) where [.domain(domain), .everything].contains(scope):
            self.cleared(ClearedEntries(domain: domain, endsRequests: false))
        case .unknown: self.missedChanges(isEmptied: false)
        case .emptied: self.missedChanges(isEmptied: true)
        case .invalidated, .stored, .released: break
        }
    }

    private func forget(_ keys: [Key?]) {
        for case let key? in keys { self.forget(key, alsoOnDisk: false, endsRequests: false) }
    }

    /// Marks all entries as unverified: before its next use, each entry is verified with the store.
    private func missedChanges(isEmptied: Bool) {
        let removed = self.engine.fenceAll { state in
            var removed: [any Sendable] = []
            let number = state.nextRevision()
            state.slots.refreshAll(number) { removed.append($0) }
            state.shared.missedChanges(number, isEmptied: isEmptied)
            return removed
        }
        withExtendedLifetime(removed) {}
        self.releaseEvicted()
    }
}
