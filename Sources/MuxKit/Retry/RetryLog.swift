/// Receives the events of a retry; the description of an event is a line of text.
///
/// ```swift
/// let log = RetryLog { print($0) }
/// ```
public struct RetryLog: Sendable {
    let write: (@Sendable (RetryLog.Event) -> Void)?

    /// Calls `write` with each event, on the thread on which the event occurs, outside of the library's
    /// locks; `write` must not block.
    public init(_ write: @escaping @Sendable (RetryLog.Event) -> Void) { self.write = write }

    private init() { self.write = nil }

    /// Ignores all events.
    public static let silent = RetryLog()

    package func callAsFunction(_ event: @autoclosure () -> RetryLog.Event) { self.write?(event()) }
}

extension RetryLog {
    /// An event of a retry; its description is a line for a log, without the text of any error.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Event: Sendable, Hashable {
        /// The attempt with this index begins; the first attempt has the index 0.
        case attempt(Int)

        /// The attempt with this index failed with an error of this type; `nil` without an error, such as for
        /// an output that required another attempt.
        case failed(Int, errorType: String?)

        /// The retry waits for the next attempt, at most for this duration; `nil` for a wait without a
        /// deadline.
        case waiting(Duration?)

        /// The wake-up with this name, or the deadline (`time`), ended the wait; another wait may follow.
        case woken(by: String)

        /// The retry succeeded.
        case succeeded(attempts: Int)

        /// The retry failed.
        case gaveUp(RetryError.Reason, attempts: Int)

        /// The retry was cancelled.
        case cancelled(attempts: Int)

        /// A demand to retry was ignored, because the retry was not waiting.
        case ignoredDemand(while: String)
    }
}

extension RetryLog.Event: CustomStringConvertible {
    /// A line for a log.
    public var description: String {
        switch self {
        case .attempt(let index): "retry: attempt \(index) begins"
        case .failed(let index, let type?): "retry: attempt \(index) failed with an error of type \(type)"
        case .failed(let index, nil): "retry: attempt \(index) ended without a final output and without an error"
        case .waiting(let time?): "retry: waiting for \(ErrorText.time(time))"
        case .waiting(nil): "retry: waiting for a wake-up"
        case .woken(let name): "retry: woken by \(name)"
        case .succeeded(let attempts): "retry: succeeded after \(attempts) attempt(s)"
        case .gaveUp(let reason, let attempts): "retry: gave up after \(attempts) attempt(s): \(reason)"
        case .cancelled(let attempts): "retry: cancelled after \(attempts) attempt(s)"
        case .ignoredDemand(let phase): "retry: warning: a demand was ignored, because the retry is \(phase)"
        }
    }
}
