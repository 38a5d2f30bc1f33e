import Synchronization

/// The graph of flights that wait for flights, for the detection of deadlocks.
///
/// Only the waits of the work of a flight are recorded, including the waits of a `Task {}` that the work
/// starts. A wait of the flight's own task, or of a child task, is *certain*: the flight is assumed not to
/// end before the wait ends. A flight may or may not wait for a `Task {}`, so the waits of this task are
/// *possible*:
///
/// - A cycle of certain waits is an error at once, for the wait that closes the cycle.
/// - A cycle with a possible wait may resolve without an error. When a flight times out, each of its callers
///   that is part of a cycle gets the error for a deadlock.
/// - A wait that would nest flights of the same key without end is an error, too: at once for certain waits,
///   and beyond 16 nested flights for possible waits.
@usableFromInline
package enum WaitForGraph: Sendable {
    @usableFromInline
    package struct WaitID: Sendable, Hashable {
        let engine: UInt64
        let ticket: Ticket

        /// Identifies the wait of the caller with `ticket` in the engine with the number `engine`.
        @usableFromInline
        package init(_ engine: UInt64, _ ticket: Ticket) {
            self.engine = engine
            self.ticket = ticket
        }
    }

    /// Engines take this lock under their own locks: code under this lock must not call an engine.
    private static let table = Locked(WaitTable())
    private static let count = Atomic(0)

    /// Whether no wait is recorded, the usual case.
    @usableFromInline
    static var isEmpty: Bool { self.count.load(ordering: .acquiring) == 0 }

    private static func withTable<R: Sendable>(_ body: (inout WaitTable) -> R) -> R {
        self.table.withLock { table in
            defer { self.count.store(table.count, ordering: .releasing) }
            return body(&table)
        }
    }

    /// Records the wait of a flight's task, or of a task that a flight started, for another flight.
    ///
    /// To be called in the waiting task.
    ///
    /// - Parameters:
    ///   - id: Identifies the wait.
    ///   - caller: The context of the current task.
    ///   - isCertain: ``FlightContext/isAwaited`` of the caller. A read of this property takes a lock of the
    ///     runtime, which the runtime holds during the handlers of cancellation and escalation: read the
    ///     property before taking a lock that the handlers take.
    ///   - awaited: The other flight.
    ///   - sameKey: If the other flight is new, the fenced flights of its key that have callers.
    /// - Returns: `false`, without a record, if the wait would never end, or if too many flights of the key
    ///   are nested.
    /// - Complexity: O(1) for a new flight with an empty `sameKey`; see ``WaitTable``.
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

    /// Removes a wait, if recorded.
    @usableFromInline
    static func end(_ id: WaitID) {
        guard !self.isEmpty else { return }
        self.withTable { $0.end(id) }
    }

    /// Removes the recorded waits of the callers with `tickets`.
    @usableFromInline
    static func end(_ tickets: [Ticket], of engine: UInt64) {
        guard !self.isEmpty, !tickets.isEmpty else { return }
        self.withTable { table in for ticket in tickets { table.end(WaitID(engine, ticket)) } }
    }

    /// Runs work that several flights certainly wait for; a certain wait of the work for any of these flights
    /// is an error.
    ///
    /// The flights must belong to one engine: the identifiers of the flights serve as tickets of the waits.
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

    /// Moves the waits of the callers with `tickets` from one flight to another flight.
    ///
    /// - Returns: The tickets of the callers in a deadlock; their waits are removed.
    static func moveWaits(_ tickets: Set<Ticket>, from former: WaitForNode, to next: WaitForNode) -> [Ticket] {
        self.withTable { $0.move(tickets, from: former, to: next) }
    }

    /// See ``WaitTable/ticketsInCycles(with:)``.
    static func ticketsInCycles(with nodes: [WaitForNode]) -> [WaitForNode: [Ticket]] {
        guard !self.isEmpty, !nodes.isEmpty else { return [:] }
        return self.withTable { $0.ticketsInCycles(with: nodes) }
    }

    /// The number of waits; zero at rest.
    package static var waitCount: Int { self.table.withLock { $0.count } }

    /// See ``WaitTable/stepCount``.
    package static var stepCount: Int { self.table.withLock { $0.stepCount } }
}

/// A flight of any engine, or the common work of several flights (``WaitForGraph/loading(for:_:)``).
@usableFromInline
package struct WaitForNode: Sendable, Hashable {
    /// The number of the engine, or of the common work, unique in the process.
    ///
    /// An address would not be unique: a later engine could have the same address.
    @usableFromInline let engine: UInt64
    @usableFromInline let flight: FlightID

    @inlinable
    package init(engine: UInt64, flight: FlightID) {
        self.engine = engine
        self.flight = flight
    }

    private static let lastEngine = Atomic<UInt64>(0)

    /// A new number for ``engine``.
    static func nextEngine() -> UInt64 { self.lastEngine.wrappingAdd(1, ordering: .relaxed).newValue }
}

/// The flight that a task works for.
@usableFromInline
@safe package struct FlightContext: Sendable {
    /// The flight of the current task's work, or the flight that started the current task; `nil` without a
    /// flight.
    @TaskLocal package static var current: FlightContext?

    /// The same as ``current``, for inlined code.
    @usableFromInline static var ofTask: FlightContext? { Self.current }

    /// The task-local ``current``, for inlined code.
    ///
    /// A function around the work of each flight would need another frame, and the frames would exceed the
    /// memory that a task allocates at its creation.
    @usableFromInline static var ofWork: TaskLocal<FlightContext?> { Self.$current }

    let node: WaitForNode
    /// The preferred executor of the flight's work.
    private let executor: UnownedTaskExecutor?

    /// Makes the context of the current task, which does the work of a flight.
    @usableFromInline
    init(_ node: WaitForNode) {
        self.node = node
        unsafe self.executor = Self.currentExecutor
    }

    /// Makes the context of a task that will do the work of a flight, and prefers `executor`.
    @usableFromInline
    init(_ node: WaitForNode, on executor: (any TaskExecutor)?) {
        self.node = node
        unsafe self.executor = executor?.asUnownedTaskExecutor()
    }

    /// Whether the current task counts as the flight's own task or a child task, so that its waits are
    /// certain.
    ///
    /// The executor preference decides: a child task inherits the preference, a `Task {}` inherits only the
    /// task-locals (SE-0417).
    @usableFromInline
    var isAwaited: Bool {
        guard let current = unsafe Self.currentExecutor, let own = unsafe self.executor else { return false }
        return unsafe current == own
    }

    private static var currentExecutor: UnownedTaskExecutor? {
        unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor }
    }
}

/// The executor of flights: the global pool with a separate identity.
///
/// ``FlightContext/isAwaited`` uses the identity to recognise the tasks of a flight.
@usableFromInline
final class FlightExecutor: TaskExecutor {
    @usableFromInline static let shared = FlightExecutor()

    @usableFromInline
    func enqueue(_ job: consuming ExecutorJob) { globalConcurrentExecutor.enqueue(job) }
}
