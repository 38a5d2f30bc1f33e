import Foundation

/// The two layers of an ``OAuthDependentRunner``.
///
/// The upper layer holds an ``OAuthGrant``: the refresh token and its state. The update of the upper layer
/// reads the stored grant, or signs in. The lower layer holds the access token. The update of the lower
/// layer runs as a task of the upper layer: the update takes the grant's access token, or refreshes. An
/// access token is invalid as soon as a grant of other tokens replaces the grant of the access token.
@usableFromInline
final class OAuthSession<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: SessionParticipant {
    let tokenManager: OAuthTokenManager<AccessToken, RefreshToken>
    let upper: RunnerCore<OAuthGrant<AccessToken, RefreshToken>>
    @usableFromInline let lower: RunnerCore<AccessToken>

    init(tokenManager: OAuthTokenManager<AccessToken, RefreshToken>, policy: RunnerPolicy, repository: MuxRepository) {
        // An update without waiting callers continues: the server may have exchanged the refresh token
        // already. The token manager limits the time of a refresh; a sign-in has no time limit.
        var policy = policy
        policy.cancelsUnwantedUpdates = false
        policy.updateTimeout = nil
        let name = policy.name ?? "OAuth"
        policy.name = "\(name) refresh token"
        let upper = RunnerCore<OAuthGrant<AccessToken, RefreshToken>>(
            policy: policy,
            observer: repository.observer,
            time: repository.time,
            wallTime: repository.wallTime,
            spawn: repository.spawn,
            mayWait: { tokenManager.storage.mayWait },
            update: { refused, session in
                try await tokenManager.obtainGrant(insteadOf: refused?.value, session: session)
            }
        )
        self.tokenManager = tokenManager
        self.upper = upper
        policy.name = "\(name) access token"
        self.lower = RunnerCore(
            policy: policy,
            observer: repository.observer,
            time: repository.time,
            wallTime: repository.wallTime,
            spawn: repository.spawn,
            parent: upper.epochs,
            asksServer: true,
            mayWait: { tokenManager.storage.mayWait },
            update: { refused, _ in
                try await upper.run { held, _ in
                    try await tokenManager.obtainAccess(with: held, of: upper, insteadOf: refused)
                }
            }
        )
    }

    // MARK: - Status

    func status() async -> OAuthStatus {
        let status = await self.tokenManager.status(of: self.upper)
        // An access token that was set without a refresh token is in memory only, but counts as a
        // session.
        guard status != .signedIn, self.upper.held == nil, self.lower.isUsable else { return status }
        return .signedIn
    }

    var statuses: OAuthStatus.Changes {
        OAuthStatus.Changes(
            signals: { [weak self] in self?.statusSignals ?? AsyncStream { $0.finish() } },
            current: { [weak self] in await self?.status() }
        )
    }

    /// Yields an element after each event that may change the status; finishes when the ``OAuthSession`` is
    /// deallocated.
    private var statusSignals: AsyncStream<Void> {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let removals = [self.upper.watchers.signal(continuation), self.lower.watchers.signal(continuation)]
        let storage = self.tokenManager.storage
        let watch = storage.isShared ? storage.watch { continuation.yield() } : nil
        continuation.onTermination = { _ in
            watch?.cancel()
            for remove in removals { remove() }
        }
        return stream
    }

    // MARK: - SessionParticipant

    /// The identity of the storage.
    ///
    /// If the storage finds an ended session while this runner has no grant, the session ends for all
    /// participants of the repository except this runner.
    var identity: ObjectIdentifier { ObjectIdentifier(self.tokenManager.storage) }

    var handsOutTokens: Bool { true }

    var gauges: MuxRepository.Gauges {
        // The upper layer's waiters are not counted: each waiter is an update of the lower layer.
        var gauges = MuxRepository.Gauges(self.lower.engine) + MuxRepository.Gauges(self.upper.engine)
        gauges.waiters = self.lower.engine.occupancy.waiters
        return gauges
    }

    func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        // The state of the tokens changes before the upper layer: an update of the upper layer's next session
        // must not restore the stored tokens of the ended session.
        let lower = self.lower.endWithoutResuming(.signOut, sendsEvent: sendsEvent)
        self.tokenManager.sessionState.withLock { $0.endSession() }
        let upper = self.upper.endWithoutResuming(.signOut, sendsEvent: sendsEvent)
        return {
            lower()
            upper()
        }
    }

    func sessionWillEnd(before epoch: UInt64) async throws {
        try await self.tokenManager.sessionWillEnd(before: epoch)
    }

    func removeTraces() async throws {
        try await self.tokenManager.removeTraces(present: self.upper.session)
    }
}

/// The dependency of an OAuth session's upper layer: a refresh token and its state.
struct OAuthGrant<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    let refresh: RefreshToken

    /// An access token that belongs to the refresh token: from the sign-in, a `set`, the store or a refresh.
    ///
    /// The lower layer may hold a newer access token from a `set`.
    let access: AccessToken?

    /// The end of the access token; `nil` if the end is not known.
    var accessEnd: AccessEnd?

    /// Whether a sign-in has made the grant.
    var isFromSignIn = false

    /// Whether the exchange that made this grant replaced the refresh token; the server may no longer accept
    /// the previous refresh token.
    var isRotated = false

    /// Whether the server is known to rotate refresh tokens.
    var rotates = false

    /// Serialises uses of the refresh token; shared with later grants that continue this grant.
    var mutex = AsyncMutex()

    /// The serial number of the grant's record in the store; for a grant that is not stored, the number of an
    /// earlier record, or 0.
    var serial: UInt64 = 0

    /// Whether this runner has saved the grant, or read the grant from the store.
    var isStored = false

    /// Whether this grant, or a grant that this grant continues, is or was in the store.
    ///
    /// Other processes may have read the stored grant.
    var wasStored = false
}

/// The end of an access token.
struct AccessEnd: Sendable {
    /// The end by the monotonic clock of this process.
    let moment: Moment

    /// The end in wall-clock time, for the store.
    let date: Date

    /// The end of a token with a remaining lifetime.
    init(_ lifetime: Duration, now: Moment, wallTime: Date) {
        self.moment = now.advanced(by: lifetime)
        self.date = wallTime.addingTimeInterval(lifetime.secondsValue)
    }

    /// The end of a token from the store.
    ///
    /// The end is correct only if the wall clock was correct at the save and is correct now.
    init?(_ date: Date?, now: Moment, wallTime: Date) {
        guard let date else { return nil }
        self.moment = now.advanced(by: .saturating(seconds: date.timeIntervalSince(wallTime)))
        self.date = date
    }
}

extension OAuthGrant {
    /// Whether the session may be lost if the new refresh token of an exchange is not saved.
    var isAtStake: Bool { self.wasStored && self.rotates }

    /// The grant of a stored record; `nil` for a record without a refresh token.
    init?(_ record: StoredTokens<AccessToken, RefreshToken>.Record, now: Moment, wallTime: Date) {
        guard let refresh = record.refresh else { return nil }
        self.init(
            refresh: refresh,
            access: record.access,
            accessEnd: AccessEnd(
                record.accessExpiry ?? (record.access as? any ExpiringDependency)?.expiry,
                now: now,
                wallTime: wallTime
            ),
            rotates: record.rotates ?? false,
            serial: record.serial ?? 0,
            isStored: true,
            wasStored: true
        )
    }
}

extension OAuthGrant: CustomStringConvertible, CustomReflectable {
    /// Hides the tokens.
    var description: String { "OAuthGrant(…)" }

    /// Hides the tokens.
    var customMirror: Mirror { Mirror(self, children: [:]) }
}
