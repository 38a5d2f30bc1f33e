public import MuxKit

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
