/// Runs tasks with an access token, which it renews with a refresh token, which it gets from a sign-in.
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
/// **Concurrent calls.** At most one refresh and at most one sign-in run, however many tasks report at once that their
/// token is bad; all of them continue with the new one. A refresh token is used by one refresh at a time.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError`; refreshes and sign-ins go on without it.
///
/// **After a failure.** An error thrown by `refreshAccess` (no network, 503, time-out) goes to all callers that wait, and the next
/// call tries again; it never leads to a sign-in. Only a refusal of the refresh token does: a ``BadDependencyError``. What `signIn`
/// throws goes to all callers that wait, in a ``RunnerError/signInFailed(underlying:)``; no retry policy asks a person again, unless that
/// error says that it is transient.
///
/// **Broken folders** stop only what needs them: tokens that are good are used, and tokens that cannot be stored are kept and
/// renewed in memory. That is reported once, as ``MuxEvent/Kind/storageFailed``. A refresh token that is stored, and that the
/// server rotates, is not sent then: losing its successor would end the session.
///
/// **On disk.** Tokens are kept in the store. Before a refresh token is sent, the attempt is recorded there, and a rotated
/// refresh token is stored before any caller gets the access token that came with it. After a crash in between, the next
/// start tries the stored refresh token, and asks for a sign-in only if the server refuses it.
///
/// **Several processes** that share a store make one refresh between them: the holder of the lease reads the store first, and
/// uses newer tokens of another process. A process that is killed costs the others the rest of its lease.
///
/// **Status.** ``status`` says whether there is a session, without a request and without a sign-in, and ``statuses`` follows it. `signIn`
/// may take a parameter, which says why it is called.
///
/// **Sign-out** is one with the repository's: ``signOut()`` is ``MuxRepository/clearAll()``, and either ends the other.
public final actor OAuthDependentRunner<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>:
    DependencyRunner
{
    /// The access token.
    public typealias Dependency = AccessToken

    @usableFromInline nonisolated let session: OAuthSession<AccessToken, RefreshToken>
    private nonisolated let repository: MuxRepository

    /// The repository whose session the tokens belong to.
    public nonisolated var sessionRepository: MuxRepository? { self.repository }

    /// Makes a runner.
    ///
    /// Nothing is read, and no sign-in starts, before the first call.
    ///
    /// - Parameters:
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Keeps processes that share the store from renewing tokens at the same time; `nil` for the store's own, if
    ///     it has one, as a ``ProtectedFileTokenStore`` does.
    ///   - repository: The repository whose session the tokens belong to.
    ///   - policy: Bounds for each of the two layers; by default one update a call.
    ///   - refreshAccess: Makes an access token with a refresh token. Throws a ``BadDependencyError`` if the server refuses the
    ///     refresh token (`invalid_grant`, RFC 6749, section 5.2), anything else if it is worth another try.
    ///   - signIn: Asks the user, and returns the tokens of a new session. It receives the reason.
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

    /// Makes a runner whose sign-in does not depend on the reason.
    ///
    /// - Parameters:
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Keeps processes that share the store from renewing tokens at the same time; `nil` for the store's own.
    ///   - repository: The repository whose session the tokens belong to.
    ///   - policy: Bounds for each of the two layers; by default one update a call.
    ///   - refreshAccess: Makes an access token with a refresh token.
    ///   - signIn: Asks the user, and returns the tokens of a new session.
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

    /// Runs `task` with an access token, and again with a new one if the task reports that it is bad.
    ///
    /// - Parameter task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a report, too.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the refresh threw, ``RunnerError`` (``RunnerError/signInFailed(underlying:)`` with what the sign-in threw),
    ///   or `CancellationError`.
    /// - Complexity: O(1), and no suspension of its own, if there is an access token and it is good.
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

    /// Runs `task` as ``run(_:)`` does, within a time.
    ///
    /// - Parameters:
    ///   - timeout: How long the call may wait for tokens and start further runs. A running task is not interrupted, and a
    ///     refresh goes on. A token that is only renewed ahead of its end is used when the time is over.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a report, too.
    /// - Returns: What the task returned.
    /// - Throws: What the task or a closure of the runner threw, ``RunnerError``, or `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration,
        _ task: (AccessToken) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.session.lower.run(timeout: timeout) { held, _ in try await task(held.value) }
    }

    /// Renews the access token, however good it is; callers at the same time share one refresh.
    ///
    /// Makes exactly one request to the token server, also right after a launch, as stored tokens are not new, and right after
    /// tokens were set. Without a refresh token there is a sign-in first; an access token that it brings is the new one.
    ///
    /// - Returns: The new access token.
    /// - Throws: What a closure of the runner threw, ``RunnerError``, or `CancellationError`.
    @discardableResult
    public nonisolated(nonsending) func renew() async throws -> AccessToken {
        try await self.session.lower.renewed().value
    }

    /// The same as ``renew()``.
    ///
    /// - Returns: The new access token.
    /// - Throws: What ``renew()`` throws.
    @available(*, deprecated, renamed: "renew()")
    @discardableResult
    public nonisolated(nonsending) func refresh() async throws -> AccessToken { try await self.renew() }

    /// Whether there is a session: tokens in memory or in the store that the server has not refused.
    ///
    /// Sends nothing and signs nobody in. It reads the store, so that it is right after a launch, and after another process has signed in
    /// or out. An access token that has expired is no matter, as the refresh token may renew it. Only the server knows whether it accepts
    /// the tokens: ``OAuthStatus/signedIn`` means that it has not refused them yet.
    public nonisolated var status: OAuthStatus {
        get async { await self.session.status() }
    }

    /// The ``status`` over time: the present one, then each that differs from the one before; ends with the runner.
    ///
    /// ```swift
    /// for await status in oauth.statuses {
    ///     isWelcomeShown = status == .signedOut
    /// }
    /// ```
    public nonisolated var statuses: OAuthStatus.Changes { self.session.statuses }

    /// The events of the access token from now on, for one listener; ends with the runner.
    ///
    /// Keeps the newest 256 events for a slow listener.
    public nonisolated var events: AsyncStream<RunnerEvent> { self.session.lower.watchers.stream }

    /// Takes over tokens that were obtained elsewhere, and stores them.
    ///
    /// Callers that wait for an update get the new access token, or one made with the new refresh token.
    ///
    /// - Parameters:
    ///   - refresh: The refresh token.
    ///   - access: An access token, if there is one.
    /// - Throws: ``RunnerError/tokensNotStored(underlying:)`` if the tokens could not be stored; they are used nevertheless.
    public nonisolated(nonsending) func set(refresh: RefreshToken, access: AccessToken? = nil) async throws {
        let (upper, lower) = (self.session.upper, self.session.lower)
        try await self.session.tokenManager.set(refresh: refresh, access: access, upper: upper, lower: lower)
    }

    /// Takes over an access token that was obtained elsewhere, without a refresh token for it.
    ///
    /// It is kept in memory. Callers that wait for an update get it.
    ///
    /// - Parameter access: The access token.
    public nonisolated func set(access: AccessToken) {
        self.session.lower.set(access)
    }

    /// Signs out: ``MuxRepository/clearAll()`` of the runner's repository.
    ///
    /// Running calls end with ``RunnerError/signedOut`` when they wait or report; the outcome of a running refresh is dropped,
    /// and a late refusal starts no sign-in. The next call signs in.
    ///
    /// - Returns: What could not be removed from disk; it is never read again.
    @discardableResult
    public nonisolated(nonsending) func signOut() async -> MuxRepository.ClearReport {
        await self.repository.clearAll()
    }
}
