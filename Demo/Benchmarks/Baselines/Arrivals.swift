import MuxKit
import Synchronization

/// A latch that opens after a number of arrivals.
///
/// The fetch of a storm waits here for all callers.
final class Arrivals: MuxObserver {
    private struct State {
        var missing: Int
        var waiting: CheckedContinuation<Void, Never>?
    }

    private let state: Mutex<State>

    init(_ count: Int) { self.state = Mutex(State(missing: count)) }

    /// Counts one arrival.
    func add() {
        let waiting = self.state.withLock { state -> CheckedContinuation<Void, Never>? in
            state.missing -= 1
            guard state.missing == 0 else { return nil }
            defer { state.waiting = nil }
            return state.waiting
        }
        waiting?.resume()
    }

    /// Opens the latch before the last arrival.
    func giveUp() {
        let waiting = self.state.withLock { state in
            state.missing = 0
            return state.waiting.take()
        }
        waiting?.resume()
    }

    /// Counts the callers of a multiplexer or a runner, including the caller that starts the flight.
    func observe(_ event: MuxEvent) {
        switch event.kind {
        case .joined, .missed, .dependencyAwaited: self.add()
        default: break
        }
    }

    /// Suspends until the latch opens.
    func all() async {
        await withCheckedContinuation { continuation in
            let isComplete = self.state.withLock { state in
                if state.missing > 0 { state.waiting = continuation }
                return state.missing <= 0
            }
            if isComplete { continuation.resume() }
        }
    }
}
