/// The limits and times of a runner.
public struct RunnerPolicy: Sendable, Hashable {
    /// The name of the runner in events and logs; `nil` for the type of the dependency.
    ///
    /// An ``OAuthDependentRunner`` appends `access token` or `refresh token`; the default name is `OAuth`.
    public var name: String?

    /// The maximum number of updates that one call may request after consecutive refusals by the task of
    /// the call; a negative number counts as 0.
    ///
    /// An acceptance of a new dependency by any task clears the count: the dependency was valid, and a later
    /// refusal is due to the age of the dependency. The following cases do not count: an update of a missing
    /// dependency, an early renewal, and a repetition with a dependency that is already newer than the
    /// refused dependency. The total number of updates of a call is at most ten times this maximum, even with
    /// acceptances in between.
    public var maximumUpdatesPerCall: Int

    /// The retries of a throwing update; `nil`, the default, for no retry.
    ///
    /// All attempts count as a single update. Refusals, sign-ins, and update closures with a ``Call``
    /// are not retried. The refresh of a token is retried, unless a repetition may cause damage: see
    /// ``RetryAdvice/isRepeatable``.
    public var retry: RetryPolicy?

    /// The maximum number of refused and replaced dependencies within ``window``, over all callers, without
    /// an acceptance in between; `nil` for no limit.
    ///
    /// At the limit, calls with a task that refuses the dependency fail with
    /// ``RunnerError/tooManyUpdatesInWindow(count:window:underlying:)``, until replacements leave the window
    /// or a task accepts the dependency.
    public var maximumUpdatesPerWindow: Int?

    /// The period of ``maximumUpdatesPerWindow``.
    public var window: Duration

    /// The time-out of an update; `nil` for no limit.
    ///
    /// At the time-out, the update is cancelled, and the waiting callers get
    /// ``RunnerError/updateTimedOut(after:)`` without a wait for the end of the update; the next call after
    /// ``coolDown`` starts another update. A late dependency is kept, unless the dependency or the session
    /// changed in the meantime. Until the end of a timed-out refresh, the runner sends no other refresh with
    /// the same refresh token. A caller that passed the running update as the closure of `run(_:update:)`
    /// waits for the end of this closure. A sign-in has no time-out.
    public var updateTimeout: Duration?

    /// The time after a failed or timed-out update in which calls that need an update throw the same error at
    /// once.
    ///
    /// `renew()` ignores the cool-down. Pauses after failures of a server may be longer: see
    /// <doc:RunningWithADependency>.
    public var coolDown: Duration

    /// The time between the early renewal and the end of a dependency with a known end.
    ///
    /// The end is known from ``ExpiringDependency`` or ``OAuthRenewal/accessLifetime``. The leeway of a new
    /// dependency is at most half of the lifetime. If the renewal fails, takes longer than half of the
    /// remaining lifetime, or takes longer than the call may wait, the call uses the old dependency until the
    /// dependency ends.
    ///
    /// The end of an ``ExpiringDependency`` or of a stored dependency is compared once with the wall-clock
    /// time; a monotonic clock then measures the remaining lifetime. A stored dependency that seems to have
    /// ended is renewed first, and used if the renewal fails: the wall clock may be wrong.
    public var leeway: Duration

    /// Whether an update fails with ``RunnerError/sameDependency`` if the new dependency equals the refused
    /// dependency.
    ///
    /// This policy has an effect only on `Equatable` dependencies.
    public var refusesSameDependency: Bool

    /// Whether an update is cancelled when the last waiting caller leaves; otherwise the update finishes, and
    /// the runner keeps the new dependency.
    ///
    /// This policy has no effect on an ``OAuthDependentRunner``: the server may have rotated the refresh
    /// token already.
    public var cancelsUnwantedUpdates: Bool

    /// The term of a ``MuxLease``: the longest wait of other processes after a crash of the lease's holder.
    public var leaseDuration: Duration

    /// The parameters have the names of the properties.
    public init(
        name: String? = nil,
        maximumUpdatesPerCall: Int = 5,
        retry: RetryPolicy? = nil,
        maximumUpdatesPerWindow: Int? = 5,
        window: Duration = .seconds(30),
        updateTimeout: Duration? = .seconds(300),
        coolDown: Duration = .zero,
        leeway: Duration = .seconds(30),
        refusesSameDependency: Bool = false,
        cancelsUnwantedUpdates: Bool = false,
        leaseDuration: Duration = .seconds(10)
    ) {
        self.name = name
        self.maximumUpdatesPerCall = maximumUpdatesPerCall
        self.retry = retry
        self.maximumUpdatesPerWindow = maximumUpdatesPerWindow
        self.window = window
        self.updateTimeout = updateTimeout
        self.coolDown = coolDown
        self.leeway = leeway
        self.refusesSameDependency = refusesSameDependency
        self.cancelsUnwantedUpdates = cancelsUnwantedUpdates
        self.leaseDuration = leaseDuration
    }

    /// At most one update per call after consecutive refusals; see ``maximumUpdatesPerCall``.
    ///
    /// A refusal directly after a renewal is not due to the age of the dependency.
    public static let onePerCall = RunnerPolicy(maximumUpdatesPerCall: 1)
}

extension RunnerPolicy {
    /// Runs an update with the retries of ``retry``; throws the error of the last attempt.
    nonisolated(nonsending) func retrying<Output>(
        _ time: TimeSource,
        _ update: () async throws -> Output
    ) async throws -> Output {
        guard let retry = self.retry else { return try await update() }
        return try await RetryLoop(retry, time: time).runPlainly { _ in
            do {
                return try await update()
            } catch {
                throw Task.isCancelled ? error : error.ofUncancelledWork
            }
        }
    }

    /// The history of one call of a runner.
    public struct Call: Sendable {
        /// The number of updates after refusals by the task of this call.
        public let updates: Int

        /// The time since the call began.
        public let elapsed: Duration

        /// The error of the last refusal; `nil` without a thrown error.
        public let lastError: (any Error)?

        init<Dependency: Sendable>(_ call: DependencyStateMachine<Dependency>.Call, at now: Moment) {
            self.updates = call.updates
            self.elapsed = now.duration(since: call.startedAt)
            self.lastError = call.lastError
        }
    }
}
