public import Foundation
public import MuxKit

/// Why a request did not lead to a value.
///
/// Descriptions and mirrors contain no body, no header, no URL and nothing of an underlying error but its kind:
/// each may hold a secret. Cancellation is always `CancellationError`, never one of these.
@nonexhaustive
public enum HTTPError: Error, Sendable {
    /// The request cannot be sent as it is described; nothing was sent.
    case preparation(HTTPPreparationError)

    /// There is no complete answer.
    case transport(HTTPTransportError)

    /// The server answered with a status that is not a success of this request.
    case status(HTTPStatusError)

    /// The body of a successful answer is not what was asked for.
    case decoding(HTTPDecodingError)

    /// There are no credentials to send: what renews or asks for them threw this.
    case authentication(any Error)
}

extension HTTPError {
    /// What the server said about the failure, if it is of this type.
    ///
    /// ```swift
    /// } catch let error as HTTPError {
    ///     show(error.serverError(as: Problem.self)?.title ?? error.localizedDescription)
    /// }
    /// ```
    public func serverError<ServerError>(as type: ServerError.Type = ServerError.self) -> ServerError? {
        guard case .status(let error) = self else { return nil }
        return error.serverError(as: type)
    }

    /// The status that the server answered with, if that is why.
    public var status: HTTPStatus? {
        guard case .status(let error) = self else { return nil }
        return error.status
    }
}

extension HTTPError: BadDependencyError {
    /// Whether the server refused the token: status 401.
    public var isBadDependency: Bool { self.status == .unauthorized }
}

extension HTTPError: ConnectivityError {
    /// Whether the server was not reached, or did not answer in time; the one that renews tokens included.
    public var isConnectivityFailure: Bool {
        switch self {
        case .transport(let error): error.isConnectivityFailure
        case .authentication(let error): SilenceableError.isSilenceable(error)
        case .preparation, .status, .decoding: false
        }
    }
}

extension HTTPError: LocalizedError, RedactedDescription, CustomDebugStringConvertible {
    /// A text for people, without anything secret.
    public var errorDescription: String? {
        switch self {
        case .preparation(let error): error.description
        case .transport(let error): error.description
        case .status(let error): error.description
        case .decoding(let error): error.description
        case .authentication(let error): "There are no credentials to send (\(Self.kind(of: error)))."
        }
    }

    /// The same text.
    public var description: String { self.errorDescription ?? "" }

    /// The same text.
    public var debugDescription: String { self.description }

    /// Type and code of an error: what is safe to show of it.
    static func kind(of error: any Error) -> String {
        "\(type(of: error)) \((error as NSError).code)"
    }
}

extension HTTPError: RetryableError {
    /// What the failure says: see ``HTTPTransportError/retryAdvice`` and ``HTTPStatusError/retryAdvice``.
    ///
    /// Where there is no token, what the authenticator's error says: that of a server which hands out tokens passes as others do.
    /// A request that cannot be sent, and a body that cannot be read, fail again in the same way.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .transport(let error): error.retryAdvice
        case .status(let error): error.retryAdvice
        case .authentication(let error): RetryAdvice.of(error)
        case .preparation, .decoding: .permanent
        }
    }
}

extension HTTPTransportError: RetryableError {
    /// Transient where the exchange did not come to its end; what ``unreachable(_:)`` wraps speaks for itself.
    ///
    /// The error does not know the request: whether it may be sent again is for its sender to say.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .timedOut, .truncated: .transient
        case .serverBusy(let time): RetryAdvice(isTransient: true, retryAfter: time)
        case .unreachable(let error): .of(error)
        case .notHTTP, .bodyTooLarge, .redirectRefused: .permanent
        }
    }
}

extension HTTPStatusError: RetryableError {
    /// The status, whether the method is idempotent (RFC 9110, section 9.2.2), and how long the server wants to be left alone.
    ///
    /// Statuses that say that the server is in trouble or busy are transient: 408, 429 and 5xx.
    public var retryAdvice: RetryAdvice {
        RetryAdvice(
            isTransient: [408, 429].contains(self.status.code) || (500...599).contains(self.status.code),
            isRepeatable: HTTPMethod(rawValue: self.response.request.method)?.isIdempotent ?? false,
            status: self.status.code,
            retryAfter: self.response.retryAfter
        )
    }
}

extension HTTPError {
    package static var invalidURL: HTTPError { .preparation(.invalidURL) }
    package static func invalidHeader(name: String) -> HTTPError { .preparation(.invalidHeader(name: name)) }

