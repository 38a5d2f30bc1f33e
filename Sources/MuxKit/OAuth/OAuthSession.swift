import Foundation

/// The two layers of an ``OAuthDependentRunner``.
///
/// The lower layer holds the access token; its update runs as a task of the upper layer, which holds the refresh token and
/// whose update is the sign-in. An access token is void as soon as the grant that it was made with is replaced.
@usableFromInline
final class OAuthSession<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: SessionParticipant {
    let tokenManager: OAuthTokenManager<AccessToken, RefreshToken>
    let upper: RunnerCore<OAuthGrant<AccessToken, RefreshToken>>
    @usableFromInline let lower: RunnerCore<AccessToken>

    init(tokenManager: OAuthTokenManager<AccessToken, RefreshToken>, policy: RunnerPolicy, repository: MuxRepository) {
        // Never cancelled: the server may have exchanged the refresh token already. The token manager limits the time of a
        // refresh; that of a sign-in is not limited.
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
            update: { refused, session in try await tokenManager.grant(insteadOf: refused?.value, session: session) }
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
                    try await tokenManager.access(with: held, of: upper, insteadOf: refused)
                }
            }
        )
    }

    // MARK: - Status

    func status() async -> OAuthStatus {
        let status = await self.tokenManager.status(of: self.upper)
        // An access token that was set without a refresh token is in memory alone.
        guard status != .signedIn, self.upper.held == nil, self.lower.isUsable else { return status }
        return .signedIn
    }

    var statuses: OAuthStatus.Changes {
        OAuthStatus.Changes(
            signals: { [weak self] in self?.statusSignals ?? AsyncStream { $0.finish() } },
            current: { [weak self] in await self?.status() }
        )
    }

    /// Yields an element after whatever may change the status; finishes with the session.
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

    /// The storage's, which learns that another process has ended a session.
    var identity: ObjectIdentifier { ObjectIdentifier(self.tokenManager.storage) }

    var handsOutTokens: Bool { true }

    var gauges: MuxRepository.Gauges {
        // The upper layer has the lower one's update for a caller, which waits for the callers already counted.
        var gauges = MuxRepository.Gauges(self.lower.engine) + MuxRepository.Gauges(self.upper.engine)
        gauges.waiters = self.lower.engine.occupancy.waiters
        return gauges
    }

    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let lower = self.lower.ended(.signOut, isTold: isTold)
        self.tokenManager.sessionState.withLock { $0.ended() }
        let upper = self.upper.ended(.signOut, isTold: isTold)
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

/// The dependency of an OAuth session's upper layer: a refresh token, and what is known about it.
struct OAuthGrant<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    let refresh: RefreshToken

    /// The access token that came with the refresh token, or was made with it last.
    let access: AccessToken?

    /// When the access token ends; `nil` if the server did not say.
    var accessEnd: AccessEnd?

    /// Whether it came from a sign-in, not from the store or a `set`.
    var isFromSignIn = false

    /// Whether the server issued it in exchange for another refresh token, which it no longer accepts.
    var isRotated = false

    /// Whether the server is known to rotate refresh tokens.
    var rotates = false

    /// Serializes uses of the refresh token; shared with the grants that continue this one.
    var mutex = AsyncMutex()

    /// The number of its record in the store, or of the record before.
    var serial: UInt64 = 0

    /// Whether the store has it.
    var isStored = false

    /// Whether the store has had it, or one that it continues: other processes may know it.
    var wasStored = false
}

/// When an access token ends.
struct AccessEnd: Sendable {
    /// By the monotonic clock of this process.
    let moment: Moment

    /// By the time of day, for the next process.
    let date: Date

    /// The end of a token that came now; `nil` if the server gave no life time, or not a positive one.
    init?(_ lifetime: Duration?, now: Moment, wallTime: Date) {
        guard let lifetime, lifetime > .zero else { return nil }
        self.moment = now.advanced(by: lifetime)
        self.date = wallTime.addingTimeInterval(lifetime.secondsValue)
    }

    /// The end of a token from the store; as right as the time of day was then, and is now.
    init?(_ date: Date?, now: Moment, wallTime: Date) {
        guard let date else { return nil }
        self.moment = now.advanced(by: .saturating(seconds: date.timeIntervalSince(wallTime)))
        self.date = date
    }
}

extension OAuthGrant {
    /// Whether an exchange without storing its successor may lose the session: it is stored, and the server rotates it.
    var isAtStake: Bool { self.wasStored && (self.rotates || self.isRotated) }

    /// The grant of a stored record.
    init?(_ record: StoredTokens<AccessToken, RefreshToken>.Record, now: Moment, wallTime: Date) {
        guard let refresh = record.refresh else { return nil }
        self.init(
            refresh: refresh,
            access: record.access,
            accessEnd: AccessEnd(
                record.accessExpiry ?? record.access.flatMap { Date(expiryOf: $0) },
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
    /// Shows nothing of the tokens.
    var description: String { "OAuthGrant(…)" }

    /// Shows nothing of the tokens.
    var customMirror: Mirror { Mirror(self, children: [:]) }
}
