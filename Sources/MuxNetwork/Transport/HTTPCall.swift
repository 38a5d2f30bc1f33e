public import Foundation

/// One request as it goes over the wire: all that an ``HTTPTransport`` needs to know.
///
/// Its description names neither header values nor the query nor the body, so it may be logged.
public struct HTTPCall: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    /// The method, such as `GET`.
    public var method: String

    /// The whole URL.
    public var url: URL

    /// The header fields; names are case-insensitive on the wire, so give each only once.
    public var headers: [String: String]

    /// The body, if there is one.
    public var body: Data?

    /// How long the server may be silent; `nil` leaves that to the transport.
    public var timeout: Duration?

    /// The names of header fields that hold credentials, besides those that a transport knows by itself.
    ///
    /// They are not sent on when a redirection leads to another scheme, host or port.
    public var credentialHeaders: Set<String> = []

    /// Describes a request.
    public init(
        method: String = "GET",
        url: URL,
        headers: [String: String] = [:],
        body: Data? = nil,
        timeout: Duration? = nil
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
    }

    /// Method, host and path.
    public var description: String { "\(self.method) \(self.url.host() ?? "")\(self.url.path())" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

extension HTTPCall {
    /// Checks that the call means on the wire what it says, so that no field can smuggle in another.
    ///
    /// - Returns: Where it goes.
    func validated() throws(HTTPError) -> HTTPOrigin {
        guard let origin = HTTPOrigin(self.url) else { throw .invalidURL }
        guard HTTPGrammar.isToken(self.method) else { throw .preparation(.invalidMethod) }
        for (name, value) in self.headers {
            guard HTTPGrammar.isToken(name) else { throw .invalidHeader(name: name) }
            guard HTTPGrammar.isFieldValue(value) else { throw .invalidHeader(name: name) }
        }
        return origin
    }
}

/// A server's answer, whatever its status.
///
/// Its description names neither header values nor the body, so it may be logged.
public struct HTTPReply: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    /// The status code, such as 200.
    public var status: Int

    /// The header fields, their names in lower case; fields of one name are joined by commas.
    public private(set) var headers: [String: String]

    /// The body, decoded from any content encoding; empty if there is none.
    public var body: Data

    /// The URL that answered: another than the one asked after a redirection.
    public var url: URL?

    /// Describes an answer.
    public init(status: Int, headers: [String: String] = [:], body: Data = Data(), url: URL? = nil) {
        self.status = status
        self.headers = Dictionary(headers.map { ($0.key.lowercased(), $0.value) }) { "\($0), \($1)" }
        self.body = body
        self.url = url
    }

    /// The value of a header field, whatever the case of the name's letters.
    public func header(_ name: String) -> String? { self.headers[name.lowercased()] }

    /// Status and size.
    public var description: String { "status \(self.status), \(self.body.count) bytes" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

/// Scheme, host and port of a URL: what credentials belong to (RFC 6454).
package struct HTTPOrigin: Sendable, Hashable {
    package var scheme: String
    package var host: String
    package var port: Int

    /// The origin of an absolute `http` or `https` URL; `nil` for any other.
    package init?(_ url: URL) {
        guard let scheme = url.scheme?.lowercased(), let host = url.host()?.lowercased(), !host.isEmpty else {
            return nil
        }
        switch scheme {
        case "http": self.port = url.port ?? 80
        case "https": self.port = url.port ?? 443
        default: return nil
        }
        self.scheme = scheme
        self.host = host
    }

    package var isSecure: Bool { self.scheme == "https" }

    /// Whether it is on this machine: by the name that is always its own (RFC 6761, section 6.3), or by its address.
    package var isLoopback: Bool {
        if ["localhost", "::1", "[::1]"].contains(self.host) { return true }
        let parts = self.host.split(separator: ".", omittingEmptySubsequences: false)
        let isAddress = parts.allSatisfy { $0.utf8.allSatisfy { (48...57).contains($0) } && UInt8($0) != nil }
        return isAddress && parts.count == 4 && parts[0] == "127"
    }
}
