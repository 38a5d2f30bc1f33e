import Synchronization

/// Which flights wait for which: a circle among them would be a deadlock.
///
/// Only calls from within the work of a flight are noted, so others pay nothing. A wait is *certain* if the waiting flight
/// cannot end before it: the call came from the flight's own task or a child of that. A `Task {}` that a fetch starts may
/// be awaited or not, so its waits are only *possible* ones:
///
/// - A circle of certain waits is an error at once, for the call that closes it.
/// - A circle with a possible wait in it may end by itself, so nobody gets an error for it. If it still stands when a flight
///   in it runs out of time, those in the circle are told that they waited for themselves.
@usableFromInline
package enum WaitForGraph: Sendable {
    /// Names one caller's wait.
    @usableFromInline
    package struct WaitID: Sendable, Hashable {
        let engine: ObjectIdentifier
        let ticket: Ticket

        @usableFromInline
        package init(_ engine: AnyObject, _ ticket: Ticket) {
            self.engine = ObjectIdentifier(engine)
            self.ticket = ticket
        }
    }

    private struct Wait: Sendable {
        let waiting: WaitForNode
        let isCertain: Bool
    }

    private struct State: Sendable {
        /// By what is waited for.
        var waits: [WaitForNode: [WaitID: Wait]] = [:]
        var awaited: [WaitID: WaitForNode] = [:]

        /// The flights that cannot end, or perhaps cannot, before `node` has; `node` is one of them.
        func dependents(of node: WaitForNode, certainOnly: Bool) -> Set<WaitForNode> {
            var seen: Set<WaitForNode> = [node]
            var open = [node]
            while let next = open.popLast() {
                for wait in (self.waits[next] ?? [:]).values where wait.isCertain || !certainOnly {
                    if seen.insert(wait.waiting).inserted { open.append(wait.waiting) }
                }
            }
            return seen
        }

        mutating func remove(_ id: WaitID) -> Wait? {
            guard let awaited = self.awaited.removeValue(forKey: id) else { return nil }
            let wait = self.waits[awaited]?.removeValue(forKey: id)
            if self.waits[awaited]?.isEmpty ?? false { self.waits[awaited] = nil }
            return wait
        }
    }

    /// How many flights of one key may be started each inside the one before: it has to end somewhere.
    private static let greatestDepth = 16

    private static let state = Locked(State())
    private static let count = Atomic(0)

    /// Whether nothing waits: as good as always.
    @usableFromInline
    static var isEmpty: Bool { self.count.load(ordering: .acquiring) == 0 }

    /// Notes that a task which works for a flight, or was started by one, waits for another; to be called in that task.
    ///
    /// - Parameters:
    ///   - id: Names the wait.
    ///   - caller: What the present task works for.
    ///   - awaited: The other flight.
    ///   - isNew: Whether the other one is yet to start.
    /// - Returns: `false`, and nothing is noted, if the wait could never end.
    @usableFromInline
    static func begin(_ id: WaitID, of caller: FlightContext, for awaited: WaitForNode, isNew: Bool) -> Bool {
        let wait = Wait(waiting: caller.node, isCertain: caller.isAwaited)
        return self.state.withLock { state in
            if wait.isCertain || isNew {
                let dependents = state.dependents(of: wait.waiting, certainOnly: wait.isCertain)
                if wait.isCertain, dependents.contains(awaited) { return false }
                // A flight in which one of the same key is started would do so, too, and so on.
                let depth = isNew ? dependents.count { $0.isAboutTheSame(as: awaited) } : 0
                if depth >= (wait.isCertain ? 1 : Self.greatestDepth) { return false }
            }
            state.waits[awaited, default: [:]][id] = wait
            state.awaited[id] = awaited
            self.count.store(state.awaited.count, ordering: .releasing)
            return true
        }
    }

    /// Notes that a wait is over, if it was noted.
    @usableFromInline
    static func end(_ id: WaitID) {
        guard !self.isEmpty else { return }
        self.state.withLock { state in
            _ = state.remove(id)
            self.count.store(state.awaited.count, ordering: .releasing)
        }
    }

    /// Those of the callers of one flight who wait under `tickets` wait for another one from now on.
    ///
    /// - Returns: The tickets of those whose wait could never end; they are not noted any more.
    static func moved(_ tickets: Set<Ticket>, from former: WaitForNode, to next: WaitForNode) -> [Ticket] {
        self.state.withLock { state in
            let moving = (state.waits[former] ?? [:]).filter { tickets.contains($0.key.ticket) }
            var closing: [Ticket] = []
            for (id, wait) in moving.sorted(by: { $0.key.ticket < $1.key.ticket }) {
                _ = state.remove(id)
                if wait.isCertain, state.dependents(of: wait.waiting, certainOnly: true).contains(next) {
                    closing.append(id.ticket)
                } else {
                    state.waits[next, default: [:]][id] = wait
                    state.awaited[id] = next
                }
            }
            self.count.store(state.awaited.count, ordering: .releasing)
            return closing
        }
    }

    /// The tickets of those who wait for `node`, and for whom `node` may be waiting itself.
    static func ticketsInCircle(with node: WaitForNode) -> [Ticket] {
        guard !self.isEmpty else { return [] }
        return self.state.withLock { state in
            (state.waits[node] ?? [:])
                .filter { state.dependents(of: $0.value.waiting, certainOnly: false).contains(node) }
                .map(\.key.ticket)
        }
    }

    /// How many waits are noted: none at rest.
    package static var waitCount: Int { self.state.withLock { $0.awaited.count } }
}

