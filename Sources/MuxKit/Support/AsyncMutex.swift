/// Lets asynchronous operations run one after another, in the order in which they arrived.
///
/// An actor does not: another call enters it at every `await`. Waiting for one's turn is not cancellable; what is put in
/// the lane is done.
package final class AsyncMutex: Sendable {
    private struct Lane: Sendable {
        var isBusy = false
        /// Raises the priority of the operation that has the lane, if it can be raised.
        var raise: (@Sendable (TaskPriority) -> Void)?
        /// The greatest priority of those that wait, or have waited since the lane was free.
        var wanted: TaskPriority?
        var waiting: [CheckedContinuation<Void, Never>] = []
        var next = 0
    }

    private let lane = Locked(Lane())

    package init() {}

    /// Runs `operation` when all that came before have ended.
    package nonisolated(nonsending) func run<Success>(
        _ operation: () async throws -> Success
    ) async rethrows -> Success {
        await self.enter()
        defer { self.leave() }
        return try await operation()
    }

    private nonisolated(nonsending) func enter() async {
        let priority = Task.currentPriority
        await withCheckedContinuation { continuation in
            let (isFree, raise) = self.lane.withLock { lane in
                guard lane.isBusy else {
                    lane.isBusy = true
                    return (true, nil as (@Sendable (TaskPriority) -> Void)?)
                }
                lane.wanted = max(lane.wanted ?? priority, priority)
                lane.waiting.append(continuation)
                return (false, lane.raise)
            }
            if isFree { continuation.resume() } else { raise?(priority) }
        }
    }

    /// The operation that has the lane can be raised by `raise` to the priority of those that wait, now and later.
    package func isOccupied(_ raise: @escaping @Sendable (TaskPriority) -> Void) {
        let wanted = self.lane.withLock { lane in
            lane.raise = raise
            return lane.wanted
        }
        if let wanted { raise(wanted) }
    }

    private func leave() {
        let next = self.lane.withLock { lane -> CheckedContinuation<Void, Never>? in
            guard lane.next < lane.waiting.count else {
                lane = Lane()
                return nil
            }
            lane.raise = nil
            let next = lane.waiting[lane.next]
            lane.next += 1
            if lane.next > 32, lane.next * 2 > lane.waiting.count {
                lane.waiting.removeFirst(lane.next)
                lane.next = 0
            }
            return next
        }
        next?.resume()
    }

    /// How many places there are, those of operations that had their turn included.
    package var placeCount: Int { self.lane.withLock { $0.waiting.count } }
}
