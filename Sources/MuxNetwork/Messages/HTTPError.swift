public import Foundation
public import MuxKit

/// Why a request has no output.
///
/// Descriptions name the request by its method and the template of its path, if it has one, and contain no body, no header field and no URL. Of an
/// underlying error, and of the server's own, they contain what it says to people, its `errorDescription`; the rest may hold a
/// secret. Cancellation is always `CancellationError`.
@nonexhaustive
public enum HTTPError: Error, Sendable {
    /// The request is not valid; nothing was sent.
    ///
    /// `request` is its name for people, which an ``HTTPClient`` adds: method and template of the path, such as `GET /notes/{id}`. It is `nil`
    /// where there is no template, and in an error of a transport.
    case preparation(HTTPError.PreparationFailure, request: String? = nil)

    /// There is no complete answer.
    ///
    /// `request` is the name of the request, as in ``preparation(_:request:)``.
    case transport(HTTPError.TransportFailure, request: String? = nil)

    /// The server answered with a status that is not a success of this request.
    case status(HTTPError.StatusFailure)

    /// The body of a successful answer could not be decoded.
    case decoding(HTTPError.DecodingFailure)

    /// There is no token: the authenticator threw this.
    case authentication(any Error)
}

extension HTTPError {
    /// The decoded body of the failure, if it is of this type.
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

    /// The status of the answer, for ``status(_:)``.
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
    /// Whether the server, or the one that renews tokens, was not reached or did not answer in time.
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
    /// A text for people, without anything secret.
    public var errorDescription: String? {
        switch self {
        case .preparation(let error, let request):
            (request.map { "\($0) cannot be sent. " } ?? "") + error.description
        case .transport(let error, let request): (request.map { "\($0) failed. " } ?? "") + error.description
        case .status(let error): error.description
        case .decoding(let error): error.description
        case .authentication(let error) where Self.saysSessionEnd(error): error.sentence
        case .authentication(let error): "There are no credentials to send. \(error.sentence)"
        }
    }

    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// The same as ``errorDescription``.
    public var debugDescription: String { self.description }

    /// Whether the error is the end of the session, which needs no other words.
    private static func saysSessionEnd(_ error: any Error) -> Bool {
        switch error {
        case RunnerError.signedOut, MuxError.sessionEnded: true
        default: false
        }
    }

    /// The error with the name of the request, unless it has one already.
    func naming(_ request: some HTTPRequest) -> HTTPError { self.naming(HTTPCall.name(of: request)) }

    /// The error with this name of the request, unless it has one already.
    func naming(_ request: String?) -> HTTPError {
        switch self {
        case .preparation(let error, nil): .preparation(error, request: request)
        case .transport(let error, nil): .transport(error, request: request)
        default: self
        }
    }

    /// A sentence with the words of its cause.
    fileprivate static func sentence(_ text: String, because error: any Error) -> String {
        let cause = error.sentence.prefix { !$0.isNewline }
        return cause == "\(text)." ? "\(text)." : "\(text). \(cause)"
    }
}

extension HTTPError: RetryableError {
    /// That of the underlying failure, see ``HTTPError/TransportFailure/retryAdvice`` and ``HTTPError/StatusFailure/retryAdvice``, or of the
    /// authenticator's error; permanent for an invalid request and for a body that could not be decoded.
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
    /// Transient where the exchange broke off or timed out; for ``unreachable(_:)``, that of the underlying error.
    ///
    /// Whether the request may be sent again is up to the sender.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .notResolved, .notConnected, .closedWithoutAnswer, .timedOut, .deadlineExceeded, .truncated: .transient
        case .serverBusy(let time): RetryAdvice(isTransient: true, retryAfter: time)
        case .unreachable(let error): .of(error)
        case .insecureConnection, .notHTTP, .damagedContent, .headTooLarge, .bodyTooLarge, .redirectRefused: .permanent
        }
    }
}

