package import Dispatch

/// Starts the library's unstructured tasks, except tasks of `shieldedFromCancellation` and
/// ``finishing(_:started:)``.
///
/// Tests inject an executor, or a ``JobSchedule``.
@usableFromInline
package struct TaskLauncher: Sendable {
    /// Determines the order of all jobs that the current task starts; `nil` outside tests of job orders.
    @TaskLocal package static var schedule: (any JobSchedule)?

    private let executor: (any TaskExecutor)?

    /// Makes a launcher; its tasks run on `executor`, unless `executor` is `nil`.
    package init(executor: (any TaskExecutor)? = nil) {
        self.executor = executor
    }

    /// Starts `operation` in a task with the caller's task-locals, and with the caller's priority by default.
    ///
    /// The task prefers the first available executor: the launcher's executor, ``schedule``, `usual`, the
    /// concurrent pool.
    ///
    /// - Parameters:
    ///   - name: The name of the task; `nil` for no name.
    ///   - priority: The priority of the task; `nil` for the caller's priority.
    ///   - usual: The third choice of an executor.
    ///   - beginsHere: Whether the task begins on the caller's thread; the caller then continues at the
    ///     task's first suspension. Only permitted if ``canBeginHere`` is `true`; ignored on older systems.
    ///   - operation: The work.
    /// - Returns: The task.
    @inlinable
    @discardableResult
    package func callAsFunction<Success: Sendable>(
        name: String?,
        priority: TaskPriority? = nil,
        otherwiseOn usual: (any TaskExecutor)? = nil,
        beginsHere: Bool = false,
        _ operation: @escaping @isolated(any) @Sendable () async -> Success
    ) -> Task<Success, Never> {
        let executor = self.executor(otherwise: usual)
        if beginsHere, #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
            return Task.immediate(
                name: name,
                priority: priority,
                executorPreference: executor,
                operation: operation
            )
        }
        return Task(name: name, executorPreference: executor, priority: priority, operation: operation)
    }

    @usableFromInline
    func executor(otherwise usual: (any TaskExecutor)?) -> (any TaskExecutor)? {
        self.executor ?? Self.schedule ?? usual
    }

    /// Whether a task may begin on the current thread.
    ///
    /// - A launcher with an executor: `false`.
    /// - Without a ``schedule``: `false` on the main queue, and in a task with an executor preference;
    ///   otherwise `true`.
    /// - With a ``schedule``: the decision of ``JobSchedule/decideToBeginAtOnce()`` in a job of the schedule;
    ///   otherwise `false`.
    ///
    /// An immediate task does not check whether the current thread fits the isolation of the task (Swift
    /// 6.3.1), so the caller must have no isolation. A caller without isolation may still run on an actor, in
    /// an immediate task that the actor started. This property does not detect that case, because no API
    /// reports the actor of the current thread.
    @usableFromInline
    package var canBeginHere: Bool {
        guard self.executor == nil else { return false }
        let current = unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor }
        if let schedule = Self.schedule {
            guard let current = unsafe current, unsafe current == schedule.asUnownedTaskExecutor() else { return false }
            return schedule.decideToBeginAtOnce()
        }
        return unsafe current == nil && !MainQueue.isCurrent
    }
}

extension TaskLauncher {
    /// Starts `operation` in a task without the caller's task-locals, priority or schedule.
    static func uninherited(name: String, _ operation: @escaping @Sendable @concurrent () async -> Void) {
        Task.detached(name: name, priority: .high, operation: operation)
    }
}

/// An executor that determines the order of all jobs, for tests that explore every order.
package protocol JobSchedule: TaskExecutor {
    /// Schedules `action` to run between two jobs, in place of work on another thread.
    func runBetweenJobs(_ action: @escaping @Sendable () -> Void)

    /// Decides whether a new task begins inside the current job; otherwise the task begins in a later job.
    ///
    /// Called only for a task that may begin inside the current job. A test explores both decisions.
    func decideToBeginAtOnce() -> Bool

    /// Announces that a job will arrive soon, possibly from another thread; returns at once.
    ///
    /// The current job causes the arrival. The schedule starts no other job before the arrival.
    func announceArrival()
}

