/// A pair of tokens as ``FakeOAuthServer`` hands them out.
public struct FakeTokens: Sendable, Hashable {
    /// The access token.
    public var access: String

    /// The refresh token.
    public var refresh: String

    /// How long the access token lives.
    public var expiresIn: Duration

    /// A pair of tokens.
    public init(access: String, refresh: String, expiresIn: Duration) {
        self.access = access
        self.refresh = refresh
        self.expiresIn = expiresIn
    }
}
