public import Foundation
public import MuxKit

/// Sends requests with a token and returns typed outputs or typed errors.
///
/// ```swift
/// let client = HTTPClient(configuration: .default, authenticator: oauth)
/// let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
/// ```
///
/// ``call(for:path:)`` returns what is sent, without the header fields of the token. An app's requests read well as an
/// extension: `func fetchUserInfo() async throws -> User { try await self.output(of: GetUserInfo()) }`.
///
/// **Authentication.** A request without private headers carries the authenticator's token. A runner renews a token ahead of its
/// end; one that the server refuses (401) is renewed, and the request is sent once more. Concurrent requests share the renewal.
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`, and the transport's exchange ends.
///
/// **After a failure.** With ``HTTPClient/Configuration/retry`` the request is sent again as the policy says. A failed call leaves no
/// state behind.
public struct HTTPClient: Sendable {
    /// The settings of all requests.
    public let configuration: HTTPClient.Configuration

    let time: TimeSource
    let authenticator: (any HTTPAuthenticator)?
    let invalidation: InvalidationInterceptor
    private let retryAfter: RetryAfterInterceptor
    private let transport: any HTTPTransport
    /// The repository of a transport that keeps answers for the authenticator's session; `nil` if there is none.
    private let choice: RepositoryChoice?
    /// Names the session of each call to the caches in the transport; `nil` if there is no account, or no such cache.
    private let sessions: SessionWatch?

    /// Makes a client.
    ///
    /// - Parameters:
    ///   - configuration: The settings of all requests.
    ///   - transport: Sends them; by default ``HTTPTransport/system(_:)`` with the limits of `configuration`.
    ///   - authenticator: Hands out tokens; without one, requests carry none.
    public init(
        configuration: HTTPClient.Configuration = .default,
        transport: (any HTTPTransport)? = nil,
        authenticator: (any HTTPAuthenticator)? = nil
    ) {
        self.configuration = configuration
        self.time = TimeSource(configuration.clock)
        self.authenticator = authenticator
        self.invalidation = InvalidationInterceptor(time: self.time)
        self.retryAfter = RetryAfterInterceptor(time: self.time, wallTime: configuration.wallTime)
        self.transport = transport ?? .system(configuration.transport)
        self.choice = authenticator?.sessionRepository.flatMap { session in
            (transport as? CachingTransport).map {
                RepositoryChoice(given: $0.settled(in: session), ofDependency: session)
            }
        }
        self.sessions = authenticator?.sessionRepository.flatMap { session in
            SessionWatch(session, isOfAccount: true, for: transport)
        }
    }

    /// Sends a request and reads the answer.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; they replace the request's own.
    ///   - token: Sent in place of the authenticator's, and not renewed after a 401; `nil` for the authenticator's.
    /// - Returns: The output and the answer that it was read from.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or `CancellationError`.
    @discardableResult
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

    /// Sends a request and returns its output alone.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; they replace the request's own.
    ///   - token: Sent in place of the authenticator's, and not renewed after a 401; `nil` for the authenticator's.
    /// - Returns: The output.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or `CancellationError`.
    public func output<Request: HTTPRequest>(
        of request: Request,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil
    ) async throws -> Request.Output {
        try await self.execute(request, path: values, token: token).output
    }

    /// Sends a GET request and returns its output: `let user: User = try await client.get(url)`.
    ///
    /// - Parameters:
    ///   - url: An absolute `http` or `https` URL.
    ///   - headers: Header fields of the request.
    /// - Returns: The body as `Data`, or decoded from JSON.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or `CancellationError`.
    public func get<Output: Decodable & Sendable>(_ url: URL, headers: HTTPHeaders = [:]) async throws -> Output {
        let endPoint: HTTPEndPoint
        do throws(HTTPError.PreparationFailure) {
            endPoint = try HTTPEndPoint(url)
        } catch {
            throw HTTPError.preparation(error)
        }
        return try await self.output(of: GetRequest<Output>(endPoint: endPoint, headers: headers))
    }

    /// Sends a request and returns the answer, whatever its status.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; they replace the request's own.
    ///   - token: Sent in place of the authenticator's, and not renewed after a 401; `nil` for the authenticator's.
    ///   - headers: Header fields that replace the request's own.
    /// - Returns: The answer; a 401 only after a new token did not help.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or `CancellationError`.
    public func response(
        to request: some HTTPRequest,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil,
        headers: HTTPHeaders = [:]
    ) async throws -> HTTPResponse {
        try await self.response(to: request, path: values, token: token, headers: headers, isQuery: false)
    }

    /// ``response(to:path:token:headers:)`` for a value that is cached: a POST changes nothing.
    func responseForCache(to request: some HTTPRequest, headers: HTTPHeaders) async throws -> HTTPResponse {
        try await self.response(to: request, path: [:], token: nil, headers: headers, isQuery: request.method == .post)
    }

    private func response(
        to request: some HTTPRequest,
        path values: [String: String],
        token: (any HTTPToken)?,
        headers: HTTPHeaders,
        isQuery: Bool
    ) async throws -> HTTPResponse {
        try self.choice?.check(nil, name: "CachingTransport")
        do {
            let session = self.sessions?.current
            // As a rule there is neither: the transport has no cache, or knows its repository.
            guard session != nil || CallSession.current != nil else {
                return try await self.answer(
                    to: request,
                    path: values,
                    token: token,
                    headers: headers,
                    isQuery: isQuery
                )
            }
            return try await CallSession.$current.withValue(session) {
                try await self.answer(
                    to: request,
                    path: values,
                    token: token,
                    headers: headers,
                    isQuery: isQuery,
                    in: session
                )
            }
        } catch let error as HTTPError {
            throw error.naming(request)
        }
    }

    private func answer(
        to request: some HTTPRequest,
        path values: [String: String],
        token: (any HTTPToken)?,
        headers: HTTPHeaders,
        isQuery: Bool,
        in session: CallSession? = nil
    ) async throws -> HTTPResponse {
        var call = try ValidatedCall(try self.call(for: request, path: values, headers: headers))
        if let session { call = call.sent(for: session) }
        call.isQuery = isQuery
        // Before there is a token: a call with the token of a session that has ended since belongs to that session.
        call.session = (self.transport as? any ValidatedTransport)?.session
        guard !request.usesPrivateHeaders else { return try await self.exchange(call) }
        guard let authenticator, token == nil else {
            return try await self.exchange(try call.authorized(by: token?.headers ?? [:]))
        }
        return try await self.send(call, with: authenticator)
    }

    /// The request as it is sent, but for the token.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - values: Values for the path's placeholders; they replace the request's own.
    /// - Returns: The request.
    /// - Throws: ``HTTPError/preparation(_:request:)``.
    public func call(for request: some HTTPRequest, path values: [String: String] = [:]) throws(HTTPError) -> HTTPCall {
        do throws(HTTPError) {
            return try ValidatedCall(try self.call(for: request, path: values, headers: [:])).call
        } catch {
            throw error.naming(request)
        }
    }

    private func call(
        for request: some HTTPRequest,
        path values: [String: String],
        headers: HTTPHeaders
    ) throws(HTTPError) -> HTTPCall {
        do throws(HTTPError.PreparationFailure) {
            return try HTTPCall(request, path: values, headers: headers, configuration: self.configuration)
        } catch {
            throw .preparation(error)
        }
    }

    // MARK: - The chain: token and its retry, renewal after a 401, retry, Retry-After, invalidation, transport

    /// Sends a request with a token; a failure to get one is retried as the configuration says, for nothing was sent.
    private func send(_ call: ValidatedCall, with authenticator: any HTTPAuthenticator) async throws -> HTTPResponse {
        guard let policy = self.configuration.retry else { return try await self.attempt(call, authenticator).get() }
        let loop = RetryLoop(policy, time: self.time)
        return try await loop.runPlainly { _ in try await self.attempt(call, authenticator) }.get()
    }

    /// Sends a request with a token, and once more with a new one after a 401.
    ///
    /// - Returns: The outcome of the exchange.
    /// - Throws: Why there is no token.
    private func attempt(
        _ call: ValidatedCall,
        _ authenticator: any HTTPAuthenticator
    ) async throws -> Result<HTTPResponse, any Error> {
        var wasRefused = false
        do {
            return try await authenticator.authorized { token in
                // An error of the exchange is an output for the authenticator: it does not concern the token.
                do {
                    let response = try await self.exchange(try call.authorized(by: token.headers))
                    guard response.status == .unauthorized, !wasRefused else { return .output(.success(response)) }
                    wasRefused = true
                    return .badDependency
                } catch {
                    return .output(.failure(error))
                }
            }
        } catch {
            throw error.isCancellation ? CancellationError() : HTTPError.authentication(error)
        }
    }

    /// Sends a request, as often as the configuration says.
    private func exchange(_ call: ValidatedCall) async throws -> HTTPResponse {
        guard let policy = self.configuration.retry, policy.repeatsUnsafeWork || call.method.isIdempotent else {
            return try await self.send(call)
        }
        let host = RetryPolicy.Host(call.origin.host, budget: self.configuration.retryBudget)
        do {
            return try await retry(policy, on: host, clock: self.configuration.clock) { _ in
                let response = try await self.send(call)
                guard policy.retriedStatuses.contains(response.status.code) else { return response }
                throw HTTPError.status(HTTPError.StatusFailure(response))
            }
        } catch let error as RetryError {
            if case MuxError.repositoryMismatch? = error.lastError { throw MuxError.repositoryMismatch }
            switch error.lastError as? HTTPError {
            case .status(let failure)?: return failure.response
            case let last?: throw last
            case nil: throw HTTPError.transport(.unreachable(error))  // the budget admits no request to the host
            }
        }
    }

    private func send(_ call: ValidatedCall) async throws -> HTTPResponse {
        let send = { (call: ValidatedCall) async throws -> HTTPReply in
            try await self.invalidation.send(call) { try await self.transport.exchange(call) }
        }
        // A cache obeys Retry-After itself, and answers with what is stored meanwhile.
        let isCached = self.transport is CachingTransport
        let reply = isCached ? try await send(call) : try await self.retryAfter.send(call, next: send)
        return HTTPResponse(request: call.call, reply: reply)
    }
}

extension HTTPCall {
    /// The request as it is sent, but for the token; its header fields are not validated yet.
    fileprivate init(
        _ request: some HTTPRequest,
        path values: [String: String],
        headers: HTTPHeaders,
        configuration: HTTPClient.Configuration
    ) throws(HTTPError.PreparationFailure) {
        let url = try request.url(path: values)
        let method = request.method
        var fields = configuration.fields(of: request)
        var content: HTTPCall.Body?
        if let body = request.body {
            guard method.allowsBody else { throw .bodyNotAllowed(method) }
            let encoded = try body.encoded()
            if request.headers[.contentType] == nil {
                fields[.contentType] = (encoded.contentType ?? configuration.contentType).rawValue
            }
            content = encoded.body
        }
        self.init(
            method: method.rawValue,
            url: url,
            headers: fields.merging(headers),
            body: content,
            timeout: request.timeout ?? configuration.transport.timeout
        )
        self.pathTemplate = request.endPoint.path.template
    }
}

extension HTTPClient.Configuration {
    /// The header fields of a request, but for those of its content and of a token.
    func fields(of request: some HTTPRequest) -> HTTPHeaders {
        guard !request.usesPrivateHeaders else { return request.headers }
        let own: HTTPHeaders = [.accept: self.contentType.rawValue]
        return own.merging(self.headers).merging(request.headers)
    }
}

extension HTTPRequest {
    /// The URL with `values` in place of the path's placeholders; they replace the request's own.
    func url(path values: [String: String] = [:]) throws(HTTPError.PreparationFailure) -> URL {
        try self.endPoint.url(path: self.pathValues.merging(values) { $1 }, query: self.queryItems)
    }
}

extension HTTPClient {
    /// The settings of all requests of an ``HTTPClient``.
    public struct Configuration: Sendable {
        /// The value of `Accept`, and the content type of a body without one; JSON.
        public var contentType: HTTPMediaType

        /// Header fields of every request without private headers; none.
        ///
        /// A request's own fields replace those of the same names.
        public var headers: HTTPHeaders

        /// The limits of the client's own transport: 20 s of silence, 40 s in all, 10 connections to a host.
        ///
        /// A transport that is passed to the client has limits of its own; of these, it gets only the first, with each request.
        public var transport: HTTPTransportOptions

        /// Does nothing: a runner renews a token before its end, by `RunnerPolicy/leeway`.
        @available(*, deprecated, message: "Set the leeway of the runner's RunnerPolicy.")
        public var tokenLeeway: Duration {
            get { .seconds(30) }
            set { _ = newValue }
        }

        /// Identifies the account, where several are used at the same time; `nil` for that of the session.
        ///
        /// It is part of the key of every cached value, and is never sent.
        public var viewer: String?

        /// How often a request is sent again after a transient failure; `nil`, the default, for never.
        ///
        /// Applies to idempotent methods (``HTTPMethod/isIdempotent``), unless the policy says otherwise, and waits as long as
        /// `Retry-After` says. The caller gets the outcome of the last attempt.
        public var retry: RetryPolicy?

        /// Bounds the retries of all requests to a host.
        public var retryBudget: RetryBudget

        /// Measures the waits between attempts and those that `Retry-After` asks for.
        public var clock: any Clock<Duration>

        /// The longest freshness of a cached value that is derived from the last change alone; a day.
        ///
        /// It is a tenth of the time since then, where the server says nothing else (RFC 9111, section 4.2.2); zero for none.
        public var heuristicLimit: Duration

        /// Whether a cached value is validated for each request where the server says nothing of time, but sends an `ETag`; `true`.
        ///
        /// Otherwise the policy of the multiplexer says how long it is fresh.
        public var validatesWithoutLifetime: Bool

        /// The wall clock, which dates answers.
        public var wallTime: @Sendable () -> Date

        /// The parameters have the names of the properties.
        public init(
            contentType: HTTPMediaType = .json,
            headers: HTTPHeaders = [:],
            transport: HTTPTransportOptions = .init(),
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

/// A GET request of a URL.
private struct GetRequest<Output: Decodable & Sendable>: HTTPRequest {
    let endPoint: HTTPEndPoint
    let headers: HTTPHeaders
    var method: HTTPMethod { .get }
}
