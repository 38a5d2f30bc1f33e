/// The ordered header fields of a message; names are case-insensitive.
///
/// ```swift
/// var headers: HTTPHeaders = [.accept: "application/json"]
/// headers[.authorization] = "Bearer …"
/// headers.append("gzip", for: .acceptEncoding)
/// ```
///
/// The description contains names without values, and is safe to log.
public struct HTTPHeaders: Sendable, Hashable {
    /// A field line.
    public struct Field: Sendable, Hashable {
        /// The field's name.
        public var name: HTTPHeaders.Name

        /// The field's value.
        public var value: String

        /// Makes a field.
        public init(name: HTTPHeaders.Name, value: String) {
            self.name = name
            self.value = value
        }
    }

    /// The fields in order; a name may occur several times.
    public private(set) var fields: [Field] = []

    /// Makes an empty list of fields.
    public init() {}

    /// Makes the fields of a dictionary, ordered by name; names that are not tokens are skipped.
    public init(_ fields: [String: String]) {
        self.fields = fields.sorted { $0.key < $1.key }.compactMap { name, value in
            HTTPHeaders.Name(rawValue: name).map { Field(name: $0, value: value) }
        }
    }

    /// Whether there are no fields.
    public var isEmpty: Bool { self.fields.isEmpty }

    /// The value of a field; several lines with the name are joined (RFC 9110, section 5.3).
    ///
    /// `nil` without the field. Joined lines of `Set-Cookie` are ambiguous; use ``values(of:)``.
    ///
    /// The setter replaces all lines with the name by a single line; `nil` removes the lines.
    public subscript(name: HTTPHeaders.Name) -> String? {
        get {
            guard let first = self.fields.firstIndex(where: { $0.name == name }) else { return nil }
            // Most fields have a single line, which needs no array.
            guard self.fields[(first + 1)...].contains(where: { $0.name == name }) else {
                return self.fields[first].value
            }
            // RFC 6265, section 4.2.1: cookies are the only list with a separator other than the comma.
            return self.values(of: name).joined(separator: name == .cookie ? "; " : ", ")
        }
        set {
            guard let place = self.fields.firstIndex(where: { $0.name == name }) else {
                if let newValue { self.append(newValue, for: name) }
                return
            }
            self.fields.removeAll { $0.name == name }
            if let newValue { self.fields.insert(Field(name: name, value: newValue), at: place) }
        }
    }

    /// The values of all lines with the name, in order.
    public func values(of name: HTTPHeaders.Name) -> [String] {
        self.fields.filter { $0.name == name }.map(\.value)
    }

    /// Appends a line; existing lines with the same name are kept.
    public mutating func append(_ value: String, for name: HTTPHeaders.Name) {
        self.fields.append(Field(name: name, value: value))
    }

    /// Appends text to the value of the last line, for a value on several lines (RFC 9112, section 5.2).
    mutating func continueLast(with value: String) {
        guard let last = self.fields.indices.last, !value.isEmpty else { return }
        self.fields[last].value += self.fields[last].value.isEmpty ? value : " \(value)"
    }

    /// Returns the fields of both values; fields of `other` replace fields with the same name.
    public func merging(_ other: HTTPHeaders) -> HTTPHeaders {
        var merged = self
        for name in Set(other.fields.map(\.name)) { merged[name] = nil }
        merged.fields += other.fields
        return merged
    }
}

extension HTTPHeaders: ExpressibleByDictionaryLiteral {
    /// Makes the fields of a literal, in order; a name may occur several times.
    public init(dictionaryLiteral elements: (HTTPHeaders.Name, String)...) {
        self.fields = elements.map { Field(name: $0.0, value: $0.1) }
    }
}

extension HTTPHeaders {
    /// Whether the body has no content coding: RFC 9110, section 8.4.
    var isIdentityCoded: Bool { ["", "identity"].contains(self[.contentEncoding]?.lowercased() ?? "") }
}

extension HTTPHeaders: RedactedDescription {
    /// The names of the fields.
    public var description: String { "[\(self.fields.map(\.name.rawValue).joined(separator: ", "))]" }
}

extension HTTPHeaders.Field: RedactedDescription {
    /// The name of the field.
    public var description: String { self.name.rawValue }
}

extension HTTPHeaders {
    /// The name of a header field (RFC 9110, section 5.1).
    ///
    /// Names are compared without regard to case.
    ///
    /// The set is open: `HTTPHeaders.Name(rawValue: "X-Api-Key")` is a name, too.
    public struct Name: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The name as written.
        public let rawValue: String

        /// The name in lower case, which determines equality.
        public let canonical: String

        /// Makes a name; `nil` if `rawValue` is not a token (RFC 9110, section 5.1).
        public init?(rawValue: String) {
            guard HTTPGrammar.isToken(rawValue) else { return nil }
            self.init(stringLiteral: rawValue)
        }

        /// Whether the names are equal, ignoring case.
        public static func == (a: Self, b: Self) -> Bool { a.canonical == b.canonical }

        /// Hashes the name, ignoring case.
        public func hash(into hasher: inout Hasher) { hasher.combine(self.canonical) }

        /// The name as written.
        public var description: String { self.rawValue }
    }
}

extension HTTPHeaders.Name: ExpressibleByStringLiteral {
    /// Makes a name from a literal, for constants: `static let apiKey: HTTPHeaders.Name = "X-Api-Key"`.
    ///
    /// If the literal is not a token, sending a request throws
    /// ``HTTPError/PreparationFailure/invalidHeader(name:)``.
    public init(stringLiteral name: String) {
        self.rawValue = name
        self.canonical = name.lowercased()
    }
}

