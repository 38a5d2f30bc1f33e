public import Foundation

/// The app as an authorization server knows it: RFC 6749, section 2.
///
/// Its description shows the name alone.
public struct OAuthClient: Sendable, Hashable {
    /// How the app proves who it is: RFC 6749, section 2.3.1.
    public enum Authentication: Sendable, Hashable {
        /// Not at all: an app on a person's device keeps no secrets. Use ``PKCE``.
        case none
        /// With this secret in the `Authorization` field.
        case header(secret: String)
        /// With this secret in the body, where a server knows no other way.
        case body(secret: String)
    }

    /// The app's name at the server.
    public var id: String

    /// How the app proves who it is.
    public var authentication: Authentication

    /// Describes an app.
    public init(id: String, authentication: Authentication = .none) {
        self.id = id
        self.authentication = authentication
    }

    /// The parameters that name the app in the body.
    var parameters: [(String, String)] {
        switch self.authentication {
        case .none: [("client_id", self.id)]
        case .body(let secret): [("client_id", self.id), ("client_secret", secret)]
        case .header: []
        }
    }

    /// What names the app in the `Authorization` field; both halves are form-encoded first.
    var credentials: HTTPCredentials? {
        guard case .header(let secret) = self.authentication else { return nil }
        return .basic(user: PercentEncoding.encode(self.id), password: PercentEncoding.encode(secret))
    }
}

extension OAuthClient.Authentication: RedactedDescription {
    /// The way, without the secret.
    public var description: String {
        switch self {
        case .none: "none"
        case .header: "header(…)"
        case .body: "body(…)"
        }
    }
}

extension OAuthClient: RedactedDescription {
    /// The app's name.
    public var description: String { "OAuthClient(\(self.id))" }
}

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
