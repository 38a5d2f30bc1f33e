/// A coding of content that the receiver undoes, such as compression: RFC 9110, section 8.4.1.
///
/// An open set; written in lower case, whatever it was made from. How a form is written down is not a coding but a
/// media type: ``HTTPMediaType/formURLEncoded`` and ``HTTPMediaType/multipartFormData``.
public struct HTTPContentCoding: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The coding's name in lower case.
    public let rawValue: String

    /// The coding of this name; `nil` if it is not a token.
    public init?(rawValue: String) {
        guard HTTPGrammar.isToken(rawValue) else { return nil }
        self.rawValue = rawValue.lowercased()
    }

    private init(known name: String) { self.rawValue = name }

    /// The gzip format: RFC 1952.
    public static let gzip = Self(known: "gzip")
    /// The zlib format around deflate: RFC 1950.
    public static let deflate = Self(known: "deflate")
    /// The Unix program compress.
    public static let compress = Self(known: "compress")
    /// Brotli: RFC 7932.
    public static let brotli = Self(known: "br")
    /// Zstandard: RFC 8878.
    public static let zstandard = Self(known: "zstd")
    /// No coding.
    public static let identity = Self(known: "identity")

    /// The coding's name.
    public var description: String { self.rawValue }
}
