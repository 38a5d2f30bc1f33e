public import Foundation

/// An access token of the type `Bearer`: RFC 6750.
///
/// Its description shows nothing of the token.
public struct OAuthAccessToken: Sendable, Hashable, Codable {
    /// The token itself.
    public var value: String

    /// When it stops being good, by this device's clock; `nil` if the server did not say.
    public var expiresAt: Date?

    /// What it permits; `nil` if the server did not say, which means what was asked for (RFC 6749, section 5.1).
    public var scopes: [String]?

    /// Describes an access token.
    public init(_ value: String, expiresAt: Date? = nil, scopes: [String]? = nil) {
        self.value = value
        self.expiresAt = expiresAt
        self.scopes = scopes
    }
}

extension OAuthAccessToken: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the token.
    public var description: String { "OAuthAccessToken(…)" }

    /// Shows nothing of the token.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthAccessToken: HTTPToken {
    /// The token as a bearer token: RFC 6750, section 2.1.
    public var headers: HTTPHeaders { self.value.headers }

    /// The same as ``expiresAt``.
    public var expiry: Date? { self.expiresAt }
}
