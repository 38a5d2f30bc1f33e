public import Foundation
package import MuxKit

/// Sends requests and returns the server's answers, whatever their status.
///
/// ``SystemTransport`` is the default, and ``ExchangeTransport`` uses another client. A transport of your own needs ``send(_:)`` alone, as
/// a test's does.
///
/// **Errors.** A transport may throw errors of its own; its users get them as ``HTTPError/TransportFailure/unreachable(_:)``. The error's
/// conformance to `ConnectivityError` decides what happens then. If the server was not reached, the request is sent again
/// (``HTTPClient/Configuration/retry``), an older value is served (`MuxPolicy.staleIfError`), and a download resumes. Otherwise, as for
/// an untrusted certificate, the error is thrown at once. An error without that conformance counts as a lost connection, unless
/// it is a cancellation or an encoding or decoding error. A `RetryableError` decides on its own retries.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the complete answer.
    ///
    /// - Throws: ``HTTPError``, or an error of the transport's own, if there is no complete answer; `CancellationError`, at
    ///   once, if the task is cancelled.
    func send(_ call: HTTPCall) async throws -> HTTPReply

    /// Sends a request and passes the answer to `sink` while it arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece.
    /// - Returns: The head of the answer, with its trailers, once the body is complete; its own body is empty.
    /// - Throws: ``HTTPError``, or an error of the transport's own, if there is no complete answer; what the sink threw;
    ///   `CancellationError` if the task is cancelled, as soon as the sink returns.
    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply
}

extension HTTPTransport {
    /// Sends a request with ``send(_:)`` and passes the whole answer to `sink`.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body in one piece.
    /// - Returns: The head of the answer.
    /// - Throws: What ``send(_:)`` or the sink threw.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        var reply = try await self.send(call)
        let body = reply.body
        reply.body = Data()
        try await sink.receive(head: reply)
        if !body.isEmpty { try await sink.receive(body) }
        return reply
    }
}

/// The limits and the connections of a transport.
public struct HTTPTransportOptions: Sendable, Hashable {
    /// How long a server may be silent, for requests without a time-out of their own.
    public var timeout: Duration

    /// How long a request may take in all, redirections included; `nil` for any time.
    ///
    /// It does not apply to ``HTTPTransport/stream(_:into:)``, whose requests have the limit of their own ``HTTPCall/deadline``, if any.
    public var deadline: Duration?

    /// The largest body that is accepted, in bytes, counted after decoding.
    public var maximumBodySize: Int

    /// The largest head of an answer that is accepted, in bytes.
    ///
    /// Applies where the transport is libcurl.
    public var maximumHeadSize: Int

    /// The largest number of redirections of one request.
    public var maximumRedirects: Int

    /// The largest number of open connections to one host.
    public var connectionsPerHost: Int

    /// Header fields that are not sent on when a redirection leads to another scheme, host or port.
    public var credentialHeaders: Set<String>

    /// Whether the proxies of the environment or the system are used.
    ///
    /// On Linux they are those of `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`.
    public var usesProxies: Bool

    /// A file of certificates (PEM) that are trusted in place of the system's; `nil` for the system's.
    ///
    /// Requires libcurl: any other transport throws ``HTTPError/PreparationFailure/unsupportedOption(name:)``. So does a URL without a usable
    /// file path.
    public var certificateAuthorities: URL?

    /// The certificate by which servers know this client; `nil` for none.
    ///
    /// Any server of this transport that asks for a certificate gets it, so a client with a certificate has a transport of its own. A
    /// certificate that the server refuses, or that cannot be read, is ``HTTPError/TransportFailure/insecureConnection(_:)``.
    public var clientCertificate: ClientCertificate?

    /// The parameters have the names of the properties.
    public init(
        timeout: Duration = .seconds(20),
        deadline: Duration? = .seconds(40),
        maximumBodySize: Int = 64 << 20,
        maximumHeadSize: Int = 256 << 10,
        maximumRedirects: Int = 10,
        connectionsPerHost: Int = 10,
        credentialHeaders: Set<String> = ["Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization"],
        usesProxies: Bool = true,
        certificateAuthorities: URL? = nil,
        clientCertificate: ClientCertificate? = nil
    ) {
        self.timeout = timeout
        self.deadline = deadline
        self.maximumBodySize = maximumBodySize
        self.maximumHeadSize = maximumHeadSize
        self.maximumRedirects = maximumRedirects
        self.connectionsPerHost = connectionsPerHost
        self.credentialHeaders = credentialHeaders
        self.usesProxies = usesProxies
        self.certificateAuthorities = certificateAuthorities
        self.clientCertificate = clientCertificate
    }
}

