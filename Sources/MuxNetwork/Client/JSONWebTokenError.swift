public import Foundation

/// Why a text is not a JSON Web Token.
@nonexhaustive
public enum JSONWebTokenError: Error, Sendable, Hashable {
    /// It does not have three parts between dots.
    case notThreeParts

    /// A part is not base64url.
    case notBase64URL

    /// The second part is not a JSON object.
    case noClaims

    /// The `exp` claim is not a number.
    case invalidExpiry
}

extension JSONWebTokenError: LocalizedError {
    /// A sentence for a person.
    public var errorDescription: String? {
        switch self {
        case .notThreeParts: "The token does not have three parts."
        case .notBase64URL: "A part of the token is not encoded as it should be."
        case .noClaims: "The token says nothing that can be read."
        case .invalidExpiry: "The token's end is not a time."
        }
    }
}
