/// Runs `operation` in a task that the caller's cancellation does not reach, and waits until it has ended.
///
/// The operation keeps the caller's isolation, so a non-escaping closure that uses `self` can be passed through.
///
/// If a flight is named, the operation is the work of that flight. If a limit is given, the operation is cancelled when it
/// takes longer, and `whenTooLong` is called.
package func shieldedFromCancellation<Success: Sendable>(
    isolation: isolated (any Actor)? = #isolation,
    for flight: WaitForNode? = nil,
    limit: (time: TimeSource, duration: Duration)? = nil,
    _ operation: () async throws -> Success,
    whenTooLong: @escaping @Sendable () -> Void = {}
) async throws -> Success {
    // A task with an isolation of its own cannot be told where to run: it is called back from where it begins.
    let schedule = isolation == nil ? TaskLauncher.schedule : nil
    let executor: (any TaskExecutor)? = schedule ?? (flight == nil ? nil : FlightExecutor.shared)
    return try await withoutActuallyEscaping(operation) { operation in
        schedule?.awaitArrival()
        let task = Task {
            _ = isolation
            return try await withTaskExecutorPreference(executor) {
                _ = isolation
                // An optimised build stays on the thread that it is on unless it has to wait.
                if let schedule { await withCheckedContinuation { turn in schedule.later { turn.resume() } } }
                defer { schedule?.awaitArrival() }
                return try await FlightContext.$current.withValue(flight.map(FlightContext.init) ?? .current) {
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
        return try await task.value
    }
}

/// Waits for `operation`, which runs in a task of its own, for as long as `limit` says; it goes on after that.
///
/// The caller's cancellation cancels the operation, whose end it awaits. Where the caller is the work of a flight, so is the
/// operation: if it waits for that flight, it is told.
///
/// - Parameters:
///   - limit: How long to wait.
///   - time: Measures the time.
///   - spawn: Starts the tasks.
///   - operation: Does the work.
///   - late: Called with the outcome of an operation that was not waited for any more.
/// - Returns: What the operation returned; `nil` if it took longer.
/// - Throws: What the operation threw in time.
package func waiting<Success: Sendable>(
    for limit: Duration,
    by time: TimeSource,
    _ spawn: TaskLauncher,
    _ operation: @escaping @Sendable @concurrent () async throws -> Success,
    late: @escaping @Sendable (Result<Success, any Error>) -> Void
) async throws -> Success? {
    let answer = FirstAnswer<Result<Success?, any Error>>()
    let executor = FlightContext.current?.isAwaited ?? false ? FlightExecutor.shared : nil
    let work = spawn(name: "mux.waiting", otherwiseOn: executor) {
        let result: Result<Success, any Error>
        do {
            result = .success(try await operation())
        } catch {
            result = .failure(error)
        }
        if !answer.give(result.map(Optional.some)) { late(result) }
    }
    let timer = spawn(name: "mux.wait-limit") {
        guard (try? await time.sleep(for: limit)) != nil else { return }
        answer.give(.success(nil))
    }
    defer { timer.cancel() }
    return try await withTaskCancellationHandler {
        try await answer.wait().get()
    } onCancel: {
        work.cancel()
    }
}
