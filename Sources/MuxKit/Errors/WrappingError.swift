import Foundation

/// An error that wraps another error, such as the error of a client library around a `URLError`.
///
/// ```swift
/// extension APIError: WrappingError {
///     var wrappedError: (any Error)? {
///         guard case .network(let error) = self else { return nil }
///         return error
///     }
/// }
/// ```
///
/// The library then treats the error like the wrapped error. For example, a stale value replaces a wrapped
/// connectivity failure (``SilenceableError/isSilenceable(_:)``), and a retry obeys the advice of the wrapped
/// error (``RetryAdvice``). The same applies to `NSUnderlyingErrorKey` of an `NSError`. If several nested
/// errors permit a decision, the outermost of these errors decides. The library examines at most eight
/// wrapped errors.
public protocol WrappingError: Error {
    /// The wrapped error; `nil` if absent.
    var wrappedError: (any Error)? { get }
}

extension Error {
    /// Calls `decision` with this error and its wrapped errors, from the outermost inwards, until the first
    /// result.
    ///
    /// - Parameter decision: Examines a single error; returns `nil` to continue with the wrapped error.
    /// - Returns: The first result; `nil` without a result.
    package func firstDecision<Decision>(_ decision: (any Error) -> Decision?) -> Decision? {
        var (error, wrappers): (any Error, Int) = (self, 0)
        while true {
            if let found = decision(error) { return found }
            guard wrappers < 8, let wrapped = error.wrappedByAny else { return nil }
            (error, wrappers) = (wrapped, wrappers + 1)
        }
    }

    private var wrappedByAny: (any Error)? {
        if let error = self as? any WrappingError { return error.wrappedError }
        return (self as NSError).userInfo[NSUnderlyingErrorKey] as? any Error
    }
}
