import MuxKit

/// A clock that can cancel the task that reads the time: a cancellation in the middle of a call.
package final class CancellingClock: Clock, Sendable {
    package typealias Instant = ContinuousClock.Instant

    private let readsLeft = Locked(0)

    package init() {}

    /// Makes the `reads`-th next reading cancel the reading task.
    package func arm(atRead reads: Int = 1) { self.readsLeft.withLock { $0 = reads } }

    /// Whether the clock was never armed, or has cancelled a task since.
    package var hasFired: Bool { self.readsLeft.withLock { $0 <= 0 } }

    package var now: Instant {
        let cancels = self.readsLeft.withLock { reads -> Bool in
            reads -= 1
            return reads == 0
        }
        if cancels { withUnsafeCurrentTask { $0?.cancel() } }
        return ContinuousClock().now
    }

    package var minimumResolution: Duration { ContinuousClock().minimumResolution }

    package func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        try await ContinuousClock().sleep(until: deadline, tolerance: tolerance)
    }
}
