/// A media type with its parameters: RFC 9110, section 8.3.1.
///
/// ```swift
/// let type = HTTPMediaType(rawValue: "application/json; charset=utf-8")
/// type?.essence                    // "application/json"
/// type?.parameters["charset"]      // "utf-8"
/// ```
///
/// Types, subtypes and the names of parameters are case-insensitive, and kept in lower case.
public struct HTTPMediaType: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The part before the slash, in lower case.
    public let type: String

    /// The part after the slash, in lower case.
    public let subtype: String

    /// The values of the parameters by their names in lower case.
    public private(set) var parameters: [String: String]

    /// Parses `rawValue`; `nil` if invalid, or if a parameter occurs twice.
    public init?(rawValue: String) {
        guard let parsed = HTTPParameters(rawValue) else { return nil }
        let parts = parsed.head.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, parts.allSatisfy({ HTTPGrammar.isToken($0) }) else { return nil }
        self.type = parts[0].lowercased()
        self.subtype = parts[1].lowercased()
        self.parameters = parsed.parameters
    }

    private init(known type: String, _ subtype: String, _ parameters: [String: String] = [:]) {
        self.type = type
        self.subtype = subtype
        self.parameters = parameters
    }

    /// The type and the subtype, without parameters.
    public var essence: String { "\(self.type)/\(self.subtype)" }

    /// Whether the content is JSON, by the subtype `json` or the suffix `+json` (RFC 6839).
    public var isJSON: Bool { self.subtype == "json" || self.subtype.hasSuffix("+json") }

    /// The text of a `Content-Type` field, with the parameters ordered by name.
    public var rawValue: String {
        self.parameters.sorted { $0.key < $1.key }.reduce(self.essence) { text, parameter in
            "\(text); \(parameter.key)=\(HTTPGrammar.quotedIfNeeded(parameter.value))"
        }
    }

    /// Returns the media type with an added or replaced parameter; unchanged if `name` is not a token.
    public func with(_ name: String, _ value: String) -> HTTPMediaType {
        guard HTTPGrammar.isToken(name) else { return self }
        var copy = self
        copy.parameters[name.lowercased()] = value
        return copy
    }

    /// The text of a `Content-Type` field.
    public var description: String { self.rawValue }
}

extension HTTPMediaType {
    /// JSON: RFC 8259.
    public static let json = Self(known: "application", "json")
    /// The details of an error in JSON ("problem details"): RFC 9457.
    public static let problemJSON = Self(known: "application", "problem+json")
    /// A JSON merge patch: RFC 7396.
    public static let mergePatchJSON = Self(known: "application", "merge-patch+json")
    /// XML: RFC 7303.
    public static let xml = Self(known: "application", "xml")
    /// The URL-encoded fields of a form: WHATWG URL standard.
    public static let formURLEncoded = Self(known: "application", "x-www-form-urlencoded")
    /// The fields and files of a form: RFC 7578.
    public static let multipartFormData = Self(known: "multipart", "form-data")
    /// Any bytes.
    public static let octetStream = Self(known: "application", "octet-stream")
    /// A document in PDF: RFC 8118.
    public static let pdf = Self(known: "application", "pdf")
    /// A ZIP archive.
    public static let zip = Self(known: "application", "zip")
    /// Text.
    public static let plainText = Self(known: "text", "plain")
    /// Text in UTF-8.
    public static let utf8Text = Self(known: "text", "plain", ["charset": "utf-8"])
    /// A web page.
    public static let html = Self(known: "text", "html")
    /// Values separated by commas: RFC 4180.
    public static let csv = Self(known: "text", "csv")
    /// A stream of events.
    public static let eventStream = Self(known: "text", "event-stream")
    /// A JPEG image.
    public static let jpeg = Self(known: "image", "jpeg")
    /// A PNG image.
    public static let png = Self(known: "image", "png")
    /// A GIF image.
    public static let gif = Self(known: "image", "gif")
    /// A WebP image.
    public static let webp = Self(known: "image", "webp")
    /// An SVG image.
    public static let svg = Self(known: "image", "svg+xml")
    /// Any type, for ``HTTPHeaders/Name/accept``.
    public static let any = Self(known: "*", "*")
    /// Any image.
    public static let anyImage = Self(known: "image", "*")
    /// Any audio.
    public static let anyAudio = Self(known: "audio", "*")
    /// Any video.
    public static let anyVideo = Self(known: "video", "*")

