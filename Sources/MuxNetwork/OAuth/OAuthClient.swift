public import Foundation

/// The app as a client of an authorization server: RFC 6749, section 2.
///
/// Its description contains the identifier alone.
public struct OAuthClient: Sendable, Hashable {
    /// How the app authenticates itself: RFC 6749, section 2.3.1.
    public enum Authentication: Sendable, Hashable {
        /// Not at all, for an app on a person's device, which cannot keep a secret. Use ``PKCE``.
        case none
        /// With this secret in the `Authorization` field.
        case header(secret: String)
        /// With this secret in the body, for servers without the header.
        case body(secret: String)
    }

    /// The app's identifier at the server.
    public var id: String

    /// How the app authenticates itself.
    public var authentication: Authentication

    /// Makes a client.
    public init(id: String, authentication: Authentication = .none) {
        self.id = id
        self.authentication = authentication
    }

    /// The parameters that identify the app in the body.
    var parameters: [(String, String)] {
        switch self.authentication {
        case .none: [("client_id", self.id)]
        case .body(let secret): [("client_id", self.id), ("client_secret", secret)]
        case .header: []
        }
    }

    /// The credentials in the `Authorization` field; both parts are form-encoded first.
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
    /// The app's identifier.
    public var description: String { "OAuthClient(\(self.id))" }
}

/// The tokens that a token endpoint issued: RFC 6749, section 5.1.
///
/// Its description contains no token.
public struct OAuthTokens: Sendable, Hashable {
    /// The access token.
    public var access: OAuthTokens.AccessToken

    /// The refresh token to use from now on; `nil` if the server sent none, which after a refresh means the old one.
    public var refresh: String?

    /// Makes tokens.
    public init(access: OAuthTokens.AccessToken, refresh: String? = nil) {
        self.access = access
        self.refresh = refresh
    }
}

extension OAuthTokens: CustomStringConvertible, CustomReflectable {
    /// The type's name alone.
    public var description: String { "OAuthTokens(…)" }

    /// Empty.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthTokens {
    /// An access token of the type `Bearer`: RFC 6750.
    ///
    /// Its description does not contain the token.
    public struct AccessToken: Sendable, Hashable, Codable {
        /// The token itself.
        public var value: String

        /// When it expires, by this device's clock; `nil` if the server did not say.
        public var expiresAt: Date?

        /// Its scopes; `nil` if the server did not say, which means the requested ones (RFC 6749, section 5.1).
        public var scopes: [String]?

        /// Makes an access token.
        public init(_ value: String, expiresAt: Date? = nil, scopes: [String]? = nil) {
            self.value = value
            self.expiresAt = expiresAt
            self.scopes = scopes
        }
    }
}

extension OAuthTokens.AccessToken: CustomStringConvertible, CustomReflectable {
    /// The type's name alone.
    public var description: String { "OAuthTokens.AccessToken(…)" }

    /// Empty.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthTokens.AccessToken: HTTPToken {
    /// The token as a bearer token: RFC 6750, section 2.1.
    public var headers: HTTPHeaders { self.value.headers }

    /// The same as ``expiresAt``.
    public var expiry: Date? { self.expiresAt }
}
