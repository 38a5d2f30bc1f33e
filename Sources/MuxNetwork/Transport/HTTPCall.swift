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
