public import Foundation
public import MuxKit

/// Sends requests with a token and returns typed outputs or typed errors.
///
/// ```swift
/// let client = HTTPClient(configuration: .default, authenticator: oauth)
/// let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
/// ```
///
/// ``call(for:path:)`` returns the request to send, without the header fields of the token. An app can define
/// its requests in an extension:
///
/// ```swift
/// extension HTTPClient {
///     func fetchUserInfo() async throws -> User { try await self.output(of: GetUserInfo()) }
/// }
/// ```
///
/// **Authentication.** A request carries the authenticator's token, or the `token` of the call instead. A
/// request with ``HTTPRequest/usesPrivateHeaders`` carries no token. An authenticator that is a
/// `DependentRunner` or an `OAuthDependentRunner` renews a token before the known expiry. If the server
/// refuses the authenticator's token (401), the token is renewed, and the request is sent once more.
/// Concurrent requests share the renewal.
///
/// **Isolation.** The body is encoded and the output is decoded on the concurrent pool, also if an actor,
/// such as the main actor, calls. The synchronous ``call(for:path:)`` encodes on the caller's thread.
///
/// **Cancellation.** A cancellation ends the running exchange of the call, and the call throws
/// `CancellationError`.
///
/// **After a failure.** With ``HTTPClient/Configuration/retry`` the request is sent again according to the
/// policy. A failed call can affect later calls through the pause of a `Retry-After`, the retry budget of the
/// host, and the invalidation of cached values.
public struct HTTPClient: Sendable {
    /// The URL of the server for requests without a host: `HTTPEndpoint(path: "/users/{id}")`.
    ///
    /// The path and the query of the base URL precede the path and the query of the request.
    public let baseURL: URL?

    /// The settings of all requests.
    public let configuration: HTTPClient.Configuration

    let authenticator: (any HTTPAuthenticator)?
    let chain: ClientChain
    /// The repositories of the cache and of the authenticator, to detect a mismatch; `nil` unless both exist.
    private let repositoryChoice: RepositoryChoice?
    /// The session of each call, for caches inside a custom transport; `nil` without the session of an
    /// authenticator, or if the transport is the system transport, directly or in a ``CachingTransport``.
    private let sessions: SessionWatch?

    /// Makes a client.
    ///
    /// - Parameters:
    ///   - baseURL: The URL of the server for requests without a host; `nil`, the default, if every request
    ///     has a host.
    ///   - configuration: The settings of all requests.
    ///   - transport: The transport of the requests; by default ``HTTPTransport/system(_:)`` with the limits
    ///     of `configuration`.
    ///   - authenticator: The source of tokens; `nil`, the default, for requests without a token.
    public init(
        baseURL: URL? = nil,
        configuration: HTTPClient.Configuration = .default,
        transport: (any HTTPTransport)? = nil,
        authenticator: (any HTTPAuthenticator)? = nil
    ) {
        self.baseURL = baseURL
        self.configuration = configuration
        self.authenticator = authenticator
        let session = authenticator?.sessionRepository
        let cache = transport?.cache(in: session)
        self.chain = ClientChain(configuration, transport, authenticator, cache)
        self.repositoryChoice = session.flatMap { session in
            cache.map { RepositoryChoice(given: $0.repository, ofDependency: session) }
        }
        self.sessions = session.flatMap { SessionWatch($0, isOfAccount: true, for: cache ?? transport) }
    }

    var time: TimeSource { self.chain.time }

    /// Sends a request and reads the response.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; replace the request's own values.
    ///   - token: A token in place of the authenticator's token, not renewed after a 401; `nil` for the
    ///     authenticator's token.
    /// - Returns: The output, and the response of the output.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or
    ///   `CancellationError`.
    @discardableResult @concurrent
    public func execute<Request: HTTPRequest>(
        _ request: Request,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil
    ) async throws -> (output: Request.Output, response: HTTPResponse) {
        let response = try await self.response(to: request, path: values, token: token)
        guard request.successStatuses.contains(response.status) else {
            throw HTTPError.status(request.mapper.failure(of: response))
        }
        return (try request.mapper.output(of: response), response)
    }

    /// Sends a request and returns only its output.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; replace the request's own values.
    ///   - token: A token in place of the authenticator's token, not renewed after a 401; `nil` for the
    ///     authenticator's token.
    /// - Returns: The output.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or
    ///   `CancellationError`.
    public func output<Request: HTTPRequest>(
        of request: Request,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil
    ) async throws -> Request.Output {
        try await self.execute(request, path: values, token: token).output
    }

