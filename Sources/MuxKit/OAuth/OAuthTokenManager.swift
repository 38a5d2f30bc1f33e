import Foundation

/// Obtains, renews and stores the tokens of an OAuth session.
///
/// It holds no layer itself: both layers' updates use it.
final class OAuthTokenManager<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    typealias Grant = OAuthGrant<AccessToken, RefreshToken>
    typealias Upper = RunnerCore<Grant>
    typealias Lower = RunnerCore<AccessToken>
    typealias Tokens = StoredTokens<AccessToken, RefreshToken>

    let sessionState = Locked(OAuthSessionState())
    let storeLane = ReentrantAsyncMutex(refusal: RunnerError.wouldDeadlock)
    let tokens: Tokens
    let repository: MuxRepository
    /// Names this runner among those that share its store.
    let owner: String
    /// Keeps others who share the store from renewing at the same time; `nil` if there are none.
    let leaseHolder: LeaseHolder?
    /// How long a refresh may take.
    let refreshLimit: Duration?
    let refreshAccess: @Sendable @concurrent (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>
    private let signIn: @Sendable @concurrent () async throws -> OAuthSignIn<AccessToken, RefreshToken>

    init(
        store: any TokenStore,
        lease: (any MuxLease)?,
        policy: RunnerPolicy,
        repository: MuxRepository,
        refreshAccess:
            @escaping @Sendable @concurrent (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>,
        signIn: @escaping @Sendable @concurrent () async throws -> OAuthSignIn<AccessToken, RefreshToken>
    ) {
        let owner = UUID().uuidString
        self.tokens = Tokens(store: store)
        self.repository = repository
        self.owner = owner
        self.leaseHolder = lease.map {
            LeaseHolder($0, owner: owner, duration: policy.leaseDuration, time: repository.time)
        }
        self.refreshLimit = policy.updateTimeout
        self.refreshAccess = refreshAccess
        self.signIn = signIn
    }

    /// Runs `work` while nobody else who shares the store renews tokens.
    ///
    /// Where the folder of the lease cannot be written to, `work` goes on without it, unless that would put the grant at stake.
    func alone<Success: Sendable>(
        risking grant: Grant?,
        _ work: () async throws -> Success
    ) async throws -> Success {
        guard let leaseHolder else { return try await work() }
        var hasBegun = false
        do {
            let result = try await leaseHolder.run {
                hasBegun = true
                self.worked(.lease)
                return try await work()
            }
            return result
        } catch RunnerError.leaseUnavailable(let cause)
            where !hasBegun && grant?.isAtStake != true && cause.saysUnwritable
        {
            self.failed(.lease, because: cause)
            return try await work()
        }
    }

    // MARK: - What stops nothing

    /// Tells of a problem that stops nothing, unless it was told already.
    func failed(_ problem: OAuthProblem, because error: any Error) {
        guard self.sessionState.withLock({ $0.failed(problem) }) else { return }
        // The texts of the library's own stores are known to quote nothing; of other errors the type has to do.
        let cause = (error as? MuxStoreError)?.errorDescription ?? "The error was of type \(type(of: error))."
        self.repository.observer?.tell(MuxEvent(.storageFailed, problem: "\(problem.sentence) \(cause)"))
    }

    func worked(_ problem: OAuthProblem) { self.sessionState.withLock { $0.worked(problem) } }

    // MARK: - The upper layer's update

    /// Returns the stored grant if it is not the `refused` one, or else that of a new sign-in.
    ///
    /// - Parameters:
    ///   - refused: The grant that the server refused; `nil` if there is none.
    ///   - session: The upper layer's session.
    /// - Returns: The grant.
    /// - Throws: ``RunnerError``, or what the sign-in threw.
    func grant(insteadOf refused: Grant?, session: UInt64) async throws -> Upper.Updated {
        let tokenFamily = self.sessionState.withLock { $0.tokenFamily }
        if refused == nil, let grant = try await self.restored(insteadOf: nil, isAlone: self.leaseHolder == nil) {
            return Upper.Updated(.updatedDependency(grant))
        }
        return try await self.alone(risking: nil) {
            // Somebody else may have signed in, or have exchanged the refresh token before it was refused.
            if self.leaseHolder != nil, let grant = try await self.restored(insteadOf: refused, isAlone: true) {
                return Upper.Updated(.updatedDependency(grant))
            }
            // Nobody is asked to sign in after a sign-out, or when tokens were set meanwhile.
            try Task.checkCancellation()
            guard self.sessionState.withLock({ $0.sessionID == session && !$0.isEnding }) else {
                throw RunnerError.signedOut
            }
            var grant: Grant
            do {
                let tokens = try await self.signIn()
                grant = Grant(
                    refresh: tokens.refresh,
                    access: tokens.access,
                    accessEnd: self.end(of: tokens.access, after: tokens.accessLifetime),
                    isFromSignIn: true
                )
            } catch  where error.saysBadDependency || error is CancellationError {
                // Not a refusal for good: the person may type another password. And who waits was not cancelled.
                throw RunnerError.signInFailed(underlying: error)
            }
            grant.serial = self.sessionState.withLock { $0.serial }
            // Others look into the store as soon as they have the lease. If storing fails, it is tried again on the way to
            // the caller.
            if self.leaseHolder != nil, let stored = try? await self.stored(grant, ofFamily: tokenFamily, session) {
                grant = stored
            }
            return Upper.Updated(.updatedDependency(grant))
        }
    }

    // MARK: - Tokens from elsewhere

    /// Puts the tokens in place of the grant of `upper`, and stores them.
    ///
    /// A token that is in use already is left to its use: its successor must not be lost.
    func set(refresh: RefreshToken, access: AccessToken?, upper: Upper, lower: Lower) async throws {
        if let present = upper.held, self.tokens.areSame(present.value.refresh, refresh) {
            if let access { lower.set(access) } else { lower.forgetFailures() }
            return try await self.storeNow(present, of: upper)
        }
        // Uses of the new token need not wait for those of the old one: it has a lane of its own.
        let serial = self.sessionState.withLock { sessionState in
            sessionState.tokenFamily &+= 1
            return sessionState.serial
        }
        let grant = Grant(refresh: refresh, access: access, serial: serial)
        let held = upper.set(grant, cancellingUpdate: true)
        lower.parentReplaced()
        try await self.storeNow(held, of: upper)
    }
}
