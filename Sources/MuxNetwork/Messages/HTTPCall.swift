public import Foundation

/// A complete request with an absolute URL: the input of an ``HTTPTransport``.
///
/// The description contains the method, the host and the path, including the values in the path. The
/// description contains neither header values nor the query nor the body.
public struct HTTPCall: Sendable, Hashable, RedactedDescription {
    /// The method, such as `GET`.
    public var method: String

    /// The absolute URL.
    public var url: URL

    /// The header fields, in order; a name may occur several times.
    ///
    /// Only the transport may set the framing fields (``HTTPHeaders/Name/framing``): an ``HTTPClient`` and
    /// the transports of this library refuse a call with such a field.
    public var headers: HTTPHeaders

    /// The body; `nil` without a body.
    public var body: HTTPCall.Body?

    /// The maximum time that the client waits for the server without any activity on the connection; `nil`
    /// for the transport's time-out.
    public var timeout: Duration?

    /// The maximum total duration of the call, including redirections.
    ///
    /// `nil` for the transport's deadline; for ``HTTPTransport/stream(_:into:)``, `nil` means no deadline.
    public var deadline: Duration?

    /// The names of header fields with credentials, in addition to the transport's own list.
    ///
    /// A redirection to another scheme, host or port removes the fields of both lists.
    public var credentialHeaders: Set<String> = []

    /// The path for error texts, as written by the developer, with placeholders for values.
    ///
    /// `nil` for a call that was made from a URL (see ``HTTPPath/template``), except for a call of an
    /// ``AsyncMedia``, which has the path of the URL.
    package var pathTemplate: String? {
        get { self.template.value }
        set { self.template.value = newValue }
    }
    private var template = IgnoredInEquality<String?>(nil)

    /// The session of the call; `nil` if no client, ``AsyncMedia`` or cache has set a session.
    var callSession: CallSession? {
        get { self.session.value }
        set { self.session.value = newValue }
    }
    private var session = IgnoredInEquality<CallSession?>(nil)

    /// Makes a request.
    public init(
        method: String = "GET",
        url: URL,
        headers: HTTPHeaders = [:],
        body: HTTPCall.Body? = nil,
        timeout: Duration? = nil,
        deadline: Duration? = nil
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
        self.deadline = deadline
    }

    /// Whether a repetition of the request has no further effect on the server: the method is idempotent (RFC
    /// 9110, section 9.2.2), or the request has an `Idempotency-Key`.
    package var isRepeatable: Bool {
        HTTPMethod(rawValue: self.method)?.isIdempotent ?? false || !(self.headers[.idempotencyKey] ?? "").isEmpty
    }

    /// The ``name``, or "a request", for error texts.
    var summary: String { self.name ?? "a request" }

    /// The method, the host and ``pathTemplate``, for error texts; `nil` for a call with neither a valid host
    /// nor a template.
    var name: String? { Self.name(self.method, at: HTTPHost(self.url), self.pathTemplate) }

    /// The method, the host and the template of the path of a request, even if the request cannot be sent.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - base: The client's base URL, for a request without a host.
    /// - Returns: The name; `nil` for a request with neither a valid host nor a template.
    static func name(of request: some HTTPRequest, base: URL?) -> String? {
        let endpoint = request.endpoint
        let host = endpoint.host == .base ? base.flatMap { HTTPHost($0) } : endpoint.host
        return self.name(request.method.rawValue, at: host, endpoint.path.template)
    }

    private static func name(_ method: String, at host: HTTPHost?, _ template: String?) -> String? {
        let authority = try? host?.authority()
        guard authority != nil || template != nil else { return nil }
        let start = HTTPGrammar.isToken(method) ? method : "The request to"
        return "\(start) \(authority ?? "")\(template ?? "")"
    }

    /// The method, the host and the path.
    public var description: String { "\(self.method) \(self.url.host() ?? "")\(self.url.path())" }
}

extension HTTPCall {
    /// The body of a call: bytes in memory, or a stream of pieces.
    public enum Body: Sendable, Hashable, RedactedDescription {
        /// Bytes in memory.
        case data(Data)

        /// Pieces that are produced on demand.
        case stream(HTTPCall.BodyStream)

        /// The bytes; `nil` for a stream.
        public var data: Data? {
            guard case .data(let data) = self else { return nil }
            return data
        }

        /// The length in bytes; `nil` if unknown before the end.
        public var length: Int? {
            switch self {
            case .data(let data): data.count
            case .stream(let stream): stream.length
            }
        }

        /// The length.
        public var description: String { self.length.map { "\($0) bytes" } ?? "a stream" }
    }

