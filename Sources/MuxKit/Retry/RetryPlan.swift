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
