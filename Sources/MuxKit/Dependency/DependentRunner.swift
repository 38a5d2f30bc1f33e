public import Foundation

/// Runs tasks with a dependency that can become invalid during use, such as an access token or a connection.
///
/// If many tasks refuse the dependency at the same time, one update runs. All calls wait for the update and
/// then run their tasks again with the new dependency:
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
/// This form of the call does not store the closures. The closures run in the caller's isolation, and may use
/// `self` and values that are not `Sendable`.
///
/// **Concurrent calls.** All calls share one update. A second update may start before the first update
/// returns, for example after ``set(_:)``, ``reset()`` or a time-out; the runner then drops an outdated value
/// of the first update. If a task refuses a dependency that was replaced in the meantime, the refusal starts
/// no update, and the task runs again with the newer dependency.
///
/// **Cancellation.** A cancelled caller that waits for an update throws `CancellationError` at once. The
/// update continues, unless ``RunnerPolicy/cancelsUnwantedUpdates`` permits a cancellation. If the running
/// update is the closure of the cancelled caller, the caller throws at the end of the closure.
///
/// **After a failure.** If an update throws, all callers that wait for the update throw. Callers that wait
/// only for an early renewal can use the current dependency instead: see ``RunnerPolicy/leeway``. A later
/// call that needs an update starts another update, except during ``RunnerPolicy/coolDown`` and during the
/// pauses after failures of a server: see <doc:RunningWithADependency>. A refused update
/// (``UpdateResult/updateFailed``) or a ``CriticalError`` fails every call until a dependency is set or the
/// runner is reset. If an update throws a `CancellationError`, the callers get ``MuxError/fetchCancelled``.
///
/// **At a sign-out.** A ``DependentRunner`` belongs to no ``MuxRepository``: ``MuxRepository/clearAll()``
/// does not reset the runner, and later fetches use the same dependency. A sign-out of a repository includes
/// the ``OAuthDependentRunner`` objects of the repository.
public final actor DependentRunner<Dependency: Sendable>: DependencyRunner {
    @usableFromInline nonisolated let core: RunnerCore<Dependency>

    /// Makes a runner without a stored update; calls pass an update.
    ///
    /// - Parameters:
    ///   - value: The initial dependency; `nil` if absent.
    ///   - policy: The limits and times of the runner.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: Returns the wall-clock time, for the lifetime of an ``ExpiringDependency``.
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
            wallTime: wallTime
        )
    }

    /// Makes a runner with a stored update, which runs in a task of the runner.
    ///
    /// - Parameters:
    ///   - value: The initial dependency; `nil` if absent.
    ///   - policy: The limits and times of the runner.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: Returns the wall-clock time, for the lifetime of an ``ExpiringDependency``.
    ///   - update: Makes a dependency; receives the dependency to replace, `nil` if absent.
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
            update: { refused, _ in
                try await policy.retrying(time) { RunnerCore.UpdateOutcome(try await update(refused?.value)) }
            }
        )
    }

    /// Makes a runner with an update that returns the dependency.
    ///
    /// For example, `DependentRunner { try await api.token() }`. The update runs in a task of the runner. A
    /// thrown ``BadDependencyError`` means ``UpdateResult/updateFailed``.
    ///
    /// - Parameters:
    ///   - value: The initial dependency; `nil` if absent.
    ///   - policy: The limits and times of the runner.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: Returns the wall-clock time, for the lifetime of an ``ExpiringDependency``.
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

    /// Makes a runner with an update that needs the dependency of another runner.
    ///
    /// ```swift
    /// let account = DependentRunner<Account> { _ in .updatedDependency(try await ui.signIn()) }
    /// let session = DependentRunner<Session>(dependingOn: account) { account, refused in
    ///     .updatedDependency(try await api.session(of: account))
    /// }
    /// ```
    ///
    /// When the ``epoch`` of `parent` increases, or the dependency of `parent` becomes invalid, the
    /// dependency of this runner also becomes invalid. An update with the result
    /// ``UpdateResult/updateFailed`` refuses the parent's dependency: `parent` replaces its dependency, and
    /// the update runs again. A thrown ``BadDependencyError`` has the same effect.
    ///
    /// A ``CriticalError`` of the update is critical for both runners. If the update fails because of a
    /// critical error of `parent`, the error is also critical for this runner, and remains after a recovery
    /// of `parent`: call ``reset()`` or ``set(_:)`` of both runners.
    ///
    /// - Parameters:
    ///   - parent: The parent runner; needs a stored update to replace its dependency. The parent runner may
    ///     have a parent, too.
    ///   - value: The initial dependency; belongs to the present dependency of `parent`, and is valid until
    ///     `parent` gets another dependency. `nil` if absent.
    ///   - policy: The limits and times of the runner.
    ///   - observer: Receives the runner's events.
    ///   - clock: Measures durations.
    ///   - wallTime: Returns the wall-clock time, for the lifetime of an ``ExpiringDependency``.
    ///   - update: Makes a dependency with the dependency of `parent`; also receives the dependency to
    ///     replace, `nil` if absent.
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
            parent: parent.epochs,
            update: { refused, _ in
                try await parent.run { held, _ in
                    switch try await policy.retrying(time, { try await update(held.value, refused?.value) }) {
                    case .updatedDependency(let value):
                        .output(RunnerCore.UpdateOutcome(.updatedDependency(value), parentEpoch: held.epoch))
                    case .updateFailed: .badDependency
                    }
                }
            }
        )
    }

    /// Runs `task` with the dependency; if necessary, `update` makes a new dependency.
    ///
    /// - Parameters:
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    ///   - update: Makes a dependency if this call starts the update; receives the dependency to replace,
    ///     `nil` if absent.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task or the update, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    /// - Complexity: O(1), without a suspension outside `task`, if no update is necessary.
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

    /// Runs `task` with the dependency; if necessary, the runner's stored update makes a new dependency.
    ///
    /// - Parameter task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a
    ///   refusal, too.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task or the update, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    /// - Complexity: O(1), without a suspension outside `task`, if no update is necessary.
    @inlinable
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output {
        switch try await self.core.firstTry(task) {
        case .output(let output): return output
        case .unfinished(let call): return try await self.core.run(from: call) { held, _ in try await task(held.value) }
        }
    }

    /// Runs `task` like ``run(_:update:)``, with a time-out; both closures receive the history of the call.
    ///
    /// ``RunnerPolicy/retry`` does not apply to `update`.
    ///
    /// - Parameters:
    ///   - timeout: The time in which the call may wait for updates and run `task` again; `nil` for no limit.
    ///     A running task is not interrupted. A running update continues, and later calls can use its
    ///     dependency. If the running update is the closure `update` of this call, the call waits for the end
    ///     of the closure. If the call waits only for an early renewal, the call uses the current dependency
    ///     after the time-out.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    ///   - update: Makes a dependency if this call starts the update; receives the dependency to replace,
    ///     `nil` if absent.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task or the update, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration? = nil,
        _ task: (Dependency, RunnerPolicy.Call) async throws -> RunResult<Output>,
        update: (Dependency?, RunnerPolicy.Call) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.core.run(from: self.core.makeCall(timeout)) { held, call in
            try await task(held.value, RunnerPolicy.Call(call.state, at: self.core.time.now))
        } update: { refused, call in
            try await update(refused, RunnerPolicy.Call(call.state, at: self.core.time.now))
        }
    }

    /// Runs `task` like ``run(_:)``, with a time-out; `task` also receives the history of the call.
    ///
    /// - Parameters:
    ///   - timeout: The time in which the call may wait for updates and run `task` again; `nil` for no
    ///     limit. A running task is not interrupted. A running update continues, and later calls can use its
    ///     dependency. If the call waits only for an early renewal, the call uses the current dependency
    ///     after the time-out.
    ///   - task: Does the work, on the caller's executor. A thrown ``BadDependencyError`` is a refusal, too.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task or the update, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration? = nil,
        _ task: (Dependency, RunnerPolicy.Call) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.core.run(timeout: timeout) { held, call in
            try await task(held.value, RunnerPolicy.Call(call.state, at: self.core.time.now))
        }
    }

    /// Renews the dependency with the runner's stored update, even if the dependency is valid.
    ///
    /// Concurrent callers share one update. ``RunnerPolicy/coolDown``, the pauses and the limits of updates
    /// do not prevent the renewal.
    ///
    /// - Returns: The new dependency.
    /// - Throws: The error of the update, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    @discardableResult
    public nonisolated(nonsending) func renew() async throws -> Dependency {
        try await self.core.renew().value
    }

    /// A new stream of the events after this access, for one listener; ends when the runner is released.
    ///
    /// The stream buffers the newest 256 events for a slow listener.
    public nonisolated var events: AsyncStream<RunnerEvent> { self.core.watchers.stream }

    /// The dependency, even if refused or past its end.
    ///
    /// `nil` if absent, or invalid because of a change of the parent runner.
    public nonisolated var value: Dependency? { self.core.held?.value }

    /// A number that identifies the dependency, and never decreases.
    ///
    /// Each new dependency has a greater epoch. A removal of the dependency can also increase the epoch.
    public nonisolated var epoch: UInt64 { self.core.epoch }

    /// The numbers of waiting callers, running stored updates and keys with a flight; all are zero at rest.
    package nonisolated var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.core.engine.occupancy }

    /// Replaces the dependency with `value`; callers that wait for an update get `value`, too.
    ///
    /// The runner drops the value of a running update, and clears earlier failures, refused updates and
    /// critical errors. The counts of ``RunnerPolicy/maximumUpdatesPerCall`` and
    /// ``RunnerPolicy/maximumUpdatesPerWindow`` are kept.
    public nonisolated func set(_ value: Dependency) {
        self.core.set(value)
    }

    /// Removes the dependency; the next call makes a dependency.
    ///
    /// Waiting calls throw ``RunnerError/reset``. A running call throws this error if its task refuses the
    /// dependency later. The runner drops the value of a running update.
    public nonisolated func reset() {
        self.core.end(.reset)
    }
}

extension Task where Success == Never, Failure == Never {
    /// Runs `operation` with the dependency of a runner, like ``DependentRunner/run(_:update:)``.
    ///
    /// - Parameters:
    ///   - dependency: The runner of the dependency.
    ///   - operation: Does the work, on the caller's executor.
    ///   - refresh: Makes a dependency if this call starts the update; receives the dependency to replace,
    ///     `nil` if absent.
    /// - Returns: The output of the operation.
    /// - Throws: The error of the operation or the refresh, ``RunnerError``, ``MuxError/fetchCancelled``, or
    ///   `CancellationError`.
    public static nonisolated(nonsending) func inject<Dependency: Sendable, Output: Sendable>(
        dependency: DependentRunner<Dependency>,
        _ operation: (Dependency) async throws -> RunResult<Output>,
        refresh: (Dependency?) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await dependency.run(operation, update: refresh)
    }
}
