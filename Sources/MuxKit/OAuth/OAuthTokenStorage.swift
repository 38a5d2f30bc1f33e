/// What the vault does with the token store.
extension OAuthTokenManager {
    // MARK: - Taking up what is there

    /// The grant in the store, if it is not the `refused` one nor older.
    ///
    /// - Parameters:
    ///   - refused: The grant that the server refused.
    ///   - isAlone: Whether nobody else can be renewing or storing tokens now, so that what is left of an ended session can go.
    /// - Returns: The grant; `nil` if there is none to take up.
    /// - Throws: ``RunnerError``: not readable now, or the session of the `refused` one was ended elsewhere.
    func restored(insteadOf refused: Grant?, isAlone: Bool) async throws -> Grant? {
        let mayRestore = self.sessionState.withLock { $0.mayRestore }
        // After a sign-out here, only what somebody else has left since.
        guard mayRestore || self.leaseHolder != nil else { return nil }
        let (epoch, isKnown) = await self.sessionNumber()
        guard mayRestore || isKnown else { return nil }
        switch try await self.tokens.load(session: epoch) {
        case .nothing, .nonsense:
            return nil
        case .record(let record):
            if let refused, (record.serial ?? 0) <= refused.serial { return nil }
            self.sessionState.withLock { $0.met(session: record.session) }
            // The epoch may have been lost with the caches folder; it never goes back.
            if isKnown, record.session > epoch, (try? await self.repository.raiseEpoch(to: record.session)) != nil {
                self.sessionState.withLock { if $0.repositoryEpoch == epoch { $0.repositoryEpoch = record.session } }
            }
            self.met(record, isAlone: isAlone)
            return self.grant(record)
        case .ended(let end):
            self.sessionState.withLock { $0.met(session: end) }
            if end > epoch, isKnown {
                // A sign-out was cut short, or happened elsewhere. Who has no grant has nothing that could end.
                try await self.endedElsewhere(before: end, sparingSelf: refused == nil)
                guard refused == nil else { throw RunnerError.signedOut }
                self.sessionState.withLock { if $0.repositoryEpoch == epoch { $0.repositoryEpoch = nil } }
            }
            guard isAlone, isKnown else { return nil }
            try await self.inStoreLane {
                guard self.sessionState.withLock({ $0.storedSession }) == nil else { return }
                try? await self.tokens.store.delete()
            }
            return nil
        }
    }

    /// Looks at what others who share the store have left.
    ///
    /// - Parameters:
    ///   - held: The grant as this process knows it.
    ///   - upper: The layer that holds it.
    ///   - leaseTenure: Since when this process has the lease, as far as the caller knows.
    /// - Returns: The grant of `upper` after that; it is that of `held` if they have left nothing.
    /// - Throws: ``RunnerError/signedOut`` if somebody has signed out elsewhere.
    func withSiblings(_ held: Upper.VersionedDependency, of upper: Upper, since leaseTenure: UInt64?) async throws
        -> Upper.VersionedDependency
    {
        guard self.leaseHolder != nil, held.value.wasStored else { return held }
        let (epoch, _) = await self.sessionNumber()
        switch try await self.tokens.load(session: epoch) {
        case .nonsense:
            return held
        case .nothing:
            guard held.value.isStored else { return held }
            try await self.endedElsewhere(before: epoch &+ 1)
        case .ended(let end):
            try await self.endedElsewhere(before: max(end, epoch &+ 1))
        case .record(let record) where record.session > epoch:
            try await self.endedElsewhere(before: record.session)
        case .record(let record):
            self.met(record, isAlone: self.isAlone(since: leaseTenure))
            guard (record.serial ?? 0) > held.value.serial, var grant = self.grant(record) else { return held }
            grant.lane = held.value.lane
            let isOther = !self.tokens.areSame(grant.refresh, held.value.refresh)
            return upper.continued(held, with: grant, raisesEpoch: isOther) ?? held
        }
        throw RunnerError.signedOut
    }

    /// Checks that nobody has signed out elsewhere, just before tokens are stored; in the lane.
    private func checkOutside(session epoch: UInt64, isStored: Bool) async throws {
        guard self.leaseHolder != nil else { return }
        switch try? await self.tokens.load(session: epoch) {
        case .nothing? where isStored: throw RunnerError.signedOut
        case .ended(let end)? where end > epoch: throw RunnerError.signedOut
        case .record(let record)? where record.session > epoch: throw RunnerError.signedOut
        case .nothing?, .nonsense?, .ended?, .record?, nil: break
        }
    }

