/// Coordinates renewals and sign-ins with other processes that use the same token store.
///
/// A lease serialises renewals and sign-ins of the processes. A runner without a lease assumes that no other
/// process uses the store.
struct TokenCoordination<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    typealias Grant = OAuthGrant<AccessToken, RefreshToken>
    typealias Upper = RunnerCore<Grant>

    let storage: OAuthTokenStorage<AccessToken, RefreshToken>
    /// `nil` if no other process uses the store.
    let lease: LeaseHolder?

    /// Runs `work`, a renewal of `grant` or a sign-in, under the lease.
    ///
    /// If the folder of the lease cannot be written to, `work` runs without a lease, unless the grant is at
    /// stake (``OAuthGrant/isAtStake``).
    func runUnderLease<Success: Sendable>(
        risking grant: Grant?,
        _ work: () async throws -> Success
    ) async throws -> Success {
        guard let lease else { return try await work() }
        var hasBegun = false
        do {
            return try await lease.run {
                hasBegun = true
                self.storage.clearProblem(.lease)
                return try await work()
            }
        } catch RunnerError.leaseUnavailable(let cause)
            where !hasBegun && grant?.isAtStake != true && cause.saysUnwritable
        {
            self.storage.reportProblem(.lease, because: cause)
            // `maySend` takes the lease if the folder has become writable.
            return try await lease.runAsUse { try await work() }
        }
    }

    /// See ``LeaseHolder/tenure``; always 0 without a lease.
    var tenure: UInt64? {
        guard let lease else { return 0 }
        return lease.tenure
    }

    private func isAlone(since tenure: UInt64?) -> Bool { tenure != nil && self.tenure == tenure }

    // MARK: - Before and after a sign-in

    /// The stored grant to use instead of a sign-in; `nil` without such a grant, and without a lease.
    ///
    /// Another process may have signed in, or exchanged the refresh token before the refusal. Called inside
    /// ``runUnderLease(risking:_:)``.
    func loadGrantBeforeSignIn(insteadOf refused: Grant?) async throws -> Grant? {
        guard self.lease != nil else { return nil }
        return try await self.storage.loadGrant(insteadOf: refused, isAlone: true)
    }

    /// With a lease, stores the grant of a sign-in at once, because the next holder of the lease reads the
    /// store.
    ///
    /// If the save fails, the next update of the lower layer tries again.
    ///
    /// - Returns: The grant, with the state of its storage.
    func storeSignInGrant(_ grant: Grant, ofFamily tokenFamily: UInt64, _ session: UInt64) async -> Grant {
        guard self.lease != nil else { return grant }
        let storage = self.storage
        let (epoch, _) = await storage.repositoryEpoch()
        let stored = try? await storage.runStoringTokens { () async throws -> Grant in
            // After a sign-out, or if other tokens were set, the grant is not stored.
            guard storage.sessionState.withLock({ $0.tokenFamily == tokenFamily && !$0.isEnding }),
                try await self.mayStore(grant, epoch: epoch)
            else { throw RunnerError.signedOut }
            return try await storage.save(grant, of: session, epoch: epoch)
        }
        return stored ?? grant
    }

    // MARK: - Around the exchange of a refresh token

    /// Returns the newest grant: `held`, or the grant that another process has stored since, which then
    /// replaces `held` in `upper`.
    ///
    /// - Throws: ``RunnerError/signedOut`` if the store shows the end of the session; ``BadDependency`` if
    ///   the store has a newer mark of the server's refusal; ``RunnerError/tokensUnreadable(underlying:)``.
    func adoptNewestGrant(_ held: Upper.VersionedDependency, of upper: Upper, since tenure: UInt64?) async throws
        -> Upper.VersionedDependency
    {
        guard self.lease != nil, held.value.wasStored else { return held }
        let (epoch, _) = await self.storage.repositoryEpoch()
        switch try await self.storage.tokens.load(session: epoch) {
        case .nonsense:
            return held
        case .nothing:
            guard held.value.isStored else { return held }
            try await self.storage.endRepositorySessions(before: epoch &+ 1)
        case .ended(let end):
            try await self.storage.endRepositorySessions(before: max(end, epoch &+ 1))
        case .record(let record) where record.session > epoch, .refused(let record) where record.session > epoch:
            try await self.storage.endRepositorySessions(before: record.session)
        case .refused(let record):
            if (record.serial ?? 0) <= held.value.serial { return held }
            throw BadDependency()
        case .record(let record):
            let grant = self.storage.makeGrant(record, isAlone: self.isAlone(since: tenure))
            guard (record.serial ?? 0) > held.value.serial, var grant else { return held }
            // The caller runs inside this mutex, and later calls must wait for the caller.
            grant.mutex = held.value.mutex
            let isOther = !self.storage.tokens.areSame(grant.refresh, held.value.refresh)
            return upper.setSuccessor(of: held, to: grant, raisesEpoch: isOther) ?? held
        }
        throw RunnerError.signedOut
    }

    /// Whether the refresh token of `held` may be sent now: no other process has changed the stored tokens or
    /// has the lease.
    ///
    /// If the lease may have ended, such as during a suspension of the process, this function takes the lease
    /// again and updates `tenure`.
    ///
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, `CancellationError`, or an error of
    ///   ``adoptNewestGrant(_:of:since:)``.
    func maySend(_ held: Upper.VersionedDependency, of upper: Upper, since tenure: inout UInt64?) async throws -> Bool {
        guard held.value.wasStored, !self.isAlone(since: tenure) else { return true }
        do {
            tenure = try await self.lease?.retakeLease()
            return try await self.adoptNewestGrant(held, of: upper, since: tenure).revision == held.revision
                && tenure != nil
        } catch RunnerError.leaseUnavailable(let cause) where !held.value.isAtStake && cause.saysUnwritable {
            return true  // without a lease, as in `runUnderLease`
        }
    }

    /// The newest grant after the exchange; `nil` if another process has replaced the grant's refresh token
    /// in the meantime.
    func newestGrantAfterExchange(of held: Upper.VersionedDependency, of upper: Upper, since tenure: UInt64?) async
        -> Upper.VersionedDependency?
    {
        // Any error of `adoptNewestGrant` counts as no change, so that the result of the exchange is not
        // lost: for example, the store may be unreadable now.
        guard !self.isAlone(since: tenure),
            let newest = try? await self.adoptNewestGrant(held, of: upper, since: tenure)
        else {
            return held
        }
        return self.storage.tokens.areSame(newest.value.refresh, held.value.refresh) ? newest : nil
    }

    // MARK: - In the store

    /// Whether a grant of the session `epoch` may replace the stored grant.
    ///
    /// `false` if another process has stored other tokens since the last read, and `grant` continues a stored
    /// grant. `true` if the store cannot be read.
    ///
    /// - Throws: ``RunnerError/signedOut`` if the store shows the end of the session.
    func mayStore(_ grant: Grant, epoch: UInt64) async throws -> Bool {
        guard self.lease != nil else { return true }
        let found = try? await self.storage.tokens.load(session: epoch)
        switch found {
        case .nothing? where grant.isStored: throw RunnerError.signedOut
        case .ended(let end)? where end > epoch: throw RunnerError.signedOut
        case .record(let record)?, .refused(let record)?:
            guard record.session <= epoch else { throw RunnerError.signedOut }
            return self.storage.sessionState.withLock { sessionState in
                let serial = record.serial ?? 0
                if case .record? = found, grant.wasStored, serial > sessionState.serial { return false }
                // The number of the new record must be greater, so that other processes adopt the tokens.
                sessionState.serial = max(sessionState.serial, serial)
                return true
            }
        case .nothing?, .nonsense?, .ended?, nil: return true
        }
    }

    /// Removes the stored tokens of the sessions before `epoch`, unless another owner has the lease.
    ///
    /// Tokens of the session `epoch` or of a later session stay, because another owner may have stored the
    /// tokens. Without a lease there is no other owner, and the function removes all tokens.
    ///
    /// - Parameter epoch: The epoch of the first session that has not ended; `nil` to remove the tokens of
    ///   all sessions.
    /// - Throws: The error of the store or of the lease.
    func removeTokens(before epoch: UInt64?) async throws {
        guard let lease else { return try await self.storage.tokens.store.remove() }
        func remove() async throws {
            if let epoch, case .record? = try? await self.storage.tokens.load(session: epoch) { return }
            try await self.storage.tokens.store.remove()
        }
        var hasBegun = false
        do {
            try await lease.runIfFree {
                hasBegun = true
                try await remove()
            }
        } catch let error as MuxStoreError where !hasBegun && error.isOutOfSpace {
            // A full disk has no space for the lease, but the removal needs no space.
            try await remove()
        }
    }
}
