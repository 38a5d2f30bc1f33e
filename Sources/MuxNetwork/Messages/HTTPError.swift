public import Foundation
public import MuxKit

/// The reason for a failed request.
///
/// A description contains the method, the host and the path template of the request, if present, but no body,
/// header value, query or value of a path. The description of an error of an ``AsyncMedia`` contains the path
/// of the URL. A description also contains the `errorDescription` of a server error, and a sentence about an
/// underlying error: the localized description of this error, or otherwise the type. The other parts of an
/// ``HTTPError`` may contain secrets.
///
/// A cancelled request throws `CancellationError` instead of an ``HTTPError``.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum HTTPError: Error, Sendable {
    /// The request, or the next request of a redirection, is invalid, could not be encoded, or needs an
    /// option that the transport does not support.
    ///
    /// No part of this request was sent, unless a streamed body failed during the sending.
    ///
    /// `request` is the method, the host and the path template, such as `GET api.example.com/notes/{id}`, for
    /// error texts. An ``HTTPClient`` and the transports of this module set `request`; `nil` for a request
    /// with neither a valid host nor a template.
    case preparation(HTTPError.PreparationFailure, request: String? = nil)

    /// No usable response arrived.
    ///
    /// `request` is the method, the host and the path template, as in ``preparation(_:request:)``.
    case transport(HTTPError.TransportFailure, request: String? = nil)

    /// The response has a status outside the success statuses of the request.
    case status(HTTPError.StatusFailure)

    /// The body of a successful response could not be decoded.
    case decoding(HTTPError.DecodingFailure)

    /// The authenticator threw this error instead of providing a token, or the session of the request ended
    /// before the request got a token (`MuxError.sessionEnded`).
    case authentication(any Error)
}

extension HTTPError {
    /// The body of a ``status(_:)`` failure as a value of this type.
    ///
    /// ```swift
    /// } catch let error as HTTPError {
    ///     show((try? error.decode(Problem.self))?.title ?? error.localizedDescription)
    /// }
    /// ```
    ///
    /// - Parameter type: The type of the body.
    /// - Returns: The value that the mapper of the request has decoded, if of this type; otherwise, the value
    ///   decoded from JSON now, such as for a request in one line, which has no type for the server's errors.
    /// - Throws: The error of the decoder; this error if this error is not a ``status(_:)`` failure.
    public func decode<Body: Decodable>(_ type: Body.Type = Body.self) throws -> Body {
        guard case .status(let error) = self else { throw self }
        return try error.serverError as? Body ?? JSONDecoder.tolerant.decode(type, from: error.response.body)
    }

    /// The status of the response, for ``status(_:)``; otherwise `nil`.
    public var status: HTTPStatus? {
        guard case .status(let error) = self else { return nil }
        return error.status
    }
}

extension HTTPError: BadDependencyError {
    /// Whether the status is 401: the server refused the token, or requires a token.
    ///
    /// `false` for a 401 of another origin, and for a 401 after a redirection that may have changed the
    /// method.
    public var isBadDependency: Bool {
        guard case .status(let error) = self else { return false }
        return error.response.refusesToken
    }
}

extension HTTPError: ConnectivityError {
    /// Whether the server was not reached, did not respond in time, closed the connection early, or is busy.
    ///
    /// See ``HTTPError/TransportFailure/isConnectivityFailure``. The value is `false` for every
    /// ``status(_:)`` failure, even for status 503. An error of the authenticator counts if
    /// `SilenceableError.isSilenceable(_:)` is `true` for the error.
    public var isConnectivityFailure: Bool {
        switch self {
        case .transport(let error, _): error.isConnectivityFailure
        case .authentication(let error): SilenceableError.isSilenceable(error)
        case .preparation, .status, .decoding: false
        }
    }
}

extension HTTPError: ClassifiedError {
    package var classification: ErrorClassification? {
        switch self {
        case .transport(let error, _): .sameAs(error)
        case .decoding: .reason(.decoding)
        case .authentication(let error): .sameAs(error)
        case .preparation, .status: nil
        }
    }
}

extension HTTPError.TransportFailure: ClassifiedError {
    package var classification: ErrorClassification? {
        switch self {
        case .timedOut, .deadlineExceeded: .reason(.timeOut)
        case .insecureConnection: .reason(.other("insecure connection"))
        case .notHTTP, .damagedContent: .reason(.decoding)
        case .unreachable(let error) where MuxEvent.Reason.known(of: error) != nil || !self.isConnectivityFailure:
            .sameAs(error)
        default: self.isConnectivityFailure ? .reason(.connection) : nil
        }
    }
}

