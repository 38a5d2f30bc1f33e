public import Foundation
package import MuxKit

/// Sends a request and returns the response, with any status.
///
/// ``SystemTransport`` is the default, and ``ExchangeTransport`` adapts another HTTP client. A custom
/// transport, such as a transport for tests, must implement only ``send(_:)``.
///
/// **Errors.** A transport may throw its own error types. An ``HTTPClient`` and an ``AsyncMedia`` throw such
/// an error as ``HTTPError/TransportFailure/unreachable(_:)``, and an error that wraps a cancellation as
/// `CancellationError`. The error's `ConnectivityError.isConnectivityFailure` selects the handling:
///
/// - `true`, if the server was not reached: the request may be retried (``HTTPClient/Configuration/retry``),
///   a stale value may replace the error (`MuxPolicy.staleIfError`), and a download resumes.
/// - `false`, such as for an untrusted certificate: the error has no such effect.
/// - An error without the conformance counts as a connectivity failure, except an error that must not be
///   retried, such as a `RetryableError` whose advice is not transient.
///
/// The advice of a `RetryableError` decides about retries.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the complete response.
    ///
    /// - Throws: ``HTTPError``, or the transport's own error, if no complete response arrives;
    ///   `CancellationError` if the task is cancelled, without a wait for the server.
    func send(_ call: HTTPCall) async throws -> HTTPReply

    /// Sends a request and passes the response to `sink` while the response arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Receives the head, then the body piece by piece.
    /// - Returns: The head of the response, with the trailers, after the end of the body; the returned body
    ///   is empty.
    /// - Throws: ``HTTPError``, or the transport's own error, if no complete response arrives; the error of
    ///   the sink; `CancellationError` if the task is cancelled, as soon as a running call of the sink
    ///   returns.
    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply
}

extension HTTPTransport {
    /// Sends a request with ``send(_:)`` and passes the complete response to `sink`.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Receives the head, then the body in one piece, unless the body is empty.
    /// - Returns: The head of the response.
    /// - Throws: The error of ``send(_:)`` or of the sink.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        var reply = try await self.send(call)
        let body = reply.body
        reply.body = Data()
        try await sink.receive(head: reply)
        if !body.isEmpty { try await sink.receive(body) }
        return reply
    }
}

/// The limits and the connection parameters of a transport.
public struct HTTPTransportConfiguration: Sendable, Hashable {
    /// The maximum silence of the server, for requests without an ``HTTPCall/timeout``.
    ///
    /// Silence is the time in which the client waits for the server, without any activity on the connection.
    /// With libcurl, the same limit applies to the time to connect.
    public var timeout: Duration

    /// The maximum total duration of a request without an ``HTTPCall/deadline``, including redirections;
    /// `nil` for no limit.
    ///
    /// ``HTTPTransport/stream(_:into:)`` ignores this value: only the ``HTTPCall/deadline`` of the request
    /// limits the duration of a stream.
    public var deadline: Duration?

    /// The maximum size of a response body in bytes, counted after decoding.
    ///
    /// ``HTTPTransport/stream(_:into:)`` ignores this value.
    public var maximumBodySize: Int

    /// The maximum size of a response head in bytes, including interim responses and trailers.
    ///
    /// Only libcurl applies this limit.
    public var maximumHeadSize: Int

    /// The maximum number of redirections of one request.
    public var maximumRedirects: Int

    /// The maximum number of connections to one host; with libcurl, of simultaneous calls to one scheme, host
    /// and port.
    ///
    /// A value below 1 counts as 1.
    public var connectionsPerHost: Int

    /// The names of header fields that a redirection to another scheme, host or port removes from the
    /// request.
    public var credentialHeaders: Set<String>

    /// Whether the transport uses the proxies of the environment or the system.
    ///
    /// On Linux the variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` set the proxies.
    public var usesProxies: Bool

    /// A file of trusted certificates (PEM) that replaces the system's certificates; `nil` for the system's
    /// certificates.
    ///
    /// Requires libcurl: the other transports of this library throw
    /// ``HTTPError/PreparationFailure/unsupportedOption(name:)``. With libcurl, a URL without a usable file
    /// path causes the same error.
    public var certificateAuthorities: URL?

    /// The certificate that authenticates this client to servers; `nil` without a certificate.
    ///
    /// The transport sends the certificate to any server that requests a certificate, so use a separate
    /// transport for the servers that need the certificate. A transport without support for the kind of
    /// certificate throws ``HTTPError/PreparationFailure/unsupportedOption(name:)``. If the certificate
    /// cannot be read, or the server reports a certificate as the reason of a refusal, requests throw
    /// ``HTTPError/TransportFailure/insecureConnection(_:)``.
    public var clientCertificate: ClientCertificate?