    package static var notHTTP: HTTPError { .transport(.notHTTP) }
    package static func unreachable(_ error: any Error) -> HTTPError { .transport(.unreachable(error)) }
    package static func timedOut(after time: Duration) -> HTTPError { .transport(.timedOut(after: time)) }
    package static func bodyTooLarge(limit: Int) -> HTTPError { .transport(.bodyTooLarge(limit: limit)) }
    package static func redirectRefused(_ why: HTTPRedirectRefusal) -> HTTPError { .transport(.redirectRefused(why)) }
    package static func truncated(expected: Int, received: Int) -> HTTPError {
        .transport(.truncated(expected: expected, received: received))
    }
}

/// A successful answer whose body is not what was asked for.
///
/// The whole answer is kept, its body included, and kept out of every description.
public struct HTTPDecodingError: Error, Sendable {
    /// The answer.
    public var response: HTTPResponse

    /// What the mapper threw.
    public var underlying: any Error

    /// Describes a failure.
    public init(_ response: HTTPResponse, underlying: any Error) {
        self.response = response
        self.underlying = underlying
    }
}

extension HTTPDecodingError: LocalizedError, RedactedDescription {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String { "The answer could not be read (\(HTTPError.kind(of: self.underlying)))." }
}

/// An answer whose status is not a success.
///
/// The whole answer is kept, its body included, and kept out of every description.
public struct HTTPStatusError: Error, Sendable {
    /// The answer.
    public var response: HTTPResponse

    /// What the server said about the failure, as the request's ``HTTPRequest/ServerError``; `nil` if it could not be read.
    public var serverError: (any Sendable)?

    /// Why ``serverError`` could not be read, as for a page in HTML that a gateway sent in place of JSON.
    public var decodingError: (any Error)?

    /// Describes a failure.
    public init(_ response: HTTPResponse, serverError: (any Sendable)? = nil, decodingError: (any Error)? = nil) {
        self.response = response
        self.serverError = serverError
        self.decodingError = decodingError
    }

    /// The status.
    public var status: HTTPStatus { self.response.status }

    /// What the server said about the failure, if it is of this type.
    public func serverError<ServerError>(as type: ServerError.Type = ServerError.self) -> ServerError? {
        self.serverError as? ServerError
    }
}

extension HTTPStatusError: LocalizedError, RedactedDescription {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String { "The server answered with status \(self.status)." }
}

/// Why there is no complete answer to a request that was sent, or was about to be.
@nonexhaustive
public enum HTTPTransportError: Error, Sendable {
    /// The server was not reached, or the exchange broke off.
    ///
    /// Whatever else a transport throws becomes one of these: see ``HTTPTransport``.
    case unreachable(any Error)

    /// There was no complete answer within this time.
    case timedOut(after: Duration)

    /// What answered does not speak HTTP.
    case notHTTP

    /// The body ended early; both counts are in bytes.
    case truncated(expected: Int, received: Int)

    /// The body is larger than the transport accepts, in bytes.
    case bodyTooLarge(limit: Int)

    /// The server asked to be left alone (`Retry-After`), and this long of that is still to come; nothing was sent.
    case serverBusy(retryAfter: Duration)

    /// The server sent the client to a place where it does not follow.
    case redirectRefused(HTTPRedirectRefusal)
}

extension HTTPTransportError: ConnectivityError {
    /// Whether the server was not reached, or did not answer in time.
    ///
    /// An error that ``unreachable(_:)`` wraps has the last word if it is a `ConnectivityError`, or one of the system. Any other
    /// counts as one of connectivity if another attempt may help, since it ended an exchange.
    public var isConnectivityFailure: Bool {
        switch self {
        case .timedOut, .serverBusy: true
        case .unreachable(let error as any ConnectivityError): error.isConnectivityFailure
        case .unreachable(let error): RetryAdvice.of(error).isTransient
        case .notHTTP, .truncated, .bodyTooLarge, .redirectRefused: false
        }
    }
}

extension HTTPTransportError: LocalizedError, RedactedDescription {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String {
        switch self {
        case .unreachable(let error): "The server could not be reached (\(HTTPError.kind(of: error)))."
        case .timedOut(let time): "The server did not answer within \(time)."
        case .notHTTP: "The answer is not an HTTP answer."
        case .truncated(let expected, let received): "The answer ended after \(received) of \(expected) bytes."
        case .bodyTooLarge(let limit): "The answer is larger than \(limit) bytes."
        case .serverBusy(let time): "The server wants to be left alone for \(time)."
        case .redirectRefused(let reason): "A redirection was not followed: \(reason.description)."
        }
    }
}

/// A description that holds no secret, so that it may be logged; the mirror contains nothing else.
public protocol RedactedDescription: CustomStringConvertible, CustomReflectable {}

extension RedactedDescription {
    /// Contains `description` alone.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
