/// The limits of a ``URLSessionTransport``.
public struct HTTPTransportOptions: Sendable, Hashable {
    /// How long a server may be silent, for requests that do not say.
    public var timeout: Duration = .seconds(20)

    /// How long a request may take in all, redirections included; `nil` for as long as it likes.
    ///
    /// It does not count for ``URLSessionTransport/stream(_:into:)``, which ends when the server is silent.
    public var deadline: Duration? = .seconds(40)

    /// The largest body that is accepted, in bytes, counted after decoding.
    public var maximumBodySize = 64 << 20

    /// How many redirections in a row are followed.
    public var maximumRedirects = 10

    /// How many connections to one host are open at a time.
    public var connectionsPerHost = 10

    /// Header fields that are not sent on when a redirection leads to another scheme, host or port.
    public var credentialHeaders: Set<String> = ["Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization"]

    /// The defaults.
    public init() {}
}
