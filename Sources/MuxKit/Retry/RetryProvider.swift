/// What a ``RetryProvider`` decides by.
public struct RetryFailure: Sendable {
    /// What the attempt met; `nil` if its result asked for another one.
    public let error: (any Error)?

    /// The attempt's index, which begins with 0.
    public let attempt: Int

    /// How long it is since the first attempt began.
    public let elapsed: Duration
}

/// Decides what follows a failed attempt, or leaves that to the next one.
///
/// ```swift
/// let page = try await retry(.web, providers: [.when { $0 is Busy }]) { _ in try await fetchPage() }
/// ```
///
/// Several are asked in order; the first that does not pass wins. If all pass, the error and the policy decide. No provider
/// has a say in a cancellation, nor in how many attempts there are.
public struct RetryProvider: Sendable {
    /// Decides about one failure, outside all locks and on the thread where it was met.
    public let plan: @Sendable (RetryFailure) -> RetryPlan

    /// Makes a provider.
    public init(_ plan: @escaping @Sendable (RetryFailure) -> RetryPlan) {
        self.plan = plan
    }

    /// Retries the errors of which `isRetryable` says so, and no other: a classifier.
    public static func when(_ isRetryable: @escaping @Sendable (any Error) -> Bool) -> RetryProvider {
        RetryProvider { failure in
            guard let error = failure.error else { return .pass }
            return isRetryable(error) ? .retry : .never
        }
    }
}

/// What is to follow a failed attempt.
public enum RetryPlan: Sendable {
    /// Somebody else decides: the next ``RetryProvider``, and after the last one the policy by what the error says.
    case pass

    /// There is no other attempt.
    case never

    /// Another attempt after the policy's delay, or a wake-up before.
    case retry

    /// Another attempt after this time, without jitter, or a wake-up before; none if the policy's
    /// ``RetryPolicy/maximumDuration`` is over by then.
    case after(Duration)

    /// Another attempt as soon as one of these wakes it, and nothing else; with none, it is parked until it is told.
    ///
    /// The wait ends with ``RetryError/Reason/timeExhausted`` when the policy's ``RetryPolicy/maximumDuration`` is over.
    case wakingOn([RetryWakeUp])
}
