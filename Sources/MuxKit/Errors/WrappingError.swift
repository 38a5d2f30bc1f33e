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
/// The library then recognises the wrapped error: a stale value replaces a connectivity failure
/// (``SilenceableError/isSilenceable(_:)``), a retry obeys ``RetryAdvice``, a download resumes, and a cancellation is a cancellation.
/// The same holds for `NSUnderlyingErrorKey` of an `NSError`. The outermost error with an answer decides; the library examines
/// at most eight wrapped errors.
public protocol WrappingError: Error {
    /// The wrapped error; `nil` without one.
    var wrappedError: (any Error)? { get }
}

extension Error {
    /// Asks this error, and the errors it wraps from the outermost inwards, until one has an answer.
    ///
    /// - Parameter answer: Asks one error; `nil` if the error has no answer.
    /// - Returns: The first answer; `nil` without one.
    package func firstAnswer<Answer>(_ answer: (any Error) -> Answer?) -> Answer? {
        var (error, wrappers): (any Error, Int) = (self, 0)
        while true {
            if let found = answer(error) { return found }
            guard wrappers < 8, let wrapped = error.wrappedByAny else { return nil }
            (error, wrappers) = (wrapped, wrappers + 1)
        }
    }

    private var wrappedByAny: (any Error)? {
        if let error = self as? any WrappingError { return error.wrappedError }
        return (self as NSError).userInfo[NSUnderlyingErrorKey] as? any Error
    }
}
