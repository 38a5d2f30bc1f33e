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

    /// The refresh token to use from now on; `nil` if the server sent none or an empty one, which after a refresh means the old one.
    public var refresh: String?

    /// The other fields of the reply: ``AccessToken/fields`` of ``access``.
    public var fields: [String: JSONValue] { self.access.fields }

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
    /// A bearer token: RFC 6750.
    ///
    /// A token endpoint that names no type, or a type of its own, issues bearer tokens, too.
    ///
    /// Its description contains neither the token nor its fields.
    public struct AccessToken: Sendable, Hashable {
        /// The token itself.
        public var value: String

        /// When it expires, by this device's clock; `nil` if the server did not say, or not as a positive number.
        public var expiresAt: Date?

        /// Its scopes; `nil` if the server did not say, which means the requested ones (RFC 6749, section 5.1).
        public var scopes: [String]?

        /// The fields of the reply that brought the token, except the access and the refresh token: `id_token`, `instance_url`, and
        /// whatever else the server sends.
        ///
        /// They are stored with the token, and found again after a relaunch. A refresh replaces them by those of its own reply. Tokens that
        /// differ in them alone are equal.
        public var fields: [String: JSONValue] {
            get { self.reply.value }
            set { self.reply.value = newValue }
        }
        private var reply: Aside<[String: JSONValue]>

        /// Makes an access token.
        public init(
            _ value: String,
            expiresAt: Date? = nil,
            scopes: [String]? = nil,
            fields: [String: JSONValue] = [:]
        ) {
            self.value = value
            self.expiresAt = expiresAt
            self.scopes = scopes
            self.reply = Aside(fields)
        }
    }
}

extension OAuthTokens.AccessToken: Codable {
    private enum CodingKeys: String, CodingKey {
        case value, expiresAt, scopes, fields
    }

    /// Reads a stored token; one without fields may be of an earlier version.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            try container.decode(String.self, forKey: .value),
            expiresAt: try container.decodeIfPresent(Date.self, forKey: .expiresAt),
            scopes: try container.decodeIfPresent([String].self, forKey: .scopes),
            fields: try container.decodeIfPresent([String: JSONValue].self, forKey: .fields) ?? [:]
        )
    }

    /// Writes the token.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(self.value, forKey: .value)
        try container.encodeIfPresent(self.expiresAt, forKey: .expiresAt)
        try container.encodeIfPresent(self.scopes, forKey: .scopes)
        if !self.fields.isEmpty { try container.encode(self.fields, forKey: .fields) }
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
