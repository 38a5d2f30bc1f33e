/// Why an authorization server refused: RFC 6749, sections 4.1.2.1 and 5.2.
///
/// An open set: `OAuthErrorCode(rawValue: "interaction_required")` is a code, too.
public struct OAuthErrorCode: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The code as it was sent.
    public let rawValue: String

    /// The code of this name; `nil` if it has a character that no code has, or none at all.
    public init?(rawValue: String) {
        let isInOrder = rawValue.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != 0x22 && $0 != 0x5c }
        guard !rawValue.isEmpty, rawValue.utf8.count <= 256, isInOrder else { return nil }
        self.rawValue = rawValue
    }

    private init(known code: String) { self.rawValue = code }

    /// The request lacks something, or says something twice.
    public static let invalidRequest = Self(known: "invalid_request")
    /// The client is not known, or did not prove who it is.
    public static let invalidClient = Self(known: "invalid_client")
    /// The code or the refresh token is no good any more, which of all codes is the one that ends a session.
    public static let invalidGrant = Self(known: "invalid_grant")
    /// The client may not do this.
    public static let unauthorizedClient = Self(known: "unauthorized_client")
    /// The server does not know this kind of grant.
    public static let unsupportedGrantType = Self(known: "unsupported_grant_type")
    /// The scope is not known, or more than was granted.
    public static let invalidScope = Self(known: "invalid_scope")
    /// The person, or the server for them, said no.
    public static let accessDenied = Self(known: "access_denied")
    /// The server does not answer with what was asked for.
    public static let unsupportedResponseType = Self(known: "unsupported_response_type")
    /// The server had an accident.
    public static let serverError = Self(known: "server_error")
    /// The server is busy.
    public static let temporarilyUnavailable = Self(known: "temporarily_unavailable")

    /// Whether the trouble passes by itself, whatever status the code comes with: RFC 6749, section 4.1.2.1.
    package var isPassing: Bool { self == .serverError || self == .temporarilyUnavailable }

    /// The code.
    public var description: String { self.rawValue }
}
