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
