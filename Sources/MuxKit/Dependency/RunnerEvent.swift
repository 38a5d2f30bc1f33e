/// Something that happened to the dependency of a runner; it names no values.
@nonexhaustive public enum RunnerEvent: Sendable, Hashable {
    /// An update began.
    case updateStarted
    /// An update brought a dependency, which has this epoch.
    case updated(epoch: UInt64)
    /// An update failed, or was refused.
    case updateFailed
    /// An update ended whose outcome nobody wants any more.
    case updateDropped
    /// A dependency was set, which has this epoch.
    case set(epoch: UInt64)
    /// A critical error ended all calls.
    case critical
    /// The runner was reset.
    case reset
    /// The owner signed out.
    case signedOut
}

/// Tells those who watch a runner what happened, in the order in which it happened.
final class RunnerEvents: Sendable {
    private struct State: Sendable {
        var listeners = Subscribers<AsyncStream<RunnerEvent>.Continuation>()
        /// The number of the event that is to be told next.
        var next: UInt64 = 1
        /// Events that wait for those before them.
        var waiting: [UInt64: RunnerEvent] = [:]
        var isTelling = false
    }

    private let state = Locked(State())

    deinit {
        for listener in self.state.withLock({ $0.listeners.inOrder }) { listener.finish() }
    }

    /// What happens from now on; it ends with the runner.
    var stream: AsyncStream<RunnerEvent> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: RunnerEvent.self,
            bufferingPolicy: .bufferingNewest(256)
        )
        let id = self.state.withLock { $0.listeners.add(continuation) }
        continuation.onTermination = { [weak self] _ in
            let removed = self?.state.withLock { $0.listeners.remove(id) }
            withExtendedLifetime(removed) {}
        }
        return stream
    }

    /// Tells of an event as soon as all with smaller numbers were told.
    func tell(_ event: RunnerEvent, number: UInt64) {
        let isFirst = self.state.withLock { state -> Bool in
            state.waiting[number] = event
            defer { state.isTelling = true }
            return !state.isTelling
        }
        guard isFirst else { return }
        while true {
            let step = self.state.withLock { state -> (RunnerEvent, [AsyncStream<RunnerEvent>.Continuation])? in
                guard let event = state.waiting.removeValue(forKey: state.next) else {
                    state.isTelling = false
                    return nil
                }
                state.next &+= 1
                return (event, state.listeners.inOrder)
            }
            guard let (event, listeners) = step else { return }
            for listener in listeners { listener.yield(event) }
        }
    }
}
