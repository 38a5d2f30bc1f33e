/// An event of a runner's dependency, without the value.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum RunnerEvent: Sendable, Hashable {
    /// An update began.
    case updateStarted
    /// An update made the dependency with this epoch, or found the dependency in the store.
    ///
    /// The event also occurs if a renewal failed and a stored dependency stays in use.
    case updated(epoch: UInt64)
    /// An update failed, or returned ``UpdateResult/updateFailed``.
    ///
    /// The event of a critical error is ``critical``, and the event of a failure after the time-out is
    /// ``updateDropped``.
    case updateFailed
    /// The outcome of an update was dropped: the outcome was outdated, or the update failed after its
    /// time-out or cancellation.
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

/// Delivers the events of a runner to its listeners, in the order of the event numbers.
final class RunnerEvents: Sendable {
    private struct State: Sendable {
        /// The number of the next event to deliver.
        var next: UInt64 = 1
        /// The events that have arrived and are not delivered yet, by number.
        var waiting: [UInt64: RunnerEvent] = [:]
        /// Whether a thread delivers events: only one thread may deliver, to keep the order.
        var isDelivering = false
    }

    private let state = Locked(State())
    private let listeners = Broadcast<SoleKey, RunnerEvent>()

    /// Makes `continuation` yield an element after each event, and finish when the runner is deallocated.
    ///
    /// - Returns: A closure that removes the listener.
    func signal(_ continuation: AsyncStream<Void>.Continuation) -> @Sendable () -> Void {
        self.listeners.add(to: .sole, finish: { continuation.finish() }, { _ in continuation.yield() })
    }

    /// The future events; the stream ends with the runner.
    var stream: AsyncStream<RunnerEvent> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: RunnerEvent.self,
            bufferingPolicy: .bufferingNewest(256)
        )
        let remove = self.listeners.add(to: .sole, finish: { continuation.finish() }, { continuation.yield($0) })
        continuation.onTermination = { _ in remove() }
        return stream
    }

    /// Delivers an event after all events with smaller numbers.
    ///
    /// If such an event has not arrived yet, or another thread delivers events, the event waits, and this
    /// call returns at once.
    func tell(_ event: RunnerEvent, number: UInt64) {
        let isFirst = self.state.withLock { state -> Bool in
            state.waiting[number] = event
            defer { state.isDelivering = true }
            return !state.isDelivering
        }
        guard isFirst else { return }
        while true {
            let event = self.state.withLock { state -> RunnerEvent? in
                guard let event = state.waiting.removeValue(forKey: state.next) else {
                    state.isDelivering = false
                    return nil
                }
                state.next &+= 1
                return event
            }
            guard let event else { return }
            self.listeners.send(event, to: .sole)
        }
    }
}