    /// The ordered pieces of a body; each iteration produces the pieces again.
    ///
    /// With libcurl, a transport reads the pieces during the sending; a ``URLSessionTransport`` collects all
    /// pieces before the sending. A redirection with the same body, and a retry, read the stream from the
    /// beginning again.
    public struct BodyStream: Sendable, Hashable, AsyncSequence {
        /// The length in bytes; `nil` if unknown: over HTTP/1.1, libcurl then sends the body chunked (RFC
        /// 9112, section 7.1).
        public let length: Int?
        private let source: Source

        fileprivate typealias Next = (_ isolation: isolated (any Actor)?) async throws -> Data?

        /// The total length of the pieces differs from the announced length.
        private struct WrongLength: Error {}

        /// Makes a stream.
        ///
        /// - Parameters:
        ///   - length: The length in bytes, or `nil`; an iteration throws an error if the pieces have a
        ///     different total length.
        ///   - pieces: Returns the pieces, with the same bytes at every call.
        public init<Pieces: AsyncSequence & Sendable>(
            length: Int? = nil,
            _ pieces: @escaping @Sendable () -> Pieces
        ) where Pieces.Element == Data {
            self.length = length
            self.source = Source {
                var iterator = pieces().makeAsyncIterator()
                var rest = length
                return { isolation in
                    let piece = try await iterator.next(isolation: isolation)
                    guard let known = rest else { return piece }
                    let left = known - (piece?.count ?? 0)
                    guard left >= 0, piece != nil || left == 0 else { throw WrongLength() }
                    rest = left
                    return piece
                }
            }
        }

        /// Begins an iteration.
        public func makeAsyncIterator() -> Iterator { Iterator(next: self.source.open()) }

        /// Whether both values are copies of the same stream.
        public static func == (a: Self, b: Self) -> Bool { a.source === b.source && a.length == b.length }

        /// Hashes the identity of the stream.
        public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self.source)) }

        /// Iterates over the pieces.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let next: Next

            /// The next piece; `nil` at the end.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> Data? {
                try await self.next(actor)
            }

            /// The next piece; `nil` at the end.
            public mutating func next() async throws -> Data? { try await self.next(isolation: #isolation) }
        }

        private final class Source: Sendable {
            let open: @Sendable () -> Next

            init(open: @escaping @Sendable () -> Next) { self.open = open }
        }
    }
}

/// Only one task may read an iterator.
@available(*, unavailable)
extension HTTPCall.BodyStream.Iterator: Sendable {}

/// An ``HTTPCall`` with a valid URL, method and header fields, so no field can inject another field.
///
/// The initialiser validates the call; ``authorized(by:)`` and ``replacing(_:)`` validate the new fields. A
/// ``ValidatedTransport`` does not validate the call again.
package struct ValidatedCall: Sendable {
    /// The call; a token may be missing until ``steps`` have run.
    package private(set) var call: HTTPCall
    package let method: HTTPMethod
    package let origin: HTTPOrigin
    /// The session in which the call began (``ValidatedTransport/session``); `nil` for the session at the
    /// time of sending.
    package var session: UInt64?
    /// Whether the request counts as a read although the method is not safe: a POST with a cached result.
    package var isQuery = false
    /// Throws if the origin must not get a request; `nil` allows all origins.
    ///
    /// A cache calls this function before the cache sends a request; a transport that is not a cache, before
    /// the transport follows a redirection.
    package var admit: (@Sendable (HTTPOrigin) throws(HTTPError) -> Void)?
    /// The client's steps that the cache runs for each exchange with the server; `nil` without a cache or
    /// without such steps.
    var steps: (any CallSteps)?

    /// Validates a call.
    ///
    /// - Throws: ``HTTPError`` with the invalid part.
    package init(_ call: HTTPCall) throws(HTTPError) {
        guard let origin = HTTPOrigin(call.url) else { throw .preparation(.failure(of: call.url)) }
        guard call.url.user() == nil, call.url.password() == nil else { throw .preparation(.userInfo) }
        guard let method = HTTPMethod(rawValue: call.method) else { throw .preparation(.invalidMethod) }
        guard call.body == nil || method != .head else { throw .preparation(.bodyNotAllowed(method)) }
        try Self.validate(call.headers)
        self.init(call, method, origin)
    }

    /// Separate, because an initialiser that throws and assigns the properties copies the whole value.
    private init(_ call: HTTPCall, _ method: HTTPMethod, _ origin: HTTPOrigin) {
        self.call = call
        self.method = method
        self.origin = origin
    }

    func attaching(_ session: CallSession) -> ValidatedCall {
        var sent = self
        sent.call.callSession = session
        return sent
    }

    /// The call with the header fields of a token.
    ///
    /// The token's fields replace the call's fields with the same names, and count as credentials at a
    /// redirection.
    package func authorized(by credentials: HTTPHeaders) throws(HTTPError) -> ValidatedCall {
        guard !credentials.isEmpty else { return self }
        try Self.validate(credentials)
        var authorized = self
        authorized.call.headers = self.call.headers.merging(credentials)
        authorized.call.credentialHeaders.formUnion(credentials.fields.map(\.name.rawValue))
        return authorized
    }

    func addingCredentialHeaders(_ credentialHeaders: Set<String>) -> ValidatedCall {
        guard !credentialHeaders.isEmpty else { return self }
        var call = self
        call.call.credentialHeaders.formUnion(credentialHeaders)
        return call
    }

    func replacing(_ headers: HTTPHeaders) throws(HTTPError) -> ValidatedCall {
        try Self.validate(headers)
        var call = self
        call.call.headers = headers
        return call
    }

    /// The call for the next request of a redirection; for another origin, without ``steps``, which would add
    /// a token.
    func redirected(to next: HTTPCall) throws(HTTPError) -> ValidatedCall {
        var call = try ValidatedCall(next)
        if call.origin == self.origin { call.steps = self.steps }
        call.admit = self.admit
        // RFC 9110, sections 15.4.8 and 15.4.9: the statuses 307 and 308 keep the method and the body.
        call.isQuery = self.isQuery && call.method == self.method
        return call
    }

    private static func validate(_ headers: HTTPHeaders) throws(HTTPError) {
        for field in headers.fields {
            guard HTTPGrammar.isToken(field.name.rawValue), HTTPGrammar.isFieldValue(field.value) else {
                throw .invalidHeader(name: field.name.rawValue)
            }
            // A wrong `Content-Length` would make the server read the rest of the body as a second request.
            guard !HTTPHeaders.Name.framing.contains(field.name) else {
                throw .preparation(.framingHeader(name: field.name.rawValue))
            }
        }
    }
}

