/// Receives what a retry does: a sink for lines of text, or for the events themselves.
///
/// ```swift
/// let log = RetryLog { print($0) }
/// ```
public struct RetryLog: Sendable {
    let write: (@Sendable (RetryEvent) -> Void)?

    /// Hands each event to `write`, on the thread where it happened and outside all locks: keep it short.
    public init(_ write: @escaping @Sendable (RetryEvent) -> Void) { self.write = write }

    private init() { self.write = nil }

    /// Receives nothing.
    public static let silent = RetryLog()

    func callAsFunction(_ event: @autoclosure () -> RetryEvent) { self.write?(event()) }
}

/// Something that a retry did; its description is a line for a log, and contains no error's text.
@nonexhaustive public enum RetryEvent: Sendable, Hashable {
    /// The attempt with this index begins.
    case attempt(Int)

    /// The attempt with this index met an error of this type, or asked for another attempt.
    case failed(Int, errorType: String?)

    /// The next attempt waits for this long, or with `nil` until something wakes it.
    case waiting(Duration?)

    /// The wait was ended by this.
    case woken(by: String)

    /// It succeeded after so many attempts.
    case succeeded(attempts: Int)

    /// It ended without success after so many attempts.
    case gaveUp(RetryError.Reason, attempts: Int)

    /// It was cancelled after so many attempts.
    case cancelled(attempts: Int)

    /// A demand to retry came while nothing waited, and was ignored.
    case ignoredDemand(while: String)
}

extension RetryEvent: CustomStringConvertible {
    /// A line for a log.
    public var description: String {
        switch self {
        case .attempt(let index): "retry: attempt \(index) begins"
        case .failed(let index, let type?): "retry: attempt \(index) met an error of type \(type)"
        case .failed(let index, nil): "retry: attempt \(index) asked for another"
        case .waiting(let time?): "retry: waiting for \(time)"
        case .waiting(nil): "retry: waiting until woken"
        case .woken(let name): "retry: woken by \(name)"
        case .succeeded(let attempts): "retry: succeeded after \(attempts) attempt(s)"
        case .gaveUp(let reason, let attempts): "retry: gave up after \(attempts) attempt(s): \(reason)"
        case .cancelled(let attempts): "retry: cancelled after \(attempts) attempt(s)"
        case .ignoredDemand(let phase): "retry: warning: told to retry while \(phase): ignored"
        }
    }
}
