/// Bounds on what a runner does.
public struct RunnerPolicy: Sendable, Hashable {
    /// How many updates a call may ask for because its task refused one dependency after the other; at least 0.
    ///
    /// A success in between clears the count: a dependency that any task accepted was good, and was refused for its age. Making
    /// a dependency that is missing does not count, nor does renewing one ahead of time, nor being handed one that is newer than
    /// the refused one. However many succeed in between, a call asks for ten times as many at most.
    public var maximumUpdatesPerCall: Int

    /// How an update that fails is attempted again before its failure counts; `nil`, unless it is set, for not at all.
    ///
    /// The attempts are one update. A refusal is not repeated, nor is a sign-in; and an update that may have exchanged a refresh
    /// token is, only if its error says that this does no harm, or says nothing: see ``RetryAdvice/isRepeatable``.
    public var retry: RetryPolicy?

    /// How many dependencies may be refused and replaced within ``window``, over all callers, with no success in between; `nil`
    /// for any number.
    ///
    /// A task that accepts a dependency clears the count. When there were as many, calls whose task refuses the dependency fail with
    /// ``RunnerError/tooManyUpdatesInWindow(count:window:underlying:)`` until the window has moved on.
    public var maximumUpdatesPerWindow: Int? = 5

    /// The time in which refused and replaced dependencies are counted.
    public var window = Duration.seconds(30)

    /// How long a call waits for an update; `nil` for as long as it takes.
    ///
    /// Then the update is cancelled, and all who wait get ``RunnerError/updateTimedOut(after:)``, whether or not it heeds that;
    /// the next call tries again. What it brings nevertheless is kept, unless something else was set meanwhile; until then no
    /// other refresh uses its refresh token. A caller whose own closure is the update stays until that has ended. A sign-in may
    /// take as long as it likes.
    public var updateTimeout: Duration? = .seconds(300)

    /// For how long after an update that threw, or took too long, calls get the same error at once, instead of another try.
    ///
    /// "Renew now" tries nevertheless.
    public var coolDown = Duration.zero

    /// How long before its end a dependency is renewed, where its end is known: see ``ExpiringDependency``,
    /// ``PerishableDependency`` and ``OAuthRenewal/accessLifetime``.
    ///
    /// Of one that lives for less than twice that time, half the life. If the renewal fails, or takes longer than half of what the
    /// old one has left, or than a call may wait, the old one is used to its end.
    ///
    /// The end is counted from the arrival, by a clock that nobody sets; the time of day counts only for what was kept from an
    /// earlier launch. What looks over then is renewed first, and used if that fails: the clock may be wrong, and the server
    /// knows better.
    public var leeway = Duration.seconds(30)

    /// Whether an update that brings a dependency equal to the refused one fails, with ``RunnerError/sameDependency``.
    ///
    /// It matters only where dependencies are `Equatable`.
    public var refusesSameDependency = false

    /// Whether an update is cancelled when nobody waits for it any more; otherwise it finishes, and its value is kept.
    ///
    /// ``OAuthDependentRunner`` never does that: the server may have exchanged the refresh token already.
    public var cancelsUnwantedUpdates = false

    /// For how long a ``MuxLease`` is taken at a time: what the death of its holder costs the others at most.
    public var leaseDuration = Duration.seconds(10)

    /// Makes a policy.
    ///
    /// - Parameters:
    ///   - maximumUpdatesPerCall: How many updates a call may ask for.
    ///   - maximumUpdatesPerWindow: How many refused dependencies may be replaced in half a minute; `nil` for any number.
    public init(maximumUpdatesPerCall: Int = 5, maximumUpdatesPerWindow: Int? = 5) {
        self.maximumUpdatesPerCall = maximumUpdatesPerCall
        self.maximumUpdatesPerWindow = maximumUpdatesPerWindow
    }

    /// One update for each call: a token that is refused right after it was renewed is not refused for its age.
    public static let onePerCall = RunnerPolicy(maximumUpdatesPerCall: 1)
}

extension RunnerPolicy {
    /// Does an update as often as ``retry`` says; throws what the last attempt threw.
    nonisolated(nonsending) func retrying<Output>(
        _ time: TimeSource,
        _ update: () async throws -> Output
    ) async throws -> Output {
        guard let retry = self.retry else { return try await update() }
        return try await RetryLoop(retry, time: time).runPlainly { _ in try await update() }
    }
}
