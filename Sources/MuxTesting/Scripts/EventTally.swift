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
