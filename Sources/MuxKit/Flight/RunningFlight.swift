/// Who does the work of a flight that has to start.
@usableFromInline
package enum FlightLaunch: Sendable {
    /// A task of the engine's; the work calls ``FlightEngine/land(_:of:failed:settle:)`` in the end, whatever happens.
    case spawned(name: String, @Sendable (FlightID) async -> Void)
    /// The caller that found no flight running.
    case byCaller

    @usableFromInline var isByCaller: Bool {
        if case .byCaller = self { true } else { false }
    }
}

/// What belongs to a flight that runs in a task of the engine's.
@usableFromInline
struct RunningFlight: Sendable {
    @usableFromInline let launch: FlightLaunch
    @usableFromInline var task: Task<Void, Never>?
    @usableFromInline var linger: Task<Void, Never>?
    /// The highest of its callers.
    @usableFromInline var priority: TaskPriority
    @usableFromInline var isCancelled = false

    @usableFromInline
    init(launch: FlightLaunch, priority: TaskPriority) {
        self.launch = launch
        self.priority = priority
    }

    /// Notes that a caller of `priority` joined.
    ///
    /// - Returns: The task, if there is one already and it is to be raised.
    @usableFromInline
    mutating func raised(to priority: TaskPriority) -> Task<Void, Never>? {
        guard self.priority < priority else { return nil }
        self.priority = priority
        return self.task
    }
}

extension Spawn {
    /// Starts the work of a flight, in a task that knows for which one it works.
    @usableFromInline
    func callAsFunction(
        name: String,
        priority: TaskPriority,
        of flight: FlightID,
        _ node: FlightNode,
        _ work: @escaping @Sendable (FlightID) async -> Void
    ) -> Task<Void, Never> {
        self(name: name, priority: priority) {
            await FlightNode.$current.withValue(node) { await work(flight) }
        }
    }
}
