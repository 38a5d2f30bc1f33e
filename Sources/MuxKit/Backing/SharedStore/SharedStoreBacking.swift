import Foundation

/// The entries of a multiplexer in a shared store of several machines: as a rule, one machine fetches an
/// entry for all machines.
@usableFromInline
final class SharedStoreBacking<Slots: SlotStorage>: Sendable {
    @usableFromInline typealias Key = Slots.Key
    @usableFromInline typealias Value = Slots.Value

    let memory: SlotMemory<Slots>
    let persistence: Persistence<Key, Value>
    let client: SharedStoreClient

    init(_ memory: SlotMemory<Slots>, _ persistence: Persistence<Key, Value>, _ client: SharedStoreClient) {
        self.memory = memory
        self.persistence = persistence
        self.client = client
    }

    @usableFromInline
    func name(of key: Key) -> MuxShared.Name {
        MuxShared.Name(self.persistence.name(of: key), tags: self.persistence.tags?(key) ?? [])
    }

    /// The time before a call of the store, and the number of the last change of any tag.
    typealias CallStart = (moment: Moment, tagNumber: UInt64)

    func makeCallStart() -> CallStart {
        let tagNumber = self.memory.repository.tagLog.lastNumber
        return (self.memory.repository.time.now, tagNumber)
    }

    // MARK: - Flights

    /// Removes the state of an ended flight.
    @usableFromInline
    func flightEnded(_ key: Key) { self.memory.withSlots { $0.sharedFlightEnded(key) } }

