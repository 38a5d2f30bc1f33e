import Foundation

/// An error with advice about retries.
///
/// A ``RetryPolicy`` treats an error without advice as transient, except:
///
/// - a cancellation,
/// - an encoding or decoding error,
/// - a ``BadDependencyError`` with a bad dependency,
/// - a ``ConnectivityError`` without a connectivity failure,
/// - an error of the URL loading system that is not a connectivity failure, apart from code -1.
///
/// The advice of a wrapped error counts, too (``WrappingError``).
public protocol RetryableError: Error {
    /// The error's advice about another attempt.
    var retryAdvice: RetryAdvice { get }
}

/// The advice of an error about another attempt, for the decision of a ``RetryPolicy``.
public struct RetryAdvice: Sendable, Hashable {
    /// Whether the error is transient, such as a lost connection.
    ///
    /// If ``status`` is set, the status lists of the ``RetryPolicy`` decide about the retry instead. A
    /// transient error counts as a failure of the host.
    public var isTransient: Bool

    /// Whether another run is safe: the work is idempotent, or the request did not reach the server.
    public var isRepeatable: Bool

    /// The status code of the response; `nil` without a response.
    public var status: Int?

    /// The server's `Retry-After`; `nil` if absent.
    public var retryAfter: Duration?

    /// Whether ``status`` is of a later request, after a redirection that changed the method: the server has
    /// processed the first request.
    package var isOfLaterRequest = false

    /// Makes advice.
    ///
    /// The parameters have the names of the properties.
    public init(isTransient: Bool, isRepeatable: Bool = true, status: Int? = nil, retryAfter: Duration? = nil) {
        self.isTransient = isTransient
        self.isRepeatable = isRepeatable
        self.status = status
        self.retryAfter = retryAfter
    }

    /// The server's `Retry-After` in the advice of `error`; `nil` if absent.
    ///
    /// Of nested errors, the outermost ``RetryableError`` decides, also inside a ``SilenceableError``.
    package static func retryAfter(of error: any Error) -> Duration? {
        let advice = error.firstDecision { error in
            let error = (error as? SilenceableError)?.underlying ?? error
            return error.firstDecision { ($0 as? any RetryableError)?.retryAdvice }
        }
        return advice?.retryAfter
    }

    /// Another attempt may succeed.
    public static let transient = RetryAdvice(isTransient: true)

    /// Another attempt would fail in the same way.
    public static let permanent = RetryAdvice(isTransient: false)

    /// The advice of `error`; of nested errors, the outermost error with advice decides.
    ///
    /// Without advice, the result is ``transient``. A `nil` error stands for a result that requests another
    /// attempt.
    package static func of(_ error: (any Error)?) -> RetryAdvice {
        error?.firstDecision(Self.decision) ?? .transient
    }

    /// The advice of an error, regardless of wrapped errors; `nil` if the type of the error gives no advice.
    package static func decision(of error: any Error) -> RetryAdvice? {
        if let error = error as? any RetryableError { return error.retryAdvice }
        // A stale value may replace the error; its cause decides about another attempt.
        if let error = error as? SilenceableError,
            let advice = error.underlying.firstDecision({ ($0 as? any RetryableError)?.retryAdvice })
        {
            return advice
        }
        if error is CancellationError || error is DecodingError || error is EncodingError || error.isRefusal {
            return .permanent
        }
        if SilenceableError.decision(of: error) == true { return .transient }
        if error is any ConnectivityError { return .permanent }
        let code = error as NSError
        // Linux reports a truncated body as -1, "unknown".
        return code.domain == "NSURLErrorDomain" ? code.code == -1 ? .transient : .permanent : nil
    }
}

/// An error that can tell that the request did not reach the server.
package protocol UnsentError: Error {
    /// Whether the request certainly did not reach the server; `nil` if the wrapped error decides.
    var isUnsentRequest: Bool? { get }
}

extension Error {
    /// Whether the request certainly did not reach the server.
    package var isUnsent: Bool {
        self.firstDecision { error in
            if let error = error as? any UnsentError { return error.isUnsentRequest }
            let error = error as NSError
            switch error.domain {
            // No such host, cannot connect, failed DNS lookup, offline, roaming off, call active, data not
            // allowed.
            case "NSURLErrorDomain": return [-1003, -1004, -1006, -1009, -1018, -1019, -1020].contains(error.code)
            case POSIXError.errorDomain:
                let codes: [POSIXError.Code] = [.ECONNREFUSED, .ENETDOWN, .ENETUNREACH, .EHOSTDOWN, .EHOSTUNREACH]
                return codes.contains { Int($0.rawValue) == error.code }
            default: return nil
            }
        } ?? false
    }
}
