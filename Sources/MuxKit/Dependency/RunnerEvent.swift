/// An event of a runner's dependency, without the value.
@nonexhaustive public enum RunnerEvent: Sendable, Hashable {
    /// An update began.
    case updateStarted
    /// A dependency has this epoch now: an update made it, or found it in the store, where it stays in use if its renewal fails.
    case updated(epoch: UInt64)
    /// An update failed, or was refused.
    case updateFailed
    /// An update ended after a fence or its time-out, and its outcome was dropped.
    case updateDropped
    /// A dependency was set, with this epoch.
    case set(epoch: UInt64)
    /// A critical error ended all calls.
    case critical
    /// The runner was reset.
    case reset
    /// The session ended by a sign-out.
    case signedOut
}

/// Delivers the events of a runner to its listeners, in the order of their numbers.
final class RunnerEvents: Sendable {
    private struct State: Sendable {
        var listeners = Subscribers<AsyncStream<RunnerEvent>.Continuation>()
        /// The number of the event that is delivered next.
        var next: UInt64 = 1
        /// Events that came before their predecessors.
        var waiting: [UInt64: RunnerEvent] = [:]
        var isDelivering = false
    }

    private let state = Locked(State())

    deinit {
        for listener in self.state.withLock({ $0.listeners.inOrder }) { listener.finish() }
    }

    /// The events from now on; ends with the runner.
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

    /// Delivers an event when all with smaller numbers are delivered.
    func tell(_ event: RunnerEvent, number: UInt64) {
        let isFirst = self.state.withLock { state -> Bool in
            state.waiting[number] = event
            defer { state.isDelivering = true }
            return !state.isDelivering
        }
        guard isFirst else { return }
        while true {
            let step = self.state.withLock { state -> (RunnerEvent, [AsyncStream<RunnerEvent>.Continuation])? in
                guard let event = state.waiting.removeValue(forKey: state.next) else {
                    state.isDelivering = false
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