    private func endedElsewhere(before epoch: UInt64, sparingSelf: Bool = false) async throws {
        do {
            try await self.repository.endSession(before: epoch, sparing: sparingSelf ? ObjectIdentifier(self) : nil)
        } catch {
            throw RunnerError.tokensUnreadable(underlying: error)
        }
    }

    private func met(_ record: Tokens.Record, isAlone: Bool) {
        // Somebody was about to send the refresh token, and did not live to tell the outcome.
        let isInterrupted = isAlone && record.attempt.map { $0.owner != self.owner } ?? false
        guard self.sessionState.withLock({ $0.met(record.serial ?? 0, isInterrupted: isInterrupted) }) else { return }
        self.repository.observer?.tell(MuxEvent(.updateInterrupted))
    }

    // MARK: - Storing

    /// Makes the grant durable, unless it is.
    ///
    /// - Throws: What went wrong, if losing the grant would end the session: if it is rotated, and the store has the one before.
    ///   Where the stored one is as good for the server, or there is none, a store that fails now is tried again with the next
    ///   grant.
    func store(_ held: Upper.VersionedDependency, of upper: Upper) async throws {
        do {
            try await self.storeNow(held, of: upper)
        } catch let error as RunnerError {
            guard case .tokensNotStored = error, !held.value.isRotated || !held.value.wasStored else { throw error }
        }
    }

    /// Makes the grant durable, unless it is.
    ///
    /// - Throws: ``RunnerError``: not stored, or signed out.
    func storeNow(_ held: Upper.VersionedDependency, of upper: Upper) async throws {
        guard !held.value.isStored else { return }
        try await self.write(held, of: upper, attempt: nil)
    }

    /// Notes durably that the refresh token is about to be sent.
    ///
    /// - Returns: The grant, which is stored now; `nil` if other tokens were set, which have a lane of their own.
    /// - Throws: ``RunnerError``. Where a server is not known to exchange refresh tokens, or the store has none to lose, a store
    ///   that fails is no reason to send nothing.
    func journaled(_ held: Upper.VersionedDependency, of upper: Upper) async throws -> Upper.VersionedDependency? {
        let attempt = Tokens.Attempt(owner: self.owner, time: self.repository.wallTime())
        do {
            return try await self.write(held, of: upper, attempt: attempt)
        } catch let error as RunnerError {
            guard case .tokensNotStored = error, !held.value.isAtStake else { throw error }
            return held
        }
    }

    @discardableResult
    private func write(_ held: Upper.VersionedDependency, of upper: Upper, attempt: Tokens.Attempt?) async throws
        -> Upper.VersionedDependency?
    {
        // Before anything is asked of the repository, which may be waiting for the store.
        guard self.storeLane.access == .queued else { throw RunnerError.wouldDeadlock }
        let (epoch, _) = await self.sessionNumber()
        return try await self.inStoreLane {
            guard let present = upper.held, present.session == held.session,
                !self.sessionState.withLock({ $0.isEnding })
            else { throw RunnerError.signedOut }
            var grant = present.value
            guard attempt == nil || grant.lane === held.value.lane else { return nil }
            guard !grant.isStored || attempt != nil else { return present }
            try await self.checkOutside(session: epoch, isStored: grant.isStored)
            grant.serial = try await self.save(grant, session: epoch, attempt)
            (grant.isStored, grant.wasStored) = (true, true)
            self.sessionState.withLock { $0.storedSession = held.session }
            return upper.note(present, as: grant) ?? present
        }
    }

    /// Makes the grant of a sign-in durable, unless other tokens took its place.
    func stored(_ grant: Grant, ofFamily tokenFamily: UInt64, _ session: UInt64) async throws -> Grant {
        let (epoch, _) = await self.sessionNumber()
        return try await self.inStoreLane {
            guard self.sessionState.withLock({ $0.tokenFamily == tokenFamily && !$0.isEnding }) else {
                throw RunnerError.signedOut
            }
            var grant = grant
            grant.serial = try await self.save(grant, session: epoch, nil)
            (grant.isStored, grant.wasStored) = (true, true)
            self.sessionState.withLock { $0.storedSession = session }
            return grant
        }
    }