extension HTTPError: LocalizedError, RedactedDescription, CustomDebugStringConvertible {
    /// A text for users; see ``HTTPError`` for the contents.
    public var errorDescription: String? {
        switch self {
        case .preparation(let error, let request):
            (request.map { "\($0) cannot be sent. " } ?? "") + error.description
        case .transport(let error, let request): (request.map { "\($0) failed. " } ?? "") + error.description
        case .status(let error): error.description
        case .decoding(let error): error.description
        case .authentication(let error) where Self.saysSessionEnd(error): error.sentence
        case .authentication(let error): ErrorText.joined("No credentials are available.", error)
        }
    }

    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// The same as ``errorDescription``.
    public var debugDescription: String { self.description }

    /// Whether the error reports the end of the session; ``errorDescription`` is then the text of `error`
    /// alone.
    private static func saysSessionEnd(_ error: any Error) -> Bool {
        switch error {
        case RunnerError.signedOut, MuxError.sessionEnded: true
        default: false
        }
    }

    /// Returns a preparation or transport error with `request` for error texts; any other error, and an error
    /// that already contains a request, unchanged.
    func naming(_ request: String?) -> HTTPError {
        switch self {
        case .preparation(let error, nil): .preparation(error, request: request)
        case .transport(let error, nil): .transport(error, request: request)
        default: self
        }
    }
}

extension HTTPError: RetryableError {
    /// The retry advice of the underlying failure or of the authenticator's error.
    ///
    /// See ``HTTPError/TransportFailure/retryAdvice`` and ``HTTPError/StatusFailure/retryAdvice``. Invalid
    /// requests and failed decodings are permanent.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .transport(let error, _): error.retryAdvice
        case .status(let error): error.retryAdvice
        case .authentication(let error): RetryAdvice.of(error)
        case .preparation, .decoding: .permanent
        }
    }
}

extension HTTPError.TransportFailure: RetryableError {
    /// Transient if the server was not reached, the connection ended early, a time limit passed, or the
    /// server is busy.
    ///
    /// For ``unreachable(_:)``, the advice of the underlying error. All other failures are permanent.
    ///
    /// The advice ignores the method of the request: the sender decides whether the request may be repeated.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .notResolved, .notConnected, .closedWithoutResponse, .timedOut, .deadlineExceeded, .truncated: .transient
        case .serverBusy(let time): RetryAdvice(isTransient: true, retryAfter: time)
        case .unreachable(let error): .of(error)
        case .insecureConnection, .notHTTP, .damagedContent, .headTooLarge, .bodyTooLarge, .redirectRefused: .permanent
        }
    }
}

extension HTTPError.StatusFailure: RetryableError {
    /// The advice from the status, the idempotence of the request (RFC 9110, section 9.2.2, and
    /// ``HTTPRequest/idempotencyKey``) and `Retry-After`.
    ///
    /// 408, 429 and 5xx are transient.
    public var retryAdvice: RetryAdvice {
        var advice = RetryAdvice(
            isTransient: [408, 429].contains(self.status.code) || (500...599).contains(self.status.code),
            isRepeatable: self.response.request.isRepeatable,
            status: self.status.code,
            retryAfter: self.response.retryAfter
        )
        advice.isOfLaterRequest = self.response.isOfLaterRequest
        return advice
    }
}

extension HTTPError {
    package static var invalidURL: HTTPError { .preparation(.invalidURL) }
    package static func invalidHeader(name: String) -> HTTPError { .preparation(.invalidHeader(name: name)) }

    package static var notHTTP: HTTPError { .transport(.notHTTP) }
    package static func unreachable(_ error: any Error) -> HTTPError { .transport(.unreachable(error)) }
    package static func timedOut(after time: Duration) -> HTTPError { .transport(.timedOut(after: time)) }
    package static func bodyTooLarge(limit: Int) -> HTTPError { .transport(.bodyTooLarge(limit: limit)) }
    package static func redirectRefused(_ why: HTTPError.RedirectRefusal) -> HTTPError {
        .transport(.redirectRefused(why))
    }
    package static func truncated(expected: Int?, received: Int) -> HTTPError {
        .transport(.truncated(expected: expected, received: received))
    }
}

