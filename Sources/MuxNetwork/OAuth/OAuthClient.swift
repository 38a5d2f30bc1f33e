public import Foundation

/// The app as a client of an authorization server: RFC 6749, section 2.
///
/// The description contains only the identifier.
public struct OAuthClient: Sendable, Hashable {
    /// The authentication of the app at the server: RFC 6749, section 2.3.1.
    public enum Authentication: Sendable, Hashable {
        /// No authentication, for an app on a user's device, which cannot keep a secret. Use ``PKCE``.
        case none
        /// Authentication with this secret in the `Authorization` field.
        case header(secret: String)
        /// Authentication with this secret in the body, for servers that do not support the header field.
        case body(secret: String)
    }

    /// The app's identifier at the server.
    public var id: String

    /// The authentication of the app at the server.
    public var authentication: Authentication

    /// Makes a client.
    public init(id: String, authentication: Authentication = .none) {
        self.id = id
        self.authentication = authentication
    }

    /// The parameters for the identification of the app in the body.
    var parameters: [(String, String)] {
        switch self.authentication {
        case .none: [("client_id", self.id)]
        case .body(let secret): [("client_id", self.id), ("client_secret", secret)]
        case .header: []
        }
    }

    /// The credentials in the `Authorization` field; `nil` without this field.
    ///
    /// The identifier and the secret are percent-encoded first: RFC 6749, section 2.3.1.
    var credentials: HTTPCredentials? {
        guard case .header(let secret) = self.authentication else { return nil }
        return .basic(user: PercentEncoding.encode(self.id), password: PercentEncoding.encode(secret))
    }
}

extension OAuthClient.Authentication: RedactedDescription {
    /// The kind of authentication, without the secret.
    public var description: String {
        switch self {
        case .none: "none"
        case .header: "header(…)"
        case .body: "body(…)"
        }
    }
}

extension OAuthClient: RedactedDescription {
    /// The type's name with the app's identifier, without the secret.
    public var description: String { "OAuthClient(\(self.id))" }
}

/// The tokens in a response of a token endpoint: RFC 6749, section 5.1.
///
/// The description contains no token.
public struct OAuthTokens: Sendable, Hashable {
    /// The access token.
    public var access: OAuthTokens.AccessToken

    /// The new refresh token; `nil` if the server sent no refresh token, or a blank text, `null` or `false`.
    ///
    /// After a refresh, `nil` means that the previous refresh token stays in use.
    public var refresh: String?

    /// The other fields of the response: ``AccessToken/fields`` of ``access``.
    public var fields: [String: JSONValue] { self.access.fields }

    /// Makes tokens.
    public init(access: OAuthTokens.AccessToken, refresh: String? = nil) {
        self.access = access
        self.refresh = refresh
    }
}

extension OAuthTokens: CustomStringConvertible, CustomReflectable {
    /// The type's name without a token.
    public var description: String { "OAuthTokens(…)" }

    /// Empty.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension OAuthTokens {
    /// A bearer token: RFC 6750.
    ///
    /// A missing or provider-specific token type counts as a bearer token.
    ///
    /// The description contains neither the token nor its fields.
    public struct AccessToken: Sendable, Hashable {
        /// The token.
        public var value: String

        /// The expiry by this device's clock; `nil` if the server sent no lifetime, or a lifetime that is not
        /// a positive number.
        public var expiresAt: Date?

        /// The scopes; `nil` if the server sent no readable scopes.
        ///
        /// A response without scopes means the requested scopes (RFC 6749, section 5.1).
        public var scopes: [String]?

        /// The fields of the response with the token, such as `id_token` and `instance_url`.
        ///
        /// The access token and the refresh token are not included. The fields are encoded with the token, so
        /// a token store restores the fields after a relaunch. A refresh replaces the fields with the fields
        /// of the new response. `==` and hash values ignore the fields.
        public var fields: [String: JSONValue] {
            get { self.storedFields.value }
            set { self.storedFields.value = newValue }
        }
        private var storedFields: IgnoredInEquality<[String: JSONValue]>

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
            self.storedFields = IgnoredInEquality(fields)
        }
    }
}

extension OAuthTokens.AccessToken: Codable {
    private enum CodingKeys: String, CodingKey {
        case value, expiresAt, scopes, fields
    }

    /// Decodes a stored token; tokens of earlier versions have no fields.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            try container.decode(String.self, forKey: .value),
            expiresAt: try container.decodeIfPresent(Date.self, forKey: .expiresAt),
            scopes: try container.decodeIfPresent([String].self, forKey: .scopes),
            fields: try container.decodeIfPresent([String: JSONValue].self, forKey: .fields) ?? [:]
        )
    }

    /// Encodes the token.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(self.value, forKey: .value)
        try container.encodeIfPresent(self.expiresAt, forKey: .expiresAt)
        try container.encodeIfPresent(self.scopes, forKey: .scopes)
        if !self.fields.isEmpty { try container.encode(self.fields, forKey: .fields) }
    }
}

extension OAuthTokens.AccessToken: CustomStringConvertible, CustomReflectable {
    /// The type's name without the token.
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