    /// Saves a record; in the lane.
    ///
    /// - Returns: Its number, which is greater than those that were met.
    private func save(_ grant: Grant, session: UInt64, _ attempt: Tokens.Attempt?) async throws -> UInt64 {
        let serial = max(self.sessionState.withLock { $0.serial }, grant.serial) &+ 1
        let record = Tokens.Record(
            session: session,
            refresh: grant.refresh,
            access: grant.access,
            accessExpiry: grant.accessEnd?.date,
            rotates: grant.rotates ? true : nil,
            serial: serial,
            attempt: attempt
        )
        do {
            try await self.tokens.save(record)
        } catch let error as RunnerError {
            self.failed(.storing, because: error.underlying ?? error)
            throw error
        }
        self.sessionState.withLock { sessionState in
            sessionState.serial = max(sessionState.serial, serial)
            sessionState.worked(.storing)
        }
        return serial
    }

    /// Runs `operation` in the lane, and then does what a sign-out that came from within it could not do.
    private func inStoreLane<Success: Sendable>(_ operation: () async throws -> Success) async throws -> Success {
        try await self.storeLane.run(admitsNested: false) {
            let result: Result<Success, any Error>
            do {
                result = .success(try await operation())
            } catch {
                result = .failure(error)
            }
            let owes = self.sessionState.withLock { sessionState in
                defer { sessionState.owesRemoval = false }
                // Not where the next session has stored its own.
                return sessionState.owesRemoval && sessionState.storedSession != sessionState.sessionID
            }
            if owes, (try? await self.tokens.store.delete()) == nil {
                self.sessionState.withLock { $0.owesRemoval = true }
            }
            return try result.get()
        }
    }

    /// The number of the repository's session, and whether that is known.
    ///
    /// Where the repository's folder cannot be used, it is the greatest that was met beside the tokens: those need no cache.
    /// Tokens that are in memory alone need no number, nor a folder that keeps it.
    func sessionNumber() async -> (epoch: UInt64, isKnown: Bool) {
        let (known, sessionID) = self.sessionState.withLock { ($0.repositoryEpoch, $0.sessionID) }
        if let known { return (known, true) }
        if self.leaseHolder == nil, self.tokens.store is InMemoryTokenStore {
            return (self.repository.registry.withLock { $0.sessionEpoch } ?? 0, true)
        }
        do {
            let epoch = try await self.repository.currentEpoch()
            self.sessionState.withLock { sessionState in
                sessionState.found(epoch: epoch, in: sessionID)
                sessionState.worked(.session)
            }
            return (epoch, true)
        } catch {
            self.failed(.session, because: error)
            return (self.sessionState.withLock { $0.greatestSession }, false)
        }
    }

    // MARK: - Sign-out

    /// Writes over the stored tokens that sessions before `epoch` are over.
    ///
    /// The number of the session is kept in the repository's folder, which the system may empty; this note is beside the
    /// tokens, and holds whatever becomes of that folder.
    func sessionWillEnd(before epoch: UInt64) async throws {
        self.sessionState.withLock { $0.ends(before: epoch) }
        guard self.storeLane.access == .queued else { return }
        try await self.storeLane.run(admitsNested: false) {
            guard case .record = try await self.tokens.load(session: 0) else { return }
            let serial = self.sessionState.withLock { $0.serial } &+ 1
            try await self.tokens.save(.init(session: epoch, serial: serial))
        }
    }

    func sessionEnded() { self.sessionState.withLock { $0.ended() } }

    /// Removes the tokens of ended sessions; those of the session that is present stay.
    func removeTraces(present session: UInt64) async throws {
        // If there is no turn, whoever has the store waits for this sign-out, or is part of it, and removes them at the end.
        self.sessionState.withLock { $0.owesRemoval = true }
        try await self.storeLane.run(admitsNested: false) {
            self.sessionState.withLock { $0.owesRemoval = false }
            try await self.removeStored(present: session)
        }
    }

    /// Removes the tokens of ended sessions; in the lane.
    private func removeStored(present session: UInt64) async throws {
        let (stored, ended) = self.sessionState.withLock { sessionState in
            defer { sessionState.endedBefore = nil }
            return (sessionState.storedSession, sessionState.endedBefore)
        }
        guard stored != session else { return }
        guard let leaseHolder else { return try await self.tokens.store.delete() }
        // Somebody who shares the store may be in the next session already, or about to store its tokens. In that case
        // the note that the session is over stays where it is.
        try await leaseHolder.runIfFree {
            if let ended, case .record? = try? await self.tokens.load(session: ended) { return }
            try await self.tokens.store.delete()
        }
    }
}
