/// Decides the next step after a failed attempt, or passes the decision to the next provider.
///
/// ```swift
/// let page = try await retry(.web, providers: [.when { $0 is Busy }]) { _ in try await fetchPage() }
/// ```
///
/// The retry calls the providers in order until the first plan other than ``RetryProvider/Plan/pass``. A plan
/// of ``RetryingOperation/Run/end(throwing:_:)`` takes precedence over all providers. An error that is a
/// cancellation ends the retry without a call of a provider. No provider can raise the number of attempts.
public struct RetryProvider: Sendable {
    /// Decides about a failed attempt; called in the task of the retry, outside of the library's locks.
    public let plan: @Sendable (RetryPolicy.Attempt) -> RetryProvider.Plan

    /// Makes a provider.
    public init(_ plan: @escaping @Sendable (RetryPolicy.Attempt) -> RetryProvider.Plan) {
        self.plan = plan
    }

    /// Retries an error only if `isRetryable` returns `true`; passes if the attempt has no error.
    public static func when(_ isRetryable: @escaping @Sendable (any Error) -> Bool) -> RetryProvider {
        RetryProvider { failure in
            guard let error = failure.error else { return .pass }
            return isRetryable(error) ? .retry : .never
        }
    }
}

extension RetryProvider {
    /// The next step after a failed attempt, within the limits of the policy.
    public enum Plan: Sendable {
        /// The next ``RetryProvider`` decides; after the last provider, the error's ``RetryAdvice`` and the
        /// policy decide.
        case pass

        /// No further attempt.
        case never

        /// Another attempt after the policy's delay, or at an earlier wake-up.
        ///
        /// The attempt does not start before the end of a `Retry-After`, except after
        /// ``RetrySignal/WakeUp/signal(_:)`` or a call of a method of ``RetryingOperation``. A `Retry-After`
        /// longer than ``RetryPolicy/maximumRetryAfter`` ends the retry.
        case retry

        /// Another attempt after this delay, without jitter, or at an earlier wake-up.
        ///
        /// If the delay would end after the policy's ``RetryPolicy/maximumDuration``, the retry ends at once.
        case after(Duration)

        /// Another attempt at the first of the given wake-ups.
        ///
        /// With an empty array, the retry waits for a call of a method of ``RetryingOperation``, such as
        /// ``RetryingOperation/retryNow()``. The wait ends with ``RetryError/Reason/timeExhausted`` at the
        /// policy's ``RetryPolicy/maximumDuration``.
        case wakingOn([RetrySignal.WakeUp])
    }
}