/// Runs `operation` to its end even if the caller is cancelled; `started` receives the task of `operation`.
package func finishing<Success: Sendable>(
    _ operation: @escaping @Sendable @concurrent () async -> Success,
    started: (Task<Success, Never>) -> Void = { _ in }
) async -> Success {
    let task = Task(executorPreference: TaskLauncher.schedule, operation: operation)
    started(task)
    return await withEscalationHandler({ task.raisePriority(to: $0) }, { await task.value })
}

extension Task {
    /// Raises the task's priority to at least `priority`, if the system supports priority escalation.
    @usableFromInline
    package func raisePriority(to priority: TaskPriority) {
        guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return }
        Cascade.run { self.escalatePriority(to: priority) }
    }
}

/// Runs `operation`; calls `raise` for each priority escalation of the current task during `operation`.
///
/// Older systems do not report escalations.
@inlinable
package nonisolated(nonsending) func withEscalationHandler<R>(
    _ raise: @Sendable (TaskPriority) -> Void,
    _ operation: nonisolated(nonsending) () async throws -> R
) async rethrows -> R {
    guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return try await operation() }
    return try await withTaskPriorityEscalationHandler(operation: operation) { raise($1) }
}

/// Runs cancellations and priority escalations of tasks without recursion.
///
/// A cancellation or escalation of a task calls the task's handlers at once, under a lock of the runtime. The
/// handlers cancel or escalate the flight that the task waits for, and so on: a long chain would overflow the
/// stack. Therefore an effect that is requested during another effect runs after the other effect.
package enum Cascade {
    /// The effects that wait for the end of a running effect.
    private final class Pending: Sendable {
        /// `nil` after the last effect.
        private let effects = Locked<[@Sendable () -> Void]?>([])

        /// Adds an effect.
        ///
        /// - Returns: `false` if the last effect has already run; the effect is then not added.
        func add(_ effect: @escaping @Sendable () -> Void) -> Bool {
            self.effects.withLock { effects in
                effects?.append(effect)
                return effects != nil
            }
        }

        /// Takes all waiting effects; `nil` if no effect waits, and from then on ``add(_:)`` returns `false`.
        func next() -> [@Sendable () -> Void]? {
            self.effects.withLock { effects in
                let next = effects
                effects = next?.isEmpty ?? true ? nil : []
                return effects == nil ? nil : next
            }
        }
    }

    /// The effects that wait for the end of a running effect: an effect on this thread, or the effect during
    /// which the current task was started.
    @TaskLocal private static var pending: Pending?

    /// Runs `effect`, then the effects that `effect` requests; inside a running effect, only enqueues
    /// `effect`.
    package static func run(_ effect: @escaping @Sendable () -> Void) {
        if let pending = self.pending, pending.add(effect) { return }
        let pending = Pending()
        self.$pending.withValue(pending) {
            effect()
            while let next = pending.next() { for effect in next { effect() } }
        }
    }
}

/// A value for one waiting task; of the values that several tasks give, the first value counts.
package final class FirstValue<Value: Sendable>: Sendable {
    private enum State: Sendable {
        case open(CheckedContinuation<Value, Never>?)
        case given(Value)
    }

    private let state = Locked(State.open(nil))

    package init() {}

    /// Gives `value` to the task that waits, or to the task that will wait; no effect after the first value.
    ///
    /// - Returns: Whether `value` is the first value.
    @discardableResult
    package func give(_ value: Value) -> Bool {
        let (isFirst, waiter) = self.state.withLock { state -> (Bool, CheckedContinuation<Value, Never>?) in
            guard case .open(let waiter) = state else { return (false, nil) }
            state = .given(value)
            return (true, waiter)
        }
        waiter?.resume(returning: value)
        return isFirst
    }

    /// Suspends until the first value; only a single task may wait.
    package nonisolated(nonsending) func wait() async -> Value {
        await withCheckedContinuation { continuation in
            let value = self.state.withLock { state -> Value? in
                if case .given(let value) = state { return value }
                state = .open(continuation)
                return nil
            }
            if let value { continuation.resume(returning: value) }
        }
    }
}

