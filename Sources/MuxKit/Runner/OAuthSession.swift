/// The two layers of an ``OAuthDependentRunner``.
///
/// They are one mechanism used twice. The lower layer holds the access token; its update is a task that runs on the upper one,
/// which holds the refresh token, and whose update is the sign-in. An access token belongs to the grant it was made with.
@usableFromInline
final class OAuthSession<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: SessionParticipant {
    private let tokenManager: OAuthTokenManager<AccessToken, RefreshToken>
    private let upper: RunnerCore<OAuthGrant<AccessToken, RefreshToken>>
    @usableFromInline let lower: RunnerCore<AccessToken>

    init(tokenManager: OAuthTokenManager<AccessToken, RefreshToken>, policy: RunnerPolicy, repository: MuxRepository) {
        // Never cancelled: the server may have exchanged the refresh token already. The vault limits the time of a refresh;
        // a person may take as long as they like.
        var policy = policy
        policy.cancelsUnwantedUpdates = false
        policy.updateTimeout = nil
        let upper = RunnerCore<OAuthGrant<AccessToken, RefreshToken>>(
            policy: policy,
            observer: repository.observer,
            time: repository.time,
            wallTime: repository.wallTime,
            spawn: repository.spawn,
            mayWait: { tokenManager.storeLane.access == .queued },
            update: { refused, session in try await tokenManager.grant(insteadOf: refused?.value, session: session) }
        )
        self.tokenManager = tokenManager
        self.upper = upper
        self.lower = RunnerCore(
            policy: policy,
            observer: repository.observer,
            time: repository.time,
            wallTime: repository.wallTime,
            spawn: repository.spawn,
            parent: upper.epochs,
            mayWait: { tokenManager.storeLane.access == .queued },
            update: { refused, _ in
                try await upper.run { held, _ in
                    try await tokenManager.access(with: held, of: upper, insteadOf: refused)
                }
            }
        )
    }

    /// Runs `task` with an access token.
    nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration,
        _ task: (AccessToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run(from: self.lower.begun(timeout), task)
    }

    /// Goes on with a call.
    @inlinable
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: RunnerCore<AccessToken>.PendingCall,
        _ task: (AccessToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.lower.run(from: call) { held, _ in try await task(held.value) }
    }

    /// Has the access token renewed.
    nonisolated(nonsending) func renewed() async throws -> AccessToken {
        try await self.lower.renewed().value
    }

    /// What happens to the access token from now on.
    var events: AsyncStream<RunnerEvent> { self.lower.watchers.stream }

    /// Takes over tokens that were obtained elsewhere, and stores them.
    nonisolated(nonsending) func set(refresh: RefreshToken, access: AccessToken?) async throws {
        try await self.tokenManager.set(refresh: refresh, access: access, upper: self.upper, lower: self.lower)
    }

    /// Takes over an access token that was obtained elsewhere.
    func set(access: AccessToken) {
        self.lower.set(access)
    }

    // MARK: - SessionParticipant

    /// The vault's: it is what finds out that a session was ended elsewhere.
    var identity: ObjectIdentifier { ObjectIdentifier(self.tokenManager) }

    var handsOutTokens: Bool { true }

    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let lower = self.lower.ended(.signOut, isTold: isTold)
        self.tokenManager.sessionEnded()
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
