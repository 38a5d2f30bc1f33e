/// Runs tasks that need something which can turn bad while it is in use, such as an access token or a connection.
///
/// Many tasks find out at once that it is bad. Exactly one update runs, everybody else waits for it, and then everybody is
/// run again with the new value:
///
/// ```swift
/// let runner = DependentRunner<Token>()
/// let page = try await runner.run { token in
///     let reply = try await api.page(token)
///     return reply.status == 401 ? .badDependency : .output(reply.body)
/// } update: { refused in
///     .updatedDependency(try await api.newToken(insteadOf: refused))
/// }
/// ```
///
/// Nothing is stored in this form, and the closures run where the caller runs: they may use `self` and anything else.
///
/// **Concurrent calls.** At most one update runs. A task that reports a value which has been replaced meanwhile gets the
/// newer one at once, without an update.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError`; it never cancels an update. The caller
/// whose own closure is the running update leaves as soon as that has ended.
///
/// **After a failure.** A thrown error goes to all who wait for that update, and the next call tries again. A refusal
/// (``UpdateResult/updateFailed``) fails every call until a value is set or the runner is reset.
public final actor DependentRunner<Dependency: Sendable>: DependencyRunner {
    nonisolated let core: RunnerCore<Dependency>

    /// Makes a runner whose callers bring the update along.
    ///
    /// - Parameters:
    ///   - value: The dependency, if there is one already.
    ///   - policy: Bounds on what is done for one call.
    ///   - observer: Receives what is decided.
    ///   - clock: Measures how long a call took.
    public init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        self.core = RunnerCore(
            value,
            policy: policy,
            observer: observer,
            time: TimeSource(clock),
            spawn: Spawn()
        )
    }

    /// Makes a runner that has its own update, which runs in a task that no caller owns.
    ///
    /// - Parameters:
    ///   - value: The dependency, if there is one already.
    ///   - policy: Bounds on what is done for one call.
    ///   - observer: Receives what is decided.
    ///   - clock: Measures how long a call took.
    ///   - update: Makes a dependency; receives the one that was refused, `nil` if there is none.
    public init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        update: @escaping @Sendable (Dependency?) async throws -> UpdateResult<Dependency>
    ) {
        let time = TimeSource(clock)
        self.core = RunnerCore(
            value,
            policy: policy,
            observer: observer,
            time: time,
            spawn: Spawn(),
            update: { failed in
                try await policy.retrying(time) { RunnerCore.Updated(try await update(failed?.value)) }
            }
        )
    }

    /// Runs `task` with the dependency, and again with a new one if the task reports that it is bad.
    ///
    /// - Parameters:
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a report, too.
    ///   - update: Makes a dependency if it falls to this call; receives the one that was refused, `nil` if there is none.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the update threw, ``RunnerError``, or `CancellationError`.
    /// - Complexity: O(1), and no suspension of its own, if the dependency is there and good.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>,
        update: (Dependency?) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.core.run(
            { try await task($0.value) },
            update: { failed in
                try await self.core.policy.retrying(self.core.time) { try await update(failed) }
            }
        )
    }

    /// Runs `task` with the dependency, made by the runner's own update.
    ///
    /// - Parameter task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a report, too.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the update threw, ``RunnerError``, or `CancellationError`.
    /// - Complexity: O(1), and no suspension of its own, if the dependency is there and good.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.core.run { try await task($0.value) }
    }

    /// The dependency, if there is one.
    public nonisolated var value: Dependency? { self.core.held?.value }

    /// Grows with every change of the dependency, and never goes back, not even after a reset.
    public nonisolated var epoch: UInt64 { self.core.epoch }

    /// How many callers wait, updates run and flights are known: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.occupancy }

    /// Puts `value` in place of the dependency; it counts from now on, for those who wait for an update as well.
    ///
    /// The value of an update that is running is dropped, and earlier refusals do not count any more.
    public nonisolated func set(_ value: Dependency) {
        self.core.set(value)
    }

    /// Forgets the dependency; the next call makes one.
    ///
    /// Calls that are under way end with ``RunnerError/reset`` when they wait or report, and the value of an update that is
    /// running is dropped.
    public nonisolated func reset() {
        self.core.end(.reset)
    }
}

extension Task where Success == Never, Failure == Never {
    /// Runs `operation` with the dependency of a runner: ``DependentRunner/run(_:update:)`` as a function of `Task`.
    ///
    /// - Parameters:
    ///   - dependency: The runner that holds the dependency.
    ///   - operation: Does the work, on the caller's executor.
    ///   - refresh: Makes a dependency if it falls to this call; receives the one that was refused, `nil` if there is none.
    /// - Returns: What the operation returned.
    /// - Throws: What the operation or the refresh threw, ``RunnerError``, or `CancellationError`.
    public static nonisolated(nonsending) func inject<Dependency: Sendable, Output: Sendable>(
        dependency: DependentRunner<Dependency>,
        _ operation: (Dependency) async throws -> RunResult<Output>,
        refresh: (Dependency?) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await dependency.run(operation, update: refresh)
    }
}