    /// Sends a request and returns the response with any status.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; replace the request's own values.
    ///   - token: A token in place of the authenticator's token, not renewed after a 401; `nil` for the
    ///     authenticator's token.
    ///   - headers: Header fields that replace the request's own fields.
    /// - Returns: The response. A 401 to the authenticator's token is returned only if the server also
    ///   refuses a new token, or if a redirection led to the 401.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or
    ///   `CancellationError`.
    public func response(
        to request: some HTTPRequest,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil,
        headers: HTTPHeaders = [:]
    ) async throws -> HTTPResponse {
        try await self.response(to: request, path: values, token: token, headers: headers, isQuery: false)
    }

    /// ``response(to:path:token:headers:)`` for a value to be cached: a POST counts as a query, and makes no
    /// value stale.
    func responseForCache(to request: some HTTPRequest, headers: HTTPHeaders) async throws -> HTTPResponse {
        try await self.response(to: request, path: [:], token: nil, headers: headers, isQuery: request.method == .post)
    }

    @concurrent
    private func response(
        to request: some HTTPRequest,
        path values: [String: String],
        token: (any HTTPToken)?,
        headers: HTTPHeaders,
        isQuery: Bool
    ) async throws -> HTTPResponse {
        try self.repositoryChoice?.check(nil, name: "CachingTransport")
        do {
            let session = self.sessions?.current
            func send() async throws -> HTTPResponse {
                var call = try ValidatedCall(try self.call(for: request, path: values, headers: headers))
                if let session { call = call.attaching(session) }
                call.isQuery = isQuery
                let isPrivate = request.usesPrivateHeaders
                if let token, !isPrivate { call = try call.authorized(by: token.headers) }
                let reply = try await self.chain.send(call, usesAuthenticator: token == nil && !isPrivate)
                return HTTPResponse(request: call.call, reply: reply)
            }
            // Usually both are `nil`: the transport is not custom, and no outer call has set a session.
            guard session != nil || CallSession.current != nil else { return try await send() }
            return try await CallSession.$current.withValue(session) { try await send() }
        } catch let error as HTTPError {
            throw error.naming(HTTPCall.name(of: request, base: self.baseURL))
        }
    }

    /// The request to send, without the token.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; replace the request's own values.
    /// - Returns: The request.
    /// - Throws: ``HTTPError/preparation(_:request:)``.
    public func call(for request: some HTTPRequest, path values: [String: String] = [:]) throws(HTTPError) -> HTTPCall {
        do throws(HTTPError) {
            return try ValidatedCall(try self.call(for: request, path: values, headers: [:])).call
        } catch {
            throw error.naming(HTTPCall.name(of: request, base: self.baseURL))
        }
    }

    /// The request to send, without the token; the header fields are not validated yet.
    private func call(
        for request: some HTTPRequest,
        path values: [String: String],
        headers: HTTPHeaders
    ) throws(HTTPError) -> HTTPCall {
        do throws(HTTPError.PreparationFailure) {
            let url = try self.url(of: request, path: values)
            let method = request.method
            var fields = self.configuration.fields(of: request)
            var content: HTTPCall.Body?
            if let body = request.body {
                guard method.allowsBody else { throw .bodyNotAllowed(method) }
                let encoded = try body.encoded()
                if request.headers[.contentType] == nil {
                    fields[.contentType] = (encoded.contentType ?? self.configuration.contentType).rawValue
                }
                content = encoded.body
            }
            var call = HTTPCall(
                method: method.rawValue,
                url: url,
                headers: fields.merging(headers),
                body: content,
                timeout: request.timeout ?? self.configuration.transport.timeout
            )
            call.pathTemplate = request.endpoint.path.template
            return call
        } catch {
            throw .preparation(error)
        }
    }
}

extension HTTPClient.Configuration {
    /// The header fields of a request, without the content type of its body and without the fields of a
    /// token.
    func fields(of request: some HTTPRequest) -> HTTPHeaders {
        var fields = request.headers
        if !request.usesPrivateHeaders {
            let own: HTTPHeaders = [.accept: self.contentType.rawValue]
            fields = own.merging(self.headers).merging(fields)
        }
        if let key = request.idempotencyKey, !key.isEmpty { fields[.idempotencyKey] = key }
        return fields
    }
}

