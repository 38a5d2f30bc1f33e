import MuxKit

/// A clock that, once armed, cancels the task that first asks it for the time: in the middle of whatever that does.
final class CancellingClock: Clock, Sendable {
    typealias Instant = ContinuousClock.Instant

    let isArmed = Guarded(false)

    var now: Instant {
        let cancels = self.isArmed.withLock { isArmed -> Bool in
            defer { isArmed = false }
            return isArmed
        }
        if cancels { withUnsafeCurrentTask { $0?.cancel() } }
        return ContinuousClock().now
    }

    var minimumResolution: Duration { ContinuousClock().minimumResolution }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        try await ContinuousClock().sleep(until: deadline, tolerance: tolerance)
    }
}
