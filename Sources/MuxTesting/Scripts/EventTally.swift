public import MuxKit

/// A test double: counts the events of a repository by kind, and lets a test wait for them.
///
/// ```swift
/// let events = EventTally()
/// let repository = MuxRepository(store: MemoryStore(), observer: events)
/// …
/// await events.wait(for: .joined, count: 999)     // 999 callers wait for the flight now
/// ```
public final class EventTally: MuxObserver {
    private let tallies = Locked<[MuxEvent.Kind: Tally]>([:])
    private let all = Locked<[MuxEvent]>([])

    /// Counts from nothing.
    public init() {}

    /// Counts the event.
    public func observe(_ event: MuxEvent) {
        self.all.withLock { $0.append(event) }
        self.tally(event.kind).add()
    }

    /// Everything that happened so far, in order.
    public var events: [MuxEvent] { self.all.withLock { $0 } }

    /// How many events of that kind there were.
    ///
    /// - Parameter kind: The kind.
    /// - Returns: The count.
    public func count(of kind: MuxEvent.Kind) -> Int { self.tally(kind).value }

    /// Suspends until there were at least `count` events of that kind; returns early if the task is cancelled.
    ///
    /// - Parameters:
    ///   - kind: The kind.
    ///   - count: How many.
    public func wait(for kind: MuxEvent.Kind, count: Int = 1) async { await self.tally(kind).reached(count) }

    private func tally(_ kind: MuxEvent.Kind) -> Tally {
        self.tallies.withLock { tallies in
            if let tally = tallies[kind] { return tally }
            let tally = Tally()
            tallies[kind] = tally
            return tally
        }
    }
}

/// A number that can be waited for: how the doubles tell a test that something has happened, without polling.
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

    /// The present number.
    package var value: Int { self.state.withLock { $0.value } }

    /// Adds `amount`, resumes whoever waits for the new number or a smaller one, and returns the new number.
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

    /// Suspends until the number is at least `threshold`; returns early if the task is cancelled.
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
