import Foundation

/// An error that decides whether it is retried.
///
/// Other errors are retried, except a cancellation, an encoding or decoding error, a ``BadDependencyError`` that reports a bad
/// dependency, and a ``ConnectivityError`` that is no connectivity failure.
public protocol RetryableError: Error {
    /// The error's advice about another attempt.
    var retryAdvice: RetryAdvice { get }
}

/// The advice of an error about another attempt, by which a ``RetryPolicy`` decides.
public struct RetryAdvice: Sendable, Hashable {
    /// Whether the error is transient, such as a lost connection.
    ///
    /// With a ``status``, the lists of the policy decide about the retry instead. A transient error counts against the host.
    public var isTransient: Bool

    /// Whether another run is safe: the work is idempotent, or the request did not reach the server.
    public var isRepeatable: Bool

    /// The status code of the response, if there was one.
    public var status: Int?

    /// The server's `Retry-After`, if there was one.
    public var retryAfter: Duration?

    /// Makes an advice of the given parts.
    public init(isTransient: Bool, isRepeatable: Bool = true, status: Int? = nil, retryAfter: Duration? = nil) {
        self.isTransient = isTransient
        self.isRepeatable = isRepeatable
        self.status = status
        self.retryAfter = retryAfter
    }

    /// The server's `Retry-After` that `error`, or the error that it makes silenceable, has brought; `nil` if there is none.
    package static func retryAfter(of error: any Error) -> Duration? {
        let error = (error as? SilenceableError)?.underlying ?? error
        return (error as? any RetryableError)?.retryAdvice.retryAfter
    }

    /// Another attempt may succeed.
    public static let transient = RetryAdvice(isTransient: true)

    /// Another attempt would fail in the same way.
    public static let permanent = RetryAdvice(isTransient: false)

    /// The advice of `error`, or the default for its type; transient for `nil`, a result that asks for another attempt.
    package static func of(_ error: (any Error)?) -> RetryAdvice {
        guard let error else { return .transient }
        if let error = error as? any RetryableError { return error.retryAdvice }
        if error is CancellationError || error is DecodingError || error is EncodingError || error.saysBadDependency {
            return .permanent
        }
        if SilenceableError.isSilenceable(error) { return .transient }
        if error is any ConnectivityError { return .permanent }
        let code = error as NSError
        switch code.domain {
        // Linux reports a truncated body as -1, "unknown".
        case "NSURLErrorDomain": return code.code == -1 ? .transient : .permanent
        default: return .transient
        }
    }
}