extension HTTPTransportOptions {
    /// A client's certificate with its key, for TLS client authentication (RFC 8446, section 4.4.2).
    ///
    /// Its description contains neither the key nor the password.
    public struct ClientCertificate: Sendable, Hashable, RedactedDescription {
        package enum Source: Sendable, Hashable {
            case files(chain: URL, key: URL)
            case pem(chain: Data, key: Data)
            case pkcs12(Data)
        }

        package let source: Source
        package let password: String?

        /// A certificate in PEM files, which are read for each new connection; requires libcurl.
        ///
        /// - Parameters:
        ///   - chain: The certificate, then those of its authorities.
        ///   - key: The private key.
        ///   - password: Decrypts the key; `nil` if it is not encrypted.
        /// - Returns: The certificate.
        public static func files(chain: URL, key: URL, password: String? = nil) -> ClientCertificate {
            ClientCertificate(source: .files(chain: chain, key: key), password: password)
        }

        /// A certificate in PEM; requires libcurl 7.71.
        ///
        /// - Parameters:
        ///   - chain: The certificate, then those of its authorities.
        ///   - key: The private key.
        ///   - password: Decrypts the key; `nil` if it is not encrypted.
        /// - Returns: The certificate.
        public static func pem(chain: Data, key: Data, password: String? = nil) -> ClientCertificate {
            ClientCertificate(source: .pem(chain: chain, key: key), password: password)
        }

        /// A certificate in an archive of PKCS #12 (RFC 7292), for `URLSession` on Apple platforms, too; requires libcurl 7.71 on Linux.
        ///
        /// - Parameters:
        ///   - data: The archive.
        ///   - password: Decrypts the archive.
        /// - Returns: The certificate.
        public static func pkcs12(_ data: Data, password: String) -> ClientCertificate {
            ClientCertificate(source: .pkcs12(data), password: password)
        }

        /// The kind of the certificate's source.
        public var description: String {
            switch self.source {
            case .files: "certificate in files"
            case .pem: "certificate in PEM"
            case .pkcs12: "certificate in PKCS #12"
            }
        }
    }

    /// For transports that cannot be given certificates.
    ///
    /// - Parameter readsArchives: Whether a client's certificate may be an archive of PKCS #12.
    /// - Throws: ``HTTPError/PreparationFailure/unsupportedOption(name:)``.
    func requireSystemCertificates(readsArchives: Bool = false) throws(HTTPError) {
        guard self.certificateAuthorities == nil else {
            throw .preparation(.unsupportedOption(name: "certificateAuthorities"))
        }
        switch self.clientCertificate?.source {
        case nil: break
        case .pkcs12? where readsArchives: break
        default: throw .preparation(.unsupportedOption(name: "clientCertificate"))
        }
    }
}

/// A transport that takes validated calls: those of this module, which differ in how they perform one exchange.
package protocol ValidatedTransport: HTTPTransport {
    var options: HTTPTransportOptions { get }

    /// Measures the limits.
    var time: TimeSource { get }

    /// The number of callers that wait for an answer; always 0 for a transport that does not count them.
    var pendingCount: Int { get }

    /// Performs one exchange, without redirections, and hands the answer to `sink` while it arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - exchange: The exchange, which runs what the transport starts for it.
    ///   - sink: Takes the head, then the body piece by piece.
    /// - Returns: The head of the answer, once the body is complete.
    /// - Throws: ``HTTPError``, what the sink threw, or `CancellationError`.
    func perform(_ call: ValidatedCall, _ exchange: HTTPExchange, into sink: any HTTPSink) async throws -> HTTPReply

    /// The number of the session in which a call begins that is made now; always the same for a transport that keeps nothing.
    var session: UInt64 { get }

    /// Prepares the transport for a call, before ``time`` and ``session`` are read for it.
    ///
    /// - Throws: `MuxError.repositoryMismatch` if the call belongs to the session of another repository than the transport.
    func prepare(for call: ValidatedCall) throws

    /// The answer to a call that needs no exchange; `nil` if there is none.
    func stored(for call: ValidatedCall) -> HTTPReply?
}

extension ValidatedTransport {
    package var pendingCount: Int { 0 }
    package var session: UInt64 { 0 }
    package func prepare(for call: ValidatedCall) throws {}
    package func stored(for call: ValidatedCall) -> HTTPReply? { nil }

