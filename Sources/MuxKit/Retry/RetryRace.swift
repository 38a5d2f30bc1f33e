/// The one place where a retry waits: a race of wake-ups, of which the first wins.
///
/// Each wake-up that was set up is torn down exactly once, before the end of the race is told. A race runs once.
package final class RetryRace: Sendable {
    private enum State: Sendable {
        /// It has not begun.
        case ready
        /// It runs; these tear down what has been set up so far.
        case running(ended: @Sendable (RetryWakeUp?) -> Void, tearDowns: [@Sendable () -> Void])
        /// Somebody won, or it was called off.
        case over
    }

    private let state = Locked(State.ready)

    package init() {}

    /// Sets up the wake-ups, in order, and tells once which one was first: `nil` if the race was called off.
    package func start(
        _ wakeUps: [RetryWakeUp],
        _ context: RetryWakeUp.Context,
        ended: @escaping @Sendable (RetryWakeUp?) -> Void
    ) {
        let begins = self.state.withLock { state -> Bool in
            guard case .ready = state else { return false }
            state = .running(ended: ended, tearDowns: [])
            return true
        }
        guard begins else { return ended(nil) }
        for wakeUp in wakeUps {
            guard self.isRunning else { return }
            let tearDown = wakeUp.setUp(context) { self.end(wakeUp) }
            let isLate = self.state.withLock { state -> Bool in
                guard case .running(let ended, let tearDowns) = state else { return true }
                state = .running(ended: ended, tearDowns: tearDowns + [tearDown])
                return false
            }
            if isLate { tearDown() }
        }
    }

    /// Calls the race off, now or before it begins.
    package func callOff() { self.end(nil) }

    private var isRunning: Bool {
        self.state.withLock { state in if case .running = state { true } else { false } }
    }

    private func end(_ winner: RetryWakeUp?) {
        let former = self.state.withLock { state -> State in
            defer { state = .over }
            return state
        }
        guard case .running(let ended, let tearDowns) = former else { return }
        for tearDown in tearDowns { tearDown() }
        ended(winner)
    }
}

/// Suspends until the first of the wake-ups comes.
///
/// - Throws: `CancellationError`, at once, if the task is cancelled.
func firstWakeUp(of wakeUps: [RetryWakeUp], _ context: RetryWakeUp.Context) async throws -> RetryWakeUp {
    let race = RetryRace()
    return try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
            race.start(wakeUps, context) { winner in
                guard let winner else { return continuation.resume(throwing: CancellationError()) }
                continuation.resume(returning: winner)
            }
        }
    } onCancel: {
        race.callOff()
    }
}
