/// Obtains, renews and stores the tokens of an OAuth session.
///
/// It holds no layer itself: both layers' updates use it.
final class OAuthVault<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    typealias Grant = OAuthGrant<AccessToken, RefreshToken>
    typealias Upper = RunnerCore<Grant>
    typealias Lower = RunnerCore<AccessToken>
    typealias Tokens = StoredTokens<AccessToken, RefreshToken>

    private struct Memo: Sendable {
        /// The repository's session epoch, as it was when the runner's present session first needed it.
        var repositoryEpoch: UInt64?
        /// The runner's session whose tokens were stored last.
        var storedSession: UInt64?
        /// Whether stored tokens may be taken up: not after a sign-out in this process.
        var mayRestore = true
        /// Counts the runner's sessions.
        var generation: UInt64 = 0
        /// Where uses of the refresh token wait for each other; each line of tokens has its own.
        var refreshLane = SerialLane()
        /// The epoch of the grant that the server refused last.
        var refusedEpoch: UInt64?
    }

    private let memo = Guarded(Memo())
    private let storeLane = SerialLane()
    private let tokens: Tokens
    private let repository: MuxRepository
    private let refreshAccess: @Sendable (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>
    private let signIn: @Sendable () async throws -> OAuthSignIn<AccessToken, RefreshToken>

    init(
        store: any TokenStore,
        repository: MuxRepository,
        refreshAccess: @escaping @Sendable (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>,
        signIn: @escaping @Sendable () async throws -> OAuthSignIn<AccessToken, RefreshToken>
    ) {
        self.tokens = Tokens(store: store)
        self.repository = repository
        self.refreshAccess = refreshAccess
        self.signIn = signIn
    }

    // MARK: - The upper layer's update

    /// Returns the stored grant if none was `refused` yet, or else that of a new sign-in.
    func grant(insteadOf refused: Grant?) async throws -> Upper.Updated {
        if refused == nil, self.memo.withLock({ $0.mayRestore }), let record = try await self.restored() {
            let grant = Grant(refresh: record.refresh, access: record.access, isRotated: false, isStored: true)
            return Upper.Updated(.updatedDependency(grant))
        }
        do {
            let tokens = try await self.signIn()
            let grant = Grant(refresh: tokens.refresh, access: tokens.access, isRotated: false, isStored: false)
            return Upper.Updated(.updatedDependency(grant))
        } catch  where error.saysBadDependency || error is CancellationError {
            // Not a refusal for good: the person may type another password. And who waits was not cancelled.
            throw RunnerError.signInFailed(underlying: error)
        }
    }

    private func restored() async throws -> Tokens.Record? {
        let epoch: UInt64
        do {
            epoch = try await self.repositoryEpoch()
        } catch {
            throw RunnerError.tokensUnreadable(underlying: error)
        }
        switch try await self.tokens.load(session: epoch) {
        case .nothing:
            return nil
        case .record(let record):
            // The epoch may have been lost with the caches folder; it never goes back.
            if record.session > epoch, (try? await self.repository.raiseEpoch(to: record.session)) != nil {
                self.memo.withLock { if $0.repositoryEpoch == epoch { $0.repositoryEpoch = record.session } }
            }
            return record
        case .ended:
            // A sign-out was cut short before it came to this.
            await self.storeLane.run {
                guard self.memo.withLock({ $0.storedSession }) == nil else { return }
                try? await self.tokens.store.delete()
            }
            return nil
        }
    }

    // MARK: - The lower layer's update

    /// Returns an access token made with, or given beside, the grant of `upper`.
    ///
    /// - Parameters:
    ///   - held: The grant that the caller was handed.
    ///   - upper: The layer that holds it.
    ///   - refused: The access token that was refused; `nil` if none was made with this grant yet.
    /// - Returns: The token, or that the grant is no good.
    /// - Throws: ``RunnerError``, or what the refresh threw.
    func access(
        with held: Upper.Held,
        of upper: Upper,
        insteadOf refused: Lower.Held?
    ) async throws -> RunResult<Lower.Updated> {
        let lane = self.memo.withLock { $0.refreshLane }
        return try await lane.run {
            // While waiting for the lane, another use may have exchanged the refresh token, and left an access token.
            guard let present = upper.held, present.session == held.session else { throw RunnerError.signedOut }
            if let access = present.value.access, (refused?.parentEpoch ?? 0) < present.epoch {
                try await self.store(present, of: upper)
                return .output(Lower.Updated(.updatedDependency(access), parentEpoch: present.epoch))
            }
            guard self.memo.withLock({ $0.refusedEpoch }) != present.epoch else { return .badDependency }
            return try await self.renewedAccess(with: present, of: upper)
        }
    }

    private func renewedAccess(with held: Upper.Held, of upper: Upper) async throws -> RunResult<Lower.Updated> {
        let renewal: OAuthRenewal<AccessToken, RefreshToken>
        do {
            renewal = try await self.refreshAccess(held.value.refresh)
        } catch  where error.saysBadDependency {
            self.memo.withLock { $0.refusedEpoch = held.epoch }
            return .badDependency
        } catch {
            guard upper.held?.epoch != held.epoch, upper.session == held.session else { throw error }
            return .badDependency  // other tokens were set meanwhile: their turn
        }
        let isRotated = renewal.refresh.map { !self.tokens.areSame($0, held.value.refresh) } ?? false
        let grant = Grant(
            refresh: renewal.refresh ?? held.value.refresh,
            access: renewal.access,
            isRotated: isRotated || held.value.isRotated && !held.value.isStored,
            isStored: false
        )
        guard let next = upper.continued(held, with: grant, raisesEpoch: isRotated) else {
            guard upper.session == held.session else { throw RunnerError.signedOut }
            return .badDependency  // other tokens were set meanwhile: their turn
        }
        try await self.store(next, of: upper)
        return .output(Lower.Updated(.updatedDependency(renewal.access), parentEpoch: next.epoch))
    }

    // MARK: - The store

    /// Makes the grant durable, unless it is.
    ///
    /// - Throws: What went wrong, if losing the grant would end the session: if it is rotated. Where the stored one is as
    ///   good for the server, a store that fails now is tried again with the next grant.
    private func store(_ held: Upper.Held, of upper: Upper) async throws {
        do {
            try await self.storeNow(held, of: upper)
        } catch let error as RunnerError {
            guard case .tokensNotStored = error, !held.value.isRotated else { throw error }
        }
    }

    /// Makes the grant durable, unless it is.
    ///
    /// - Throws: ``RunnerError``: not stored, or signed out.
    func storeNow(_ held: Upper.Held, of upper: Upper) async throws {
        guard !held.value.isStored else { return }
        let epoch: UInt64
        do {
            epoch = try await self.repositoryEpoch()
        } catch {
            throw RunnerError.tokensNotStored(underlying: error)
        }
        try await self.storeLane.run {
            guard let present = upper.held, present.session == held.session else { throw RunnerError.signedOut }
            let grant = present.value
            guard !grant.isStored else { return }
            try await self.tokens.save(.init(session: epoch, refresh: grant.refresh, access: grant.access))
            self.memo.withLock { $0.storedSession = held.session }
            var stored = grant
            stored.isStored = true
            upper.note(present, as: stored)
        }
    }

    private func repositoryEpoch() async throws -> UInt64 {
        let (known, generation) = self.memo.withLock { ($0.repositoryEpoch, $0.generation) }
        if let known { return known }
        let epoch = try await self.repository.currentEpoch()
        // A sign-out may have come in between: then this is the epoch of the session before.
        self.memo.withLock { if $0.generation == generation, $0.repositoryEpoch == nil { $0.repositoryEpoch = epoch } }
        return epoch
    }

    // MARK: - Tokens from elsewhere

    /// Puts the tokens in place of the grant of `upper`, and stores them.
    ///
    /// A token that is in use already is left to its use: its successor must not be lost.
    func set(refresh: RefreshToken, access: AccessToken?, upper: Upper, lower: Lower) async throws {
        if let present = upper.held, self.tokens.areSame(present.value.refresh, refresh) {
            if let access { lower.set(access) }
            return try await self.storeNow(present, of: upper)
        }
        // Uses of the new token need not wait for those of the old one.
        self.memo.withLock { $0.refreshLane = SerialLane() }
        let grant = Grant(refresh: refresh, access: access, isRotated: false, isStored: false)
        let held = upper.set(grant, cancellingUpdate: true)
        lower.parentReplaced()
        try await self.storeNow(held, of: upper)
    }

    // MARK: - Sign-out

    /// The session is over: what it left in the store is not taken up again.
    func sessionEnded() {
        self.memo.withLock { memo in
            memo = Memo(storedSession: memo.storedSession, mayRestore: false, generation: memo.generation &+ 1)
        }
    }

    /// Removes the tokens of ended sessions; those of the session that is present stay.
    func removeTraces(present session: UInt64) async throws {
        try await self.storeLane.run {
            guard self.memo.withLock({ $0.storedSession }) != session else { return }
            try await self.tokens.store.delete()
        }
    }
}
