/// Runs tasks with an access token; obtains tokens by refreshes and sign-ins.
///
/// ```swift
/// let oauth = OAuthDependentRunner<String, String>(
///     store: .protectedFile(named: "session"),
///     refreshAccess: { refresh in try await api.refresh(refresh) },
///     signIn: { try await ui.askForPassword() }
/// )
/// let page = try await oauth.run { access in
///     let reply = try await api.page(token: access)
///     return reply.status == 401 ? .badDependency : .output(reply.body)
/// }
/// ```
///
/// A refresh renews the access token with the refresh token. A sign-in obtains the refresh token.
///
/// **Concurrent calls.** All tasks that report a bad token at the same time share one refresh, or one
/// sign-in, and continue with the new token. A runner never sends one refresh token in two refreshes at the
/// same time.
///
/// **Cancellation.** A cancelled caller that waits for a token throws `CancellationError` at once; refreshes
/// and sign-ins continue.
///
/// **After a failure.** If `refreshAccess` throws (no network, 503, time-out), the callers that need the new
/// token get the error. A later call tries again, except during the pauses of a ``DependentRunner``. A
/// sign-in starts only if usable tokens are missing, or if `refreshAccess` throws a ``BadDependencyError``:
/// the server has refused the refresh token. If `signIn` throws, all waiting callers get the error in a
/// ``RunnerError/signInFailed(underlying:)``; a ``CriticalError`` instead ends all calls. A retry of the call
/// does not repeat a failed sign-in, unless the error of `signIn` is a transient ``RetryableError`` or a
/// connectivity failure.
///
/// **With a folder that cannot be used**, calls with good tokens succeed. Tokens that cannot be stored are
/// kept and renewed in memory. The runner reports the problem as ``MuxEvent/Kind/storageFailed``, and reports
/// a problem of the same kind again only after the problem was solved. If the store or the lease cannot be
/// written, a stored refresh token is not sent to a server that is known to rotate refresh tokens: the loss
/// of the successor would end the session. If the successor of a stored refresh token cannot be stored, calls
/// that need the new access token throw ``RunnerError/tokensNotStored(underlying:)`` until a save succeeds.
///
/// **On disk.** The store keeps the tokens. Before a refresh token is sent, the attempt is recorded in the
/// store. A rotated refresh token is stored before any caller gets the new access token. After a crash
/// between these two writes, a later launch can send the stored refresh token again, and signs in only if the
/// server refuses the token. For a failure of the store, see ``RunnerError/tokensNotStored(underlying:)``.
///
/// **Several processes** with the same store and lease share one refresh: the holder of the lease reads the
/// store first, and uses newer tokens of another process. If a process is killed while holding the lease,
/// other processes wait for the remaining time of the lease.
///
/// **Status.** ``status`` returns whether a session exists, without a request and without a sign-in;
/// ``statuses`` is the sequence of the status values.
///
/// **Sign-out.** The runner and the repository sign out together: ``signOut()`` is
/// ``MuxRepository/clearAll()``.
public final actor OAuthDependentRunner<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>:
    DependencyRunner
{
    /// The access token.
    public typealias Dependency = AccessToken

    @usableFromInline nonisolated let session: OAuthSession<AccessToken, RefreshToken>
    private nonisolated let repository: MuxRepository

    /// The repository of the tokens' session.
    public nonisolated var sessionRepository: MuxRepository? { self.repository }

    /// Makes a runner.
    ///
    /// The runner reads no token before the first use.
    ///
    /// - Parameters:
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Prevents simultaneous renewals by processes that share the store; `nil` for the lease of
    ///     the store, if the store has a lease, as a ``ProtectedFileTokenStore`` has.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: The limits of the refreshes, and separately of the sign-ins; by default one of each kind
    ///     per call.
    ///   - refreshAccess: Makes an access token with a refresh token. Throws a ``BadDependencyError`` if the
    ///     server refuses the refresh token (`invalid_grant`, RFC 6749, section 5.2), and any other error if
    ///     another attempt may succeed.
    ///   - signIn: Asks the user to sign in, and returns the tokens of a new session. The parameter is the
    ///     reason.
    public init(
        store: any TokenStore = .inMemory,
        lease: (any MuxLease)? = nil,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall,
        refreshAccess:
            @escaping @Sendable @concurrent (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>,
        signIn:
            @escaping @Sendable @concurrent (_ reason: OAuthStatus.SignInReason) async throws -> OAuthSignIn<
                AccessToken, RefreshToken
            >
    ) {
        self.repository = repository
        let time = repository.time
        let tokenManager = OAuthTokenManager(
            store: store,
            lease: lease ?? store.lease,
            policy: policy,
            repository: repository,
            refreshAccess: { token in try await policy.retrying(time) { try await refreshAccess(token) } },
            signIn: signIn
        )
        self.session = OAuthSession(tokenManager: tokenManager, policy: policy, repository: repository)
        repository.attach(self.session)
    }

    /// Makes a runner with a sign-in that does not depend on the reason.
    ///
    /// - Parameters:
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Prevents simultaneous renewals by processes that share the store; `nil` for the lease of
    ///     the store.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: The limits of the refreshes, and separately of the sign-ins; by default one of each kind
    ///     per call.
    ///   - refreshAccess: Makes an access token with a refresh token.
    ///   - signIn: Asks the user to sign in, and returns the tokens of a new session.
    public init(
        store: any TokenStore = .inMemory,
        lease: (any MuxLease)? = nil,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall,
        refreshAccess:
            @escaping @Sendable @concurrent (RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>,
        signIn: @escaping @Sendable @concurrent () async throws -> OAuthSignIn<AccessToken, RefreshToken>
    ) {
        self.init(
            store: store,
            lease: lease,
            repository: repository,
            policy: policy,
            refreshAccess: refreshAccess,
            signIn: { _ in try await signIn() }
        )
    }

    /// Runs `task` with an access token, and again with a new token if the task reports a bad token.
    ///
    /// - Parameter task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` reports a
    ///   bad token, too.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task or of the refresh, ``RunnerError``
    ///   (``RunnerError/signInFailed(underlying:)`` with the error of the sign-in),
    ///   ``MuxError/fetchCancelled`` if the refresh was cancelled, or `CancellationError`.
    /// - Complexity: O(1), without an additional suspension, if no update is necessary.
    @inlinable
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (AccessToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        switch try await self.session.lower.firstTry(task) {
        case .output(let output): return output
        case .unfinished(let call):
            return try await self.session.lower.run(from: call) { held, _ in try await task(held.value) }
        }
    }

    /// Runs `task` as ``run(_:)`` does, within a time limit.
    ///
    /// - Parameters:
    ///   - timeout: The time in which the call may wait for tokens and run `task` again. A running task is
    ///     not interrupted, and a running refresh continues. If the call waits only for an early renewal, the
    ///     call uses the current token after the time-out.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` reports a bad
    ///     token, too.
    /// - Returns: The output of the task.
    /// - Throws: The errors of ``run(_:)``.
    public nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration,
        _ task: (AccessToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.session.lower.run(timeout: timeout) { held, _ in try await task(held.value) }
    }

    /// Renews the access token, even if the current token is good; simultaneous callers share one refresh.
    ///
    /// A stored access token, or an access token that was set before the call, does not replace the refresh.
    /// Without a refresh token, or if the server refuses the refresh token, a sign-in runs; if the sign-in
    /// returns an access token, no further refresh is sent.
    ///
    /// - Returns: The new access token.
    /// - Throws: The error of the refresh, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    @discardableResult
    public nonisolated(nonsending) func renew() async throws -> AccessToken {
        try await self.session.lower.renew().value
    }

    /// Whether a session exists: tokens in memory or in the store, not refused by the server.
    ///
    /// Sends no request and starts no sign-in. With a lease, the store is read even if tokens are in memory,
    /// so the status includes sign-ins and sign-outs of other processes. Without a lease, tokens in memory
    /// decide. With a refresh token, an expired access token does not matter, because the refresh token may
    /// renew the access token. Only the server can decide whether the tokens are valid:
    /// ``OAuthStatus/signedIn`` means that the server has not refused the tokens yet.
    public nonisolated var status: OAuthStatus {
        get async { await self.session.status() }
    }

    /// The current ``status``, then each change; ends when the runner is released.
    ///
    /// ```swift
    /// for await status in oauth.statuses {
    ///     isWelcomeShown = status == .signedOut
    /// }
    /// ```
    public nonisolated var statuses: OAuthStatus.Changes { self.session.statuses }

    /// A new stream of the events of the access token, for one listener; ends when the runner is released.
    ///
    /// The stream begins with the first event after the read of this property. The stream buffers the newest
    /// 256 events for a slow listener.
    public nonisolated var events: AsyncStream<RunnerEvent> { self.session.lower.watchers.stream }

    /// Replaces the tokens with tokens from outside the runner, and stores the new tokens.
    ///
    /// Callers that wait for an update get the new access token, or an access token made with the new refresh
    /// token. If `refresh` is already the current refresh token, and the server has not refused the refresh
    /// token, `access` is kept in memory only.
    ///
    /// - Parameters:
    ///   - access: An access token; `nil` to obtain an access token with `refresh`.
    ///   - refresh: The refresh token.
    /// - Throws: ``RunnerError/tokensNotStored(underlying:)`` if the tokens could not be stored; the runner
    ///   still uses the tokens. Another ``RunnerError``, such as after a sign-out during the call, or for a
    ///   call from inside the store.
    public nonisolated(nonsending) func set(access: AccessToken? = nil, refresh: RefreshToken) async throws {
        let (upper, lower) = (self.session.upper, self.session.lower)
        try await self.session.tokenManager.set(access: access, refresh: refresh, upper: upper, lower: lower)
    }

    /// Replaces the tokens with the tokens of `signIn`, as ``set(access:refresh:)`` does.
    ///
    /// - Throws: The error of `signIn` or of ``set(access:refresh:)``; ``RunnerError/signedOut`` if the
    ///   session ended during `signIn`.
    package nonisolated(nonsending) func set(
        _ signIn: () async throws -> OAuthSignIn<AccessToken, RefreshToken>
    ) async throws {
        let (upper, lower) = (self.session.upper, self.session.lower)
        let session = upper.session
        let tokens = try await signIn()
        guard upper.session == session else { throw RunnerError.signedOut }
        try await self.session.tokenManager.set(
            access: tokens.access,
            refresh: tokens.refresh,
            lifetime: tokens.accessLifetime,
            upper: upper,
            lower: lower
        )
    }

    /// Replaces the access token with a token from outside the runner, for a token without a refresh token.
    ///
    /// The token is kept in memory only. Callers that wait for an update get the token.
    ///
    /// - Parameter access: The access token.
    public nonisolated func set(access: AccessToken) {
        self.session.lower.set(access)
    }

    /// Signs out: ``MuxRepository/clearAll()`` of the runner's repository.
    ///
    /// A running call throws ``RunnerError/signedOut`` as soon as the call waits for a token or its task
    /// reports a bad token: a late report starts no sign-in. The result of a running refresh is dropped. The
    /// next call signs in. A refused sign-out, such as by an outbox, has no effect.
    ///
    /// - Returns: The failures. Unless the sign-out was refused, the session has ended in this process, which
    ///   never reads the remaining data again. See ``MuxRepository/clearAll()`` for later launches.
    @discardableResult
    public nonisolated(nonsending) func signOut() async -> MuxRepository.ClearReport {
        await self.repository.clearAll()
    }
}
