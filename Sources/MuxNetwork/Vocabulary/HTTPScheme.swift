/// The scheme of a URL: RFC 3986, section 3.1.
///
/// Written in lower case, whatever it was made from.
public struct HTTPScheme: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The scheme in lower case, without the colon.
    public let rawValue: String

    /// The scheme of this name; `nil` if it is not one by its letters.
    public init?(rawValue: String) {
        let name = rawValue.lowercased()
        guard let first = name.utf8.first, (97...122).contains(first),
            name.utf8.allSatisfy({ (97...122).contains($0) || (48...57).contains($0) || [43, 45, 46].contains($0) })
        else { return nil }
        self.rawValue = name
    }

    private init(known name: String) { self.rawValue = name }

    /// Plain HTTP.
    public static let http = Self(known: "http")
    /// HTTP over TLS.
    public static let https = Self(known: "https")

    /// The port where a URL names none: 80 or 443; `nil` for other schemes.
    public var defaultPort: Int? {
        switch self {
        case .http: 80
        case .https: 443
        default: nil
        }
    }

    /// The scheme's name.
    public var description: String { self.rawValue }
}
