/// The limits and times of a runner.
public struct RunnerPolicy: Sendable, Hashable {
    /// The name of the runner in events and logs; `nil` for the type of the dependency.
    ///
    /// An ``OAuthDependentRunner`` appends `access token` or `refresh token`; the default name is `OAuth`.
    public var name: String?

    /// The maximum number of updates that one call may request after consecutive refusals by the task of
    /// the call; a negative number counts as 0.
    ///
    /// Only a refusal of the current dependency counts. An acceptance of a newer dependency by any task
    /// clears the count: the dependency was valid, and a later refusal is due to the age of the dependency.
    /// Even if acceptances clear the count, the refusals of one call request at most ten times this maximum
    /// of updates.
    public var maximumUpdatesPerCall: Int

    /// The retries of a throwing update; `nil`, the default, for no retry.
    ///
    /// All attempts count as a single update. Sign-ins and update closures with a ``Call`` are not retried.
    /// The result ``UpdateResult/updateFailed`` is not an error and is not retried. The policy and the
    /// ``RetryAdvice`` of the error decide about another attempt, also for the refresh of a token.
    public var retry: RetryPolicy?

    /// The maximum number of refused and replaced dependencies within ``window``, over all callers, without
    /// an acceptance in between; `nil` for no limit.
    ///
    /// At the limit, a refusal starts no update, and the call fails with
    /// ``RunnerError/tooManyUpdatesInWindow(count:window:underlying:)``. An acceptance of the new dependency
    /// clears the count. With a limit below 1, refusals start no updates.
    public var maximumUpdatesPerWindow: Int?

    /// The period of ``maximumUpdatesPerWindow``.
    public var window: Duration

    /// The time-out of an update; `nil` for no limit.
    ///
    /// At the time-out, the runner cancels the update, and callers that need the update get
    /// ``RunnerError/updateTimedOut(after:)`` at once. A caller that passed the running update as the closure
    /// of `run(_:update:)` waits for the end of this closure. A later call can start another update after
    /// ``coolDown``.
    ///
    /// The runner drops a late dependency that is outdated, for example after a `set` or `reset`; otherwise
    /// the runner keeps the late dependency.
    ///
    /// An ``OAuthDependentRunner`` limits refreshes, but not sign-ins. While a timed-out refresh continues,
    /// the runner sends no other refresh of the same tokens.
    public var updateTimeout: Duration?

    /// The time after a failed or timed-out update in which calls that need an update throw the update's
    /// error at once.
    ///
    /// `renew()` ignores the cool-down. Pauses after failures of a server may be longer: see
    /// <doc:RunningWithADependency>.
    public var coolDown: Duration

    /// The time between the early renewal and the end of a dependency with a known end.
    ///
    /// The end is known from an ``ExpiringDependency``, or from the lifetime in the result of a refresh or
    /// sign-in. The leeway of a new dependency is at most half of the lifetime. If the renewal takes longer
    /// than half of the remaining lifetime, or longer than the call may wait, the call uses the old
    /// dependency, unless the old dependency has ended. A call also uses the old dependency after a failed
    /// renewal, unless the update was refused or threw a ``CriticalError``.
    ///
    /// The wall-clock end of a dependency is compared with the wall clock when the runner receives the
    /// dependency; a monotonic clock then measures the remaining lifetime. If an initial, set or stored
    /// dependency seems to have ended, the wall clock may be wrong: the dependency is renewed first, and used
    /// if the renewal fails.
    public var leeway: Duration

    /// Whether an update fails with ``RunnerError/sameDependency`` if the new dependency equals the refused
    /// dependency.
    ///
    /// This policy has an effect only on `Equatable` dependencies.
    public var refusesSameDependency: Bool

    /// Whether the cancellation of the last waiting caller also cancels the stored update; otherwise the
    /// update continues, and the runner can keep the new dependency.
    ///
    /// A caller that leaves because of its time-out does not cancel the update. This policy has no effect on
    /// an ``OAuthDependentRunner``: the server may have rotated the refresh token already.
    public var cancelsUnwantedUpdates: Bool

    /// The duration of a term of the ``MuxLease``, if any; at least one millisecond.
    ///
    /// After a crash of the holder, other processes wait for the remaining time of the term.
    public var leaseDuration: Duration

    /// Makes a policy; each parameter sets the property of the same name.
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
    /// A refusal directly after an update is not due to the age of the dependency, so another update would
    /// not help.
    public static let onePerCall = RunnerPolicy(maximumUpdatesPerCall: 1)
}

extension RunnerPolicy {
    /// Runs an update with the retries of ``retry``.
    ///
    /// - Throws: The error of the last attempt, or `CancellationError`.
    nonisolated(nonsending) func retrying<Output>(
        _ time: TimeSource,
        _ update: () async throws -> Output
    ) async throws -> Output {
        guard let retry = self.retry else { return try await update() }
        return try await RetryLoop(retry, time: time).runPlainly { _ in
            do {
                return try await update()
            } catch {
                // A `CancellationError` of the update alone must not end the retry as a cancellation.
                throw Task.isCancelled ? error : error.ofUncancelledWork
            }
        }
    }

    /// The history of one call of a runner.
    public struct Call: Sendable {
        /// The number of updates that the refusals of this call's task have requested.
        public let updates: Int

        /// The time since the call began.
        public let elapsed: Duration

        /// The error of the last refusal; `nil` without a refusal, or if the task threw no error.
        public let lastError: (any Error)?

        init<Dependency: Sendable>(_ call: DependencyStateMachine<Dependency>.Call, at now: Moment) {
            self.updates = call.updates
            self.elapsed = now.duration(since: call.startedAt)
            self.lastError = call.lastError
        }
    }
}
