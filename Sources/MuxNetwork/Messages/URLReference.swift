import Foundation

/// A URL or a relative reference from a server, in `Location` or in a link (RFC 3986, sections 4.1 and 5.2).
///
/// Some servers send illegal bytes together with valid escapes. After the host, each illegal byte, and each
/// `%` that does not begin an escape, is percent-encoded; valid escapes stay unchanged. `URL(string:)` would
/// encode every `%` of such a text, and the URL would then identify another resource.
struct URLReference: Sendable {
    private var scheme: String?
    private var authority: String?
    private var path: String
    private var query: String?
    private var fragment: String?

    /// Resolves a reference.
    ///
    /// - Parameters:
    ///   - text: The reference; spaces and tabs at both ends are ignored.
    ///   - base: The URL of the document that contains the reference; `nil` to accept only absolute
    ///     references.
    /// - Returns: An absolute URL; `nil` for an empty reference, a relative reference without an absolute
    ///   base, a host with illegal characters, and a text that `URL` rejects or changes.
    static func url(_ text: String, relativeTo base: URL?) -> URL? {
        let text = HTTPGrammar.trimmed(text)
        guard !text.isEmpty, var target = URLReference(text) else { return nil }
        if target.scheme == nil {
            guard let base = base.flatMap({ URLReference($0.absoluteURL.absoluteString) }), base.scheme != nil else {
                return nil
            }
            target.resolve(against: base)
        }
        if target.authority != nil || target.path.hasPrefix("/") { target.path = Self.withoutDots(target.path) }
        let absolute = target.text
        // All parts are legal: if the URL differs from the text, Foundation has changed the target.
        guard let url = URL(string: absolute), url.absoluteString == absolute else { return nil }
        return url
    }

    // MARK: - Parts

    /// Parses the parts of a reference (RFC 3986, appendix B) and encodes illegal bytes; `nil` for a host
    /// with illegal characters.
    private init?(_ text: String) {
        var rest = Substring(text).utf8
        if let fragment = Self.cut(&rest, at: "#") {
            self.fragment = PercentEncoding.encodeIllegal(fragment, allowing: Self.isQueryByte)
        }
        if let query = Self.cut(&rest, at: "?") {
            self.query = PercentEncoding.encodeIllegal(query, allowing: Self.isQueryByte)
        }
        if let colon = rest.firstIndex(of: UInt8(ascii: ":")), Self.isScheme(rest[..<colon]) {
            self.scheme = String(rest[..<colon])
            rest = rest[rest.index(after: colon)...]
        }
        if rest.starts(with: "//".utf8) {
            rest = rest.dropFirst(2)
            let end = rest.firstIndex(of: UInt8(ascii: "/")) ?? rest.endIndex
            guard let authority = Self.authority(String(Substring(rest[..<end]))) else { return nil }
            self.authority = authority
            rest = rest[end...]
        }
        self.path = PercentEncoding.encodeIllegal(rest, allowing: Self.isPathByte)
    }

    /// Removes the first `mark` and the part after `mark` from `rest`.
    ///
    /// - Returns: The part after `mark`; `nil` without `mark`.
    private static func cut(_ rest: inout Substring.UTF8View, at mark: Unicode.Scalar) -> Substring.UTF8View? {
        guard let place = rest.firstIndex(of: UInt8(ascii: mark)) else { return nil }
        defer { rest = rest[..<place] }
        return rest[rest.index(after: place)...]
    }

    private static func isPathByte(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "/") || PercentEncoding.isPathByte(byte)
    }

    private static func isQueryByte(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "?") || self.isPathByte(byte) }

    private static func isScheme(_ bytes: Substring.UTF8View) -> Bool {
        HTTPHost.Scheme(rawValue: String(Substring(bytes))) != nil
    }

    /// The user, the host and the port; `nil` for illegal characters, and for a user before a host with
    /// non-ASCII characters.
    private static func authority(_ text: String) -> String? {
        var legal = text
        // Names with non-ASCII characters are converted to Punycode if Foundation supports the conversion.
        if !text.utf8.allSatisfy({ $0 < 128 }), let url = URL(string: "http://\(text)/") {
            guard url.user() == nil, let host = url.host(percentEncoded: true) else { return nil }
            legal = host + (url.port.map { ":\($0)" } ?? "")
        }
        // After the conversion, `%` means that Foundation has escaped the name instead of converting the name
        // to Punycode: such a host is refused.
        let isLegal = legal.utf8.allSatisfy { byte in
            PercentEncoding.isPathByte(byte) || byte == UInt8(ascii: "[") || byte == UInt8(ascii: "]")
                || (byte == UInt8(ascii: "%") && legal == text)
        }
        return isLegal ? legal : nil
    }

    // MARK: - Resolution

    /// Resolves a reference without a scheme (RFC 3986, section 5.2.2).
    private mutating func resolve(against base: URLReference) {
        self.scheme = base.scheme
        guard self.authority == nil else { return }
        self.authority = base.authority
        if self.path.isEmpty {
            self.path = base.path
            self.query = self.query ?? base.query
        } else if !self.path.hasPrefix("/") {
            let folder = base.path.utf8.lastIndex(of: UInt8(ascii: "/")).map { base.path[...$0] } ?? ""
            self.path = (base.authority != nil && base.path.isEmpty ? "/" : String(folder)) + self.path
        }
    }

    /// Removes dot segments (RFC 3986, section 5.2.4).
    private static func withoutDots(_ path: String) -> String {
        let segments = path.split(separator: "/", omittingEmptySubsequences: false)
        var kept: [Substring] = []
        for (index, segment) in segments.enumerated() {
            let isLast = index == segments.count - 1
            switch segment {
            case "." where index > 0: break
            case ".." where index > 0:
                if kept.count > 1 { kept.removeLast() }
            default:
                kept.append(segment)
                continue
            }
            if isLast { kept.append("") }
        }
        return kept.joined(separator: "/")
    }

    /// The text of the reference (RFC 3986, section 5.3).
    private var text: String {
        (self.scheme.map { "\($0):" } ?? "") + (self.authority.map { "//\($0)" } ?? "") + self.path
            + (self.query.map { "?\($0)" } ?? "") + (self.fragment.map { "#\($0)" } ?? "")
    }
}
