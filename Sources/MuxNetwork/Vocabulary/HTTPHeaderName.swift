/// The name of a header field: RFC 9110, section 5.1.
///
/// Names that differ only in the case of their letters are equal.
///
/// An open set: `HTTPHeaderName(rawValue: "X-Api-Key")` is a name, too.
public struct HTTPHeaderName: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The name as it was written.
    public let rawValue: String

    /// The name in lower case, which is what counts.
    public let canonical: String

    /// The header field of this name; `nil` if it is not a token (RFC 9110, section 5.1).
    public init?(rawValue: String) {
        guard HTTPGrammar.isToken(rawValue) else { return nil }
        self.init(stringLiteral: rawValue)
    }

    /// Whether the names are equal but for the case of their letters.
    public static func == (a: Self, b: Self) -> Bool { a.canonical == b.canonical }

    /// Hashes what counts for equality.
    public func hash(into hasher: inout Hasher) { hasher.combine(self.canonical) }

    /// The name as it was written.
    public var description: String { self.rawValue }
}

extension HTTPHeaderName: ExpressibleByStringLiteral {
    /// The header field of this name, for constants: `static let apiKey: HTTPHeaderName = "X-Api-Key"`.
    ///
    /// A literal that is not a token is found when a request with it is prepared:
    /// ``HTTPPreparationError/invalidHeader(name:)``.
    public init(stringLiteral name: String) {
        self.rawValue = name
        self.canonical = name.lowercased()
    }
}

extension HTTPHeaderName {
    /// What the client can read: RFC 9110, section 12.5.1.
    public static let accept: Self = "Accept"
    /// The codings that the client can undo: RFC 9110, section 12.5.3.
    public static let acceptEncoding: Self = "Accept-Encoding"
    /// The languages that the person prefers: RFC 9110, section 12.5.4.
    public static let acceptLanguage: Self = "Accept-Language"
    /// Whether parts may be asked for: RFC 9110, section 14.3.
    public static let acceptRanges: Self = "Accept-Ranges"
    /// How many seconds ago the answer was made or validated: RFC 9111, section 5.1.
    public static let age: Self = "Age"
    /// What the resource can do: RFC 9110, section 10.2.1.
    public static let allow: Self = "Allow"
    /// Credentials: RFC 9110, section 11.6.2.
    public static let authorization: Self = "Authorization"
    /// How the answer may be kept: RFC 9111, section 5.2.
    public static let cacheControl: Self = "Cache-Control"
    /// What is done with the connection: RFC 9110, section 7.6.1.
    public static let connection: Self = "Connection"
    /// How to show the content: RFC 6266.
    public static let contentDisposition: Self = "Content-Disposition"
    /// The codings that were applied to the content: RFC 9110, section 8.4.
    public static let contentEncoding: Self = "Content-Encoding"
    /// The language of the content: RFC 9110, section 8.5.
    public static let contentLanguage: Self = "Content-Language"
    /// The length of the content in bytes: RFC 9110, section 8.6.
    public static let contentLength: Self = "Content-Length"
    /// Where this very content is found: RFC 9110, section 8.7.
    public static let contentLocation: Self = "Content-Location"
    /// Which part of the content this is: RFC 9110, section 14.4.
    public static let contentRange: Self = "Content-Range"
    /// The kind of the content: RFC 9110, section 8.3.
    public static let contentType: Self = "Content-Type"
    /// Stored state sent back: RFC 6265, section 4.2.
    public static let cookie: Self = "Cookie"
    /// When the answer was made: RFC 9110, section 6.6.1.
    public static let date: Self = "Date"
    /// The version of the content: RFC 9110, section 8.8.3.
    public static let eTag: Self = "ETag"
    /// What the server has to do first: RFC 9110, section 10.1.1.
    public static let expect: Self = "Expect"
    /// When the answer becomes stale: RFC 9111, section 5.3.
    public static let expires: Self = "Expires"
    /// The server that is meant: RFC 9110, section 7.2.
    public static let host: Self = "Host"
    /// Only if the content is of one of these versions: RFC 9110, section 13.1.1.
    public static let ifMatch: Self = "If-Match"
    /// Only if it was changed since: RFC 9110, section 13.1.3.
    public static let ifModifiedSince: Self = "If-Modified-Since"
    /// Only if the content is of none of these versions: RFC 9110, section 13.1.2.
    public static let ifNoneMatch: Self = "If-None-Match"
    /// A part if it is still this version, otherwise all: RFC 9110, section 13.1.5.
    public static let ifRange: Self = "If-Range"
    /// Only if it was not changed since: RFC 9110, section 13.1.4.
    public static let ifUnmodifiedSince: Self = "If-Unmodified-Since"
    /// When the content was last changed: RFC 9110, section 8.8.2.
    public static let lastModified: Self = "Last-Modified"
    /// Related resources: RFC 8288.
    public static let link: Self = "Link"
    /// Where to go: RFC 9110, section 10.2.2.
    public static let location: Self = "Location"
    /// Directives of old caches: RFC 9111, section 5.4.
    public static let pragma: Self = "Pragma"
    /// What a proxy asks for: RFC 9110, section 11.7.1.
    public static let proxyAuthenticate: Self = "Proxy-Authenticate"
    /// Credentials for a proxy: RFC 9110, section 11.7.2.
    public static let proxyAuthorization: Self = "Proxy-Authorization"
    /// The part that is asked for: RFC 9110, section 14.2.
    public static let range: Self = "Range"
    /// How long to wait before asking again: RFC 9110, section 10.2.3.
    public static let retryAfter: Self = "Retry-After"
    /// The server's software: RFC 9110, section 10.2.4.
    public static let server: Self = "Server"
    /// State to be stored by the client: RFC 6265, section 4.1.
    public static let setCookie: Self = "Set-Cookie"
    /// The client's software: RFC 9110, section 10.1.5.
    public static let userAgent: Self = "User-Agent"
    /// The fields of the request that the answer depends on: RFC 9110, section 12.5.5.
    public static let vary: Self = "Vary"
    /// What the server asks for: RFC 9110, section 11.6.1.
    public static let wwwAuthenticate: Self = "WWW-Authenticate"
}
