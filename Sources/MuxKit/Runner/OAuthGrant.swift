import Foundation

/// What the upper layer of an OAuth session holds: a refresh token, and what is known about it.
struct OAuthGrant<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    let refresh: RefreshToken

    /// The access token that came with the refresh token, or was made with it last.
    let access: AccessToken?

    /// When the access token ends; `nil` if the server did not say.
    var accessEnd: AccessEnd?

    /// Whether a sign-in brought it, and not a store or a person.
    var isFromSignIn = false

    /// Whether the server has exchanged another refresh token for this one, and does not accept that one any more.
    ///
    /// Only as long as it is not stored: then the one in the store is of no use.
    var isRotated = false

    /// Whether the server is known to exchange refresh tokens.
    var rotates = false

    /// Where uses of the refresh token wait for each other; what continues a grant shares its lane.
    var lane = AsyncMutex()

    /// The number of the store's record that this is, or comes after.
    var serial: UInt64 = 0

    /// Whether this is what the store has.
    var isStored = false

    /// Whether the store has had it, or one that it continues: others who share the store may know it.
    var wasStored = false
}

/// When an access token ends.
struct AccessEnd: Sendable {
    /// By the clock of this process, which no person sets.
    let moment: Moment

    /// By the time of day, for the next process.
    let date: Date

    /// The end of a token that came now; `nil` if the server did not say, or said what cannot be.
    init?(_ lifetime: Duration?, now: Moment, wallTime: Date) {
        guard let lifetime, lifetime > .zero else { return nil }
        self.moment = now.advanced(by: lifetime)
        self.date = wallTime.addingTimeInterval(lifetime.secondsValue)
    }

    /// The end of a token that another process left; as right as the time of day was then, and is now.
    init?(_ date: Date?, now: Moment, wallTime: Date) {
        guard let date else { return nil }
        self.moment = now.advanced(by: .saturating(seconds: date.timeIntervalSince(wallTime)))
        self.date = date
    }
}

extension OAuthGrant {
    /// Whether the session may be lost if it is used and its successor not stored: the store has it, and the server exchanges it.
    var isAtStake: Bool { self.wasStored && (self.rotates || self.isRotated) }

    /// The grant that a store has.
    init?(_ record: StoredTokens<AccessToken, RefreshToken>.Record, now: Moment, wallTime: Date) {
        guard let refresh = record.refresh else { return nil }
        self.init(
            refresh: refresh,
            access: record.access,
            accessEnd: AccessEnd(
                record.accessExpiry ?? record.access.flatMap { Date(expiryOf: $0) },
                now: now,
                wallTime: wallTime
            ),
            rotates: record.rotates ?? false,
            serial: record.serial ?? 0,
            isStored: true,
            wasStored: true
        )
    }
}

extension OAuthGrant: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the tokens.
    var description: String { "OAuthGrant(…)" }

    /// Shows nothing of the tokens.
    var customMirror: Mirror { Mirror(self, children: [:]) }
}
