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
        let engine: UInt64
        let ticket: Ticket

        /// Identifies the wait of the caller with `ticket` in the engine with that number.
        @usableFromInline
        package init(_ engine: UInt64, _ ticket: Ticket) {
            self.engine = engine
            self.ticket = ticket
        }
    }

    private static let table = Locked(WaitTable())
    private static let count = Atomic(0)

    /// Whether no wait is recorded, which is the usual case.
    @usableFromInline
    static var isEmpty: Bool { self.count.load(ordering: .acquiring) == 0 }

    private static func withTable<R: Sendable>(_ body: (inout WaitTable) -> R) -> R {
        self.table.withLock { table in
            defer { self.count.store(table.count, ordering: .releasing) }
            return body(&table)
        }
    }

    /// Records that a task which works for a flight, or was started by one, waits for another; to be called in that task.
    ///
    /// - Parameters:
    ///   - id: Identifies the wait.
    ///   - caller: The context of the current task.
    ///   - isCertain: ``FlightContext/isAwaited`` of the caller. The runtime takes a lock to read it, under which it calls the handlers
    ///     of cancellation and escalation: read it before a lock that these handlers take.
    ///   - awaited: The other flight.
    ///   - sameKey: If the other flight has yet to start: the running flights of its key.
    /// - Returns: `false`, with no record, if the wait would never end.
    /// - Complexity: O(1) for a flight that has yet to start; see ``WaitTable``.
    @usableFromInline
    static func begin(
        _ id: WaitID,
        of caller: FlightContext,
        isCertain: Bool,
        for awaited: WaitForNode,
        sameKey: [WaitForNode] = []
    ) -> Bool {
        self.withTable {
            $0.begin(id, of: caller.node, for: awaited, isCertain: isCertain, sameKey: sameKey)
        }
    }

    /// Removes a wait, if it is recorded.
    @usableFromInline
    static func end(_ id: WaitID) {
        guard !self.isEmpty else { return }
        self.withTable { $0.end(id) }
    }

    /// Removes the waits of the callers with `tickets`, where they are recorded.
    @usableFromInline
    static func end(_ tickets: [Ticket], of engine: UInt64) {
        guard !self.isEmpty, !tickets.isEmpty else { return }
        self.withTable { table in for ticket in tickets { table.end(WaitID(engine, ticket)) } }
    }

    /// Runs work that several flights wait for, so that a wait of the work for one of them is found to be a circle.
    static func loading<Result: Sendable>(
        for flights: [WaitForNode],
        _ work: @Sendable @concurrent () async -> Result
    ) async -> Result {
        let node = WaitForNode(engine: WaitForNode.nextEngine(), flight: 0)
        self.withTable { table in
            for flight in flights {
                _ = table.begin(WaitID(node.engine, flight.flight), of: flight, for: node, isCertain: true)
            }
        }
        defer { self.end(flights.map(\.flight), of: node.engine) }
        return await FlightContext.$current.withValue(FlightContext(node)) { await work() }
    }

    /// Moves the waits of the callers with `tickets` from one flight to another.
    ///
    /// - Returns: The tickets of the callers whose wait would never end; their waits are removed.
    static func moved(_ tickets: Set<Ticket>, from former: WaitForNode, to next: WaitForNode) -> [Ticket] {
        self.withTable { $0.move(tickets, from: former, to: next) }
    }

    /// The tickets of the callers of each flight that the flight may be waiting for itself.
    static func ticketsInCycles(with nodes: [WaitForNode]) -> [WaitForNode: [Ticket]] {
        guard !self.isEmpty, !nodes.isEmpty else { return [:] }
        return self.withTable { $0.ticketsInCycles(with: nodes) }
    }

    /// The number of waits: zero at rest.
    package static var waitCount: Int { self.table.withLock { $0.count } }

    /// See ``WaitTable/stepCount``.
    package static var stepCount: Int { self.table.withLock { $0.stepCount } }
}

/// One flight among those of all engines.
@usableFromInline
package struct WaitForNode: Sendable, Hashable {
    /// The number of the engine, unique in the process; a later engine could have the same address.
    @usableFromInline let engine: UInt64
    @usableFromInline let flight: FlightID

    @inlinable
    package init(engine: UInt64, flight: FlightID) {
        self.engine = engine
        self.flight = flight
    }

    private static let lastEngine = Atomic<UInt64>(0)

    /// The number of a new engine.
    static func nextEngine() -> UInt64 { self.lastEngine.wrappingAdd(1, ordering: .relaxed).newValue }
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
    @usableFromInline
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
