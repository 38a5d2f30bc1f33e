public import Foundation

/// One request as it goes over the wire: the input of an ``HTTPTransport``.
///
/// Its description contains neither header values nor the query nor the body, so it may be logged.
public struct HTTPCall: Sendable, Hashable, RedactedDescription {
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

    /// Makes a request.
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
}

/// An ``HTTPCall`` whose URL, method and header fields are valid, so that no field can smuggle in another.
///
/// A value proves that: the initializer validates, and ``authorized(by:)`` validates what it adds. The steps from the client to
/// the transport pass it on, so a call is validated once, however often it is sent.
package struct ValidatedCall: Sendable {
    /// The call as it is sent.
    package private(set) var call: HTTPCall
    package let method: HTTPMethod
    package let origin: HTTPOrigin

    /// Validates a call.
    ///
    /// - Throws: ``HTTPError``, which names the part that is not valid.
    package init(_ call: HTTPCall) throws(HTTPError) {
        guard let origin = HTTPOrigin(call.url) else { throw .invalidURL }
        guard let method = HTTPMethod(rawValue: call.method) else { throw .preparation(.invalidMethod) }
        try Self.validate(call.headers)
        self.call = call
        self.method = method
        self.origin = origin
    }

    /// The call with the header fields of a token, which replace its own and stay behind when a redirection leads elsewhere.
    package func authorized(by credentials: HTTPHeaders) throws(HTTPError) -> ValidatedCall {
        guard !credentials.isEmpty else { return self }
        let added = credentials.combined
        try Self.validate(added)
        let names = Set(credentials.fields.map(\.name.canonical))
        var authorized = self
        authorized.call.headers = self.call.headers.filter { !names.contains($0.key.lowercased()) }.merging(added) {
            $1
        }
        authorized.call.credentialHeaders = Set(credentials.fields.map(\.name.rawValue))
        return authorized
    }

    private static func validate(_ headers: [String: String]) throws(HTTPError) {
        for (name, value) in headers where !HTTPGrammar.isToken(name) || !HTTPGrammar.isFieldValue(value) {
            throw .invalidHeader(name: name)
        }
    }
}

/// A server's answer, whatever its status: the output of an ``HTTPTransport``.
///
/// Its description contains neither header values nor the body, so it may be logged.
public struct HTTPReply: Sendable, Hashable, RedactedDescription {
    /// The status code, such as 200.
    public var status: Int

    /// The header fields, their names in lower case; fields of one name are joined by commas.
    public private(set) var headers: [String: String]

    /// The body, decoded from any content encoding; empty if there is none.
    public var body: Data

    /// The URL that answered: another than the one asked after a redirection.
    public var url: URL?

    /// Makes an answer.
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
}

/// Scheme, host and port of a URL: the scope of credentials (RFC 6454).
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

    /// Whether the host is this machine, by name (RFC 6761, section 6.3) or by address.
    package var isLoopback: Bool {
        if ["localhost", "::1", "[::1]"].contains(self.host) { return true }
        let parts = self.host.split(separator: ".", omittingEmptySubsequences: false)
        let isAddress = parts.allSatisfy { $0.utf8.allSatisfy { (48...57).contains($0) } && UInt8($0) != nil }
        return isAddress && parts.count == 4 && parts[0] == "127"
    }
}