extension HTTPHeaders.Name {
    /// The fields for message framing and connections, which only the transport may set.
    ///
    /// See RFC 9112, sections 6 and 9, and RFC 9110, sections 6.6.2, 7 and 10.1.
    public static let framing: Set<Self> = [
        .connection, .contentLength, .expect, .host, "Keep-Alive", "Proxy-Connection", "TE", "Trailer",
        "Transfer-Encoding",
        "Upgrade",
    ]

    /// The media types that the client accepts: RFC 9110, section 12.5.1.
    public static let accept: Self = "Accept"
    /// The content codings that the client can decode: RFC 9110, section 12.5.3.
    public static let acceptEncoding: Self = "Accept-Encoding"
    /// The languages that the user prefers: RFC 9110, section 12.5.4.
    public static let acceptLanguage: Self = "Accept-Language"
    /// Whether the server supports range requests: RFC 9110, section 14.3.
    public static let acceptRanges: Self = "Accept-Ranges"
    /// The seconds since the response was generated or validated: RFC 9111, section 5.1.
    public static let age: Self = "Age"
    /// The methods of the resource: RFC 9110, section 10.2.1.
    public static let allow: Self = "Allow"
    /// Credentials: RFC 9110, section 11.6.2.
    public static let authorization: Self = "Authorization"
    /// The directives for caches: RFC 9111, section 5.2.
    public static let cacheControl: Self = "Cache-Control"
    /// The options for the connection: RFC 9110, section 7.6.1.
    public static let connection: Self = "Connection"
    /// The presentation and the file name of the content: RFC 6266.
    public static let contentDisposition: Self = "Content-Disposition"
    /// The codings of the content: RFC 9110, section 8.4.
    public static let contentEncoding: Self = "Content-Encoding"
    /// The language of the content: RFC 9110, section 8.5.
    public static let contentLanguage: Self = "Content-Language"
    /// The length of the content in bytes: RFC 9110, section 8.6.
    public static let contentLength: Self = "Content-Length"
    /// The URL of the content in the message: RFC 9110, section 8.7.
    public static let contentLocation: Self = "Content-Location"
    /// The range of a partial response: RFC 9110, section 14.4.
    public static let contentRange: Self = "Content-Range"
    /// The media type of the content: RFC 9110, section 8.3.
    public static let contentType: Self = "Content-Type"
    /// Stored state, returned to the server: RFC 6265, section 4.2.
    public static let cookie: Self = "Cookie"
    /// The time of the response: RFC 9110, section 6.6.1.
    public static let date: Self = "Date"
    /// The version of the representation: RFC 9110, section 8.8.3.
    public static let eTag: Self = "ETag"
    /// The behaviour that the client expects from the server: RFC 9110, section 10.1.1.
    public static let expect: Self = "Expect"
    /// The time at which the response becomes stale: RFC 9111, section 5.3.
    public static let expires: Self = "Expires"
    /// The host and the port of the target URL: RFC 9110, section 7.2.
    public static let host: Self = "Host"
    /// The key that identifies repetitions of one request: draft-ietf-httpapi-idempotency-key-header.
    public static let idempotencyKey: Self = "Idempotency-Key"
    /// A condition: the representation has a listed version (RFC 9110, section 13.1.1).
    public static let ifMatch: Self = "If-Match"
    /// A condition: the representation was modified after the date (RFC 9110, section 13.1.3).
    public static let ifModifiedSince: Self = "If-Modified-Since"
    /// A condition: the representation has no listed version (RFC 9110, section 13.1.2).
    public static let ifNoneMatch: Self = "If-None-Match"
    /// The condition for the requested range; if false, the server sends the complete representation: RFC
    /// 9110, section 13.1.5.
    public static let ifRange: Self = "If-Range"
    /// A condition: the representation was not modified after the date (RFC 9110, section 13.1.4).
    public static let ifUnmodifiedSince: Self = "If-Unmodified-Since"
    /// The time of the last modification: RFC 9110, section 8.8.2.
    public static let lastModified: Self = "Last-Modified"
    /// Related resources: RFC 8288.
    public static let link: Self = "Link"
    /// The target of a redirection, or the URL of a created resource: RFC 9110, section 10.2.2.
    public static let location: Self = "Location"
    /// Directives for HTTP/1.0 caches: RFC 9111, section 5.4.
    public static let pragma: Self = "Pragma"
    /// The authentication challenge of a proxy: RFC 9110, section 11.7.1.
    public static let proxyAuthenticate: Self = "Proxy-Authenticate"
    /// Credentials for a proxy: RFC 9110, section 11.7.2.
    public static let proxyAuthorization: Self = "Proxy-Authorization"
    /// The requested range: RFC 9110, section 14.2.
    public static let range: Self = "Range"
    /// The time to wait before the next request: RFC 9110, section 10.2.3.
    public static let retryAfter: Self = "Retry-After"
    /// The server's software: RFC 9110, section 10.2.4.
    public static let server: Self = "Server"
    /// State for storage in the client: RFC 6265, section 4.1.
    public static let setCookie: Self = "Set-Cookie"
    /// The client's software: RFC 9110, section 10.1.5.
    public static let userAgent: Self = "User-Agent"
    /// The request fields that select the response: RFC 9110, section 12.5.5.
    public static let vary: Self = "Vary"
    /// The authentication challenge of the server: RFC 9110, section 11.6.1.
    public static let wwwAuthenticate: Self = "WWW-Authenticate"
}
