import MuxKit

/// A clock that, once armed, cancels a task that asks it for the time: in the middle of whatever that does.
final class CancellingClock: Clock, Sendable {
    typealias Instant = ContinuousClock.Instant

    private let looksLeft = Locked(0)

    /// Has the task cancelled that is the `looks`-th to ask for the time.
    func arm(atLook looks: Int = 1) { self.looksLeft.withLock { $0 = looks } }

    /// Whether nobody is to be cancelled any more.
    var hasFired: Bool { self.looksLeft.withLock { $0 <= 0 } }

    var now: Instant {
        let cancels = self.looksLeft.withLock { looks -> Bool in
            looks -= 1
            return looks == 0
        }
        if cancels { withUnsafeCurrentTask { $0?.cancel() } }
        return ContinuousClock().now
    }

    var minimumResolution: Duration { ContinuousClock().minimumResolution }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        try await ContinuousClock().sleep(until: deadline, tolerance: tolerance)
    }
}
