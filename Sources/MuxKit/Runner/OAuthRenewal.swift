/// What a refresh of the access token brought.
public struct OAuthRenewal<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The new access token.
    public var access: AccessToken

    /// The refresh token to use from now on, if the server exchanged it (RFC 6749, section 6); `nil` to keep the old one.
    public var refresh: RefreshToken?

    /// How long the access token lives (`expires_in`, RFC 6749, section 5.1); `nil` if the server did not say.
    ///
    /// Counted from now on, by a clock that nobody sets. The token is renewed a little before its end: see ``RunnerPolicy/leeway``.
    public var accessLifetime: Duration?

    /// Describes a renewal.
    public init(access: AccessToken, refresh: RefreshToken? = nil, accessLifetime: Duration? = nil) {
        self.access = access
        self.refresh = refresh
        self.accessLifetime = accessLifetime
    }
}

/// What a sign-in brought.
public struct OAuthSignIn<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The refresh token of the new session.
    public var refresh: RefreshToken

    /// The first access token, if the server gave one with it; `nil` to have it made with the refresh token.
    public var access: AccessToken?

    /// How long the access token lives, if there is one and the server said.
    public var accessLifetime: Duration?

    /// Describes a sign-in.
    public init(refresh: RefreshToken, access: AccessToken? = nil, accessLifetime: Duration? = nil) {
        self.refresh = refresh
        self.access = access
        self.accessLifetime = accessLifetime
    }
}

extension OAuthRenewal: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the tokens.
    public var description: String { "OAuthRenewal(…)" }

    /// Shows nothing of the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthSignIn: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the tokens.
    public var description: String { "OAuthSignIn(…)" }

    /// Shows nothing of the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