    /// Sends a request and returns the complete answer, within the limits of ``options``.
    package func send(_ call: ValidatedCall) async throws -> HTTPReply {
        let limit = self.options.maximumBodySize
        if let reply = self.stored(for: call), reply.body.count <= limit { return reply }
        try self.prepare(for: call)
        let buffer = HTTPBuffer(limit: limit)
        let deadline = call.call.deadline ?? self.options.deadline
        let session = call.session ?? self.session
        var reply = try await self.follow(call, into: buffer, sizeLimit: limit, deadline: deadline, in: session)
        reply.body = buffer.body
        return reply
    }

    /// Sends a request and returns the complete answer, whatever its status.
    ///
    /// - Parameter call: The request.
    /// - Returns: The answer.
    /// - Throws: ``HTTPError`` if there is no complete answer; `CancellationError`, at once, if the task is cancelled.
    public func send(_ call: HTTPCall) async throws -> HTTPReply { try await self.send(try ValidatedCall(call)) }

    /// Sends a request and passes the answer, whatever its status, to `sink` while it arrives.
    ///
    /// The size is not limited, and the time only by the call's own ``HTTPCall/deadline``, as long as the server is not silent.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece.
    /// - Returns: The head of the answer, once the body is complete.
    /// - Throws: ``HTTPError`` if there is no complete answer; what the sink threw; `CancellationError` if the task is cancelled, as
    ///   soon as the sink returns.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let validated = try ValidatedCall(call)
        try self.prepare(for: validated)
        return try await self.follow(
            validated,
            into: sink,
            sizeLimit: nil,
            deadline: call.deadline,
            in: self.session
        )
    }

    /// Performs the exchanges of a call: one, and one more for each redirection.
    @concurrent
    private func follow(
        _ call: ValidatedCall,
        into sink: any HTTPSink,
        sizeLimit: Int?,
        deadline: Duration?,
        in session: UInt64
    ) async throws -> HTTPReply {
        var call = call
        let admit = call.admit
        var redirects = HTTPRedirects(call.call, self.options)
        let silence = call.call.timeout ?? self.options.timeout
        let limits = HTTPExchange.Limits(
            silence: silence,
            deadline: deadline,
            body: sizeLimit,
            from: self.time.now,
            session: session
        )
        while true {
            let redirecting = RedirectingSink(redirects, sink)
            let exchange = HTTPExchange(call, limits, self.time)
            let outcome: Result<HTTPReply, any Error>
            do {
                outcome = .success(try await self.perform(call, exchange, into: redirecting))
            } catch {
                outcome = .failure(error)
            }
            guard let next = redirecting.next else { return try outcome.get() }
            // How the body of a redirection ends does not matter, but for the limits of the call.
            try exchange.check()
            redirects = redirecting.redirects
            call = try ValidatedCall(next)
            if let admit, self.stored(for: call) == nil { try admit(call.origin) }
        }
    }
}

extension HTTPTransport {
    /// Sends a request and returns the complete answer; validates nothing again.
    ///
    /// - Throws: ``HTTPError`` whatever the transport throws, or `CancellationError`.
    package func exchange(_ call: ValidatedCall) async throws -> HTTPReply {
        do {
            guard let transport = self as? any ValidatedTransport else { return try await self.send(call.call) }
            return try await transport.send(call)
        } catch {
            throw HTTPError.ended(by: error)
        }
    }

    /// Sends a request that the transport validates, and returns the complete answer.
    ///
    /// - Throws: ``HTTPError`` whatever the transport throws, or `CancellationError`.
    package func exchange(_ call: HTTPCall) async throws -> HTTPReply {
        do {
            return try await self.send(call)
        } catch {
            throw HTTPError.ended(by: error)
        }
    }

    /// Sends a request that the transport validates, and hands the answer to `sink` while it arrives.
    ///
    /// - Throws: What the sink threw, even if the transport throws another error then; ``HTTPError`` whatever else the
    ///   transport throws; or `CancellationError`.
    package func exchange(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let sink = RecordingSink(sink)
        do {
            let head = try await self.stream(call, into: sink)
            if let failure = sink.failure { throw failure }
            return head
        } catch {
            throw sink.failure ?? HTTPError.ended(by: error)
        }
    }
}

extension HTTPError {
    /// The error of an exchange whose transport threw `error`: a ``HTTPError``, or `CancellationError`.
    static func ended(by error: any Error) -> any Error {
        switch error {
        case let error as HTTPError: error
        case let error as HTTPError.TransportFailure: HTTPError.transport(error)
        case let error as HTTPError.PreparationFailure: HTTPError.preparation(error)
        case MuxError.repositoryMismatch: error
        case _ where error.isCancellation: CancellationError()
        default: HTTPError.unreachable(error)
        }
    }
}
