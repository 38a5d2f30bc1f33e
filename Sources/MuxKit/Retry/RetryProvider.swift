extension RetryProvider {
    /// A failed attempt, as a ``RetryProvider`` gets it.
    public struct Failure: Sendable {
        /// The error; `nil` if the result asked for another attempt.
        public let error: (any Error)?

        /// The index of the attempt; the first is 0.
        public let attempt: Int

        /// The time since the first attempt began.
        public let elapsed: Duration
    }
}

/// Decides what follows a failed attempt, or leaves the decision to the next provider.
///
/// ```swift
/// let page = try await retry(.web, providers: [.when { $0 is Busy }]) { _ in try await fetchPage() }
/// ```
///
/// Providers are called in order until one does not return ``RetryProvider/Plan/pass``. If all pass, the error and the policy decide. No
/// provider is called for a cancellation, and none can raise the number of attempts.
public struct RetryProvider: Sendable {
    /// Decides about one failure; called outside of all locks, in the task of the retry.
    public let plan: @Sendable (RetryProvider.Failure) -> RetryProvider.Plan

    /// Makes a provider.
    public init(_ plan: @escaping @Sendable (RetryProvider.Failure) -> RetryProvider.Plan) {
        self.plan = plan
    }

    /// Retries the errors for which `isRetryable` returns `true`, and no others; passes if there is no error.
    public static func when(_ isRetryable: @escaping @Sendable (any Error) -> Bool) -> RetryProvider {
        RetryProvider { failure in
            guard let error = failure.error else { return .pass }
            return isRetryable(error) ? .retry : .never
        }
    }
}

extension RetryProvider {
    /// A decision about what follows a failed attempt.
    public enum Plan: Sendable {
        /// The next ``RetryProvider`` decides, and after the last one the policy by the error's ``RetryAdvice``.
        case pass

        /// No other attempt.
        case never

        /// Another attempt after the policy's delay, or at an earlier wake-up.
        case retry

        /// Another attempt after this delay, without jitter, or at an earlier wake-up; none if that is after the policy's
        /// ``RetryPolicy/maximumDuration``.
        case after(Duration)

        /// Another attempt at the first of these wake-ups; without one the retry waits until a ``RetryingOperation`` is told to go
        /// on.
        ///
        /// The wait ends with ``RetryError/Reason/timeExhausted`` at the policy's ``RetryPolicy/maximumDuration``.
        case wakingOn([RetrySignal.WakeUp])
    }
}