    /// Makes a configuration; each parameter has the name of a property.
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

extension HTTPTransportConfiguration {
    /// A client's certificate with its key, for TLS client authentication (RFC 8446, section 4.4.2).
    ///
    /// The description contains neither the key nor the password.
    public struct ClientCertificate: Sendable, Hashable, RedactedDescription {
        package enum Source: Sendable, Hashable {
            case files(chain: URL, key: URL)
            case pem(chain: Data, key: Data)
            case pkcs12(Data)
        }

        package let source: Source
        package let password: String?

        /// A certificate in PEM files; requires libcurl, which reads the files for each new connection.
        ///
        /// A URL without a usable file path causes
        /// ``HTTPError/PreparationFailure/unsupportedOption(name:)``.
        ///
        /// - Parameters:
        ///   - chain: The certificate, then the certificates of its authorities.
        ///   - key: The private key.
        ///   - password: Decrypts the key; `nil` if the key is not encrypted.
        /// - Returns: The certificate.
        public static func files(chain: URL, key: URL, password: String? = nil) -> ClientCertificate {
            ClientCertificate(source: .files(chain: chain, key: key), password: password)
        }

        /// A certificate in PEM data; requires libcurl 7.71 or later with OpenSSL.
        ///
        /// Otherwise a request fails with ``HTTPError/PreparationFailure/unsupportedOption(name:)``.
        ///
        /// - Parameters:
        ///   - chain: The certificate, then the certificates of its authorities.
        ///   - key: The private key.
        ///   - password: Decrypts the key; `nil` if the key is not encrypted.
        /// - Returns: The certificate.
        public static func pem(chain: Data, key: Data, password: String? = nil) -> ClientCertificate {
            ClientCertificate(source: .pem(chain: chain, key: key), password: password)
        }

        /// A certificate in a PKCS #12 archive (RFC 7292).
        ///
        /// Requires `URLSession` on Apple platforms, or libcurl 7.71 or later with OpenSSL.
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

    /// Throws if the configuration contains certificates that a transport without libcurl does not support.
    ///
    /// - Parameter readsArchives: Whether the transport supports a client certificate in a PKCS #12 archive.
    /// - Throws: ``HTTPError/PreparationFailure/unsupportedOption(name:)``.
    func requireSupportedCertificates(readsArchives: Bool = false) throws(HTTPError) {
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

/// A transport of this module, which receives validated calls.
///
/// A conforming type implements ``perform(_:_:into:)``. An extension implements validation, redirections and
/// the limit for the size of a body.
package protocol ValidatedTransport: HTTPTransport {
    var options: HTTPTransportConfiguration { get }

    var time: TimeSource { get }

    /// The number of callers that wait for a response; always 0 for a transport without a count.
    var pendingCount: Int { get }

    /// Whether the transport calls ``ValidatedCall/admit`` before a request to the server, as a cache does.
    var admitsCalls: Bool { get }

    /// Performs a call without following redirections, and passes the response to `sink` while the response
    /// arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - limits: The limits of the exchange.
    ///   - sink: Receives the head, then the body piece by piece.
    /// - Returns: The head of the response, after the end of the body.
    /// - Throws: The failure of the exchange, such as an ``HTTPError``; the error of the sink;
    ///   `CancellationError`.
    func perform(
        _ call: ValidatedCall,
        _ limits: HTTPExchange.Limits,
        into sink: any HTTPSink
    ) async throws -> HTTPReply

    /// The number of the session for a call that starts now; constant for a transport without a cache.
    ///
    /// A sign-out ends a session: a cache does not store responses to calls of an ended session.
    var session: UInt64 { get }

    /// A stored response to `call` that needs no exchange; `nil` if ``perform(_:_:into:)`` must decide.
    func storedReply(for call: ValidatedCall) -> HTTPReply?
}

extension ValidatedTransport {
    package var pendingCount: Int { 0 }
    package var admitsCalls: Bool { false }
    package var session: UInt64 { 0 }
    package func storedReply(for call: ValidatedCall) -> HTTPReply? { nil }

    /// The ``storedReply(for:)``, unless the body exceeds ``HTTPTransportConfiguration/maximumBodySize``.
    func reply(for call: ValidatedCall) -> HTTPReply? {
        self.storedReply(for: call).flatMap { $0.body.count <= self.options.maximumBodySize ? $0 : nil }
    }

    /// Sends a request and returns the complete response, within the limits of the call and of ``options``.
    package func send(_ call: ValidatedCall) async throws -> HTTPReply {
        if let reply = self.reply(for: call) { return reply }
        let limit = self.options.maximumBodySize
        let buffer = HTTPBuffer(limit: limit)
        let deadline = call.call.deadline ?? self.options.deadline
        let session = call.session ?? self.session
        var reply = try await self.performExchanges(
            call,
            into: buffer,
            sizeLimit: limit,
            deadline: deadline,
            in: session
        )
        reply.body = buffer.body
        return reply
    }

    /// Sends a request and returns the complete response, with any status.
    ///
    /// - Parameter call: The request.
    /// - Returns: The response.
    /// - Throws: ``HTTPError`` if no complete response arrives; `CancellationError` if the task is cancelled.
    public func send(_ call: HTTPCall) async throws -> HTTPReply {
        do {
            return try await self.send(try ValidatedCall(call))
        } catch {
            throw error.naming(call)
        }
    }

    /// Sends a request and passes the response, with any status, to `sink` while the response arrives.
    ///
    /// The size of the body has no limit. ``HTTPCall/deadline`` limits the duration, and ``HTTPCall/timeout``
    /// limits the silence of the server.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Receives the head, then the body piece by piece.
    /// - Returns: The head of the response with the trailers, after the end of the body.
    /// - Throws: ``HTTPError`` if no complete response arrives; the error of the sink; `CancellationError` if
    ///   the task is cancelled, as soon as a running call of the sink returns.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        do {
            return try await self.performExchanges(
                try ValidatedCall(call),
                into: sink,
                sizeLimit: nil,
                deadline: call.deadline,
                in: self.session
            )
        } catch {
            throw error.naming(call)
        }
    }

