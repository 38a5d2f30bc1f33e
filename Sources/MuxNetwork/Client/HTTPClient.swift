public import Foundation
public import MuxKit

/// Sends requests that are values, with the right token, and returns typed answers or typed errors.
///
/// ```swift
/// let client = HTTPClient(configuration: .default, authenticator: oauth)
/// let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
/// ```
///
/// What is sent is what ``call(for:path:)`` shows, plus the headers of the token. What an app asks for reads well as an
/// extension: `func fetchUserInfo() async throws -> User { try await self.output(of: GetUserInfo()) }`.
///
/// **Authentication.** A request without private headers carries the authenticator's token. A runner renews one that is about to
/// end before it hands it out; one that the server refuses (401) is renewed, and the request repeated once. Requests at the same
/// time share the renewal.
///
/// **Cancellation.** A cancelled call leaves at once with `CancellationError`, and the transport's exchange ends.
///
/// **After a failure.** With ``HTTPConfiguration/retry`` the request is sent again, as that says; then nothing is remembered,
/// and the next call stands for itself.
public struct HTTPClient: Sendable {
    /// What all requests have in common.
    public let configuration: HTTPConfiguration

    /// What carries the requests, and learns from what it carries.
    let traffic: HTTPTraffic
    let time: TimeSource
    let authenticator: (any HTTPAuthenticator)?

    /// Makes a client.
    ///
    /// - Parameters:
    ///   - configuration: What all requests have in common.
    ///   - transport: What carries them; by default a ``URLSessionTransport`` with the limits of `configuration`.
    ///   - authenticator: Hands out tokens; without one, requests carry none.
    public init(
        configuration: HTTPConfiguration = .default,
        transport: (any HTTPTransport)? = nil,
        authenticator: (any HTTPAuthenticator)? = nil
    ) {
        self.configuration = configuration
        self.time = TimeSource(configuration.clock)
        self.traffic = HTTPTraffic(
            transport ?? URLSessionTransport(configuration.transport),
            time: self.time,
            wallTime: configuration.wallTime
        )
        self.authenticator = authenticator
    }

    /// Sends a request and reads the answer.
    ///
    /// - Parameters:
    ///   - request: What to ask.
    ///   - values: What is put in place of the path's placeholders; counts more than the request's own values.
    ///   - token: Shown in place of the authenticator's, and neither renewed nor tried again; `nil` for the authenticator's.
    /// - Returns: The output and the answer that it was made of.
    /// - Throws: ``HTTPError``, or `CancellationError`.
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
    ///   - request: What to ask.
    ///   - values: What is put in place of the path's placeholders; counts more than the request's own values.
    ///   - token: Shown in place of the authenticator's, and neither renewed nor tried again; `nil` for the authenticator's.
    /// - Returns: The output.
    /// - Throws: ``HTTPError``, or `CancellationError`.
    public func output<Request: HTTPRequest>(
        of request: Request,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil
    ) async throws -> Request.Output {
        try await self.execute(request, path: values, token: token).output
    }

    /// Sends a request and returns the answer as it is, whatever its status.
    ///
    /// - Parameters:
    ///   - request: What to ask.
    ///   - values: What is put in place of the path's placeholders; counts more than the request's own values.
    ///   - token: Shown in place of the authenticator's, and neither renewed nor tried again; `nil` for the authenticator's.
    ///   - headers: Header fields that count more than the request's own.
    /// - Returns: The answer; a 401 only after a new token did not help.
    /// - Throws: ``HTTPError``, or `CancellationError`.
    public func response(
        to request: some HTTPRequest,
        path values: [String: String] = [:],
        token: (any HTTPToken)? = nil,
        headers: HTTPHeaders = [:]
    ) async throws -> HTTPResponse {
        let draft = try self.draft(of: request, path: values, headers: headers)
        let call = try draft.call()  // what is wrong with it is said before anyone is asked for a token
        guard !request.usesPrivateHeaders else { return try await self.exchange(call) }
        guard let authenticator, token == nil else {
            return try await self.exchange(try draft.call(with: token?.headers ?? [:]))
        }
        return try await self.send(draft, with: authenticator)
    }

    /// The request as it is sent, but for the token.
    ///
    /// - Parameters:
    ///   - request: What to ask.
    ///   - values: What is put in place of the path's placeholders; counts more than the request's own values.
    /// - Returns: The request.
    /// - Throws: ``HTTPError/preparation(_:)``.
    public func call(for request: some HTTPRequest, path values: [String: String] = [:]) throws(HTTPError) -> HTTPCall {
        try self.draft(of: request, path: values, headers: [:]).call()
    }

