/// The outcome of a refresh of the access token.
public struct OAuthRenewal<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The new access token.
    public var access: AccessToken

    /// The new refresh token after a rotation (RFC 6749, section 6); `nil` to keep the old token.
    public var refresh: RefreshToken?

    /// The lifetime of the access token; `nil` if the server sent no lifetime.
    ///
    /// The server sends the lifetime as `expires_in` (RFC 6749, section 5.1). The lifetime is measured with a
    /// monotonic clock from the end of the refresh. Without a lifetime, the expiry of an
    /// ``ExpiringDependency`` applies. The token is renewed before its end: see ``RunnerPolicy/leeway``.
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
    /// The first access token; `nil` to obtain an access token with ``refresh``.
    public var access: AccessToken?

    /// The refresh token of the new session.
    public var refresh: RefreshToken

    /// The lifetime of the access token; `nil` if the server sent no lifetime.
    public var accessLifetime: Duration?

    /// Describes a sign-in.
    public init(access: AccessToken? = nil, refresh: RefreshToken, accessLifetime: Duration? = nil) {
        self.access = access
        self.refresh = refresh
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
