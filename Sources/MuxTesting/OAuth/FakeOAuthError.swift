public import Foundation

/// Why ``FakeOAuthServer`` hands out no tokens.
@nonexhaustive
public enum FakeOAuthError: Error, Sendable, Hashable, LocalizedError {
    /// User and password do not belong together.
    case invalidCredentials

    /// The refresh token is unknown, spent, expired or revoked: a refusal (RFC 6749, section 5.2).
    case invalidGrant

    /// The server cannot answer now: transient, as if with status 503.
    case unavailable

    /// A text for the test's log.
    public var errorDescription: String? {
        switch self {
        case .invalidCredentials: "The fake server does not know this user with this password."
        case .invalidGrant: "The fake server refused the refresh token."
        case .unavailable: "The fake server is unavailable."
        }
    }
}