extension HTTPError.StatusFailure: RetryableError {
    /// The status, whether the method is idempotent (RFC 9110, section 9.2.2), and `Retry-After`.
    ///
    /// 408, 429 and 5xx are transient.
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
    package static func redirectRefused(_ why: HTTPError.RedirectRefusal) -> HTTPError {
        .transport(.redirectRefused(why))
    }
    package static func truncated(expected: Int?, received: Int) -> HTTPError {
        .transport(.truncated(expected: expected, received: received))
    }
}

extension HTTPError {
    /// A successful answer whose body could not be decoded.
    ///
    /// The answer includes the body; the description does not.
    public struct DecodingFailure: Error, Sendable {
        /// The answer.
        public var response: HTTPResponse

        /// The mapper's error.
        public var underlying: any Error

        /// Makes an error.
        public init(_ response: HTTPResponse, underlying: any Error) {
            self.response = response
            self.underlying = underlying
        }
    }
}

extension HTTPError.DecodingFailure: LocalizedError, RedactedDescription {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String {
        let type = self.response.headers[.contentType]?.prefix { $0 != ";" && $0 != " " }.lowercased()
        // A network that wants a sign-in answers in place of the server.
        let isPage = type == "text/html" || type == "application/xhtml+xml"
        let help = isPage ? " It is a web page, perhaps of a network that one has to sign in to." : ""
        let text = "The answer to \(self.response.request.summary) could not be read"
        if self.response.body.isEmpty, self.underlying is DecodingError {
            return "\(text). The body is empty. Make the output an optional where the answer may be absent."
        }
        return HTTPError.sentence(text, because: self.underlying) + help
    }
}

extension HTTPError {
    /// An answer whose status is not a success.
    ///
    /// The answer includes the body; the description does not.
    public struct StatusFailure: Error, Sendable {
        /// The answer.
        public var response: HTTPResponse

        /// The decoded body, of the request's ``HTTPRequest/ServerError``; `nil` if it could not be decoded.
        ///
        /// If it is a `LocalizedError`, its `errorDescription` is part of the failure's.
        public var serverError: (any Sendable)?

        /// Why ``serverError`` could not be decoded, such as for an HTML page of a gateway.
        public var decodingError: (any Error)?

        /// Makes an error.
        public init(_ response: HTTPResponse, serverError: (any Sendable)? = nil, decodingError: (any Error)? = nil) {
            self.response = response
            self.serverError = serverError
            self.decodingError = decodingError
        }

        /// The status.
        public var status: HTTPStatus { self.response.status }

        /// The decoded body of the failure, if it is of this type.
        public func serverError<ServerError>(as type: ServerError.Type = ServerError.self) -> ServerError? {
            self.serverError as? ServerError
        }
    }
}

extension HTTPError.StatusFailure: LocalizedError, RedactedDescription {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String {
        let own = (self.serverError as? any LocalizedError)?.errorDescription.flatMap(ErrorText.line)
        let text = "The server answered \(self.response.request.summary) with status \(self.status)"
        return own.map { "\(text): \($0)" } ?? "\(text)."
    }
}

extension HTTPError {
    /// Why there is no complete answer to a request.
    @nonexhaustive
    public enum TransportFailure: Error, Sendable {
        /// The host's name, or the proxy's, has no address.
        case notResolved(any Error)

        /// There is no connection to the host, or to the proxy, or the connection was lost during the TLS handshake.
        ///
        /// Nothing was sent.
        case notConnected(any Error)

        /// TLS failed: a certificate is not trusted, is of another name or has expired, or the server does not speak TLS.
        case insecureConnection(any Error)

        /// The connection ended before the head of an answer was complete; the server may have done what was asked.
        case closedWithoutAnswer(any Error)

        /// Any other error of a transport: see ``HTTPTransport``.
        case unreachable(any Error)

        /// The server was silent for this long.
        case timedOut(after: Duration)

        /// The answer was not complete within this time.
        case deadlineExceeded(after: Duration)