    private func draft(
        of request: some HTTPRequest,
        path values: [String: String],
        headers: HTTPHeaders
    ) throws(HTTPError) -> HTTPDraft {
        do throws(HTTPPreparationError) {
            return try HTTPDraft(request, path: values, headers: headers, configuration: self.configuration)
        } catch {
            throw .preparation(error)
        }
    }

    /// Sends a request with a token, for which it asks as often as the configuration says: nothing was sent when there is none.
    private func send(_ draft: HTTPDraft, with authenticator: any HTTPAuthenticator) async throws -> HTTPResponse {
        guard let policy = self.configuration.retry else { return try await self.attempt(draft, authenticator).get() }
        let course = RetryLoop(policy, time: self.time)
        return try await course.runPlainly { _ in try await self.attempt(draft, authenticator) }.get()
    }

    /// What comes of a request that is sent with a token, and once more with a new one if the server refuses that.
    ///
    /// - Throws: Why there is no token.
    private func attempt(
        _ draft: HTTPDraft,
        _ authenticator: any HTTPAuthenticator
    ) async throws -> Result<HTTPResponse, any Error> {
        var wasRefused = false
        do {
            return try await authenticator.authorized { token in
                // An error of the exchange is not one of the authenticator's, and none of its business.
                do {
                    let response = try await self.exchange(try draft.call(with: token.headers))
                    guard response.status == .unauthorized, !wasRefused else { return .output(.success(response)) }
                    wasRefused = true
                    return .badDependency
                } catch {
                    return .output(.failure(error))
                }
            }
        } catch {
            throw HTTPError.isCancellation(error) ? CancellationError() : HTTPError.authentication(error)
        }
    }

    /// Sends a request, as often as the configuration says.
    private func exchange(_ call: HTTPCall) async throws -> HTTPResponse {
        guard let policy = self.configuration.retry,
            policy.repeatsUnsafeWork || HTTPMethod(rawValue: call.method)?.isIdempotent == true
        else { return try await self.send(call) }
        let host = RetryHost(call.url.host() ?? "", budget: self.configuration.retryBudget)
        do {
            return try await retry(policy, on: host, clock: self.configuration.clock) { _ in
                let response = try await self.send(call)
                guard policy.retriedStatuses.contains(response.status.code) else { return response }
                throw HTTPError.status(HTTPStatusError(response))
            }
        } catch let error as RetryError {
            switch error.lastError as? HTTPError {
            case .status(let failure)?: return failure.response
            case let last?: throw last
            case nil: throw HTTPError.transport(.unreachable(error))  // the host is left alone
            }
        }
    }

    private func send(_ call: HTTPCall) async throws -> HTTPResponse {
        HTTPResponse(request: call, reply: try await self.traffic.exchange(call))
    }
}

/// What all requests of an ``HTTPClient`` have in common.
public struct HTTPConfiguration: Sendable {
    /// What the client asks for (`Accept`), and what a body is that does not say; JSON.
    public var contentType: HTTPMediaType = .json

    /// Header fields of every request without private headers; none.
    ///
    /// A request's own fields of the same names count more.
    public var headers: HTTPHeaders = [:]

    /// The limits of the client's own transport: 20 s of silence, 40 s in all, 10 connections to a host.
    ///
    /// A transport that is handed to the client has limits of its own; of these, only the first counts then.
    public var transport = HTTPTransportOptions()

    /// Does nothing: a runner renews a token before its end, by `RunnerPolicy/leeway`.
    @available(*, deprecated, message: "Set the leeway of the runner's RunnerPolicy.")
    public var tokenLeeway: Duration {
        get { .seconds(30) }
        set { _ = newValue }
    }

    /// Names whose answers these are, where several accounts are used at the same time; `nil` for the one of the session.
    ///
    /// It is part of the key of everything that is cached, and is sent nowhere.
    public var viewer: String?

    /// How often a request is sent again that met trouble which may pass; `nil`, the default, for never.
    ///
    /// Only requests of idempotent methods are (``HTTPMethod/isIdempotent``), unless the policy says otherwise. A server that
    /// wants to be left alone (`Retry-After`) is. In the end the caller gets what the last attempt met.
    public var retry: RetryPolicy?

    /// Bounds the retries of all requests to a host, if there are any.
    public var retryBudget = RetryBudget.shared

    /// Measures the waits between attempts, and how long a server wants to be left alone.
    public var clock: any Clock<Duration> = ContinuousClock()

    /// The time of day, by which answers are dated.
    public var wallTime: @Sendable () -> Date = { Date() }

    /// The defaults.
    public init() {}

    /// The defaults.
    public static let `default` = HTTPConfiguration()
}
