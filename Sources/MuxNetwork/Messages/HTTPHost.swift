package import Foundation

/// The server of a request: a name or an address, with or without a port.
///
/// ```swift
/// extension HTTPHost {
///     static let backend: HTTPHost = "api.domain.com"
///     static let local: HTTPHost = "localhost:8080"
/// }
/// ```
///
/// ``HTTPEndpoint/url(path:query:)`` validates the host; see ``HTTPError/PreparationFailure``. Names with
/// non-ASCII characters must be in Punycode. IPv6 addresses must be in brackets, with `%25` before a zone, as
/// in `[fe80::1%25eth0]` (RFC 6874).
public struct HTTPHost: Sendable, Hashable, ExpressibleByStringLiteral, RedactedDescription {
    /// The host as written.
    private let text: String

    /// The server of ``HTTPClient/baseURL``.
    ///
    /// Without a base URL, requests throw ``HTTPError/PreparationFailure/missingHost``.
    public static let base = HTTPHost("")

    /// Makes a host from `name` or `name:port`; an empty text makes ``base``.
    public init(_ text: String) { self.text = text }

    /// Makes a host with a port.
    public init(_ name: String, port: Int) { self.text = "\(name):\(port)" }

    /// Makes a host from `name` or `name:port`.
    public init(stringLiteral text: String) { self.text = text }

    /// Makes the host of a URL, with the port if present; `nil` without a host.
    init?(_ url: URL) {
        guard let name = url.host(), !name.isEmpty else { return nil }
        let bracketed = name.utf8.contains(UInt8(ascii: ":")) && !name.hasPrefix("[") ? "[\(name)]" : name
        self = url.port.map { HTTPHost(bracketed, port: $0) } ?? HTTPHost(bracketed)
    }

    /// The validated host and port, for the authority of a URL: RFC 3986, section 3.2.2.
    ///
    /// The name has at most 253 bytes without a trailing dot, in labels of 1 to 63 bytes (RFC 1035, section
    /// 2.3.4). Hyphens and underscores are allowed at any position of a label.
    package func authority() throws(HTTPError.PreparationFailure) -> String {
        let bytes = Array(self.text.utf8)
        guard !bytes.contains(UInt8(ascii: "@")) else { throw .userInfo }
        let end: Int
        if bytes.first == UInt8(ascii: "[") {
            guard let bracket = bytes.firstIndex(of: UInt8(ascii: "]")), Self.isAddress(bytes[1..<bracket]) else {
                throw .invalidHost
            }
            end = bracket + 1
        } else {
            end = bytes.firstIndex(of: UInt8(ascii: ":")) ?? bytes.count
            guard end > 0 else { throw .missingHost }
            guard Self.isName(bytes[..<end]) else { throw .invalidHost }
        }
        guard end < bytes.count else { return self.text }
        guard bytes[end] == UInt8(ascii: ":") else { throw .invalidHost }
        let digits = bytes[(end + 1)...]
        guard digits.count <= 5, digits.first != UInt8(ascii: "0"), digits.allSatisfy({ (48...57).contains($0) }),
            (1...65_535).contains(digits.reduce(0) { $0 * 10 + Int($1 - 48) })
        else { throw .invalidPort }
        return self.text
    }

    private static func isName(_ bytes: ArraySlice<UInt8>) -> Bool {
        let dot = UInt8(ascii: ".")
        let name = bytes.count > 1 && bytes.last == dot ? bytes.dropLast() : bytes  // a trailing dot, for the root
        return name.count <= 253
            && name.split(separator: dot, omittingEmptySubsequences: false).allSatisfy { label in
                (1...63).contains(label.count)
                    && label.allSatisfy { HTTPGrammar.isAlphanumeric($0) || "-_".utf8.contains($0) }
            }
    }

    private static func isAddress(_ bytes: ArraySlice<UInt8>) -> Bool {
        guard let percent = bytes.firstIndex(of: UInt8(ascii: "%")) else { return self.isAddressWithoutZone(bytes) }
        let zone = bytes[percent...].dropFirst(3)
        return bytes[percent...].starts(with: "%25".utf8) && (1...15).contains(zone.count)
            && zone.allSatisfy { PercentEncoding.isUnreserved($0) } && self.isAddressWithoutZone(bytes[..<percent])
    }

    private static func isAddressWithoutZone(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.filter { $0 == UInt8(ascii: ":") }.count >= 2 && bytes.count <= 45
            && bytes.allSatisfy { "0123456789abcdefABCDEF:.".utf8.contains($0) }
    }

    /// The host as written if valid, otherwise "invalid host"; also "invalid host" for ``base``.
    public var description: String { (try? self.authority()) ?? "invalid host" }
}

extension HTTPHost {
    /// The scheme of a URL (RFC 3986, section 3.1), in lower case.
    public struct Scheme: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
        /// The scheme in lower case, without the colon.
        public let rawValue: String

        /// Makes a scheme; `nil` for an invalid name.
        public init?(rawValue: String) {
            // `lowercased()` converts some other characters to ASCII, such as the Kelvin sign.
            guard rawValue.utf8.allSatisfy({ $0 < 128 }) else { return nil }
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

        /// The port of a URL without a port: 80 or 443; `nil` for other schemes.
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
}

/// The identity of the resource of a URL: the origin, the path and the query, with normalized escapes (RFC
/// 9110, section 4.2.3).
package struct HTTPResourceName: Sendable, Hashable {
    private let origin: HTTPOrigin
    /// The path and query with normalized escapes; `/` for an empty path.
    private let target: String

    /// The name of the resource of an absolute `http` or `https` URL; `nil` for any other URL.
    package init?(_ url: URL) {
        guard let origin = HTTPOrigin(url) else { return nil }
        self.init(url, of: origin)
    }

    /// The name of the resource of a URL whose origin is known to be `origin`.
    init(_ url: URL, of origin: HTTPOrigin) {
        self.origin = origin
        let path = url.path(percentEncoded: true)
        let query = url.query(percentEncoded: true).map { "?\($0)" } ?? ""
        self.target = PercentEncoding.normalized((path.isEmpty ? "/" : path) + query)
    }

    /// The name as text, without a fragment.
    var text: String {
        var text = self.origin.scheme
        text.reserveCapacity(text.utf8.count + self.origin.host.utf8.count + self.target.utf8.count + 9)
        text += "://"
        text += self.origin.host
        text += ":"
        text += String(self.origin.port)
        text += self.target
        return text
    }
}