extension HTTPError {
    /// A successful response with a body that could not be decoded.
    ///
    /// The response includes the body; the description does not.
    public struct DecodingFailure: Error, Sendable {
        /// The response.
        public var response: HTTPResponse

        /// The mapper's error.
        public var underlying: any Error

        /// Makes a failure.
        public init(_ response: HTTPResponse, underlying: any Error) {
            self.response = response
            self.underlying = underlying
        }
    }
}

extension HTTPError.DecodingFailure: LocalizedError, RedactedDescription {
    /// A text for users; see ``HTTPError`` for the contents.
    public var errorDescription: String? { self.description }

    /// A text for users; see ``HTTPError`` for the contents.
    public var description: String {
        let type = self.response.headers[.contentType]?.prefix { $0 != ";" && $0 != " " }.lowercased()
        // A network that requires a sign-in responds in place of the server.
        let isPage = type == "text/html" || type == "application/xhtml+xml"
        let help = isPage ? " The response is a web page, perhaps of a network that requires a sign-in." : ""
        let text = "The response to \(self.response.request.summary) could not be decoded."
        if self.response.body.isEmpty, self.underlying is DecodingError {
            return "\(text) The body is empty. If the body may be absent, make the output an optional."
        }
        return ErrorText.joined(text, firstLineOf: self.underlying) + help
    }
}

extension HTTPError {
    /// A response with a status outside the success statuses.
    ///
    /// The response includes the body; the description does not.
    public struct StatusFailure: Error, Sendable {
        /// The response.
        public var response: HTTPResponse

        /// The body as decoded by ``HTTPRequest/mapper``; `nil` if the body was not decoded.
        ///
        /// The failure's text includes the `errorDescription` of a server error that is a `LocalizedError`.
        public var serverError: (any Sendable)?

        /// The error of decoding ``serverError``, for example because the body is an HTML page of a gateway;
        /// otherwise `nil`.
        public var decodingError: (any Error)?

        /// Makes a failure.
        public init(_ response: HTTPResponse, serverError: (any Sendable)? = nil, decodingError: (any Error)? = nil) {
            self.response = response
            self.serverError = serverError
            self.decodingError = decodingError
        }

        /// The status.
        public var status: HTTPStatus { self.response.status }
    }
}

extension HTTPError.StatusFailure: LocalizedError, RedactedDescription {
    /// A text for users; see ``HTTPError`` for the contents.
    public var errorDescription: String? { self.description }

    /// A text for users; see ``HTTPError`` for the contents.
    public var description: String {
        let own = (self.serverError as? any LocalizedError)?.errorDescription.flatMap(ErrorText.line)
        let text = "The response to \(self.response.request.summary) has status \(self.status)"
        return own.map { "\(text): \($0)" } ?? "\(text)."
    }
}

extension HTTPError {
    /// The reason for a missing or unusable response.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum TransportFailure: Error, Sendable {
        /// The name of the host, or of the proxy, could not be resolved.
        case notResolved(any Error)

        /// No connection to the host or to the proxy was established, or the connection was lost before the
        /// request was sent.
        ///
        /// The request was not sent on this connection; after a redirection, earlier requests of the call
        /// were sent. After a redirection that changed the method, the transports of this library throw
        /// ``unreachable(_:)``.
        case notConnected(any Error)

        /// TLS failed permanently, for example because a certificate is untrusted, expired or for a different
        /// name.
        case insecureConnection(any Error)

        /// The connection ended before the head of a response was complete.
        ///
        /// The server may have processed the request. If the request was to be sent again, and no further
        /// connection was possible, the underlying error is the failure of the last connection.
        case closedWithoutResponse(any Error)

        /// Any other failure, such as an error type of a custom transport (see ``HTTPTransport``), or a retry
        /// budget that permits no attempt.
        ///
        /// Also the failure of a transport of this library to send the next request after a redirection that
        /// changed the method: the server has processed the first request.
        case unreachable(any Error)

        /// The server was silent for this time, without any activity on the connection.
        case timedOut(after: Duration)

        /// The call took longer than this time.
        case deadlineExceeded(after: Duration)

        /// The response is not valid HTTP.
        case notHTTP

        /// The connection, or the encoded content, ended before the end of the body; counts are in bytes.
        ///
        /// `expected` is `nil` if the length was not announced.
        case truncated(expected: Int?, received: Int)

        /// The content with this coding is damaged.
        case damagedContent(coding: String)

