public import Foundation

/// The error of an unsuccessful retry.
///
/// A description contains a sentence about the last error: the `errorDescription`, a text about an error of
/// the system or of a coder, or the localized description in the user info of another `NSError`. Otherwise
/// the sentence contains only the type of the error, because other texts of an error can contain a secret.
public struct RetryError: Error, Sendable {
    /// The reason for the end of an unsuccessful retry.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Reason: Sendable, Hashable {
        /// The last error is permanent, or a ``RetryProvider/Plan`` or the policy does not permit a retry.
        case refused

        /// The policy permits no further attempt.
        case attemptsExhausted

        /// The next attempt would begin after ``RetryPolicy/maximumDuration``, or no awaited event
        /// (``RetrySignal/WakeUp``) happened before that time.
        case timeExhausted

        /// The server's `Retry-After` is longer than ``RetryPolicy/maximumRetryAfter``.
        case retryAfterTooLong(Duration)

        /// The ``RetryBudget`` permits no further retry for the host.
        case budgetExhausted

        /// The circuit breaker of the ``RetryBudget`` refused a request to the host.
        case hostDown

        /// The collection of values was empty.
        case nothingToTry

        /// No operation could be made for another attempt; ``RetryError/lastError`` is the cause.
        case noOperation

        /// An operation of a ``RetryableOperationWrapper`` has run before, or is running: each attempt needs
        /// a new instance.
        case operationUsed
    }

    /// The reason for the end of the retry.
    public let reason: Reason

    /// The failed attempts, in order; only the last 100.
    public let attempts: [RetryPolicy.Attempt]

    /// The last error; `nil` if no attempt threw an error.
    public let lastError: (any Error)?

    package init(_ reason: Reason, attempts: [RetryPolicy.Attempt], lastError: (any Error)?) {
        self.reason = reason
        self.attempts = attempts
        self.lastError = lastError
    }
}

extension RetryError: RetryableError {
    /// The advice of the last error.
    ///
    /// ``RetryAdvice/permanent`` if no attempt threw an error, or for the reasons `budgetExhausted`,
    /// `hostDown`, `nothingToTry`, `noOperation` and `operationUsed`.
    public var retryAdvice: RetryAdvice {
        switch self.reason {
        case .budgetExhausted, .hostDown, .nothingToTry, .noOperation, .operationUsed: .permanent
        default: self.lastError.map { RetryAdvice.of($0) } ?? .permanent
        }
    }
}

extension RetryError: ConnectivityError {
    /// Whether the circuit breaker ended the retry, or the last error is silenceable by default.
    ///
    /// See ``SilenceableError/isSilenceable(_:)``.
    public var isConnectivityFailure: Bool {
        self.reason == .hostDown || self.lastError.map(SilenceableError.isSilenceable) ?? false
    }
}

extension RetryError: BadDependencyError {
    /// Whether the last error reports a bad dependency.
    public var isBadDependency: Bool { self.lastError?.saysBadDependency ?? false }
}

extension RetryError: LocalizedError, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The same as ``description``.
    public var errorDescription: String? { self.description }

    /// A text for the user: the reason, and the last error.
    public var description: String {
        let count = (self.attempts.last?.index ?? -1) + 1
        let tried = "Gave up after \(ErrorText.count(count, "attempt"))"
        let why =
            switch self.reason {
            case .refused: "\(tried): another attempt would not help."
            case .attemptsExhausted: "\(tried)."
            case .timeExhausted: "\(tried): the time limit was reached."
            case .retryAfterTooLong(let time): "\(tried): the server asked for a pause of \(ErrorText.time(time))."
            case .budgetExhausted: "\(tried): the retry budget of the host is exhausted."
            case .hostDown: "\(tried): the host fails, and its circuit breaker is open."
            case .nothingToTry: "The collection of values is empty."
            case .noOperation: "\(tried): no new operation could be made."
            case .operationUsed: "\(tried): the operation has run before, and each attempt needs a new operation."
            }
        return self.lastError.map { ErrorText.joined("\(why) The last error:", $0) } ?? why
    }

    /// The same as ``description``.
    public var debugDescription: String { self.description }

    /// Contains only ``description``.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
