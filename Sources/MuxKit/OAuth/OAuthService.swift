/// The operations of an authorization server, for use by an ``OAuthAccount``.
public protocol OAuthService<AccessToken, RefreshToken>: Sendable {
    /// The token that authorizes requests.
    associatedtype AccessToken: Codable & Sendable
    /// The token that obtains access tokens.
    associatedtype RefreshToken: Codable & Sendable

    /// Asks the user to sign in.
    ///
    /// - Returns: The tokens of a new session.
    /// - Throws: A ``BadDependencyError`` if the sign-in was refused, or any other error.
    func authorize() async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Asks the user to sign in, for a reason that the app can show.
    ///
    /// The default implementation calls ``authorize()``.
    ///
    /// - Parameter reason: The reason of the sign-in.
    /// - Returns: The tokens of a new session.
    /// - Throws: A ``BadDependencyError`` if the sign-in was refused, or any other error.
    func authorize(because reason: OAuthStatus.SignInReason) async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Lets the user edit their profile at the server, which issues new tokens for the new profile.
    ///
    /// - Returns: The new tokens.
    /// - Throws: Any error.
    func editProfile() async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Makes an access token with a refresh token.
    ///
    /// - Throws: A ``BadDependencyError`` if the server refuses the token, any other error if a retry may
    ///   succeed.
    func refresh(_ token: RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>

    /// Ends the session at the server, such as by a revocation of the tokens (RFC 7009).
    ///
    /// - Throws: Any error; the local session has ended in any case.
    func logout() async throws
}

extension OAuthService {
    /// The same as ``authorize()``.
    public func authorize(
        because reason: OAuthStatus.SignInReason
    ) async throws -> OAuthSignIn<AccessToken, RefreshToken> {
        try await self.authorize()
    }
}

/// A user's account at a server: sign-in, profile, refresh and sign-out.
///
/// ```swift
/// let account = OAuthAccount(MyService(), store: .protectedFile(named: "session"))
/// try await account.authorize()
/// let page = try await account.runner.run { access in … }
/// await account.logout()
/// ```
///
/// **Concurrent calls** share sign-ins and refreshes, as calls of ``runner`` do.
public struct OAuthAccount<Service: OAuthService>: Sendable {
    /// Runs tasks with the account's access token.
    public let runner: OAuthDependentRunner<Service.AccessToken, Service.RefreshToken>

    private let service: Service

    /// Makes an account.
    ///
    /// - Parameters:
    ///   - service: The server.
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Prevents simultaneous renewals by processes that share the store; `nil` for the lease of
    ///     the store.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: The limits of one call.
    public init(
        _ service: Service,
        store: any TokenStore = .inMemory,
        lease: (any MuxLease)? = nil,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall
    ) {
        self.service = service
        self.runner = OAuthDependentRunner(
            store: store,
            lease: lease,
            repository: repository,
            policy: policy,
            refreshAccess: { try await service.refresh($0) },
            signIn: { reason in try await service.authorize(because: reason) }
        )
    }

    /// Whether a session exists, without a request or a sign-in: see ``OAuthDependentRunner/status``.
    public var status: OAuthStatus {
        get async { await self.runner.status }
    }

    /// The ``status`` over time; ends with the ``runner``.
    public var statuses: OAuthStatus.Changes { self.runner.statuses }

    /// Asks the user to sign in, unless tokens are already present.
    ///
    /// - Throws: ``RunnerError``, such as ``RunnerError/signInFailed(underlying:)`` with the error of the
    ///   service, or `CancellationError`.
    public func authorize() async throws { try await self.runner.run { _ in .output(()) } }

    /// Lets the user edit their profile, and uses the tokens that the server issues for the new profile.
    ///
    /// - Throws: The error of the service, or ``RunnerError/tokensNotStored(underlying:)``.
    public func editProfile() async throws {
        let tokens = try await self.service.editProfile()
        try await self.runner.set(refresh: tokens.refresh, access: tokens.access)
    }

    /// Renews the access token, even if the present token is good.
    ///
    /// - Throws: The error of the service, ``RunnerError``, or `CancellationError`.
    public func refresh() async throws { try await self.runner.renew() }

    /// Ends the session, first locally, then at the server.
    ///
    /// - Returns: The failed removals from disk.
    /// - Throws: The error of the service; the local session has ended in any case.
    @discardableResult
    public func logout() async throws -> MuxRepository.ClearReport {
        let report = await self.runner.signOut()
        try await self.service.logout()
        return report
    }
}

/// The outcome of a refresh of the access token.
public struct OAuthRenewal<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The new access token.
    public var access: AccessToken

    /// The new refresh token after a rotation (RFC 6749, section 6); `nil` to keep the old token.
    public var refresh: RefreshToken?

    /// The lifetime of the access token; `nil` if the server sent no lifetime.
    ///
    /// The server sends the lifetime as `expires_in` (RFC 6749, section 5.1). The lifetime is measured from
    /// now on by a monotonic clock. The token is renewed before its end: see ``RunnerPolicy/leeway``.
    public var accessLifetime: Duration?

    /// Describes a renewal.
    public init(access: AccessToken, refresh: RefreshToken? = nil, accessLifetime: Duration? = nil) {
        self.access = access
        self.refresh = refresh
        self.accessLifetime = accessLifetime
    }
}

/// The outcome of a sign-in.
public struct OAuthSignIn<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The refresh token of the new session.
    public var refresh: RefreshToken

    /// The first access token; `nil` to obtain an access token with ``refresh``.
    public var access: AccessToken?

    /// The lifetime of the access token; `nil` if the server sent no lifetime.
    public var accessLifetime: Duration?

    /// Describes a sign-in.
    public init(refresh: RefreshToken, access: AccessToken? = nil, accessLifetime: Duration? = nil) {
        self.refresh = refresh
        self.access = access
        self.accessLifetime = accessLifetime
    }
}

extension OAuthRenewal: CustomStringConvertible, CustomReflectable {
    /// Hides the tokens.
    public var description: String { "OAuthRenewal(…)" }

    /// Hides the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthSignIn: CustomStringConvertible, CustomReflectable {
    /// Hides the tokens.
    public var description: String { "OAuthSignIn(…)" }

    /// Hides the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
