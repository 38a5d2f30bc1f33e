public import HTTPTypes
public import MuxNetwork

extension HTTPHeaders {
    /// Makes the header fields of a message of swift-http-types, in the same order.
    ///
    /// A value that is not valid UTF-8 is read as ISO 8859-1 (RFC 9110, section 5.5). The indexing strategies
    /// of the fields are not kept.
    public init(_ fields: HTTPFields) {
        self.init()
        for field in fields {
            self.append(field.text, for: HTTPHeaders.Name(stringLiteral: field.name.rawName))
        }
    }
}

extension HTTPFields {
    /// The largest number of fields; one more field would trap.
    static let maximumCount = Int(UInt16.max) - 1

    /// Makes the fields of swift-http-types, in the same order.
    ///
    /// Spaces and tabs at the ends of a value are removed, as by every parser (RFC 9110, section 5.5).
    ///
    /// - Parameters:
    ///   - headers: The header fields.
    ///   - credentials: The names of the fields that no header compression may index (RFC 7541, section
    ///     7.1.3), in addition to `Authorization`, `Cookie`, `Proxy-Authorization` and `Set-Cookie`.
    /// - Throws: ``HTTPConversionError`` for a name that is not a token, a value with a control character
    ///   except the tab, and more than 65,534 fields.
    public init(_ headers: HTTPHeaders, credentials: Set<String> = []) throws(HTTPConversionError) {
        guard headers.fields.count <= Self.maximumCount else { throw .tooManyFields(count: headers.fields.count) }
        let secrets = Set(credentials.map { $0.lowercased() }).union(Self.credentials)
        self.init()
        for field in headers.fields {
            guard let name = HTTPField.Name(field.name.rawValue), field.value.utf8.allSatisfy(Self.isAllowed) else {
                throw .invalidField(name: field.name.rawValue)
            }
            var converted = HTTPField(name: name, value: field.value)
            if secrets.contains(name.canonicalName) { converted.indexingStrategy = .disallow }
            self.append(converted)
        }
    }

    private static let credentials: Set<String> = ["authorization", "cookie", "proxy-authorization", "set-cookie"]

    /// Whether swift-http-types keeps a byte of a value; other bytes become spaces.
    private static func isAllowed(_ byte: UInt8) -> Bool { byte == 9 || (byte >= 32 && byte != 127) }
}

extension HTTPField {
    /// The value, decoded from UTF-8, or from ISO 8859-1 if the bytes are not valid UTF-8.
    fileprivate var text: String {
        unsafe self.withUnsafeBytesOfValue { bytes in
            let bytes = unsafe Array(bytes)
            if let text = String(validating: bytes, as: UTF8.self) { return text }
            var text = ""
            for byte in bytes { text.unicodeScalars.append(Unicode.Scalar(byte)) }
            return text
        }
    }
}
