/// Bounds on what a runner does for one call.
public struct RunnerPolicy: Sendable, Hashable {
    /// How many updates a call may ask for because its task refused the dependency; at least 0.
    ///
    /// Making a dependency that is missing does not count, nor does being handed one that is newer than the refused one.
    public var maximumUpdatesPerCall: Int

    /// How an update that fails is attempted again before its failure counts; `nil`, unless it is set, for not at all.
    ///
    /// The attempts are one update. A refusal is not repeated, nor is a sign-in; and an update that may have exchanged a refresh
    /// token is, only if its error says that this does no harm, or says nothing: see ``RetryAdvice/isRepeatable``.
    public var retry: RetryPolicy?

    /// Makes a policy.
    ///
    /// - Parameter maximumUpdatesPerCall: How many updates a call may ask for.
    public init(maximumUpdatesPerCall: Int = 5) {
        self.maximumUpdatesPerCall = maximumUpdatesPerCall
    }

    /// One update for each call: a token that is refused right after it was renewed is not refused for its age.
    public static let onePerCall = RunnerPolicy(maximumUpdatesPerCall: 1)
}
