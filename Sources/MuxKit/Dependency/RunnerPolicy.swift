/// The limits and times of a runner.
public struct RunnerPolicy: Sendable, Hashable {
    /// Names the runner in events and logs; the type of its dependency if `nil`.
    ///
    /// An ``OAuthDependentRunner`` adds which token is meant, and is `OAuth` without a name.
    public var name: String?

    /// How many updates a call may ask for because its task refused one dependency after the other; at least 0.
    ///
    /// An acceptance by any task clears the count: that dependency was good, and is refused for its age. Updates of a missing
    /// dependency and early renewals do not count, nor does getting one that is newer than the refused one. A call asks for
    /// ten times as many at most, whatever is accepted in between.
    public var maximumUpdatesPerCall: Int

    /// How an update that throws is retried; `nil`, the default, for no retry.
    ///
    /// The attempts count as one update. Refusals and sign-ins are not retried. The refresh of a token is, unless its error says
    /// that a repetition may do harm: see ``RetryAdvice/isRepeatable``.
    public var retry: RetryPolicy?

    /// How many dependencies may be refused and replaced within ``window``, over all callers, with no acceptance in between;
    /// `nil` for any number.
    ///
    /// Then calls whose task refuses the dependency fail with
    /// ``RunnerError/tooManyUpdatesInWindow(count:window:underlying:)`` until replacements leave the window.
    public var maximumUpdatesPerWindow: Int?

    /// The time in which refused and replaced dependencies are counted.
    public var window: Duration

    /// How long an update may take; `nil` for no limit.
    ///
    /// Then it is cancelled, and its callers get ``RunnerError/updateTimedOut(after:)`` without waiting for its end; the next
    /// call tries again. A dependency that it makes nevertheless is kept, unless another was set meanwhile; until then no other
    /// refresh uses its refresh token. A caller whose own closure is the update stays until that has ended. A sign-in has no
    /// limit.
    public var updateTimeout: Duration?

    /// For how long after an update that threw or timed out calls get the same error at once, instead of another try.
    ///
    /// `renew()` tries nevertheless. A server that fails is left alone for longer: see <doc:RunningWithADependency>.
    public var coolDown: Duration

    /// How long before its end a dependency is renewed, where its end is known: see ``ExpiringDependency``,
    /// ``PerishableDependency`` and ``OAuthRenewal/accessLifetime``.
    ///
    /// At most half the life of a new dependency. If the renewal fails, or takes longer than half of what the old one has left,
    /// or than a call may wait, the old one is used to its end.
    ///
    /// The life of a new dependency is measured by a monotonic clock, that of a stored one by the time of day. A stored one that
    /// seems to have ended is renewed first, and used if that fails, as the time of day may be wrong.
    public var leeway: Duration

    /// Whether an update that makes a dependency equal to the refused one fails, with ``RunnerError/sameDependency``.
    ///
    /// Has an effect only on dependencies that are `Equatable`.
    public var refusesSameDependency: Bool

    /// Whether an update is cancelled when its last caller leaves; otherwise it finishes, and its value is kept.
    ///
    /// Has no effect on an ``OAuthDependentRunner``: the server may have rotated the refresh token already.
    public var cancelsUnwantedUpdates: Bool

    /// For how long a ``MuxLease`` is taken at a time: the longest wait for other processes after the death of its holder.
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

    /// One update for each call, because a token that is refused right after its renewal is not refused for its age.
    public static let onePerCall = RunnerPolicy(maximumUpdatesPerCall: 1)
}

extension RunnerPolicy {
    /// Runs an update with the retries of ``retry``; throws what the last attempt threw.
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
}
