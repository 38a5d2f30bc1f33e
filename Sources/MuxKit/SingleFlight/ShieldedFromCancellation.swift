/// Runs `operation` to its end, even if the caller is cancelled.
///
/// The operation runs in a separate task, and the call waits for the end of the task. The operation keeps the
/// caller's isolation, so a non-escaping closure with `self` can be passed through.
///
/// With `flight`, the operation is the work of the flight. With `limit`, an operation that takes longer is
/// cancelled, and `whenTooLong` is called.
package func shieldedFromCancellation<Success: Sendable>(
    isolation: isolated (any Actor)? = #isolation,
    for flight: WaitForNode? = nil,
    limit: (time: TimeSource, duration: Duration)? = nil,
    _ operation: () async throws -> Success,
    whenTooLong: @escaping @Sendable () -> Void = {}
) async throws -> Success {
    // The executor of a task with an inherited isolation cannot be chosen: the task begins on another
    // executor, and `schedule.later` below resumes the task at its turn.
    let schedule = isolation == nil ? TaskLauncher.schedule : nil
    let executor: (any TaskExecutor)? = schedule ?? (flight == nil ? nil : FlightExecutor.shared)
    return try await withoutActuallyEscaping(operation) { operation in
        schedule?.awaitArrival()
        let task = Task {
            _ = isolation
            return try await withTaskExecutorPreference(executor) {
                _ = isolation
                // Without a suspension, an optimised build continues on the current thread.
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
        return try await withEscalationHandler({ task.raisePriority(to: $0) }, { try await task.value })
    }
}
