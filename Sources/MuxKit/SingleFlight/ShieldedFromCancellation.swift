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
        return try await withEscalationHandler({ task.raisePriority(to: $0) }, { try await task.value })
    }
}
