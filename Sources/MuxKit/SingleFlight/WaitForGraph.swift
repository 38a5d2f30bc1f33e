import Synchronization

/// The graph of flights that wait for flights, in which a cycle is a deadlock.
///
/// Only calls from within the work of a flight are recorded; other calls cost nothing. A wait is *certain* if the waiting flight
/// cannot end before it: the call came from the flight's own task or a child of that. A `Task {}` that a fetch starts may
/// be awaited or not, so its waits are *possible*:
///
/// - A cycle of certain waits is an error at once, for the call that closes it.
/// - A cycle with a possible wait may resolve itself, so it is no error. If it still exists when a flight in it times out, the
///   callers in the cycle get the error for a deadlock.
@usableFromInline
package enum WaitForGraph: Sendable {
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
        /// By the awaited flight.
        var waits: [WaitForNode: [WaitID: Wait]] = [:]
        var awaited: [WaitID: WaitForNode] = [:]

        /// The flights that wait for `node`, directly or not, and `node` itself.
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

    /// How many flights of one key may be nested by possible waits.
    private static let greatestDepth = 16

    private static let state = Locked(State())
    private static let count = Atomic(0)

    /// Whether no wait is recorded, which is the usual case.
    @usableFromInline
    static var isEmpty: Bool { self.count.load(ordering: .acquiring) == 0 }

    /// Records that a task which works for a flight, or was started by one, waits for another; to be called in that task.
    ///
    /// - Parameters:
    ///   - id: Identifies the wait.
    ///   - caller: The context of the current task.
    ///   - awaited: The other flight.
    ///   - isNew: Whether the other flight has yet to start.
    /// - Returns: `false`, with no record, if the wait would never end.
    @usableFromInline
    static func begin(_ id: WaitID, of caller: FlightContext, for awaited: WaitForNode, isNew: Bool) -> Bool {
        let wait = Wait(waiting: caller.node, isCertain: caller.isAwaited)
        return self.state.withLock { state in
            if wait.isCertain || isNew {
                let dependents = state.dependents(of: wait.waiting, certainOnly: wait.isCertain)
                if wait.isCertain, dependents.contains(awaited) { return false }
                // A flight that starts another of its own key would do so in that one too, without end.
                let depth = isNew ? dependents.count { $0.isAboutTheSame(as: awaited) } : 0
                if depth >= (wait.isCertain ? 1 : Self.greatestDepth) { return false }
            }
            state.waits[awaited, default: [:]][id] = wait
            state.awaited[id] = awaited
            self.count.store(state.awaited.count, ordering: .releasing)
            return true
        }
    }

    /// Removes a wait, if it is recorded.
    @usableFromInline
    static func end(_ id: WaitID) {
        guard !self.isEmpty else { return }
        self.state.withLock { state in
            _ = state.remove(id)
            self.count.store(state.awaited.count, ordering: .releasing)
        }
    }

    /// Runs work that several flights wait for, so that a wait of the work for one of them is found to be a circle.
    static func loading<Result: Sendable>(
        for flights: [WaitForNode],
        _ work: @Sendable @concurrent () async -> Result
    ) async -> Result {
        let object = SharedWork()
        let node = WaitForNode(object, 0, 0)
        self.state.withLock { state in
            for flight in flights {
                let id = WaitID(object, flight.flight)
                state.waits[node, default: [:]][id] = Wait(waiting: flight, isCertain: true)
                state.awaited[id] = node
            }
            self.count.store(state.awaited.count, ordering: .releasing)
        }
        defer {
            self.state.withLock { state in
                for id in (state.waits.removeValue(forKey: node) ?? [:]).keys { state.awaited[id] = nil }
                self.count.store(state.awaited.count, ordering: .releasing)
            }
            withExtendedLifetime(object) {}
        }
        return await FlightContext.$current.withValue(FlightContext(node)) { await work() }
    }

    /// Moves the waits of the callers with `tickets` from one flight to another.
    ///
    /// - Returns: The tickets of the callers whose wait would never end; their waits are removed.
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

    /// The tickets of the callers of `node` that `node` may be waiting for itself.
    static func ticketsInCircle(with node: WaitForNode) -> [Ticket] {
        guard !self.isEmpty else { return [] }
        return self.state.withLock { state in
            (state.waits[node] ?? [:])
                .filter { state.dependents(of: $0.value.waiting, certainOnly: false).contains(node) }
                .map(\.key.ticket)
        }
    }

    /// The number of waits: zero at rest.
    package static var waitCount: Int { self.state.withLock { $0.awaited.count } }
}

/// Work that several flights wait for.
private final class SharedWork: Sendable {}

/// One flight among those of all engines.
@usableFromInline
package struct WaitForNode: Sendable, Hashable {
    @usableFromInline let engine: ObjectIdentifier
    @usableFromInline let flight: FlightID
    /// Not part of the identity: after a fence, two flights may have the same key.
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

    /// Whether both flights have the same key of the same engine.
    func isAboutTheSame(as other: WaitForNode) -> Bool {
        self.engine == other.engine && AnyHashable(self.key) == AnyHashable(other.key)
    }
}

/// The flight that a task works for.
@usableFromInline
@safe package struct FlightContext: Sendable {
    /// The flight that the current task works for, or that started it; `nil` for none.
    @TaskLocal package static var current: FlightContext?

    /// As ``current``, for inlined code.
    @usableFromInline static var ofTask: FlightContext? { Self.current }

    let node: WaitForNode
    /// The preferred executor of the flight's work.
    private let executor: UnownedTaskExecutor?

    /// The current task does the work of a flight.
    init(_ node: WaitForNode) {
        self.node = node
        unsafe self.executor = Self.currentExecutor
    }

    /// Does the work of the flight `node` in the current task.
    @usableFromInline
    nonisolated(nonsending) static func working(for node: WaitForNode, _ work: () async -> Void) async {
        await Self.$current.withValue(FlightContext(node)) { await work() }
    }

    /// Whether the flight cannot end before the current task: it is the flight's own, or a child of it.
    ///
    /// A `Task {}` inherits task-locals, but, unlike a child, not the executor preference (SE-0417). Whether the flight waits
    /// for such a task is unknown.
    var isAwaited: Bool {
        guard let current = unsafe Self.currentExecutor, let own = unsafe self.executor else { return false }
        return unsafe current == own
    }

    private static var currentExecutor: UnownedTaskExecutor? {
        unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor }
    }
}

/// The executor of flights: the global pool with an identity of its own, by which ``FlightContext/isAwaited`` tells the tasks
/// of a flight from others.
@usableFromInline
final class FlightExecutor: TaskExecutor {
    @usableFromInline static let shared = FlightExecutor()

    @usableFromInline
    func enqueue(_ job: consuming ExecutorJob) { globalConcurrentExecutor.enqueue(job) }
}
