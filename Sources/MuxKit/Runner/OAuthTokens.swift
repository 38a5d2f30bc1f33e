/// What a refresh of the access token brought.
public struct OAuthRenewal<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The new access token.
    public var access: AccessToken

    /// The refresh token to use from now on, if the server exchanged it (RFC 6749, section 6); `nil` to keep the old one.
    public var refresh: RefreshToken?

    /// Describes a renewal.
    public init(access: AccessToken, refresh: RefreshToken? = nil) {
        self.access = access
        self.refresh = refresh
    }
}

/// What a sign-in brought.
public struct OAuthSignIn<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    /// The refresh token of the new session.
    public var refresh: RefreshToken

    /// The first access token, if the server gave one with it; `nil` to have it made with the refresh token.
    public var access: AccessToken?

    /// Describes a sign-in.
    public init(refresh: RefreshToken, access: AccessToken? = nil) {
        self.refresh = refresh
        self.access = access
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
