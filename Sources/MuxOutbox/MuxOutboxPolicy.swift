public import MuxKit

/// The limits of an outbox, its retries, and its behaviour at a sign-out.
public struct MuxOutboxPolicy: Sendable {
    /// The age from which the lane makes no further attempt of a change; by default 30 days.
    ///
    /// The age counts from ``MuxOutbox/add(_:)``, or from the last ``MuxOutbox/retry(_:)``. A step of the
    /// wall clock while the process runs does not change the age.
    public var maximumAge: Duration

    /// The maximum number of changes, including failed changes; by default 10,000.
    public var maximumCount: Int

    /// The maximum size in bytes of all changes as JSON and of unreadable records; by default 20 million.
    public var maximumBytes: Int

    /// The maximum number of lanes that send at the same time, from 1 to 1,000; by default 4.
    public var maximumConcurrentLanes: Int

    /// The number of attempts of a change, and the delays between the attempts.
    ///
    /// By default, the number of attempts has no limit, and the longest random delay doubles from 1 second to
    /// 1 hour. `maxAttempts` counts the attempts since ``MuxOutbox/add(_:)`` or ``MuxOutbox/retry(_:)``. If
    /// the policy permits no further attempt, the change has failed. A `maximumDuration` below 2 seconds
    /// counts as 2 seconds.
    public var retry: RetryPolicy

    /// Whether the server applies a change at most once for each idempotency key; by default `true`.
    ///
    /// A server that ignores the key can apply a change twice: pass `false` for such a server. Then a change
    /// is not sent again after an attempt with an uncertain outcome, such as a lost response or the status
    /// 500, and is listed as ``MuxOutbox/PendingChange/State/unknown``. A response with the status 425, 429
    /// or 503 still permits another attempt.
    public var serverDetectsRepetitions: Bool

    /// The behaviour at a sign-out; by default ``SignOut/dropsChanges``.
    public var signOut: SignOut

    /// The behaviour of a sign-out with pending or failed changes.
    public enum SignOut: Sendable, Hashable {
        /// The sign-out removes the changes; `MuxRepository.ClearReport.droppedChanges` is their number.
        case dropsChanges
        /// The sign-out has no effect, and `MuxRepository.ClearReport.failures` contains
        /// ``MuxOutboxError/changesPending(_:)``.
        ///
        /// If the outbox cannot read the file, `failures` contains ``MuxOutboxError/notStored(underlying:)``.
        case isRefused
    }

    /// Makes a policy; the parameters have the names of the properties.
    public init(
        maximumAge: Duration = .seconds(30 * 24 * 60 * 60),
        maximumCount: Int = 10_000,
        maximumBytes: Int = 20_000_000,
        maximumConcurrentLanes: Int = 4,
        retry: RetryPolicy = RetryPolicy(
            maxAttempts: .max,
            backoff: .exponential(base: .seconds(1)),
            maximumDelay: .seconds(60 * 60),
            maximumRetryAfter: .seconds(24 * 60 * 60)
        ),
        serverDetectsRepetitions: Bool = true,
        signOut: SignOut = .dropsChanges
    ) {
        self.maximumAge = maximumAge
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
        self.maximumConcurrentLanes = maximumConcurrentLanes
        self.retry = retry
        self.serverDetectsRepetitions = serverDetectsRepetitions
        self.signOut = signOut
    }
}