    /// Claims the entry, resumes callers with the store's entry, and waits for another machine's fetch; see
    /// ``Backing/lookUp(_:_:)``.
    @usableFromInline
    func lookUp(_ key: Key, _ flight: FlightID) async -> LookUp<Value> {
        let (client, engine, policy) = (self.client, self.memory.engine, self.memory.policy)
        let name = self.name(of: key)
        engine.withState { $0.shared.recordFlight(of: key, name) }
        let time = self.memory.repository.time
        let start = time.now
        // The claim lasts for the fetch, and for the put within the budget.
        let duration = Duration.sum(min(policy.fetchTimeout, Self.longestClaim), client.policy.budget)
        // After a vain wait, at least half of the time limit of the flight remains for the fetch.
        let patience = min(client.policy.patience, policy.fetchTimeout / 2)
        var loaded: FormerSlot<Value>?
        // The remaining time for waits for the store, apart from the wait for another machine's fetch.
        var budget = client.policy.budget
        // Whether some callers need a newer entry than the store's entry.
        var wantsNewer = false
        // The time at the start of the wait for another machine's fetch, and the last ticket at that time.
        var waits: (since: Moment, last: Ticket)?
        let wait = client.wait(for: name.key)
        while true {
            let (isOn, known) = self.flightState(of: key, flight)
            guard isOn else { return LookUp(isOver: true) }
            guard let known else { return LookUp(loaded: loaded) }  // a cancelled flight ends at the start of the fetch
            // The fence may have removed the entry that was found before the fence.
            if known.wasFenced { (loaded, wantsNewer, waits) = (nil, false, nil) }
            let asked = self.makeCallStart()
            var maximumAge = wantsNewer ? .zero : known.maximumAge
            // An entry that another machine fetched during the wait is as new as an entry that this flight
            // would fetch.
            if let waits, let age = maximumAge { maximumAge = max(age, asked.moment.duration(since: waits.since)) }
            wait.discardReports()
            // During the wait for another machine's fetch, each claim has a separate budget.
            let limit = waits == nil ? budget : client.policy.budget
            let claim = await client.claim(
                name,
                maximumAge: maximumAge,
                digest: known.digest,
                for: duration,
                within: limit
            ) { self.tellNotShared(key, $0) }
            if waits == nil { budget -= time.now.duration(since: asked.moment) }
            switch claim {
            case nil:
                guard known.isUnverified else { return LookUp(loaded: loaded) }
                let found = self.answerUnverified(key, flight)
                return LookUp(isOver: found.isOver, loaded: found.loaded ?? loaded)
            case .entry(let entry):
                let isJoined = waits.map { entry.age <= time.now.duration(since: $0.since) } ?? false
                guard policy.canRead(entry.schemaVersion), isJoined || !wantsNewer else {
                    return LookUp(loaded: loaded)
                }
                let last = isJoined ? waits?.last ?? 0 : 0
                let found = await self.adopt(entry, at: asked, key, flight, known, upTo: last)
                if found?.isOver ?? false { return LookUp(isOver: true) }
                loaded = found?.loaded ?? loaded
                // After a fence (`found` without a slot), the claim is repeated.
                if found == nil || found?.loaded != nil { (wantsNewer, waits) = (true, nil) }
            case .granted(let ticket, let entry):
                guard entry.map({ policy.canRead($0.schemaVersion) }) ?? true else {
                    // A later version of the program wrote the entry, which must not be overwritten.
                    client.giveUp(ticket)
                    return LookUp(loaded: loaded)
                }
                if entry == nil, known.mayBeOffered, !wantsNewer, let offered = self.offered(key, known) {
                    (wantsNewer, waits) = (true, nil)
                    let began = time.now
                    let outcome = await self.put(offered, key, ticket, since: offered.fetchedAt, within: budget)
                    budget -= time.now.duration(since: began)
                    let digest: String?
                    switch outcome {
                    case .stored(let stored): digest = stored
                    // The store refuses the offered entry and has no other: the value in memory is newest.
                    case .refused: digest = nil
                    case .notShared, .superseded: continue
                    }
                    let found = self.answer(key, flight, keeping: offered, digest)
                    if found.isOver { return LookUp(isOver: true) }
                    loaded = found.loaded ?? loaded
                    continue
                }
                let claim = FetchClaim(client, ticket, replaces: entry != nil, budget: budget)
                let fallback = await self.fallback(entry, at: asked, key, flight, known)
                return LookUp(loaded: fallback ?? loaded, claim: claim)
            case .taken(let rest, let entry):
                loaded = await self.fallback(entry, at: asked, key, flight, known) ?? loaded
                let left = patience - time.now.duration(since: start)
                let end = time.now.advanced(by: rest)
                // A claim that ends later than the claim of a vain wait is a new claim; the budget is added
                // as a tolerance for delayed replies.
                let isInVain = known.vainClaimEnd.map { end <= $0.advanced(by: client.policy.budget) } ?? false
                // After failed fetches of two machines, all waiting machines fetch at the same time.
                guard left > .zero, wait.failureCount < 2, !isInVain, !Task.isCancelled else {
                    if left <= .zero { engine.withState { $0.shared.recordVainWait(for: key, until: end) } }
                    return LookUp(loaded: loaded)
                }
                waits = waits ?? (asked.moment, engine.nextID())
                // The store's report of a change may be lost: each wait is limited, and the claim is
                // repeated.
                let limit = min(max(rest, .milliseconds(1)), min(client.policy.budget, left))
                await wait.waitForReport(within: limit, time, self.memory.repository.spawn)
            }
        }
    }

    /// The limit of a claim's duration, without the budget.
    ///
    /// The claim of a crashed machine lasts for at most the sum of this limit and the budget.
    private static var longestClaim: Duration { .seconds(600) }

    /// The state of a flight's key before a claim.
    struct FlightState {
        /// Whether the flight was fenced since its last claim.
        ///
        /// A fence, such as by a refresh or a clear, detaches the flight from later callers; see
        /// ``FlightEngine/fence(_:answering:_:)``.
        var wasFenced: Bool
        /// The lowest maximum age of the callers, or the age for an early renewal if lower; `nil` for no
        /// limit but the time to live.
        var maximumAge: Duration?
        var entry: Slot<Value>.Entry?
        /// The digest of the entry in memory.
        var digest: String?
        /// Whether ``entry`` counts as refreshed only because this machine may have missed changes.
        var isUnverified = false
        /// Whether ``entry`` is unverified because the store has lost all entries.
        var mayBeOffered = false
        /// The end of the last claim of another machine for which a flight stopped waiting.
        var vainClaimEnd: Moment?
    }

