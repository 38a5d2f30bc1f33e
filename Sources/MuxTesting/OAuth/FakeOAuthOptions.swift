/// The rules of a ``FakeOAuthServer``.
public struct FakeOAuthOptions: Sendable, Hashable {
    /// How long an access token lives.
    public var accessLifetime: Duration = .seconds(300)

    /// How long a refresh token lives; `nil` for ever.
    public var refreshLifetime: Duration?

    /// Whether a refresh hands out a new refresh token and spends the old one.
    public var rotatesRefreshTokens = true

    /// Whether a spent refresh token is exchanged again as long as nobody has used the one that it was exchanged for: the
    /// reply may have been lost.
    public var forgivesLostReplies = false

    /// Whether every new access token ends the user's earlier ones: the trouble of Alice and Bob.
    public var newAccessTokenKillsPrevious = false

    /// How long a sign-in or refresh takes before the server decides; a caller cancelled by then changed nothing.
    public var latency: Duration = .zero

    /// How long the answer takes after the server has decided; a caller cancelled by then has lost its tokens.
    public var replyLatency: Duration = .zero

    /// The defaults.
    public init() {}
}
