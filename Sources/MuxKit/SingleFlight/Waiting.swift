/// Runs `operation`, and waits at most `limit` for its end; a longer operation continues.
///
/// The operation runs in a separate task. A cancellation of the caller cancels the operation, unless the
/// operation is shielded; the call still waits for the operation's end or the limit. If the caller does the
/// work of a flight, the operation is work of the flight, too: ``WaitForGraph`` detects a wait of the
/// operation for the same flight.
///
/// - Parameters:
///   - limit: The maximum wait.
///   - time: Measures the time.
///   - spawn: Starts the tasks.
///   - isShielded: Whether the operation continues after a cancellation of the caller.
///   - operation: Does the work.
///   - late: Called with the outcome of an operation that ended after the wait.
/// - Returns: The result of the operation; `nil` if the operation took longer.
/// - Throws: The error of an operation that fails within the limit.
package func waiting<Success: Sendable>(
    for limit: Duration,
    by time: TimeSource,
    _ spawn: TaskLauncher,
    isShielded: Bool = false,
    _ operation: @escaping @Sendable @concurrent () async throws -> Success,
    late: @escaping @Sendable (Result<Success, any Error>) -> Void = { _ in }
) async throws -> Success? {
    let answer = FirstValue<Result<Success?, any Error>>()
    let executor = FlightContext.current?.isAwaited ?? false ? FlightExecutor.shared : nil
    let work = spawn(name: "mux.waiting", otherwiseOn: executor) {
        let result = await Result<_, any Error> { try await operation() }
        if !answer.give(result.map(Optional.some)) { late(result) }
    }
    let timer = time.schedule(name: "mux.wait-limit", after: limit, spawn) {
        answer.give(.success(nil))
        return nil
    }
    defer { timer.cancel() }
    return try await withEscalationHandler {
        work.raisePriority(to: $0)
    } _: {
        // The caller's priority may have risen between the start of the work and the installation of the
        // handler.
        if let base = Task.basePriority, Task.currentPriority > base { work.raisePriority(to: Task.currentPriority) }
        return try await withTaskCancellationHandler {
            try await answer.wait().get()
        } onCancel: {
            if !isShielded { work.cancel() }
        }
    }
}

/// Runs `operation`, the work of `flight`, to its end, even if the caller is cancelled.
///
/// The operation runs in a separate task, and the call waits for the end of the task. The operation keeps the
/// caller's isolation, so a non-escaping closure that captures `self` can be passed on.
///
/// With `limit`, if the operation takes longer, `whenTooLong` is called, and the operation is then cancelled;
/// the call still waits for the end of the operation.
package func shieldedFromCancellation<Success: Sendable>(
    isolation: isolated (any Actor)? = #isolation,
    for flight: WaitForNode,
    limit: (time: TimeSource, duration: Duration)?,
    _ operation: () async throws -> Success,
    whenTooLong: @escaping @Sendable () -> Void
) async throws -> Success {
    // The schedule of jobs in a test; `nil` outside such a test, and for a caller with an isolation, because
    // a task that inherits an isolation cannot start on a chosen executor. With a schedule, the task starts
    // outside the schedule, and suspends below until the schedule resumes the task.
    let schedule = isolation == nil ? TaskLauncher.schedule : nil
    let executor: any TaskExecutor = schedule ?? FlightExecutor.shared
    return try await withoutActuallyEscaping(operation) { operation in
        schedule?.announceArrival()
        let task = Task {
            _ = isolation
            return try await withTaskExecutorPreference(executor) {
                _ = isolation
                // Without a suspension, an optimised build continues on the current thread.
                if let schedule { await withCheckedContinuation { turn in schedule.runBetweenJobs { turn.resume() } } }
                defer { schedule?.announceArrival() }
                return try await FlightContext.$current.withValue(FlightContext(flight)) {
                    _ = isolation
                    return try await operation()
                }
            }
        }
        let timer = limit.map { limit in
            Task<Void, Never> {
                guard (try? await limit.time.sleep(for: limit.duration)) != nil else { return }
                whenTooLong()
                task.cancel()
            }
        }
        defer { timer?.cancel() }
        return try await withEscalationHandler({ task.raisePriority(to: $0) }, { try await task.value })
    }
}

extension Result where Failure == any Error {
    /// The result of an asynchronous closure.
    @inlinable
    nonisolated(nonsending) package init(_ body: () async throws -> Success) async {
        do {
            self = .success(try await body())
        } catch {
            self = .failure(error)
        }
    }
}
