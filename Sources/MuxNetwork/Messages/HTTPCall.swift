public import Foundation

/// One request as it goes over the wire: the input of an ``HTTPTransport``.
///
/// Its description contains neither header values nor the query nor the body, so it may be logged.
public struct HTTPCall: Sendable, Hashable, RedactedDescription {
    /// The method, such as `GET`.
    public var method: String

    /// The whole URL.
    public var url: URL

    /// The header fields, in order; a name may occur more than once.
    ///
    /// Fields that frame the message, ``HTTPHeaders/Name/framing``, belong to the transport: a call that has one is not sent.
    public var headers: HTTPHeaders

    /// The body, if there is one.
    public var body: HTTPCall.Body?

    /// How long the server may be silent; `nil` leaves that to the transport.
    public var timeout: Duration?

    /// How long the call may take in all, redirections included; `nil` leaves that to the transport.
    public var deadline: Duration?

    /// The names of header fields that hold credentials, besides those that a transport knows by itself.
    ///
    /// They are not sent on when a redirection leads to another scheme, host or port.
    public var credentialHeaders: Set<String> = []

    /// The path as its developer wrote it, with placeholders for values; `nil` if the call was made of a URL.
    package var pathTemplate: String? {
        get { self.template.value }
        set { self.template.value = newValue }
    }
    private var template = Aside<String?>(nil)

    /// The session for which the call is sent; `nil` if no client or media send it for a session.
    var account: CallSession? {
        get { self.session.value }
        set { self.session.value = newValue }
    }
    private var session = Aside<CallSession?>(nil)

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

    /// The method and the template of the path, which hold no value.
    var summary: String { self.pathTemplate.map { "\(self.method) \($0)" } ?? "a \(self.method) request" }

    /// The ``summary`` of a request that perhaps cannot be sent; `nil` if its path has no template, or its method is none.
    static func name(of request: some HTTPRequest) -> String? {
        let method = request.method.rawValue
        guard HTTPGrammar.isToken(method) else { return nil }
        return request.endPoint.path.template.map { "\(method) \($0)" }
    }

    /// Method, host and path.
    public var description: String { "\(self.method) \(self.url.host() ?? "")\(self.url.path())" }
}

extension HTTPCall {
    /// The body of a call: bytes in memory, or a stream of pieces.
    public enum Body: Sendable, Hashable, RedactedDescription {
        /// Bytes as they are.
        case data(Data)

        /// Pieces that are made while the body is sent.
        case stream(HTTPCall.BodyStream)

        /// The bytes, if they are in memory.
        public var data: Data? {
            guard case .data(let data) = self else { return nil }
            return data
        }

        /// The length in bytes; `nil` if it is not known before the end.
        public var length: Int? {
            switch self {
            case .data(let data): data.count
            case .stream(let stream): stream.length
            }
        }

        /// The length.
        public var description: String { self.length.map { "\($0) bytes" } ?? "a stream" }
    }

    /// The pieces of a body in order, made anew each time that they are read.
    ///
    /// A transport reads one piece at a time, and the next when that one is sent. It reads from the beginning again when a redirection
    /// asks for the body once more.
    public struct BodyStream: Sendable, Hashable, AsyncSequence {
        /// The length in bytes; `nil` if it is not known, which sends the body chunked (RFC 9112, section 7.1).
        public let length: Int?
        private let source: Source

        fileprivate typealias Next = (_ isolation: isolated (any Actor)?) async throws -> Data?

        /// The pieces have another length than was announced.
        private struct WrongLength: Error {}

        /// Makes a stream.
        ///
        /// - Parameters:
        ///   - length: The length in bytes, if it is known; a body of another length fails the call.
        ///   - pieces: Returns the pieces, the same bytes every time.
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

        /// Begins to read.
        public func makeAsyncIterator() -> Iterator { Iterator(next: self.source.open()) }

        /// Whether both are copies of one stream.
        public static func == (a: Self, b: Self) -> Bool { a.source === b.source && a.length == b.length }

        /// Hashes what counts for equality.
        public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self.source)) }

        /// Reads the pieces.
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

/// One task reads a stream.
@available(*, unavailable)
extension HTTPCall.BodyStream.Iterator: Sendable {}

