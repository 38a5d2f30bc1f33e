/// An asynchronous semaphore: urgent waiters resume first, waiters of equal urgency in the order of arrival.
///
/// **Cancellation.** A cancelled waiter resumes at once.
package final class PrioritySemaphore<Key: Hashable & Sendable>: Sendable {
    private struct Waiting: Sendable {
        let ticket: UInt64
        let key: Key
        var isUrgent = false
        let continuation: CheckedContinuation<Void, any Error>
    }

    private struct State: Sendable {
        var free: Int
        var waiting: [Waiting] = []
        var lastTicket: UInt64 = 0
    }

    private let state: Locked<State>

    /// Makes a semaphore with `limit` slots, at least one.
    package init(limit: Int) { self.state = Locked(State(free: max(1, limit))) }

    /// Suspends until a slot is free; ``leave()`` releases the slot.
    ///
    /// - Parameters:
    ///   - key: Identifies the work that needs the slot; see ``raise(_:)``.
    ///   - isUrgent: Whether the work is urgent: then all waiters for `key` become urgent. Called outside the
    ///     lock, if no slot is free.
    ///   - reportWait: Reports that the caller waits. Called outside the lock, if no slot is free.
    /// - Throws: `CancellationError` if the task is cancelled while no slot is free; the caller then holds no
    ///   slot. If a slot is free, even a cancelled task gets the slot.
    package func enter(_ key: Key, isUrgent: () -> Bool, reportWait: () -> Void) async throws {
        let ticket = self.state.withLock { state in
            state.lastTicket &+= 1
            return state.lastTicket
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let isFree = self.state.withLock { state in
                    guard state.free == 0 else {
                        state.free -= 1
                        return true
                    }
                    state.waiting.append(Waiting(ticket: ticket, key: key, continuation: continuation))
                    return false
                }
                guard !isFree else { return continuation.resume() }
                // Called after the waiter is queued, so a later ``raise(_:)`` finds the waiter.
                if isUrgent() { self.raise(key) }
                reportWait()
                // The cancellation handler may have run before the waiter was queued.
                if Task.isCancelled { self.abandon(ticket) }
            }
        } onCancel: {
            self.abandon(ticket)
        }
    }

    /// Releases a slot.
    package func leave() {
        let next = self.state.withLock { state -> Waiting? in
            guard let index = state.waiting.firstIndex(where: \.isUrgent) ?? state.waiting.indices.first else {
                state.free += 1
                return nil
            }
            return state.waiting.remove(at: index)
        }
        next?.continuation.resume()
    }

    /// Makes the waiters for `key` urgent.
    package func raise(_ key: Key) {
        self.state.withLock { state in
            for index in state.waiting.indices where state.waiting[index].key == key {
                state.waiting[index].isUrgent = true
            }
        }
    }

    /// Ends the wait of a cancelled waiter; no effect if the waiter has a slot, or is not queued yet.
    private func abandon(_ ticket: UInt64) {
        let waiting = self.state.withLock { state -> Waiting? in
            guard let index = state.waiting.firstIndex(where: { $0.ticket == ticket }) else { return nil }
            return state.waiting.remove(at: index)
        }
        waiting?.continuation.resume(throwing: CancellationError())
    }

    /// The numbers of waiters and of free slots.
    package var occupancy: (waiting: Int, free: Int) { self.state.withLock { ($0.waiting.count, $0.free) } }
}
