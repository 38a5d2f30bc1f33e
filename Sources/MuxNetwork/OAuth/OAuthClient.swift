import Foundation

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

extension OAuthClient.Authentication: CustomStringConvertible, CustomReflectable {
    /// The way, without the secret.
    public var description: String {
        switch self {
        case .none: "none"
        case .header: "header(…)"
        case .body: "body(…)"
        }
    }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

extension OAuthClient: CustomStringConvertible, CustomReflectable {
    /// The app's name.
    public var description: String { "OAuthClient(\(self.id))" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
