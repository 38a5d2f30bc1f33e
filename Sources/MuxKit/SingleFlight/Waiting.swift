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
    return try await withEscalationHandler {
        work.raisePriority(to: $0)
    } _: {
        // The caller's priority may have risen between the start of the work and the installation of the handler.
        if let base = Task.basePriority, Task.currentPriority > base { work.raisePriority(to: Task.currentPriority) }
        return try await withTaskCancellationHandler {
            try await answer.wait().get()
        } onCancel: {
            work.cancel()
        }
    }
}
