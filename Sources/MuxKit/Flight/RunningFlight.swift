/// What belongs to a flight that runs in a task of the engine's.
@usableFromInline
struct RunningFlight: Sendable {
    @usableFromInline var task: Task<Void, Never>?
    @usableFromInline var linger: Task<Void, Never>?
    /// The highest of its callers.
    @usableFromInline var priority: TaskPriority
    @usableFromInline var isCancelled = false

    @usableFromInline
    init(priority: TaskPriority) { self.priority = priority }
}

extension TaskLauncher {
    /// Starts the work of a flight, in a task that knows for which one it works.
    @usableFromInline
    func callAsFunction(
        name: String,
        priority: TaskPriority,
        for node: WaitForNode,
        _ work: @escaping @Sendable () async -> Void
    ) -> Task<Void, Never> {
        self(name: name, priority: priority, otherwiseOn: FlightExecutor.shared) {
            await FlightContext.$current.withValue(FlightContext(node)) { await work() }
        }
    }
}
