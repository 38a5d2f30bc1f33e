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