/// Names one flight among those of all engines.
@usableFromInline
package struct WaitForNode: Sendable, Hashable {
    @usableFromInline let engine: ObjectIdentifier
    @usableFromInline let flight: FlightID
    /// What the flight is about; not part of its identity, for after a fence there may be two of one key.
    @usableFromInline let key: any Hashable & Sendable

    @inlinable
    package init(_ engine: AnyObject, _ flight: FlightID, _ key: some Hashable & Sendable) {
        self.engine = ObjectIdentifier(engine)
        self.flight = flight
        self.key = key
    }

    @usableFromInline
    package static func == (a: WaitForNode, b: WaitForNode) -> Bool { a.engine == b.engine && a.flight == b.flight }

    @usableFromInline
    package func hash(into hasher: inout Hasher) {
        hasher.combine(self.engine)
        hasher.combine(self.flight)
    }

    /// Whether both flights are about the same key of the same engine.
    func isAboutTheSame(as other: WaitForNode) -> Bool {
        self.engine == other.engine && AnyHashable(self.key) == AnyHashable(other.key)
    }
}

/// For which flight a task works.
@usableFromInline
@safe package struct FlightContext: Sendable {
    /// The flight that the present task works for, or that started it; `nil` for none.
    @TaskLocal package static var current: FlightContext?

    /// As ``current``, for inlined code.
    @usableFromInline static var ofTask: FlightContext? { Self.current }

    let node: WaitForNode
    /// What the work of the flight prefers to run on.
    private let executor: UnownedTaskExecutor?

    /// Says of the present task that it does the work of a flight.
    init(_ node: WaitForNode) {
        self.node = node
        unsafe self.executor = Self.presentExecutor
    }

    /// Whether the flight cannot end before the present task has: it is the flight's own, or a child of it.
    ///
    /// A `Task {}` sees the task-locals of where it was made, but does not inherit the preference for an executor, as children
    /// do (SE-0417). Whether the flight waits for such a task cannot be told.
    var isAwaited: Bool {
        guard let present = unsafe Self.presentExecutor, let own = unsafe self.executor else { return false }
        return unsafe present == own
    }

    private static var presentExecutor: UnownedTaskExecutor? {
        unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor }
    }
}

/// Where flights do their work: the pool on which all tasks run, under a name of its own.
///
/// By that name a task knows whether it is part of a flight, see ``FlightContext/isAwaited``.
final class FlightExecutor: TaskExecutor {
    static let shared = FlightExecutor()

    func enqueue(_ job: consuming ExecutorJob) { globalConcurrentExecutor.enqueue(job) }
}