    /// Whether the flight continues, and the state of its key; the state is `nil` if the flight is cancelled.
    private func flightState(of key: Key, _ flight: FlightID) -> (isOn: Bool, known: FlightState?) {
        var known: FlightState?
        // A fence during the last claim invalidates the result of the claim, not the flight.
        let isOn = self.memory.engine.beginWork(flight, of: key, withTickets: true) {
            state,
            wasFenced,
            isCancelled,
            tickets in
            guard !isCancelled else { return }
            var facts = FlightState(wasFenced: wasFenced)
            facts.vainClaimEnd = state.shared.vainClaimEnd(key)
            if let slot = state.slots.slot(of: key), let entry = slot.entry {
                facts.entry = entry
                facts.digest = state.shared.digest(key, of: entry.revision)
                facts.isUnverified = state.shared.isUnverified(slot, key)
                facts.mayBeOffered = facts.isUnverified && state.shared.mayBeOffered(entry)
                facts.maximumAge = entry.renewalAge
            }
            for ticket in tickets {
                let limits = state.waiterOptions[ticket]?.limits ?? self.memory.usualLimits
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
    /// - Returns: `nil` if the entry cannot be used; otherwise whether the flight has ended and, if not, the
    ///   slot, which is `nil` after a fence.
    private func adopt(
        _ entry: MuxShared.Entry,
        at asked: CallStart,
        _ key: Key,
        _ flight: FlightID,
        _ known: FlightState,
        upTo last: Ticket = 0
    ) async -> LookUp<Value>? {
        if entry.payload != nil {
            guard let loaded = await self.loaded(entry, at: asked, key) else { return nil }
            return self.answer(key, flight, keeping: loaded.entry, entry.digest, upTo: last)
        }
        // The store's entry has the payload of the entry in memory.
        guard var renewed = known.entry, known.digest == entry.digest else { return nil }
        renewed.fetchedAt = asked.moment.advanced(by: .zero - max(entry.age, .zero))
        renewed.timeToLive = max(entry.timeToLive, .zero)
        renewed.renewalAge = self.memory.renewalAge(renewed.timeToLive)
        renewed.stale = StaleLimits(whileRevalidate: entry.staleWhileRevalidate, ifError: entry.staleIfError)
        // A migrated value differs from the server's value, and cannot be revalidated.
        renewed.validator = self.memory.policy.migrates(entry.schemaVersion) ? nil : entry.validator
        renewed.condition = self.memory.condition([], of: key, since: asked.tagNumber)
        return self.answer(key, flight, keeping: renewed, entry.digest, upTo: last)
    }

    /// Stores an entry that is too old, for callers that accept stale entries and for a failed fetch.
    ///
    /// - Returns: The slot; `nil` if the entry is unusable or no newer than the entry in memory, and after a
    ///   fence.
    private func fallback(
        _ entry: MuxShared.Entry?,
        at asked: CallStart,
        _ key: Key,
        _ flight: FlightID,
        _ known: FlightState
    ) async -> FormerSlot<Value>? {
        guard let entry, self.memory.policy.canRead(entry.schemaVersion) else { return nil }
        if let own = known.entry, asked.moment.duration(since: own.fetchedAt) <= entry.age { return nil }
        return await self.adopt(entry, at: asked, key, flight, known)?.loaded
    }

    /// Decodes an entry of the shared store; `nil` if the entry cannot be used.
    func loaded(_ entry: MuxShared.Entry, at asked: CallStart, _ key: Key) async -> LoadedEntry<Value>? {
        guard let payload = entry.payload else { return nil }
        let stored = MuxStoredEntry(
            name: self.persistence.name(of: key),
            schemaVersion: entry.schemaVersion,
            sessionEpoch: 0,
            fetchedAt: Date(timeIntervalSinceReferenceDate: 0),
            timeToLive: max(entry.timeToLive, .zero),
            validator: entry.validator,
            staleWhileRevalidate: entry.staleWhileRevalidate,
            staleIfError: entry.staleIfError,
            tagNumber: asked.tagNumber,
            payload: payload
        )
        return await self.memory.loaded(
            stored,
            key,
            self.persistence,
            isPersistent: false,
            since: asked.moment,
            age: max(entry.age, .zero)
        )
    }

    /// Stores `entry` in its slot, and resumes callers with the entry.
    ///
    /// If the key has uncommitted changes, `entry` is not stored, and the callers get the entry in memory
    /// with the changes; without an entry in memory, the callers get `entry`.
    ///
    /// Resumes the callers for which the entry is fresh enough, and all callers with tickets up to `last`.
    private func answer(
        _ key: Key,
        _ flight: FlightID,
        keeping entry: Slot<Value>.Entry,
        _ digest: String?,
        upTo last: Ticket = 0
    ) -> LookUp<Value> {
        var replaced: Slot<Value>.Entry?
        defer { withExtendedLifetime(replaced) {} }  // released outside the lock
        return self.memory.resumeCallers(of: key, flight, source: .sharedStore, upTo: last) { state in
            guard !state.hasUncommitted(key) else {
                state.showLayers(of: key)
                guard let slot = state.slots.slot(of: key), slot.entry != nil else {
                    return Slot(entry: entry)
                }
                return slot
            }
            var entry = entry
            state.prepare(&entry, of: key, renewing: entry.revision == 0 ? nil : entry.revision)
            replaced = state.commit(entry, of: key)
            if let digest { state.shared.recordDigest(digest, of: key, revision: entry.revision) }
            // The table may have no room.
            return state.slots.slot(of: key) ?? Slot(entry: entry)
        }
    }

    /// Resumes callers with an unverified entry after a failed or refused claim; the entry stays unverified.
    private func answerUnverified(_ key: Key, _ flight: FlightID) -> LookUp<Value> {
        self.memory.resumeCallers(of: key, flight, source: .memory) { state in
            guard let slot = state.slots.slot(of: key), state.shared.isUnverified(slot, key) else { return nil }
            // Without the refresh mark: the times of the entry decide whether the entry is fresh.
            return Slot(
                entry: slot.entry,
                failureRecord: slot.failureRecord,
                isRemovalPending: slot.isRemovalPending
            )
        }
    }

    // MARK: - Reading without a fetch

    /// Reads the entry from the shared store, and does not keep the entry in memory; see
    /// ``Backing/loadEntry(_:)``.
    func loadEntry(_ key: Key) async -> MuxEntry<Value>? {
        let asked = self.makeCallStart()
        let before = self.memory.engine.withState { ($0.session, $0.discardCount) }
        guard let found = await self.client.load(self.name(of: key), within: self.client.policy.budget),
            self.memory.policy.canRead(found.schemaVersion),
            let loaded = await self.loaded(found, at: asked, key),
            self.memory.engine.withState({ ($0.session, $0.discardCount) }) == before
        else { return nil }
        let entry = loaded.layers?.shown ?? loaded.entry
        return Slot(entry: entry).snapshot(at: self.memory.repository.time.now, source: .sharedStore)
    }

    // MARK: - Changes

    /// Records an invalidation to send, after a refresh of the entry or a `store(_:key:)` of the app.
    ///
    /// Called under the lock. The next claim or load of the entry first sends the invalidation.
    func addInvalidation(of name: MuxShared.Name) { self.client.addInvalidations(of: [.entry(name.key)]) }

    /// The keys that an invalidation concerns; `nil` for all keys.
    ///
    /// Includes keys with an entry in memory, a flight, or changes of the app. Followed keys without an entry
    /// are included only for the invalidation of a single entry.
    func keys(of scope: MuxShared.Scope) -> [Key]? {
        switch scope {
        case .entry(let name):
            if let key = self.memory.engine.withState({ $0.shared.key(of: name) }) { return [key] }
            // A followed or changed entry that is no longer in memory.
            let others = self.memory.engine.withState { Array($0.followed.keys) + Array($0.layers.keys) }
            return Array(Set(others.filter { self.name(of: $0).key == name }))
        case .tag(let tag):
            let (tagged, changed) = self.memory.engine.withState {
                ($0.shared.keys(tagged: tag), Array($0.layers.keys))
            }
            return Array(tagged.union(changed.filter { self.name(of: $0).tags.contains(tag) }))
        case .domain, .everything:
            return [.domain(self.persistence.domain), .everything].contains(scope) ? nil : []
        }
    }

    /// Marks all entries in memory as unverified: an entry counts as refreshed until the entry is verified by
    /// the store, or replaced.
    func markAllUnverified(isEmptied: Bool) {
        self.memory.refreshAll { $0.shared.recordGap(at: $1, isEmptied: isEmptied) }
    }
}
