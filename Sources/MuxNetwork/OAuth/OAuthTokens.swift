/// What a token endpoint handed out: RFC 6749, section 5.1.
///
/// Its description shows nothing of the tokens.
public struct OAuthTokens: Sendable, Hashable {
    /// The access token.
    public var access: OAuthAccessToken

    /// The refresh token to use from now on; `nil` if the server gave none, which after a refresh means the old one.
    public var refresh: String?

    /// Describes tokens.
    public init(access: OAuthAccessToken, refresh: String? = nil) {
        self.access = access
        self.refresh = refresh
    }
}

extension OAuthTokens: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the tokens.
    public var description: String { "OAuthTokens(…)" }

    /// Shows nothing of the tokens.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