    /// Whether this media range contains `type` (RFC 9110, section 12.5.1), ignoring parameters.
    func includes(_ type: HTTPMediaType) -> Bool {
        (self.type == "*" || self.type == type.type) && (self.subtype == "*" || self.subtype == type.subtype)
    }
}

/// Parses `head; name=value; name="quoted value"` (RFC 9110, section 5.6.6).
package struct HTTPParameters: Sendable, Hashable {
    /// The part before the first semicolon, trimmed.
    package let head: String

    /// The values of the parameters by their names in lower case.
    package let parameters: [String: String]

    /// Parses `text`; `nil` if invalid.
    ///
    /// A parameter is invalid without a name or a value, with an unclosed quoted value, with other text
    /// between the value and the next semicolon, or if the parameter occurs twice.
    package init?(_ text: String) {
        var rest = text.utf8[...]
        self.head = HTTPGrammar.trimmed(Substring(Self.take(&rest) { $0 != UInt8(ascii: ";") }))
        var parameters: [String: String] = [:]
        while rest.popFirst() != nil {  // the semicolon
            Self.skipBlanks(&rest)
            if rest.isEmpty || rest.first == UInt8(ascii: ";") { continue }
            let name = String(Substring(Self.take(&rest, while: HTTPGrammar.isTokenByte))).lowercased()
            guard !name.isEmpty, rest.popFirst() == UInt8(ascii: "=") else { return nil }
            let value: String
            if rest.first == UInt8(ascii: "\"") {
                guard let quoted = Self.quoted(&rest) else { return nil }
                value = quoted
            } else {
                value = String(Substring(Self.take(&rest, while: HTTPGrammar.isTokenByte)))
                guard !value.isEmpty else { return nil }
            }
            Self.skipBlanks(&rest)
            guard rest.isEmpty || rest.first == UInt8(ascii: ";") else { return nil }
            guard parameters.updateValue(value, forKey: name) == nil else { return nil }
        }
        self.parameters = parameters
    }

    private static func take(
        _ rest: inout Substring.UTF8View,
        while belongs: (UInt8) -> Bool
    ) -> Substring.UTF8View {
        let taken = rest.prefix(while: belongs)
        rest = rest[taken.endIndex...]
        return taken
    }

    private static func skipBlanks(_ rest: inout Substring.UTF8View) {
        rest = rest.drop { $0 == 32 || $0 == 9 }
    }

    /// Parses a quoted string (RFC 9110, section 5.6.4).
    private static func quoted(_ rest: inout Substring.UTF8View) -> String? {
        rest.removeFirst()
        var bytes: [UInt8] = []
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: bytes, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let next = rest.popFirst() else { return nil }
                bytes.append(next)
            default: bytes.append(byte)
            }
        }
        return nil
    }
}

extension HTTPMediaType {
    /// A content coding, such as a compression (RFC 9110, section 8.4.1).
    ///
    /// The set is open; names are in lower case. The encoding of a form is not a content coding but a media
    /// type: ``HTTPMediaType/formURLEncoded`` and ``HTTPMediaType/multipartFormData``.
    public struct ContentCoding: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The coding's name in lower case.
        public let rawValue: String

        /// Makes a coding; `nil` if the name is not a token.
        public init?(rawValue: String) {
            guard HTTPGrammar.isToken(rawValue) else { return nil }
            self.rawValue = rawValue.lowercased()
        }

        private init(known name: String) { self.rawValue = name }

        /// The gzip format: RFC 1952.
        public static let gzip = Self(known: "gzip")
        /// The zlib format around deflate: RFC 1950.
        public static let deflate = Self(known: "deflate")
        /// The format of the Unix program `compress`.
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
}