/// An ``HTTPCall`` whose URL, method and header fields are valid, so that no field can smuggle in another.
///
/// A value proves that: the initializer validates, and ``authorized(by:)`` validates what it adds. The steps from the client to
/// the transport pass it on, so a call is validated once, however often it is sent.
package struct ValidatedCall: Sendable {
    /// The call as it is sent.
    package private(set) var call: HTTPCall
    package let method: HTTPMethod
    package let origin: HTTPOrigin
    /// The session in which the call began, if that was before it is sent: see ``ValidatedTransport/session``.
    package var session: UInt64?
    /// Whether the request changes nothing, although its method is not safe: a cached POST.
    package var isQuery = false
    /// Throws if no request may be sent to an origin to which a redirection leads; `nil` to admit all.
    package var admit: (@Sendable (HTTPOrigin) throws(HTTPError) -> Void)?

    /// Validates a call.
    ///
    /// - Throws: ``HTTPError``, which names the part that is not valid.
    package init(_ call: HTTPCall) throws(HTTPError) {
        guard let origin = HTTPOrigin(call.url) else { throw .preparation(.flaw(of: call.url)) }
        guard call.url.user() == nil, call.url.password() == nil else { throw .preparation(.userInfo) }
        guard let method = HTTPMethod(rawValue: call.method) else { throw .preparation(.invalidMethod) }
        guard call.body == nil || method != .head else { throw .preparation(.bodyNotAllowed(method)) }
        try Self.validate(call.headers)
        self.call = call
        self.method = method
        self.origin = origin
    }

    /// The call as it is sent for a session.
    func sent(for session: CallSession) -> ValidatedCall {
        var sent = self
        sent.call.account = session
        return sent
    }

    /// The call with the header fields of a token, which replace its own and stay behind when a redirection leads elsewhere.
    package func authorized(by credentials: HTTPHeaders) throws(HTTPError) -> ValidatedCall {
        guard !credentials.isEmpty else { return self }
        try Self.validate(credentials)
        var authorized = self
        authorized.call.headers = self.call.headers.merging(credentials)
        authorized.call.credentialHeaders.formUnion(credentials.fields.map(\.name.rawValue))
        return authorized
    }

    private static func validate(_ headers: HTTPHeaders) throws(HTTPError) {
        for field in headers.fields {
            guard HTTPGrammar.isToken(field.name.rawValue), HTTPGrammar.isFieldValue(field.value) else {
                throw .invalidHeader(name: field.name.rawValue)
            }
            // A length of the caller's own would let the body's rest be taken for a second request.
            guard !HTTPHeaders.Name.framing.contains(field.name) else {
                throw .preparation(.framingHeader(name: field.name.rawValue))
            }
        }
    }
}

/// A server's answer, whatever its status: the output of an ``HTTPTransport``.
///
/// Its description contains neither header values nor the body, so it may be logged.
public struct HTTPReply: Sendable, Hashable, RedactedDescription {
    /// The status code, such as 200.
    public var status: Int

    /// The header fields, in order; a name may occur more than once, as `Set-Cookie` does.
    public var headers: HTTPHeaders

    /// The body; empty if there is none.
    ///
    /// Decoded from the content codings that the transport knows, if the request asked for them: see ``SystemTransport``.
    public var body: Data

    /// The fields after the body (RFC 9110, section 6.5); none where the transport does not read them.
    public var trailers: HTTPHeaders

    /// The URL that answered: another than the one asked after a redirection.
    public var url: URL?

    /// Whether the body is known to arrive as the server sent it, with its content codings.
    var isBodyAsSent = Aside(false)

    /// Makes an answer.
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
        // An address may have a zone (RFC 6874).
        let address = self.host.split(separator: "%", maxSplits: 1).first ?? ""
        if ["localhost", "::1", "[::1]", "[::1"].contains(address) { return true }
        let parts = self.host.split(separator: ".", omittingEmptySubsequences: false)
        let isAddress = parts.allSatisfy { $0.utf8.allSatisfy { (48...57).contains($0) } && UInt8($0) != nil }
        return isAddress && parts.count == 4 && parts[0] == "127"
    }
}

/// A note beside a value, which makes no difference between two of them.
struct Aside<Value: Sendable>: Sendable, Hashable {
    var value: Value

    init(_ value: Value) { self.value = value }

    static func == (a: Aside, b: Aside) -> Bool { true }

    func hash(into hasher: inout Hasher) {}
}
