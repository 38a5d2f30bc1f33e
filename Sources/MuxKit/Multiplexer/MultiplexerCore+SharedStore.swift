import Foundation

/// Flights that look at a store which several machines share: at most one of them fetches.
extension MultiplexerCore {
    // MARK: - Flights

    /// The work of one flight: asks the shared store, waits for another machine's fetch, or fetches.
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

    /// The right to fetch for all machines.
    private struct FetchRight: Sendable {
        let ticket: MuxShared.Ticket
        /// Whether the store has an older entry.
        let replaces: Bool
        /// How long the flight may still wait for the store.
        let budget: Duration
    }

    /// How a flight goes on after its look at the shared store.
    private enum NextStep {
        /// It has ended.
        case nothing
        /// It fetches, for this machine alone.
        case fetch(FormerSlot?)
        /// It fetches for all.
        case fetchAndPut(FetchRight, FormerSlot?)
    }

    /// Answers callers with what the shared store has, and waits while another machine fetches.
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
        // How long this flight may still wait for the store, beside its patience with another machine.
        var budget = client.policy.budget
        // Whether what the store has is not good enough for all callers.
        var wantsNewer = false
        // Since when another machine fetches, and the last caller by then.
        var waits: (since: Moment, last: Ticket)?
        let wait = client.wait(for: name.key)
        while true {
            let (isOn, known) = self.known(key, flight)
            guard isOn else { return .nothing }
            guard let known else { return .fetch(loaded) }  // it is cancelled, and ends there
            // What was found before may be what the fence has removed.
            if known.wasFenced { (loaded, wantsNewer, waits) = (nil, false, nil) }
            let asked = self.repository.time.now
            var maximumAge = wantsNewer ? .zero : known.maximumAge
            // What was fetched while this flight waited is as good as what it would fetch.
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
                // If a fence came meanwhile, the store is asked the same again.
                if found == nil || found?.loaded != nil { (wantsNewer, waits) = (true, nil) }
            case .granted(let ticket, let entry):
                guard entry?.schemaVersion ?? 0 <= self.policy.schemaVersion else {
                    // A later version's, which is not overwritten.
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
                    // The store has no entry, and takes no entry: the value in memory is the newest.
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
                // A later claim ends later, apart from the delay of replies.
                let isInVain = known.vainClaimEnd.map { end <= $0.advanced(by: client.policy.budget) } ?? false
                // If two machines have failed, all others try at the same time.
                guard left > .zero, wait.failureCount < 2, !isInVain, !Task.isCancelled else {
                    if left <= .zero { self.engine.withState { $0.shared.waitedInVain(key, until: end) } }
                    return .fetch(loaded)
                }
                waits = waits ?? (asked, self.engine.nextID())
                // A change may be lost on its way: the store is asked again from time to time.
                let limit = min(max(rest, .milliseconds(1)), min(client.policy.budget, left))
                await wait.next(within: limit, self.repository.time, self.repository.spawn)
            }
        }
    }

    /// The longest time that a machine which has ended keeps the right to fetch.
    private static var longestClaim: Duration { .seconds(600) }

    /// What a flight knows before it asks the shared store.
    private struct Known {
        /// Whether a fence came since the flight asked last.
        var wasFenced: Bool
        /// How old an entry may be for all callers; `nil` for its time to live.
        var maximumAge: Duration?
        var entry: Slot<Value>.Entry?
        /// The digest of the entry in memory.
        var digest: String?
        /// Whether that entry is good but for changes that may have been missed.
        var isUnverified = false
        /// Whether the store has lost it.
        var mayBeOffered = false
        /// The end of the last claim with which a flight lost patience.
        var vainClaimEnd: Moment?
    }

    /// What the flight knows, unless it is cancelled, and whether it has not ended.
    private func known(_ key: Key, _ flight: FlightID) -> (isOn: Bool, known: Known?) {
        var known: Known?
        // A fence that came during the last look voids what that found, not the flight.
        let isOn = self.engine.workBegins(flight, of: key) { state, wasFenced, isCancelled in
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
            known = facts
        }
        guard isOn, var known else { return (isOn, nil) }
        let tickets = self.engine.tickets(of: flight, key)
        let options = self.engine.withState { state in tickets.map { state.waiterOptions[$0] } }
        for limits in options.map({ $0?.limits ?? self.usualLimits }) {
            let age = limits.isReload || !limits.takesStored ? .zero : limits.maximumAge
            if let age { known.maximumAge = min(known.maximumAge ?? age, age) }
        }
        return (true, known)
    }

    /// Keeps an entry of the shared store, and answers callers with it: those for which it is good enough, and those up to `last`.
    ///
    /// - Returns: Whether the flight has ended, and the slot, unless a fence came; `nil` if the entry cannot be used.
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
        // The one in memory is still the same.
        guard let own = known.entry, known.digest == entry.digest else { return nil }
        let timeToLive = max(entry.timeToLive, .zero)
        let renewed = Slot<Value>.Entry(
            value: own.value,
            fetchedAt: asked.advanced(by: .zero - max(entry.age, .zero)),
            timeToLive: timeToLive,
            renewalAge: self.renewalAge(timeToLive, entry.validator),
            stale: StaleLimits(whileRevalidate: entry.staleWhileRevalidate, ifError: entry.staleIfError),
            // A migrated value is not the server's, so it is not revalidated.
            validator: entry.schemaVersion < self.policy.schemaVersion ? nil : entry.validator,
            revision: own.revision
        )
        return self.answer(key, flight, keeping: renewed, entry.digest, upTo: last)
    }

    /// Keeps an entry that is not good enough, for callers that take a stale one, and for a fetch that fails.
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

    /// An entry of the shared store, as one in memory; `nil` if it cannot be used.
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

    /// Keeps `entry` in its slot, and answers callers with it: those for which it is good enough, and those up to `last`.
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

    /// Answers callers with an entry that cannot be verified, as the store is not available; it stays unverified.
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

    /// The work of one flight after its look at the shared store: fetches, and puts what it gets before it answers.
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
                // No request may get the entry in the store, which the fetch has replaced.
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
        // After an unknown outcome, memory keeps the value: the store reports each later change, or a gap in its reports.
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
    /// Without a newer entry, the claim was invalidated, evicted, or too short. The store reports an invalidation to this machine, and the
    /// report fences the flight or removes the value. Until then the value is as current as any value in memory.
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

    /// An entry in memory, as one of the shared store; `nil` if it cannot be encoded.
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

    /// The entry in memory if it can be put in place of one that the store has lost.
    private func offered(_ key: Key, _ known: Known) -> Slot<Value>.Entry? {
        let now = self.repository.time.now
        return self.engine.withState { state in
            // It may have been cleared since the store was asked.
            guard let slot = state.slots.slot(of: key), let entry = slot.entry, entry.revision == known.entry?.revision,
                state.shared.isUnverified(slot, key), state.shared.mayBeOffered(entry),
                now.duration(since: entry.fetchedAt) < min(known.maximumAge ?? entry.timeToLive, entry.timeToLive)
            else { return nil }
            return entry
        }
    }

    /// Has other machines forget what a value took the place of that was stored by hand here, and puts it there.
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
                // What is there by now: an invalidation from here on voids the claim.
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

    /// The value in the shared store, which is not kept.
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
        // Users may have been signed out: their values are neither a fallback nor put into a store that has lost them.
        if self.users != nil, [.unknown, .emptied, .invalidated(.everything)].contains(change) {
            // The sessions end those of tokens.
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

    /// Makes all entries be verified before they answer.
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
