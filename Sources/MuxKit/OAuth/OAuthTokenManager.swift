/// Obtains, renews and stores the tokens of an OAuth session.
///
/// The manager implements the updates of the two layers of an ``OAuthSession``. The layers hold the tokens in
/// memory; the manager holds no tokens.
final class OAuthTokenManager<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    typealias Grant = OAuthGrant<AccessToken, RefreshToken>
    typealias Upper = RunnerCore<Grant>
    typealias Lower = RunnerCore<AccessToken>
    typealias Tokens = StoredTokens<AccessToken, RefreshToken>
    typealias Refresh = @Sendable @concurrent (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>
    typealias SignIn =
        @Sendable @concurrent (OAuthStatus.SignInReason) async throws -> OAuthSignIn<AccessToken, RefreshToken>

    let storage: OAuthTokenStorage<AccessToken, RefreshToken>
    let coordination: TokenCoordination<AccessToken, RefreshToken>
    /// The time limit of a refresh; `nil` for no limit.
    let refreshLimit: Duration?
    let refreshAccess: Refresh
    private let signIn: SignIn

    init(
        store: any TokenStore,
        lease: (any MuxLease)?,
        policy: RunnerPolicy,
        repository: MuxRepository,
        refreshAccess: @escaping Refresh,
        signIn: @escaping SignIn
    ) {
        let storage = OAuthTokenStorage<AccessToken, RefreshToken>(
            store,
            repository: repository,
            isShared: lease != nil
        )
        self.storage = storage
        let holder = lease.map {
            LeaseHolder($0, owner: storage.owner, duration: policy.leaseDuration, time: repository.time)
        }
        self.coordination = TokenCoordination(storage: storage, lease: holder)
        self.refreshLimit = policy.updateTimeout
        self.refreshAccess = refreshAccess
        self.signIn = signIn
    }

    var repository: MuxRepository { self.storage.repository }

    var sessionState: Locked<OAuthSessionState> { self.storage.sessionState }

    // MARK: - The upper layer's update

    /// Returns the stored grant if usable, otherwise the grant of a new sign-in.
    ///
    /// After a refusal, the store is read only if other processes share the store, and only a grant that is
    /// newer than `refused` is usable.
    ///
    /// - Parameters:
    ///   - refused: The grant in memory, which the server has refused; `nil` without a grant in memory.
    ///   - session: The number of the upper layer's session, to detect a sign-out.
    /// - Returns: The grant.
    /// - Throws: ``RunnerError``, a ``CriticalError`` of the sign-in, or `CancellationError`.
    func obtainGrant(insteadOf refused: Grant?, session: UInt64) async throws -> Upper.UpdateOutcome {
        let tokenFamily = self.sessionState.withLock { $0.tokenFamily }
        if refused == nil,
            let grant = try await self.storage.loadGrant(insteadOf: nil, isAlone: !self.storage.isShared)
        {
            return Upper.UpdateOutcome(.updatedDependency(grant))
        }
        return try await self.coordination.runUnderLease(risking: nil) {
            await self.endSessionIfEnded()
            if let grant = try await self.coordination.loadGrantBeforeSignIn(insteadOf: refused) {
                return Upper.UpdateOutcome(.updatedDependency(grant))
            }
            // No sign-in starts after a sign-out, nor after a call of `set`, which cancels this task.
            try Task.checkCancellation()
            guard self.sessionState.withLock({ $0.sessionID == session && !$0.isEnding }) else {
                throw RunnerError.signedOut
            }
            var grant: Grant
            do {
                let isRefused = refused != nil || self.sessionState.withLock { $0.foundRefusal }
                let tokens = try await self.signIn(isRefused ? .tokensRefused : .noTokens)
                grant = Grant(
                    refresh: tokens.refresh,
                    access: tokens.access,
                    accessEnd: self.end(of: tokens.access, after: tokens.accessLifetime),
                    isFromSignIn: true
                )
            } catch {
                guard self.sessionState.withLock({ $0.sessionID == session && !$0.isEnding }) else {
                    throw RunnerError.signedOut
                }
                guard error.criticalCause == nil, (error as? RunnerError)?.code != .wouldDeadlock else { throw error }
                // The error is wrapped: otherwise callers would treat the error as a refusal of a token, or
                // as the cancellation of the caller.
                throw RunnerError.signInFailed(underlying: error)
            }
            grant.serial = self.sessionState.withLock { $0.serial }
            grant = await self.coordination.storeSignInGrant(grant, ofFamily: tokenFamily, session)
            return Upper.UpdateOutcome(.updatedDependency(grant))
        }
    }

    // MARK: - Status

    /// Whether a session exists; see ``OAuthDependentRunner/status``.
    func status(of upper: Upper) async -> OAuthStatus {
        // A sign-out by a process that does not use the token store is recorded only in the repository.
        await self.endSessionIfEnded()
        while true {
            let (sessionID, refusedEpoch) = self.sessionState.withLock { ($0.sessionID, $0.refusedEpoch) }
            let held = upper.held
            let isRefused = held.map { $0.epoch == refusedEpoch } ?? false
            let status = await self.storage.status(of: held?.value, isRefused: isRefused, in: sessionID)
            if let status { return status }
        }
    }

    /// Ends the session in this process if another process has ended the session.
    ///
    /// No effect if the repository cannot be read now.
    ///
    /// - Returns: Whether this call has ended the session.
    @discardableResult
    private func endSessionIfEnded() async -> Bool {
        guard !self.storage.isPrivate, self.storage.mayWait else { return false }
        return (try? await self.repository.checkSession()) ?? false
    }

    // MARK: - Tokens from outside the runner

    /// Replaces the grant of `upper` with the tokens, and stores the new grant.
    ///
    /// If the current grant has the same refresh token, and the server has not refused the grant, the grant
    /// is kept: a running refresh may be about to replace the refresh token. After a refusal, the same
    /// refresh token is tried again.
    func set(
        access: AccessToken?,
        refresh: RefreshToken,
        lifetime: Duration? = nil,
        upper: Upper,
        lower: Lower
    ) async throws {
        // Tokens of an ended session would be removed by the next process.
        let session = upper.session
        let isEndedElsewhere = await self.endSessionIfEnded()
        // A sign-out of this process during the call ends the call.
        guard isEndedElsewhere || upper.session == session else { throw RunnerError.signedOut }
        let refusedEpoch = self.sessionState.withLock { $0.refusedEpoch }
        if let present = upper.held, present.epoch != refusedEpoch,
            self.storage.tokens.areSame(present.value.refresh, refresh)
        {
            if let access { lower.set(access, lifetime: lifetime) } else { lower.clearFailures() }
            return try await self.storeNow(present, of: upper)
        }
        let serial = self.sessionState.withLock { sessionState in
            sessionState.tokenFamily &+= 1
            return sessionState.serial
        }
        let end = self.end(of: access, after: lifetime, isNew: lifetime != nil)
        let grant = Grant(refresh: refresh, access: access, accessEnd: end, serial: serial)
        // The upper layer first: the lower layer compares its access token with the upper layer's new epoch.
        let held = upper.set(grant, cancellingUpdate: true)
        lower.recordParentReplacement()
        try await self.storeNow(held, of: upper)
    }

    // MARK: - Storing

    /// Makes the grant durable, unless the grant is already stored.
    ///
    /// - Throws: ``RunnerError``. A failed save throws only if the loss of the grant would end the session:
    ///   the refresh token was rotated, and this grant or a previous grant was stored. Otherwise a later
    ///   update repeats the save.
    func store(_ held: Upper.VersionedDependency, of upper: Upper) async throws {
        do {
            try await self.storeNow(held, of: upper)
        } catch let error as RunnerError {
            guard case .tokensNotStored = error, !held.value.isRotated || !held.value.wasStored else { throw error }
        }
    }

    /// Makes the current grant of `upper` durable, unless the grant is already stored, or another process has
    /// stored other tokens.
    ///
    /// - Throws: ``RunnerError``, such as ``RunnerError/tokensNotStored(underlying:)`` or
    ///   ``RunnerError/signedOut``.
    private func storeNow(_ held: Upper.VersionedDependency, of upper: Upper) async throws {
        guard !held.value.isStored else { return }
        _ = try await self.write(held, of: upper, attempt: nil)
    }

    /// Durably records the attempt to send the refresh token.
    ///
    /// - Returns: The stored grant; `nil` if other tokens have replaced the grant in memory or in the store;
    ///   `held` after a failed save that does not throw.
    /// - Throws: ``RunnerError``. A failed save throws only if the grant is at stake
    ///   (``OAuthGrant/isAtStake``).
    func recordAttempt(_ held: Upper.VersionedDependency, of upper: Upper) async throws -> Upper.VersionedDependency? {
        let attempt = Tokens.Attempt(owner: self.storage.owner, time: self.repository.wallTime())
        do {
            return try await self.write(held, of: upper, attempt: attempt)
        } catch let error as RunnerError {
            guard case .tokensNotStored = error, !held.value.isAtStake else { throw error }
            return held
        }
    }

    /// Stores the current grant of `upper`, in the session of `held`.
    ///
    /// - Returns: The stored grant; `nil` if another process has stored other tokens, or, with an attempt, if
    ///   other tokens have replaced the grant of `held`.
    /// - Throws: ``RunnerError``.
    private func write(_ held: Upper.VersionedDependency, of upper: Upper, attempt: Tokens.Attempt?) async throws
        -> Upper.VersionedDependency?
    {
        // Checked before the call to the repository: the repository may be waiting for the store, and the
        // call would deadlock.
        guard self.storage.mayWait else { throw RunnerError.wouldDeadlock }
        let (epoch, _) = await self.storage.repositoryEpoch()
        return try await self.storage.runStoringTokens {
            guard let present = upper.held, present.session == held.session,
                !self.sessionState.withLock({ $0.isEnding })
            else { throw RunnerError.signedOut }
            // Another mutex belongs to other tokens, which have replaced the tokens of `held`.
            guard attempt == nil || present.value.mutex === held.value.mutex else { return nil }
            guard !present.value.isStored || attempt != nil else { return present }
            guard try await self.coordination.mayStore(present.value, epoch: epoch) else { return nil }
            let grant = try await self.storage.save(present.value, of: held.session, epoch: epoch, attempt: attempt)
            return upper.updateData(of: present, to: grant) ?? present
        }
    }

    /// Replaces the stored grant with a mark that the server has refused the grant, unless the store has
    /// newer tokens.
    ///
    /// Other processes and later launches do not send a marked refresh token. If the save fails, other
    /// processes and later launches may send the refresh token again.
    func noteRefusal(of held: Upper.VersionedDependency, of upper: Upper, since tenure: UInt64?) async {
        guard held.value.wasStored, self.storage.mayWait,
            await self.coordination.newestGrantAfterExchange(of: held, of: upper, since: tenure) != nil
        else { return }
        let (epoch, _) = await self.storage.repositoryEpoch()
        try? await self.storage.runStoringTokens {
            guard let present = upper.held, present.epoch == held.epoch, present.session == held.session,
                !self.sessionState.withLock({ $0.isEnding })
            else { return }
            // Tokens that another process has stored since must not be replaced.
            guard case .record(let record)? = try? await self.storage.tokens.load(session: epoch),
                record.session == epoch, record.serial ?? 0 <= present.value.serial
            else { return }
            try await self.storage.saveRefusal(of: present.value, epoch: epoch)
        }
    }

    // MARK: - Sign-out

    /// Replaces the stored tokens with a mark that the sessions before `epoch` have ended.
    ///
    /// The repository keeps the session epoch in a folder that the system may empty; the mark does not depend
    /// on the folder.
    func sessionWillEnd(before epoch: UInt64) async throws {
        self.sessionState.withLock { $0.beginSignOut(before: epoch) }
        // Inside an operation of the store, the sign-out cannot wait: the operation removes the tokens at the
        // end.
        guard self.storage.mayWait else { return }
        try await self.storage.runExclusively {
            // With epoch 0, tokens of any session count as present, so each record with tokens is replaced.
            switch try await self.storage.tokens.load(session: 0) {
            case .record, .refused: break
            case .nothing, .nonsense, .ended: return
            }
            let serial = self.sessionState.withLock { $0.serial } &+ 1
            try await self.storage.tokens.save(.init(session: epoch, serial: serial))
        }
    }

    /// Removes the stored tokens of ended sessions.
    ///
    /// Tokens that this runner has stored in its current `session` stay.
    func removeTraces(present session: UInt64) async throws {
        // If an operation of the store calls and awaits this sign-out, `runExclusively` throws, and the
        // operation removes the tokens at its end.
        self.sessionState.withLock { $0.owesRemoval = true }
        try await self.storage.runExclusively {
            let (stored, ended) = self.sessionState.withLock { sessionState in
                sessionState.owesRemoval = false
                defer { sessionState.endedBefore = nil }
                return (sessionState.storedSession, sessionState.endedBefore)
            }
            guard stored != session else { return }
            try await self.coordination.removeTokens(before: ended)
        }
    }
}