        /// The answer is not valid HTTP.
        case notHTTP

        /// The connection, or the encoded content, ended in the middle of the body; counts in bytes.
        ///
        /// `expected` is `nil` if the length was not announced.
        case truncated(expected: Int?, received: Int)

        /// The content, encoded with this coding, is damaged.
        case damagedContent(coding: String)

        /// The head of the answer is larger than the transport's limit, in bytes.
        case headTooLarge(limit: Int)

        /// The body is larger than the transport's limit, in bytes.
        case bodyTooLarge(limit: Int)

        /// The server sent `Retry-After`, and this much of that time is left; nothing was sent.
        case serverBusy(retryAfter: Duration)

        /// The server redirected to a URL that the client does not follow.
        case redirectRefused(HTTPError.RedirectRefusal)
    }
}

extension HTTPError.TransportFailure: ConnectivityError {
    /// Whether the server was not reached, did not answer in time, or ended the connection early.
    ///
    /// For ``unreachable(_:)``, that of an underlying or wrapped `ConnectivityError`; of any other error, whether it is transient.
    public var isConnectivityFailure: Bool {
        switch self {
        case .notResolved, .notConnected, .closedWithoutAnswer, .truncated, .timedOut, .deadlineExceeded, .serverBusy:
            true
        case .unreachable(let error):
            error.firstAnswer { ($0 as? any ConnectivityError)?.isConnectivityFailure }
                ?? RetryAdvice.of(error).isTransient
        case .insecureConnection, .notHTTP, .damagedContent, .headTooLarge, .bodyTooLarge, .redirectRefused: false
        }
    }
}

extension HTTPError.TransportFailure: LocalizedError, RedactedDescription {
    /// A text for people, without anything secret.
    public var errorDescription: String? { self.description }

    /// A text for people, without anything secret.
    public var description: String {
        switch self {
        case .unreachable(let error): HTTPError.sentence("The server could not be reached", because: error)
        case .notResolved(let error): HTTPError.sentence("The server's name has no address", because: error)
        case .notConnected(let error): HTTPError.sentence("There is no connection to the server", because: error)
        case .insecureConnection(let error):
            HTTPError.sentence("The connection to the server is not secure", because: error)
        case .closedWithoutAnswer(let error):
            HTTPError.sentence("The connection ended before an answer", because: error)
        case .timedOut(let time): "The server did not answer within \(ErrorText.time(time))."
        case .deadlineExceeded(let time): "The answer was not complete within \(ErrorText.time(time))."
        case .notHTTP: "The answer is not valid HTTP."
        case .truncated(let expected?, let received): "The answer ended after \(received) of \(expected) bytes."
        case .truncated(nil, let received): "The answer ended early, after \(ErrorText.count(received, "byte"))."
        case .damagedContent(let coding): "The answer's content is not valid \(coding)."
        case .headTooLarge(let limit): "The head of the answer is larger than \(limit) bytes."
        case .bodyTooLarge(let limit): "The answer is larger than \(limit) bytes."
        case .serverBusy(let time): "The server wants to be left alone for \(ErrorText.time(time))."
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

extension HTTPError {
    /// Why a redirection was not followed.
    @nonexhaustive
    public enum RedirectRefusal: Sendable, Hashable, CustomStringConvertible {
        /// It leads from `https` to another scheme.
        case insecure

        /// It leads to a scheme that is neither `http` nor `https`.
        case unknownScheme

        /// It would carry the request's body to another scheme, host or port.
        case carriesBody

        /// It is one more than this limit.
        case tooMany(limit: Int)

        /// The reason as the end of a sentence.
        public var description: String {
            switch self {
            case .insecure: "it leads from a secure to an insecure place"
            case .unknownScheme: "it leads to something that is not the web"
            case .carriesBody: "it would carry the body to another server"
            case .tooMany(let limit): "there were more than \(limit)"
            }
        }
    }
}
