public import Foundation

/// Runs tasks with a dependency that can become invalid while it is in use, such as an access token or a connection.
///
/// Many tasks may refuse it at once. Exactly one update runs, the others wait for it, and all tasks run again with the new
/// value:
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
/// **Concurrent calls.** At most one update runs. A task that refuses a value which has been replaced meanwhile gets the
/// newer one at once, without an update.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError`; it never cancels an update. The caller
/// whose own closure is the running update leaves as soon as that has ended.
///
/// **After a failure.** A thrown error goes to all callers that wait for the update, and the next call tries again, unless a server has
/// failed twice in a row or named a time: see <doc:RunningWithADependency>. A refusal
/// (``UpdateResult/updateFailed``) fails every call until a value is set or the runner is reset.
///
/// **At a sign-out.** A runner belongs to no ``MuxRepository``: ``MuxRepository/clearAll()`` does not reset it, and values fetched afterwards are
/// fetched with the same dependency. An ``OAuthDependentRunner`` is signed out with its repository.
public final actor DependentRunner<Dependency: Sendable>: DependencyRunner {
    @usableFromInline nonisolated let core: RunnerCore<Dependency>

    /// Makes a runner whose callers pass the update.
    ///
    /// - Parameters:
    ///   - value: The dependency, if there is one already.
    ///   - policy: Bounds on what is done for one call.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: The time of day, by which an ``ExpiringDependency`` ends.
    public init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.core = RunnerCore(
            value,
            policy: policy,
            observer: observer,
            time: TimeSource(clock),
            wallTime: wallTime,
            spawn: TaskLauncher()
        )
    }

    /// Makes a runner with its own update, which runs in a task of the runner.
    ///
    /// - Parameters:
    ///   - value: The dependency, if there is one already.
    ///   - policy: Bounds on what is done for one call.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: The time of day, by which an ``ExpiringDependency`` ends.
    ///   - update: Makes a dependency; receives the refused one, `nil` if there is none.
    public init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() },
        update: @escaping @Sendable @concurrent (Dependency?) async throws -> UpdateResult<Dependency>
    ) {
        let time = TimeSource(clock)
        self.core = RunnerCore(
            value,
            policy: policy,
            observer: observer,
            time: time,
            wallTime: wallTime,
            spawn: TaskLauncher(),
            update: { refused, _ in
                try await policy.retrying(time) { RunnerCore.Updated(try await update(refused?.value)) }
            }
        )
    }

    /// Makes a runner whose update returns the dependency: `DependentRunner { try await api.token() }`.
    ///
    /// The update runs in a task of the runner. A thrown ``BadDependencyError`` means ``UpdateResult/updateFailed``.
    ///
    /// - Parameters:
    ///   - value: The dependency, if there is one already.
    ///   - policy: Bounds on what is done for one call.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: The time of day, by which an ``ExpiringDependency`` ends.
    ///   - update: Makes a dependency.
    public init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() },
        update: @escaping @Sendable @concurrent () async throws -> Dependency
    ) {
        self.init(value, policy: policy, observer: observer, clock: clock, wallTime: wallTime) { _ in
            .updatedDependency(try await update())
        }
    }

    /// Makes a runner whose dependency is made with that of another runner.
    ///
    /// ```swift
    /// let account = DependentRunner<Account> { _ in .updatedDependency(try await ui.signIn()) }
    /// let session = DependentRunner<Session>(dependingOn: account) { account, refused in
    ///     .updatedDependency(try await api.session(of: account))
    /// }
    /// ```
    ///
    /// What was made with a dependency of `parent` is void as soon as that one is replaced. An update that reports
    /// ``UpdateResult/updateFailed`` refuses the parent's dependency: `parent` makes a new one, and the update runs again.
    ///
    /// - Parameters:
    ///   - parent: The runner to depend on; it may depend on another one.
    ///   - value: The dependency, if there is one already.
    ///   - policy: Bounds on what is done for one call.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: The time of day, by which an ``ExpiringDependency`` ends.
    ///   - update: Makes a dependency with that of `parent`; receives also the refused one, `nil` if there is none.
    public init<Parent: Sendable>(
        dependingOn parent: DependentRunner<Parent>,
        _ value: Dependency? = nil,
        policy: RunnerPolicy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() },
        update: @escaping @Sendable @concurrent (Parent, Dependency?) async throws -> UpdateResult<Dependency>
    ) {
        let parent = parent.core
        let time = TimeSource(clock)
        self.core = RunnerCore(
            value,
            policy: policy,
            observer: observer,
            time: time,
            wallTime: wallTime,
            spawn: TaskLauncher(),
            parent: parent.epochs,
            update: { refused, _ in
                try await parent.run { held, _ in
                    switch try await policy.retrying(time, { try await update(held.value, refused?.value) }) {
                    case .updatedDependency(let value):
                        .output(RunnerCore.Updated(.updatedDependency(value), parentEpoch: held.epoch))
                    case .updateFailed: .badDependency
                    }
                }
            }
        )
    }

    /// Runs `task` with the dependency, and again with a new one if the task refuses it.
    ///
    /// - Parameters:
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    ///   - update: Makes a dependency, if this call is the first to need one; receives the refused one, `nil` if there is none.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the update threw, ``RunnerError``, or `CancellationError`.
    /// - Complexity: O(1), and no suspension of its own, if there is a good dependency.
    @inlinable
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>,
        update: (Dependency?) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        switch try await self.core.firstTry(task) {
        case .output(let output): return output
        case .unfinished(let call): return try await self.run(from: call, task, update: update)
        }
    }

    @usableFromInline
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: RunnerCore<Dependency>.PendingCall,
        _ task: (Dependency) async throws -> RunResult<Output>,
        update: (Dependency?) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.core.run(from: call) { held, _ in
            try await task(held.value)
        } update: { refused, _ in
            try await self.core.policy.retrying(self.core.time) { try await update(refused) }
        }
    }

    /// Runs `task` with the dependency, made by the runner's own update.
    ///
    /// - Parameter task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the update threw, ``RunnerError``, or `CancellationError`.
    /// - Complexity: O(1), and no suspension of its own, if there is a good dependency.
    @inlinable
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output {
        switch try await self.core.firstTry(task) {
        case .output(let output): return output
        case .unfinished(let call): return try await self.run(from: call, task)
        }
    }

    @inlinable
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: RunnerCore<Dependency>.PendingCall,
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.core.run(from: call) { held, _ in try await task(held.value) }
    }

    /// Runs `task` as ``run(_:update:)`` does, within a time; both closures receive the call's history.
    ///
    /// - Parameters:
    ///   - timeout: How long the call may wait for updates and start further runs; `nil` for no limit. A running task is not
    ///     interrupted, nor is an update, which later calls can use: a caller whose own closure is the running update stays
    ///     until that has ended. A dependency that is only renewed ahead of its end is used when the time is over.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    ///   - update: Makes a dependency, if this call is the first to need one; receives the refused one, `nil` if there is none.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the update threw, ``RunnerError``, or `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration? = nil,
        _ task: (Dependency, RunContext) async throws -> RunResult<Output>,
        update: (Dependency?, RunContext) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.core.run(from: self.core.begun(timeout)) { held, call in
            try await task(held.value, RunContext(call.state, at: self.core.time.now))
        } update: { refused, call in
            try await update(refused, RunContext(call.state, at: self.core.time.now))
        }
    }

    /// Runs `task` with the dependency, made by the runner's own update, within a time.
    ///
    /// - Parameters:
    ///   - timeout: How long the call may wait for updates and start further runs; `nil` for no limit. A running task is not
    ///     interrupted, nor is an update, which later calls can use. A dependency that is only renewed ahead of its end is used
    ///     when the time is over.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    /// - Returns: What the task returned.
    /// - Throws: What the task or the update threw, ``RunnerError``, or `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration? = nil,
        _ task: (Dependency, RunContext) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.core.run(timeout: timeout) { held, call in
            try await task(held.value, RunContext(call.state, at: self.core.time.now))
        }
    }

    /// Runs an operation with the dependency, and its update if this call is the first to need one.
    ///
    /// - Parameter operation: The task, the update and the time for both.
    /// - Returns: What the operation returned.
    /// - Throws: What the operation threw, ``RunnerError``, or `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ operation: some DependentOperation<Dependency, Output>
    ) async throws -> Output {
        try await self.run(timeout: operation.timeout) { dependency, context in
            try await operation.run(dependency, context)
        } update: { refused, context in
            try await operation.refresh(refused, context)
        }
    }

    /// Renews the dependency by the runner's own update, however good it is; concurrent callers share one update.
    ///
    /// There is exactly one update, also within ``RunnerPolicy/coolDown``, and it counts towards no limit.
    ///
    /// - Returns: The new dependency.
    /// - Throws: What the update threw, ``RunnerError``, or `CancellationError`.
    @discardableResult
    public nonisolated(nonsending) func renew() async throws -> Dependency {
        try await self.core.renewed().value
    }

    /// The same as ``renew()``.
    ///
    /// - Returns: The new dependency.
    /// - Throws: What ``renew()`` throws.
    @available(*, deprecated, renamed: "renew()")
    @discardableResult
    public nonisolated(nonsending) func refresh() async throws -> Dependency { try await self.renew() }

    /// The events from now on, for one listener; ends with the runner.
    ///
    /// Keeps the newest 256 events for a slow listener.
    public nonisolated var events: AsyncStream<RunnerEvent> { self.core.watchers.stream }

    /// The dependency, if there is one.
    public nonisolated var value: Dependency? { self.core.held?.value }

    /// Grows with every change of the dependency, and is never lowered, not even by a reset.
    public nonisolated var epoch: UInt64 { self.core.epoch }

    /// The numbers of waiting callers, running updates and known flights: zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.occupancy }

    /// Replaces the dependency by `value`, also for callers that wait for an update.
    ///
    /// The value of a running update is dropped, and earlier refusals do not count any more.
    public nonisolated func set(_ value: Dependency) {
        self.core.set(value)
    }

    /// Drops the dependency; the next call makes one.
    ///
    /// Running calls end with ``RunnerError/reset`` when they wait or refuse, and the value of a running update is dropped.
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
    ///   - refresh: Makes a dependency, if this call is the first to need one; receives the refused one, `nil` if there is none.
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
