/// Lets asynchronous operations run one after another, in the order in which they arrived.
///
/// An actor does not: another call enters it at every `await`. Waiting for one's turn is not cancellable; what is put in
/// the lane is done.
package final class SerialLane: Sendable {
    private struct Lane: Sendable {
        var isBusy = false
        var waiting: [CheckedContinuation<Void, Never>] = []
        var next = 0
    }

    private let lane = Guarded(Lane())

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
        await withCheckedContinuation { continuation in
            let isFree = self.lane.withLock { lane in
                guard lane.isBusy else {
                    lane.isBusy = true
                    return true
                }
                lane.waiting.append(continuation)
                return false
            }
            if isFree { continuation.resume() }
        }
    }

    private func leave() {
        let next = self.lane.withLock { lane -> CheckedContinuation<Void, Never>? in
            guard lane.next < lane.waiting.count else {
                lane = Lane()
                return nil
            }
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
