import MuxKit

/// Lets so many in at a time, those first who are wanted, and of these the one who came first.
///
/// **Cancellation.** Whoever is cancelled while it waits leaves at once.
final class PrioritySemaphore<Key: Hashable & Sendable>: Sendable {
    private struct Waiting: Sendable {
        let ticket: UInt64
        let key: Key
        var isUrgent: Bool
        let continuation: CheckedContinuation<Void, any Error>
    }

    private struct State: Sendable {
        var free: Int
        var waiting: [Waiting] = []
        var lastTicket: UInt64 = 0
    }

    private let state: Locked<State>

    /// A turnstile for `limit` at a time, at least one.
    init(limit: Int) { self.state = Locked(State(free: max(1, limit))) }

    /// Suspends until there is a place; whoever has one gives it back with ``leave()``.
    ///
    /// - Parameters:
    ///   - key: What the place is for.
    ///   - isUrgent: Whether it goes before those that are not; asked outside the lock.
    ///   - waits: Called outside the lock if there is no place yet.
    /// - Throws: `CancellationError`, and then there is no place to give back.
    func enter(_ key: Key, isUrgent: () -> Bool, waits: () -> Void) async throws {
        let place = Locked<UInt64?>(nil)
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let ticket = self.state.withLock { state -> UInt64? in
                    guard state.free == 0 else {
                        state.free -= 1
                        return nil
                    }
                    state.lastTicket &+= 1
                    let waiting = Waiting(
                        ticket: state.lastTicket,
                        key: key,
                        isUrgent: false,
                        continuation: continuation
                    )
                    state.waiting.append(waiting)
                    return state.lastTicket
                }
                guard let ticket else { return continuation.resume() }
                place.withLock { $0 = ticket }
                // Asked only now: whoever wants it later calls ``raise(_:)``, and finds it here.
                if isUrgent() { self.raise(key) }
                waits()
                if Task.isCancelled { self.abandon(ticket) }
            }
        } onCancel: {
            if let ticket = place.withLock({ $0 }) { self.abandon(ticket) }
        }
    }

    /// Gives a place back.
    func leave() {
        let next = self.state.withLock { state -> Waiting? in
            guard let index = state.waiting.firstIndex(where: \.isUrgent) ?? state.waiting.indices.first else {
                state.free += 1
                return nil
            }
            return state.waiting.remove(at: index)
        }
        next?.continuation.resume()
    }

    /// Somebody wants what `key` stands for: it goes before those that nobody waits for.
    func raise(_ key: Key) {
        self.state.withLock { state in
            for index in state.waiting.indices where state.waiting[index].key == key {
                state.waiting[index].isUrgent = true
            }
        }
    }

    private func abandon(_ ticket: UInt64) {
        let waiting = self.state.withLock { state -> Waiting? in
            guard let index = state.waiting.firstIndex(where: { $0.ticket == ticket }) else { return nil }
            return state.waiting.remove(at: index)
        }
        waiting?.continuation.resume(throwing: CancellationError())
    }

    /// How many wait, and how many more could enter.
    var occupancy: (waiting: Int, free: Int) { self.state.withLock { ($0.waiting.count, $0.free) } }
}
