public import MuxKit

/// An observer that counts the events of a repository by kind; a test can wait for events.
///
/// ```swift
/// let events = EventTally()
/// let repository = MuxRepository(store: MemoryStore(), observer: events)
/// …
/// await events.wait(for: .joined, count: 999)     // 999 callers wait for the flight
/// ```
public final class EventTally: MuxObserver {
    private let tallies = Tallies<MuxEvent.Kind>()
    private let all = Locked<[MuxEvent]>([])

    /// Makes an observer without recorded events.
    public init() {}

    /// Records the event.
    public func observe(_ event: MuxEvent) {
        self.all.withLock { $0.append(event) }
        self.tallies[event.kind].add()
    }

    /// The events so far, in order.
    public var events: [MuxEvent] { self.all.withLock { $0 } }

    /// The number of events of `kind`.
    public func count(of kind: MuxEvent.Kind) -> Int { self.tallies[kind].value }

    /// Suspends until the number of events of `kind` is at least `count`; returns early if the task is
    /// cancelled.
    public func wait(for kind: MuxEvent.Kind, count: Int = 1) async { await self.tallies[kind].reached(count) }
}

/// A ``Tally`` for each key.
final class Tallies<Key: Hashable & Sendable>: Sendable {
    private let tallies = Locked<[Key: Tally]>([:])

    subscript(key: Key) -> Tally {
        self.tallies.withLock { tallies in
            if let tally = tallies[key] { return tally }
            let tally = Tally()
            tallies[key] = tally
            return tally
        }
    }
}

/// A counter; a caller can wait for a value without polling.
package final class Tally: Sendable {
    private struct Waiter: Sendable {
        var id: UInt64
        var threshold: Int
        var continuation: CheckedContinuation<Void, Never>
    }

    private struct State: Sendable {
        var value = 0
        var nextID: UInt64 = 0
        var waiters: [Waiter] = []
    }

    private let state = Locked(State())

    package init() {}

    /// The current count.
    package var value: Int { self.state.withLock { $0.value } }

    /// Adds `amount`, resumes the waiters whose threshold is reached, and returns the new count.
    @discardableResult
    package func add(_ amount: Int = 1) -> Int {
        let (value, reached) = self.state.withLock { state -> (Int, [Waiter]) in
            state.value += amount
            let value = state.value
            let reached = state.waiters.filter { $0.threshold <= value }
            state.waiters.removeAll { $0.threshold <= value }
            return (value, reached)
        }
        for waiter in reached { waiter.continuation.resume() }
        return value
    }

    /// Suspends until the count is at least `threshold`; returns early if the task is cancelled.
    package func reached(_ threshold: Int) async {
        let id = self.state.withLock { state -> UInt64 in
            state.nextID += 1
            return state.nextID
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let parked = self.state.withLock { state -> Bool in
                    guard state.value < threshold else { return false }
                    state.waiters.append(Waiter(id: id, threshold: threshold, continuation: continuation))
                    return true
                }
                guard parked else { return continuation.resume() }
                if Task.isCancelled { self.leave(id) }
            }
        } onCancel: {
            self.leave(id)
        }
    }

    private func leave(_ id: UInt64) {
        let waiter = self.state.withLock { state -> Waiter? in
            guard let index = state.waiters.firstIndex(where: { $0.id == id }) else { return nil }
            return state.waiters.remove(at: index)
        }
        waiter?.continuation.resume()
    }
}
