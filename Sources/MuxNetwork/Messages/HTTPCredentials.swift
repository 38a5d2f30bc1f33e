import Foundation

/// The value of an `Authorization` field: a scheme and its data.
///
/// ```swift
/// HTTPCredentials.bearer("x").headerValue
/// // "Bearer x"
/// HTTPCredentials.basic(user: "Aladdin", password: "open sesame")?.headerValue
/// // "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
/// ```
///
/// The description contains only the scheme.
public struct HTTPCredentials: Sendable, Hashable {
    /// The scheme.
    public var scheme: HTTPCredentials.Scheme

    /// The data after the scheme: a token, or parameters.
    public var value: String

    /// Makes credentials with any scheme.
    public init(scheme: HTTPCredentials.Scheme, value: String) {
        self.scheme = scheme
        self.value = value
    }

    /// Makes credentials with a bearer token (RFC 6750, section 2.1).
    public static func bearer(_ token: String) -> HTTPCredentials { .init(scheme: .bearer, value: token) }

    /// Makes credentials with a name and a password in UTF-8 (RFC 7617, section 2).
    ///
    /// - Returns: The credentials; `nil` if the name contains a colon.
    public static func basic(user: String, password: String) -> HTTPCredentials? {
        guard !user.utf8.contains(UInt8(ascii: ":")) else { return nil }
        return .init(scheme: .basic, value: Data("\(user):\(password)".utf8).base64EncodedString())
    }

    /// The value of the field: the scheme, one space, and ``value``.
    public var headerValue: String { "\(self.scheme.rawValue) \(self.value)" }
}

extension HTTPCredentials: RedactedDescription {
    /// The scheme.
    public var description: String { "\(self.scheme.rawValue) …" }
}

extension HTTPCredentials {
    /// An authentication scheme (RFC 9110, section 11.1).
    ///
    /// Names are case-insensitive. The set is open: `HTTPCredentials.Scheme(rawValue: "Hawk")` is a scheme,
    /// too.
    public struct Scheme: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The name of the scheme as written.
        public let rawValue: String

        /// Makes a scheme; `nil` if the name is not a token.
        public init?(rawValue: String) {
            guard HTTPGrammar.isToken(rawValue) else { return nil }
            self.rawValue = rawValue
        }

        private init(known name: String) { self.rawValue = name }

        /// A name and a password: RFC 7617.
        public static let basic = Self(known: "Basic")
        /// Bearer tokens: RFC 6750.
        public static let bearer = Self(known: "Bearer")
        /// A hash of the name, the password and the server's challenge: RFC 7616.
        public static let digest = Self(known: "Digest")
        /// A token bound to a key: RFC 9449.
        public static let dpop = Self(known: "DPoP")
        /// Kerberos and other mechanisms: RFC 4559.
        public static let negotiate = Self(known: "Negotiate")

        /// Whether the names are equal, ignoring case.
        public static func == (a: Self, b: Self) -> Bool { a.rawValue.lowercased() == b.rawValue.lowercased() }

        /// Hashes the name, ignoring case.
        public func hash(into hasher: inout Hasher) { hasher.combine(self.rawValue.lowercased()) }

        /// The scheme's name.
        public var description: String { self.rawValue }
    }
}
