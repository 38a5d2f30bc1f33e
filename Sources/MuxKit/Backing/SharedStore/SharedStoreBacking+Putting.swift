import Foundation

extension SharedStoreBacking {
    /// Puts a fetched entry in the store if the store may have the entry, and ends the claim.
    ///
    /// - Parameters:
    ///   - entry: The entry.
    ///   - isKept: Whether the store may have the entry; even then, an entry without a positive time to live
    ///     is not put.
    ///   - key: The key.
    ///   - claim: The claim.
    ///   - began: The time at the start of the fetch.
    /// - Returns: The outcome.
    @usableFromInline
    func share(
        _ entry: Slot<Value>.Entry,
        isKept: Bool,
        _ key: Key,
        with claim: FetchClaim,
        since began: Moment
    ) async -> SharedOutcome<Value> {
        if isKept, entry.timeToLive > .zero {
            return await self.put(entry, key, claim.ticket, since: began, within: claim.budget)
        }
        claim.giveUp()
        if claim.replaces { self.invalidateFormerEntry(of: key) }
        return .notShared
    }

    /// Invalidates the entry in the store after a response that the store must not have: no later request may
    /// get the former entry.
    @usableFromInline
    func invalidateFormerEntry(of key: Key) {
        self.client.addInvalidations(of: [.entry(self.persistence.name(of: key))])
        self.client.sendInvalidationsLater()
    }

    /// Puts an entry; after the loss of the claim, loads a newer entry.
    func put(
        _ entry: Slot<Value>.Entry,
        _ key: Key,
        _ ticket: MuxShared.Ticket,
        since began: Moment,
        within limit: Duration
    ) async -> SharedOutcome<Value> {
        guard let shared = self.shared(entry) else {
            self.client.giveUp(ticket)
            return .notShared
        }
        let start = self.memory.repository.time.now
        switch await self.client.put(shared, with: ticket, within: limit) {
        // `stored` includes an unknown outcome: memory keeps the value, because the store reports each later
        // change, or a gap in its reports.
        case .stored: return .stored(digest: shared.digest)
        case .refused(let reason):
            self.tellNotShared(key, reason)
            return .refused
        case .claimLost:
            let left = limit - self.memory.repository.time.now.duration(since: start)
            return await self.newerEntry(since: began, key, ticket.name, within: left)
        }
    }

    /// Loads a newer entry, which another machine may have fetched since the fetch of this machine began.
    ///
    /// Without a newer entry, this machine may keep its own value. If an invalidation has ended the claim,
    /// the store also reports the invalidation, and the report fences the flight or removes the value.
    private func newerEntry(
        since began: Moment,
        _ key: Key,
        _ name: MuxShared.Name,
        within limit: Duration
    ) async -> SharedOutcome<Value> {
        let asked = self.makeCallStart()
        guard let found = await self.client.load(name, within: limit), self.memory.policy.canRead(found.schemaVersion),
            found.isFresh(nil),
            // Another machine fetched the entry after `began`.
            found.age < asked.moment.duration(since: began),
            let newer = await self.loaded(found, at: asked, key)
        else { return .notShared }
        return .superseded(by: newer.entry, digest: found.digest)
    }

    /// Reports to the observer that the store refused an entry.
    func tellNotShared(_ key: Key, _ reason: MuxEvent.Reason) {
        if self.memory.isObserved { self.memory.sendEvent(.notShared, key, because: reason) }
    }

    /// Encodes an entry in memory for the shared store; `nil` if the value cannot be encoded.
    private func shared(_ entry: Slot<Value>.Entry) -> MuxShared.Entry? {
        guard let payload = try? self.persistence.encode(entry.value) else { return nil }
        return MuxShared.Entry(
            payload: payload,
            digest: SHA256.text(Array(SHA256.hash(payload).prefix(16))),
            timeToLive: entry.timeToLive,
            age: max(self.memory.repository.time.now.duration(since: entry.fetchedAt), .zero),
            schemaVersion: self.memory.policy.schemaVersion,
            validator: entry.validator,
            staleWhileRevalidate: entry.stale.whileRevalidate,
            staleIfError: entry.stale.ifError
        )
    }

    /// The entry in memory, if the entry may replace the entry that the store has lost; otherwise `nil`.
    func offered(_ key: Key, _ known: FlightState) -> Slot<Value>.Entry? {
        let now = self.memory.repository.time.now
        return self.memory.engine.withState { state in
            // The entry may have been cleared since the claim.
            guard let slot = state.slots.slot(of: key), let entry = state.serverEntry(key),
                entry.revision == known.entry?.revision,
                state.shared.isUnverified(slot, key), state.shared.mayBeOffered(entry),
                now.duration(since: entry.fetchedAt) < min(known.maximumAge ?? entry.timeToLive, entry.timeToLive),
                self.memory.isShareable(entry, of: key)
            else { return nil }
            return entry
        }
    }

    /// Records that a call of `store` has replaced the entry of `key`: the invalidation of the former entry
    /// in the shared store is pending.
    ///
    /// Called under the lock of the commit.
    @usableFromInline
    func stored(_ key: Key, _ name: MuxShared.Name, _ state: inout SlotState<Slots>) {
        self.addInvalidation(of: name)
        state.shared.recordFlight(of: key, name)
        state.sharedFlightEnded(key)
    }

    /// Tries to put the value of a call of `store` in the shared store, after the invalidation of the former
    /// entry.
    @usableFromInline
    func share(_ key: Key, _ name: MuxShared.Name) {
        let (client, memory) = (self.client, self.memory)
        client.sendInvalidationsLater()
        ReentrantAsyncMutex.outside {
            _ = memory.repository.spawn(name: "mux.share") { [weak self] in
                let budget = client.policy.budget
                let duration = Duration.sum(budget, budget)
                // No caller waits, so the claim may take longer than the budget.
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
                let entry = self?.memory.engine.withState { state in
                    state.slots.slot(of: key).flatMap { $0.isRefreshed ? nil : state.serverEntry(key) }
                }
                guard let self, let entry, entry.timeToLive > .zero, self.memory.isShareable(entry, of: key) else {
                    return client.giveUp(ticket)
                }
                let outcome = await self.put(entry, key, ticket, since: entry.fetchedAt, within: budget)
                guard case .stored(let digest) = outcome else { return }
                self.memory.engine.withState { $0.shared.recordDigest(digest, of: key, revision: entry.revision) }
            }
        }
    }
}
