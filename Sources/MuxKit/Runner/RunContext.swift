/// What one call of a runner has met so far.
public struct RunContext: Sendable {
    /// How many updates the call has asked for because its task refused the dependency; nobody else's count.
    public let updates: Int

    /// How long the call has been under way.
    public let elapsed: Duration

    /// What the task threw when it refused the dependency last, if it threw.
    public let lastError: (any Error)?

    init<Dependency: Sendable>(_ call: DependencyStateMachine<Dependency>.Call, at now: Moment) {
        self.updates = call.updates
        self.elapsed = now.duration(since: call.startedAt)
        self.lastError = call.lastError
    }
}
