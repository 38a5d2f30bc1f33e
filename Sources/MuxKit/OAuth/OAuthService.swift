/// The operations of an authorization server, for use by an ``OAuthAccount``.
public protocol OAuthService<AccessToken, RefreshToken>: Sendable {
    /// What authorizes requests.
    associatedtype AccessToken: Codable & Sendable
    /// What makes access tokens.
    associatedtype RefreshToken: Codable & Sendable

    /// Asks the user to sign in.
    ///
    /// - Returns: The tokens of a new session.
    /// - Throws: A ``BadDependencyError`` if the sign-in was refused, or any other error.
    func authorize() async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Asks the user to sign in, for a reason that can be shown; unless implemented, the same as ``authorize()``.
    ///
    /// - Parameter reason: Why a sign-in is needed.
    /// - Returns: The tokens of a new session.
    /// - Throws: A ``BadDependencyError`` if the sign-in was refused, or any other error.
    func authorize(because reason: OAuthStatus.SignInReason) async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Lets the user edit their profile at the server, which issues new tokens for it.
    ///
    /// - Returns: The new tokens.
    /// - Throws: Any error.
    func editProfile() async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Makes an access token with a refresh token.
    ///
    /// - Throws: A ``BadDependencyError`` if the server refuses the token, any other error if a retry may succeed.
    func refresh(_ token: RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>

    /// Ends the session at the server, such as by revoking its tokens (RFC 7009).
    ///
    /// - Throws: Any error; the local session has ended nevertheless.
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
/// **Concurrent calls** share sign-ins and refreshes, as those of ``runner`` do.
public struct OAuthAccount<Service: OAuthService>: Sendable {
    /// Runs tasks with the account's access token.
    public let runner: OAuthDependentRunner<Service.AccessToken, Service.RefreshToken>

    private let service: Service

    /// Makes an account.
    ///
    /// - Parameters:
    ///   - service: The server.
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Keeps processes that share the store from renewing at the same time; `nil` for the store's own.
    ///   - repository: The repository whose session the tokens belong to.
    ///   - policy: Bounds on what is done for one call.
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

    /// Whether there is a session, without a request or a sign-in: see ``OAuthDependentRunner/status``.
    public var status: OAuthStatus {
        get async { await self.runner.status }
    }

    /// The ``status`` over time; ends with the ``runner``.
    public var statuses: OAuthStatus.Changes { self.runner.statuses }

    /// Asks the user to sign in, unless there are tokens already.
    ///
    /// - Throws: ``RunnerError``, such as ``RunnerError/signInFailed(underlying:)`` with what the service threw, or `CancellationError`.
    public func authorize() async throws { try await self.runner.run { _ in .output(()) } }

    /// Lets the user edit their profile, and uses the tokens that the server issues for it.
    ///
    /// - Throws: What the service threw, or ``RunnerError/tokensNotStored(underlying:)``.
    public func editProfile() async throws {
        let tokens = try await self.service.editProfile()
        try await self.runner.set(refresh: tokens.refresh, access: tokens.access)
    }

    /// Renews the access token, however good it is.
    ///
    /// - Throws: What the service threw, ``RunnerError``, or `CancellationError`.
    public func refresh() async throws { try await self.runner.renew() }

    /// Ends the session, first locally, then at the server.
    ///
    /// - Returns: What could not be removed from disk.
    /// - Throws: What the service threw; the local session has ended nevertheless.
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

    /// The refresh token to use from now on, if the server rotated it (RFC 6749, section 6); `nil` to keep the old one.
    public var refresh: RefreshToken?

    /// How long the access token lives (`expires_in`, RFC 6749, section 5.1); `nil` if the server did not say.
    ///
    /// Measured from now on by a monotonic clock. The token is renewed before its end: see ``RunnerPolicy/leeway``.
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

    /// The first access token, if the server issued one; `nil` to obtain it with the refresh token.
    public var access: AccessToken?

    /// How long the access token lives; `nil` if the server did not say.
    public var accessLifetime: Duration?

    /// Describes a sign-in.
    public init(refresh: RefreshToken, access: AccessToken? = nil, accessLifetime: Duration? = nil) {
        self.refresh = refresh
        self.access = access
        self.accessLifetime = accessLifetime
    }
}

extension OAuthRenewal: CustomStringConvertible, CustomReflectable {
    /// Shows nothing of the tokens.
    public var description: String { "OAuthRenewal(…)" }

    /// Shows nothing of the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthSignIn: CustomStringConvertible, CustomReflectable {
    /// Shows nothing of the tokens.
    public var description: String { "OAuthSignIn(…)" }

    /// Shows nothing of the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
