import Foundation

/// What stands in an `Authorization` field: a scheme and its data.
///
/// ```swift
/// HTTPCredentials.bearer("x").headerValue                                    // "Bearer x"
/// HTTPCredentials.basic(user: "Aladdin", password: "open sesame")            // "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
/// ```
///
/// Its description shows the scheme only.
public struct HTTPCredentials: Sendable, Hashable {
    /// How they are presented.
    public var scheme: HTTPAuthScheme

    /// What is presented: a token, or parameters.
    public var value: String

    /// Describes credentials of any scheme.
    public init(scheme: HTTPAuthScheme, value: String) {
        self.scheme = scheme
        self.value = value
    }

    /// A token that opens the door to whoever has it: RFC 6750, section 2.1.
    public static func bearer(_ token: String) -> HTTPCredentials { .init(scheme: .bearer, value: token) }

    /// Name and password in UTF-8: RFC 7617, section 2.
    ///
    /// - Returns: The credentials; `nil` if the name contains a colon, which the scheme cannot say.
    public static func basic(user: String, password: String) -> HTTPCredentials? {
        guard !user.utf8.contains(UInt8(ascii: ":")) else { return nil }
        return .init(scheme: .basic, value: Data("\(user):\(password)".utf8).base64EncodedString())
    }

    /// The field's value: scheme, one blank, data.
    public var headerValue: String { "\(self.scheme.rawValue) \(self.value)" }
}

extension HTTPCredentials: RedactedDescription {
    /// The scheme.
    public var description: String { "\(self.scheme.rawValue) …" }
}

/// How credentials are presented: RFC 9110, section 11.1.
///
/// Schemes are equal whatever the case of their letters.
///
/// An open set: `HTTPAuthScheme(rawValue: "Hawk")` is a scheme, too.
public struct HTTPAuthScheme: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The scheme's name as it was written.
    public let rawValue: String

    /// The scheme of this name; `nil` if it is not a token.
    public init?(rawValue: String) {
        guard HTTPGrammar.isToken(rawValue) else { return nil }
        self.rawValue = rawValue
    }

    private init(known name: String) { self.rawValue = name }

    /// Name and password: RFC 7617.
    public static let basic = Self(known: "Basic")
    /// A token that opens the door to whoever has it: RFC 6750.
    public static let bearer = Self(known: "Bearer")
    /// A hash of name, password and the server's challenge: RFC 7616.
    public static let digest = Self(known: "Digest")
    /// A token bound to a key: RFC 9449.
    public static let dpop = Self(known: "DPoP")
    /// Kerberos and its like: RFC 4559.
    public static let negotiate = Self(known: "Negotiate")

    /// Whether the names are equal but for the case of their letters.
    public static func == (a: Self, b: Self) -> Bool { a.rawValue.lowercased() == b.rawValue.lowercased() }

    /// Hashes what counts for equality.
    public func hash(into hasher: inout Hasher) { hasher.combine(self.rawValue.lowercased()) }

    /// The scheme's name.
    public var description: String { self.rawValue }
}
