/// Header fields in order; names are case-insensitive.
///
/// ```swift
/// var headers: HTTPHeaders = [.accept: "application/json"]
/// headers[.authorization] = "Bearer …"
/// headers.append("gzip", for: .acceptEncoding)
/// ```
///
/// Its description contains names and no values, so it may be logged.
public struct HTTPHeaders: Sendable, Hashable {
    /// One field line.
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

    /// The fields in order; one name may occur more than once.
    public private(set) var fields: [Field] = []

    /// No fields.
    public init() {}

    /// The fields of a dictionary, ordered by name; names that are no tokens are left out.
    public init(_ fields: [String: String]) {
        self.fields = fields.sorted { $0.key < $1.key }.compactMap { name, value in
            HTTPHeaders.Name(rawValue: name).map { Field(name: $0, value: value) }
        }
    }

    /// Whether there are no fields.
    public var isEmpty: Bool { self.fields.isEmpty }

    /// The value of a field, several lines of one name joined as RFC 9110, section 5.3, says; `nil` if there is none.
    ///
    /// Setting it replaces every line of the name by one, `nil` by none.
    public subscript(name: HTTPHeaders.Name) -> String? {
        get {
            let values = self.values(of: name)
            // RFC 6265, section 4.2.1: of all lists, that of cookies is not separated by commas.
            return values.isEmpty ? nil : values.joined(separator: name == .cookie ? "; " : ", ")
        }
        set {
            let place = self.fields.firstIndex { $0.name == name }
            self.fields.removeAll { $0.name == name }
            guard let newValue else { return }
            self.fields.insert(Field(name: name, value: newValue), at: place ?? self.fields.count)
        }
    }

    /// The values of all lines of a name, in order.
    public func values(of name: HTTPHeaders.Name) -> [String] {
        self.fields.filter { $0.name == name }.map(\.value)
    }

    /// Adds a line, beside those of the same name.
    public mutating func append(_ value: String, for name: HTTPHeaders.Name) {
        self.fields.append(Field(name: name, value: value))
    }

    /// Adds to the value of the last line.
    mutating func continueLast(with value: String) {
        guard let last = self.fields.indices.last, !value.isEmpty else { return }
        self.fields[last].value += self.fields[last].value.isEmpty ? value : " \(value)"
    }

    /// These fields, with those of the same names replaced by `other`'s.
    public func merging(_ other: HTTPHeaders) -> HTTPHeaders {
        var merged = self
        for name in Set(other.fields.map(\.name)) { merged[name] = nil }
        merged.fields += other.fields
        return merged
    }

    /// The fields with each name once.
    package var combined: [String: String] {
        var combined: [String: String] = [:]
        var seen: Set<HTTPHeaders.Name> = []
        for field in self.fields where seen.insert(field.name).inserted {
            combined[field.name.rawValue] = self[field.name]
        }
        return combined
    }
}

extension HTTPHeaders: ExpressibleByDictionaryLiteral {
    /// The fields of a literal, in its order; a name may occur more than once.
    public init(dictionaryLiteral elements: (HTTPHeaders.Name, String)...) {
        self.fields = elements.map { Field(name: $0.0, value: $0.1) }
    }
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
    /// The name of a header field: RFC 9110, section 5.1.
    ///
    /// Names that differ only in the case of their letters are equal.
    ///
    /// An open set: `HTTPHeaders.Name(rawValue: "X-Api-Key")` is a name, too.
    public struct Name: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The name as it was written.
        public let rawValue: String

        /// The name in lower case, which decides equality.
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
}

extension HTTPHeaders.Name: ExpressibleByStringLiteral {
    /// The header field of this name, for constants: `static let apiKey: HTTPHeaders.Name = "X-Api-Key"`.
    ///
    /// Sending a request with a literal that is not a token throws ``HTTPError/PreparationFailure/invalidHeader(name:)``.
    public init(stringLiteral name: String) {
        self.rawValue = name
        self.canonical = name.lowercased()
    }
}

extension HTTPHeaders.Name {
    /// The fields by which a transport frames a message or chooses a connection (RFC 9112, sections 6 and 9; RFC 9110, sections 7.2 and 10.1.1).
    public static let framing: Set<Self> = [
        .connection, .contentLength, .expect, .host, "Keep-Alive", "Proxy-Connection", "TE", "Trailer",
        "Transfer-Encoding",
        "Upgrade",
    ]

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
    /// The URL of this content: RFC 9110, section 8.7.
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
