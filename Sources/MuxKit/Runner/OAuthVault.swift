import Foundation

/// Obtains, renews and stores the tokens of an OAuth session.
///
/// It holds no layer itself: both layers' updates use it.
final class OAuthVault<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    typealias Grant = OAuthGrant<AccessToken, RefreshToken>
    typealias Upper = RunnerCore<Grant>
    typealias Lower = RunnerCore<AccessToken>
    typealias Tokens = StoredTokens<AccessToken, RefreshToken>

    struct Memo: Sendable {
        /// The repository's session epoch, as it was when the runner's present session first needed it.
        var repositoryEpoch: UInt64?
        /// The runner's session whose tokens were stored last.
        var storedSession: UInt64?
        /// Whether stored tokens may be taken up: not after a sign-out in this process.
        var mayRestore = true
        /// Counts the runner's sessions.
        var generation: UInt64 = 0
        /// Whether the first session ended before it began, by a sign-out that an earlier process did not finish.
        var finishedSignOut = false
        /// Counts the lines of tokens: a sign-out, and tokens that are set, each begin a new one.
        var line: UInt64 = 0
        /// The epoch of the grant that the server refused last.
        var refusedEpoch: UInt64?
        /// The greatest number of a stored record that was met.
        var serial: UInt64 = 0
        /// Whether the session is about to end: nothing of it is stored any more.
        var isEnding = false
        /// Sessions of the repository before this one are over, by a sign-out that is under way.
        var endedBefore: UInt64?
        /// Whether whoever is storing tokens now has to remove them again.
        var owesRemoval = false
    }

    let memo = Guarded(Memo())
    let storeLane = StoreLane()
    let tokens: Tokens
    let repository: MuxRepository
    /// Names this runner among those that share its store.
    let owner: String
    /// Keeps others who share the store from renewing at the same time; `nil` if there are none.
    let leaseHolder: LeaseHolder?
    /// How long a refresh may take.
    private let refreshLimit: Duration?
    private let refreshAccess: @Sendable (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>
    private let signIn: @Sendable () async throws -> OAuthSignIn<AccessToken, RefreshToken>

    init(
        store: any TokenStore,
        lease: (any MuxLease)?,
        policy: RunnerPolicy,
        repository: MuxRepository,
        refreshAccess: @escaping @Sendable (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>,
        signIn: @escaping @Sendable () async throws -> OAuthSignIn<AccessToken, RefreshToken>
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
    private func alone<Success: Sendable>(_ work: () async throws -> Success) async throws -> Success {
        guard let leaseHolder else { return try await work() }
        return try await leaseHolder.run(work)
    }

    // MARK: - The upper layer's update

    /// Returns the stored grant if it is not the `refused` one, or else that of a new sign-in.
    ///
    /// - Parameters:
    ///   - refused: The grant that the server refused; `nil` if there is none.
    ///   - session: The upper layer's session.
    /// - Returns: The grant.
    /// - Throws: ``RunnerError``, or what the sign-in threw.
    func grant(insteadOf refused: Grant?, session: UInt64) async throws -> Upper.Updated {
        let line = self.memo.withLock { $0.line }
        if refused == nil, let grant = try await self.restored(insteadOf: nil, mayRemove: self.leaseHolder == nil) {
            return Upper.Updated(.updatedDependency(grant))
        }
        return try await self.alone {
            // Somebody else may have signed in, or have exchanged the refresh token before it was refused.
            if self.leaseHolder != nil, let grant = try await self.restored(insteadOf: refused, mayRemove: true) {
                return Upper.Updated(.updatedDependency(grant))
            }
            var grant: Grant
            do {
                let tokens = try await self.signIn()
                grant = Grant(
                    refresh: tokens.refresh,
                    access: tokens.access,
                    accessExpiry: self.expiry(tokens.accessLifetime)
                )
            } catch  where error.saysBadDependency || error is CancellationError {
                // Not a refusal for good: the person may type another password. And who waits was not cancelled.
                throw RunnerError.signInFailed(underlying: error)
            }
            grant.serial = self.memo.withLock { $0.serial }
            // Others look into the store as soon as they have the lease. If storing fails, it is tried again on the way to
            // the caller.
            if self.leaseHolder != nil, let stored = try? await self.stored(grant, ofLine: line, session) {
                grant = stored
            }
            return Upper.Updated(.updatedDependency(grant))
        }
    }

    /// When a token that came now with this life time ends.
    private func expiry(_ lifetime: Duration?) -> Date? {
        lifetime.map { self.repository.wallTime().addingTimeInterval($0.secondsValue) }
    }

    /// For how long a token will live that ends then.
    private func lifetime(until expiry: Date?) -> Duration? {
        expiry.map { .saturating(seconds: $0.timeIntervalSince(self.repository.wallTime())) }
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
        while true {
            guard let lane = upper.held?.value.lane, upper.session == held.session else { throw RunnerError.signedOut }
            let result = try await lane.run { () -> RunResult<Lower.Updated>? in
                // While waiting for the lane, another use may have exchanged the refresh token, and left an access token.
                guard let present = upper.held, present.session == held.session else { throw RunnerError.signedOut }
                // Or other tokens were set, which have a lane of their own.
                guard present.value.lane === lane else { return nil }
                return try await self.access(of: present, of: upper, insteadOf: refused)
            }
            if let result { return result }
        }
    }

    /// Returns an access token of the present grant; in its lane.
    private func access(
        of present: Upper.Held,
        of upper: Upper,
        insteadOf refused: Lower.Held?
    ) async throws -> RunResult<Lower.Updated> {
        if let access = present.value.access, (refused?.parentEpoch ?? 0) < present.epoch {
            try await self.store(present, of: upper)
            return .output(self.updated(access, of: present))
        }
        guard self.memo.withLock({ $0.refusedEpoch }) != present.epoch else { return .badDependency }
        return try await self.alone {
            try await self.renewedAccess(with: present, of: upper, insteadOf: refused?.value)
        }
    }

    private func updated(
        _ access: AccessToken,
        of held: Upper.Held,
        continuing former: Upper.Held? = nil
    ) -> Lower.Updated {
        Lower.Updated(
            .updatedDependency(access),
            parentEpoch: held.epoch,
            continuing: former?.epoch,
            lifetime: self.lifetime(until: held.value.accessExpiry)
        )
    }

    /// Exchanges the refresh token for an access token, unless somebody else has.
    private func renewedAccess(
        with given: Upper.Held,
        of upper: Upper,
        insteadOf refused: AccessToken?
    ) async throws -> RunResult<Lower.Updated> {
        var held = try await self.withSiblings(given, of: upper)
        if let access = held.value.access, held.revision != given.revision,
            refused.map({ !self.tokens.areSame($0, access) }) ?? true
        {
            return .output(self.updated(access, of: held, continuing: given))
        }
        held = try await self.journaled(held, of: upper)
        let renewal: OAuthRenewal<AccessToken, RefreshToken>
        do {
            renewal = try await self.exchanged(held.value.refresh)
        } catch  where error.saysBadDependency {
            return try await self.refreshRefused(held, of: upper)
        } catch {
            guard upper.held?.epoch != held.epoch, upper.session == held.session else { throw error }
            return .badDependency  // other tokens were set meanwhile: their turn
        }
        let isRotated = renewal.refresh.map { !self.tokens.areSame($0, held.value.refresh) } ?? false
        let grant = Grant(
            refresh: renewal.refresh ?? held.value.refresh,
            access: renewal.access,
            accessExpiry: self.expiry(renewal.accessLifetime),
            isRotated: isRotated || held.value.isRotated && !held.value.isStored,
            rotates: isRotated || held.value.rotates,
            lane: held.value.lane,
            serial: held.value.serial
        )
        guard let next = upper.continued(held, with: grant, raisesEpoch: isRotated) else {
            guard upper.session == held.session else { throw RunnerError.signedOut }
            return .badDependency  // other tokens were set meanwhile: their turn
        }
        try await self.store(next, of: upper)
        return .output(self.updated(renewal.access, of: next, continuing: given))
    }

    /// Has the refresh token exchanged, in the time that there is for it.
    private func exchanged(_ token: RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken> {
        guard let limit = self.refreshLimit else { return try await self.refreshAccess(token) }
        return try await withThrowingTaskGroup(of: OAuthRenewal<AccessToken, RefreshToken>?.self) { group in
            group.addTask { try await self.refreshAccess(token) }
            group.addTask {
                try await self.repository.time.sleep(for: limit)
                return nil
            }
            defer { group.cancelAll() }
            if let renewal = try await group.next() ?? nil { return renewal }
            // What it brings nevertheless must not be lost.
            group.cancelAll()
            do {
                if let renewal = try await group.next() ?? nil { return renewal }
            } catch  where error.saysBadDependency {
                throw error
            } catch {}
            throw RunnerError.updateTimedOut(after: limit)
        }
    }

    /// The server refused the refresh token: unless somebody has left a newer one, it is no good.
    private func refreshRefused(_ held: Upper.Held, of upper: Upper) async throws -> RunResult<Lower.Updated> {
        let newer = try await self.withSiblings(held, of: upper)
        if newer.revision != held.revision, let access = newer.value.access {
            return .output(self.updated(access, of: newer, continuing: held))
        }
        self.memo.withLock { $0.refusedEpoch = held.epoch }
        return .badDependency
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
        // Uses of the new token need not wait for those of the old one: it has a lane of its own.
        let serial = self.memo.withLock { memo in
            memo.line &+= 1
            return memo.serial
        }
        let grant = Grant(refresh: refresh, access: access, serial: serial)
        let held = upper.set(grant, cancellingUpdate: true)
        lower.parentReplaced()
        try await self.storeNow(held, of: upper)
    }
}
