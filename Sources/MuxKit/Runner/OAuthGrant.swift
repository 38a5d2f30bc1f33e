/// What the upper layer of an OAuth session holds: a refresh token, and what is known about it.
struct OAuthGrant<AccessToken: Sendable, RefreshToken: Sendable>: Sendable {
    let refresh: RefreshToken

    /// The access token that came with the refresh token, or was made with it last.
    let access: AccessToken?

    /// Whether the server has exchanged another refresh token for this one, and does not accept that one any more.
    let isRotated: Bool

    /// Whether this is what the store has.
    var isStored: Bool
}