    /// Performs the exchanges of a call: the first exchange, and another exchange for each redirection.
    @concurrent
    private func performExchanges(
        _ call: ValidatedCall,
        into sink: any HTTPSink,
        sizeLimit: Int?,
        deadline: Duration?,
        in session: UInt64
    ) async throws -> HTTPReply {
        let method = call.method
        var call = call
        var redirects = HTTPRedirects(call.call, self.options)
        let silence = call.call.timeout ?? self.options.timeout
        let limits = HTTPExchange.Limits(
            silence: silence,
            deadline: deadline,
            body: sizeLimit,
            from: self.time.now,
            session: session
        )
        var hasOtherMethod: Bool?
        do {
            while true {
                let redirecting = RedirectingSink(redirects, hasOtherMethod, sink)
                let outcome = await Result<_, any Error> { try await self.perform(call, limits, into: redirecting) }
                guard let next = redirecting.next else {
                    var reply = try outcome.get()
                    if let hasOtherMethod { reply.hasOtherMethod.value = hasOtherMethod }
                    return reply
                }
                // A failure in the body of a redirection is ignored, except a cancellation or an exceeded
                // time limit.
                if case .failure(let error) = outcome, error.isAbort { throw error }
                redirects = redirecting.redirects
                call = try call.redirected(to: next)
                hasOtherMethod = method != call.method
                // A cache itself calls `admit`, and only before a request to the server: the cache may have a
                // stored response.
                if !self.admitsCalls { try call.admit?(call.origin) }
            }
        } catch  where call.method != method && error.isUnsent {
            // The server has processed the first request: the error must not count as the error of an unsent
            // request, which the client would repeat.
            throw HTTPError.unreachable(LaterRequestError(underlying: error))
        }
    }
}

extension HTTPTransport {
    /// Sends a validated call and returns the complete response; a ``ValidatedTransport`` does not validate
    /// the call again.
    ///
    /// - Throws: ``HTTPError`` for an error of the transport, `MuxError.repositoryMismatch`, or
    ///   `CancellationError`.
    package func exchange(_ call: ValidatedCall) async throws -> HTTPReply {
        do {
            guard let transport = self as? any ValidatedTransport else { return try await self.send(call.call) }
            return try await transport.send(call)
        } catch {
            throw HTTPError.transportError(for: error)
        }
    }

    /// Sends a request, which the transport validates, and returns the complete response.
    ///
    /// - Throws: ``HTTPError`` for an error of the transport, `MuxError.repositoryMismatch`, or
    ///   `CancellationError`.
    package func exchange(_ call: HTTPCall) async throws -> HTTPReply {
        do {
            return try await self.send(call)
        } catch {
            throw HTTPError.transportError(for: error).naming(call)
        }
    }

    /// Sends a request, which the transport validates, and passes the response to `sink` while the response
    /// arrives.
    ///
    /// - Throws: The first error of the sink, even if the transport hides or replaces the error; otherwise
    ///   ``HTTPError`` for an error of the transport, `MuxError.repositoryMismatch`, or `CancellationError`.
    package func exchange(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let sink = RecordingSink(sink)
        do {
            let head = try await self.stream(call, into: sink)
            if let failure = sink.failure { throw failure }
            return head
        } catch {
            throw sink.failure ?? HTTPError.transportError(for: error).naming(call)
        }
    }
}

extension Error {
    /// Whether the error is a cancellation, or an exceeded time limit of the call.
    var isAbort: Bool {
        switch self as? HTTPError {
        case .transport(.deadlineExceeded, _)?, .transport(.timedOut, _)?: true
        default: self.isCancellation
        }
    }

    /// The error, with the name of `call` if the error is an ``HTTPError``.
    func naming(_ call: HTTPCall) -> any Error { (self as? HTTPError)?.naming(call.name) ?? self }
}

extension HTTPError {
    /// Maps an error of a transport to an ``HTTPError`` or `CancellationError`; `MuxError.repositoryMismatch`
    /// is returned unchanged.
    static func transportError(for error: any Error) -> any Error {
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