extension HTTPClient {
    /// The URL of a request; `values` for the path's placeholders replace the request's own values.
    func url(
        of request: some HTTPRequest,
        path values: [String: String] = [:]
    ) throws(HTTPError.PreparationFailure) -> URL {
        var endpoint = request.endpoint
        if endpoint.host == .base, let baseURL {
            endpoint = try HTTPEndpoint(baseURL).appending(endpoint.path, query: endpoint.query)
        }
        return try endpoint.url(path: request.pathValues.merging(values) { $1 }, query: request.queryItems)
    }

    /// The settings of all requests of an ``HTTPClient``.
    public struct Configuration: Sendable {
        /// The value of `Accept`, and the content type of a body without a type; JSON by default.
        public var contentType: HTTPMediaType

        /// Header fields of every request without private headers; empty by default.
        ///
        /// A request's own fields replace fields of the same names.
        public var headers: HTTPHeaders

        /// The limits of the client's default transport: 20 s of silence, 40 s in total, 10 connections to a
        /// host.
        ///
        /// A custom transport has its own limits. The client passes only
        /// ``HTTPTransportConfiguration/timeout`` to a custom transport, with each request that has no
        /// ``HTTPRequest/timeout``.
        public var transport: HTTPTransportConfiguration

        /// Identifies the client's account, if an app uses several accounts at the same time; `nil`, the
        /// default, for one account at a time.
        ///
        /// Part of the name on disk of each value of the client's multiplexers, and never sent. The stored
        /// responses of a ``CachingTransport`` do not depend on this property.
        public var viewer: String?

        /// The retries after a transient failure; `nil`, the default, for no retry.
        ///
        /// A request is retried if its method is idempotent (``HTTPMethod/isIdempotent``), if the request has
        /// an ``HTTPRequest/idempotencyKey``, or if `RetryPolicy.repeatsUnsafeWork` is `true`. A failure to
        /// get a token is retried with any method. A wait is at least the server's `Retry-After`. The caller
        /// gets the outcome of the last attempt.
        public var retry: RetryPolicy?

        /// Bounds the retries of all requests to a host; without effect without ``retry``.
        ///
        /// After consecutive failures of the host, the budget also refuses first attempts for a time.
        public var retryBudget: RetryBudget

        /// Measures the waits between attempts, the time from a request to its response (a part of the age of
        /// a value), and the pauses of `Retry-After`.
        ///
        /// With a ``CachingTransport``, the clock of the cache's repository measures the pauses.
        public var clock: any Clock<Duration>

        /// The maximum heuristic lifetime of a value of the client's multiplexers; by default one day.
        ///
        /// The heuristic lifetime is a tenth of the time since the last change (`Last-Modified`), if the
        /// server sends no other lifetime (RFC 9111, section 4.2.2). With zero, the heuristic lifetime is
        /// zero, so the value is stale at once. A ``CachingTransport`` has a separate limit.
        public var heuristicLimit: Duration

        /// Whether a cached value with an `ETag`, but without a lifetime, is validated for each request.
        ///
        /// The default is `true`. With `false`, the policy of the multiplexer determines the lifetime.
        public var validatesWithoutLifetime: Bool

        /// The wall clock, for the arrival times of responses, and for pauses until a date in `Retry-After`.
        ///
        /// A ``CachingTransport`` uses the wall clock of the cache's repository.
        public var wallTime: @Sendable () -> Date

        /// Makes a configuration; each parameter sets the property with its name.
        public init(
            contentType: HTTPMediaType = .json,
            headers: HTTPHeaders = [:],
            transport: HTTPTransportConfiguration = .init(),
            viewer: String? = nil,
            retry: RetryPolicy? = nil,
            retryBudget: RetryBudget = .shared,
            clock: any Clock<Duration> = ContinuousClock(),
            heuristicLimit: Duration = .seconds(24 * 60 * 60),
            validatesWithoutLifetime: Bool = true,
            wallTime: @escaping @Sendable () -> Date = { Date() }
        ) {
            self.contentType = contentType
            self.headers = headers
            self.transport = transport
            self.viewer = viewer
            self.retry = retry
            self.retryBudget = retryBudget
            self.clock = clock
            self.heuristicLimit = heuristicLimit
            self.validatesWithoutLifetime = validatesWithoutLifetime
            self.wallTime = wallTime
        }

        /// The defaults.
        public static let `default` = HTTPClient.Configuration()
    }
}