/// Blocking or CPU-bound work, run on Dispatch's threads instead of the cooperative pool.
package enum BlockingWork {
    /// Runs `work` on a thread of Dispatch; with a ``TaskLauncher/schedule``, between two jobs.
    package static func run<R: Sendable, E: Error>(
        _ work: @escaping @Sendable () throws(E) -> R
    ) async throws(E) -> R {
        let result = await withCheckedContinuation { continuation in
            let resume = { @Sendable in continuation.resume(returning: Result { () throws(E) in try work() }) }
            if let schedule = TaskLauncher.schedule { return schedule.runBetweenJobs(resume) }
            DispatchQueue.global(qos: .userInitiated).async(execute: resume)
        }
        return try result.get()
    }

    /// Transforms `items` in parallel; with a ``TaskLauncher/schedule``, in series.
    ///
    /// The results have the order of the items.
    package static func map<Item: Sendable, Result: Sendable>(
        _ items: [Item],
        for quality: DispatchQoS.QoSClass = .utility,
        _ transform: @escaping @Sendable (Item) -> Result
    ) async -> [Result] {
        guard !items.isEmpty else { return [] }
        if TaskLauncher.schedule != nil { return await self.run { items.map(transform) } }
        // At most 64 parts, because each part takes a lock. A part has 16 items or more, except the last
        // part.
        let chunk = max(16, (items.count + 63) / 64)
        let starts = Array(stride(from: 0, to: items.count, by: chunk))
        return await withCheckedContinuation { continuation in
            DispatchQueue.global(qos: quality).async {
                let parts = Locked([[Result]](repeating: [], count: starts.count))
                DispatchQueue.concurrentPerform(iterations: starts.count) { part in
                    let start = starts[part]
                    let results = items[start..<min(start + chunk, items.count)].map(transform)
                    parts.withLock { $0[part] = results }
                }
                continuation.resume(returning: parts.withLock { $0.flatMap(\.self) })
            }
        }
    }
}

/// Calls `work` with all items and, after a failure, with parts, until the failing items are isolated.
///
/// - Parameters:
///   - items: The items, which may be processed in any order.
///   - concernsAll: Whether an error concerns all items of a call: then all these items count as failed, and
///     `work` is not called with parts.
///   - work: Processes all given items, or throws.
/// - Returns: The failing items and the errors.
/// - Complexity: O(log *n*) calls per failing item. After ``mostFailuresInARow`` consecutive failed calls,
///   the remaining items count as failed.
package nonisolated(nonsending) func isolatingFailures<Item>(
    of items: [Item],
    concernsAll: (any Error) -> Bool,
    _ work: ([Item]) async throws -> Void
) async -> [(item: Item, error: any Error)] {
    var failures: [(item: Item, error: any Error)] = []
    var parts = items.isEmpty ? [] : [items]
    var failuresInARow = 0
    while let part = parts.popLast() {
        do {
            try await work(part)
            failuresInARow = 0
        } catch {
            failuresInARow += 1
            if failuresInARow >= mostFailuresInARow {
                failures += (parts.flatMap(\.self) + part).map { ($0, error) }
                return failures
            }
            guard part.count > 1, !concernsAll(error) else {
                failures += part.map { ($0, error) }
                continue
            }
            // Alternating items form two parts. Neighbours often fail together: a half of the items could
            // consist of failing items, and could reach `mostFailuresInARow` before any success.
            for remainder in 0...1 {
                parts.append(part.indices.filter { $0 % 2 == remainder }.map { part[$0] })
            }
        }
    }
    return failures
}

/// The number of consecutive failed calls after which ``isolatingFailures(of:concernsAll:_:)`` gives up.
///
/// The isolation of a single item among millions needs fewer failed calls than this number. An unavailable
/// store causes at most this number of calls.
private let mostFailuresInARow = 64
