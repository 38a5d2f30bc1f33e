public import Foundation

/// Why there is no other attempt: the end of a retry that did not succeed.
///
/// Descriptions contain nothing of the errors that were met but their types: each may hold a secret.
public struct RetryError: Error, Sendable {
    /// Why it ended.
    @nonexhaustive public enum Reason: Sendable, Hashable {
        /// The last attempt failed in a way that another one does not mend, or that the policy does not retry.
        case refused

        /// There were as many attempts as the policy permits.
        case attemptsExhausted

        /// The next attempt would begin later than ``RetryPolicy/maximumDuration`` permits, or nothing had woken it by then.
        case timeExhausted

        /// The server wants to be left alone for longer than the policy permits.
        case retryAfterTooLong(Duration)

        /// The host has had more retries than its share; see ``RetryBudget``.
        case budgetExhausted

        /// The host has failed so often that it is left alone for a while; see ``RetryBudget``.
        case hostDown

        /// There is nothing to try.
        case nothingToTry

        /// No new operation could be made for another attempt; the last error says why.
        case noOperation
    }

    /// What one attempt met.
    public struct Attempt: Sendable {
        /// The attempt's index, which begins with 0.
        public let index: Int

        /// When it began, counted from the beginning of the first.
        public let began: Duration

        /// When it ended, counted from the beginning of the first.
        public let ended: Duration

        /// What it met; `nil` if its result asked for another one.
        public let error: (any Error)?
    }

    /// Why it ended.
    public let reason: Reason

    /// What each attempt met, in order; of more than 100, the last 100.
    public let attempts: [Attempt]

    /// What went wrong last; `nil` if nothing did.
    public let lastError: (any Error)?

    package init(_ reason: Reason, attempts: [Attempt], lastError: (any Error)?) {
        self.reason = reason
        self.attempts = attempts
        self.lastError = lastError
    }
}

extension RetryError: RetryableError {
    /// What the last error says, but nothing that ended for want of a budget or a host is worth another attempt at once.
    public var retryAdvice: RetryAdvice {
        switch self.reason {
        case .budgetExhausted, .hostDown, .nothingToTry, .noOperation: .permanent
        default: self.lastError.map { RetryAdvice.of($0) } ?? .permanent
        }
    }
}

extension RetryError: ConnectivityError {
    /// Whether the host is left alone, or the last error was one of connectivity.
    public var isConnectivityFailure: Bool {
        self.reason == .hostDown || self.lastError.map(SilenceableError.isSilenceable) ?? false
    }
}

extension RetryError: BadDependencyError {
    /// Whether the last error blamed the dependency.
    public var isBadDependency: Bool { self.lastError?.saysBadDependency ?? false }
}

extension RetryError: LocalizedError, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// A sentence for a person.
    public var errorDescription: String? { self.description }

    /// A sentence for a person.
    public var description: String {
        let tried = "\((self.attempts.last?.index ?? -1) + 1) attempt(s)"
        let last = self.lastError.map { "; the last error was of type \(type(of: $0))" } ?? ""
        switch self.reason {
        case .refused: return "Gave up after \(tried), for another would not help\(last)."
        case .attemptsExhausted: return "Gave up after \(tried)\(last)."
        case .timeExhausted: return "Gave up after \(tried), for the time was over\(last)."
        case .retryAfterTooLong(let time):
            return "Gave up after \(tried): the server asked for a pause of \(time)\(last)."
        case .budgetExhausted: return "Gave up after \(tried), for the host has had its share of retries\(last)."
        case .hostDown: return "Gave up after \(tried): the host fails and is left alone for a while\(last)."
        case .nothingToTry: return "There was nothing to try."
        case .noOperation: return "Gave up after \(tried), for no new operation could be made\(last)."
        }
    }

    /// The same text.
    public var debugDescription: String { self.description }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
