import Foundation

/// What the upper layer of an OAuth session holds: a refresh token, and what is known about it.
struct OAuthGrant<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    let refresh: RefreshToken

    /// The access token that came with the refresh token, or was made with it last.
    let access: AccessToken?

    /// When the access token ends, by the time of day; `nil` if nobody said.
    var accessExpiry: Date?

    /// Whether the server has exchanged another refresh token for this one, and does not accept that one any more.
    ///
    /// Only as long as it is not stored: then the one in the store is of no use.
    var isRotated = false

    /// Whether the server is known to exchange refresh tokens.
    var rotates = false

    /// Where uses of the refresh token wait for each other; what continues a grant shares its lane.
    var lane = SerialLane()

    /// The number of the store's record that this is, or comes after.
    var serial: UInt64 = 0

    /// Whether this is what the store has.
    var isStored = false
}

extension OAuthGrant {
    /// The grant that a store has.
    init?(_ record: StoredTokens<AccessToken, RefreshToken>.Record) {
        guard let refresh = record.refresh else { return nil }
        self.init(
            refresh: refresh,
            access: record.access,
            accessExpiry: record.accessExpiry,
            rotates: record.rotates ?? false,
            serial: record.serial ?? 0,
            isStored: true
        )
    }
}

extension OAuthGrant: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the tokens.
    var description: String { "OAuthGrant(…)" }

    /// Shows nothing of the tokens.
    var customMirror: Mirror { Mirror(self, children: [:]) }
}