        /// The head of the response, or a line of the head, is too large; `limit` is the transport's limit
        /// for the head in bytes.
        case headTooLarge(limit: Int)

        /// The body exceeds the transport's limit in bytes.
        case bodyTooLarge(limit: Int)

        /// A pause that the server demanded with `Retry-After` has not ended.
        ///
        /// `retryAfter` is the rest of the pause. The request was not sent; after a redirection, earlier
        /// requests of the call were sent. After a redirection that changed the method,
        /// the transports of this library throw ``unreachable(_:)``.
        case serverBusy(retryAfter: Duration)

        /// The client does not follow the server's redirection.
        case redirectRefused(HTTPError.RedirectRefusal)
    }
}

extension HTTPError.TransportFailure: ConnectivityError {
    /// Whether the server was not reached, did not respond in time, closed the connection early, or is busy.
    ///
    /// For ``unreachable(_:)``, the underlying error and its wrapped errors are examined, from the outermost
    /// inwards. The first error that is a `ConnectivityError` or has retry advice decides: a
    /// `ConnectivityError` by its value, any other error by whether the error is transient. Without such an
    /// error, the value is `true`.
    public var isConnectivityFailure: Bool {
        switch self {
        case .notResolved, .notConnected, .closedWithoutResponse, .truncated, .timedOut, .deadlineExceeded, .serverBusy:
            true
        case .unreachable(let error):
            error.firstDecision { error in
                (error as? any ConnectivityError)?.isConnectivityFailure
                    ?? RetryAdvice.decision(of: error)?.isTransient
            } ?? true
        case .insecureConnection, .notHTTP, .damagedContent, .headTooLarge, .bodyTooLarge, .redirectRefused: false
        }
    }
}

extension HTTPError.TransportFailure: LocalizedError, RedactedDescription {
    /// A text for users; see ``HTTPError`` for the contents.
    public var errorDescription: String? { self.description }

    /// A text for users; see ``HTTPError`` for the contents.
    public var description: String {
        switch self {
        case .unreachable(let error): ErrorText.joined("The communication with the server failed.", firstLineOf: error)
        case .notResolved(let error): ErrorText.joined("The host name could not be resolved.", firstLineOf: error)
        case .notConnected(let error):
            ErrorText.joined("The connection to the server could not be established.", firstLineOf: error)
        case .insecureConnection(let error):
            ErrorText.joined("The connection to the server is not secure.", firstLineOf: error)
        case .closedWithoutResponse(let error):
            ErrorText.joined("The connection ended before a response.", firstLineOf: error)
        case .timedOut(let time): "The server did not respond within \(ErrorText.time(time))."
        case .deadlineExceeded(let time): "The response was not complete within \(ErrorText.time(time))."
        case .notHTTP: "The response is not valid HTTP."
        case .truncated(let expected?, let received): "The response is incomplete: \(received) of \(expected) bytes."
        case .truncated(nil, let received): "The response ended early, after \(ErrorText.count(received, "byte"))."
        case .damagedContent(let coding): "The content of the response is not valid \(coding)."
        case .headTooLarge(let limit): "The head of the response is too large; the limit is \(limit) bytes."
        case .bodyTooLarge(let limit): "The response is larger than \(limit) bytes."
        case .serverBusy(let time): "The server is busy. Try again after \(ErrorText.time(time))."
        case .redirectRefused(let reason): "The redirection was refused: \(reason.description)."
        }
    }
}

/// A type whose description contains no secrets and is safe to log.
///
/// The mirror contains only the description.
public protocol RedactedDescription: CustomStringConvertible, CustomReflectable {}

extension RedactedDescription {
    /// A mirror with only `description`.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}

extension HTTPError {
    /// The reason for the refusal of a redirection.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum RedirectRefusal: Sendable, Hashable, CustomStringConvertible {
        /// The redirection changes from `https` to `http`.
        case insecure

        /// The scheme of the redirection is neither `http` nor `https`.
        case unknownScheme

        /// The redirection would send the request's body to another scheme, host or port.
        case carriesBody

        /// The number of redirections exceeds this limit.
        case tooMany(limit: Int)

        /// The reason, as the end of a sentence.
        public var description: String {
            switch self {
            case .insecure: "the target is not secure (http instead of https)"
            case .unknownScheme: "the scheme of the target is neither http nor https"
            case .carriesBody: "the body of the request would go to another server"
            case .tooMany(let limit): "the number of redirections exceeds \(limit)"
            }
        }
    }
}