/// A response, with any status: the output of an ``HTTPTransport``.
///
/// The description contains neither header values nor the body, and is safe to log.
public struct HTTPReply: Sendable, Hashable, RedactedDescription {
    /// The status code, such as 200.
    public var status: Int

    /// The header fields, in order; a name may occur several times, such as `Set-Cookie`.
    public var headers: HTTPHeaders

    /// The body; empty without a body.
    ///
    /// The transport decides whether the body is decoded from the content codings: see ``SystemTransport``.
    public var body: Data

    /// The trailer fields (RFC 9110, section 6.5); empty if the transport does not read trailers.
    public var trailers: HTTPHeaders

    /// The URL of the response, which may differ from the requested URL after a redirection; `nil` if
    /// unknown.
    public var url: URL?

    /// Whether the transport reports that the body is as sent by the server, without decoding.
    var isBodyAsSent = IgnoredInEquality(false)

    /// Whether a redirection changed the method; `nil` if the transport reports no redirection.
    var hasOtherMethod = IgnoredInEquality<Bool?>(nil)

    /// Makes a response.
    public init(
        status: Int,
        headers: HTTPHeaders = [:],
        body: Data = Data(),
        trailers: HTTPHeaders = [:],
        url: URL? = nil
    ) {
        self.status = status
        self.headers = headers
        self.body = body
        self.trailers = trailers
        self.url = url
    }

    /// The status and the size.
    public var description: String { "status \(self.status), \(self.body.count) bytes" }
}

/// The scheme, host and port of a URL: the scope of credentials (RFC 6454).
package struct HTTPOrigin: Sendable, Hashable {
    package var scheme: String
    package var host: String
    package var port: Int

    /// Makes the origin of an absolute `http` or `https` URL; `nil` for any other URL.
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

    /// Whether the host is `localhost`, `::1` or an IPv4 address that begins with 127.
    package var isLoopback: Bool {
        // An address may have a zone (RFC 6874).
        let address = self.host.split(separator: "%", maxSplits: 1).first ?? ""
        if ["localhost", "::1", "[::1]", "[::1"].contains(address) { return true }
        let parts = self.host.split(separator: ".", omittingEmptySubsequences: false)
        let isAddress = parts.allSatisfy { $0.utf8.allSatisfy { (48...57).contains($0) } && UInt8($0) != nil }
        return isAddress && parts.count == 4 && parts[0] == "127"
    }
}

/// A value that does not affect the equality and the hash of the container.
struct IgnoredInEquality<Value: Sendable>: Sendable, Hashable {
    var value: Value

    init(_ value: Value) { self.value = value }

    static func == (a: IgnoredInEquality, b: IgnoredInEquality) -> Bool { true }

    func hash(into hasher: inout Hasher) {}
}
