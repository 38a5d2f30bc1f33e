public import Foundation

/// An operation that does its work again if it fails in a way that may pass.
///
/// What ``retry(_:on:wakingOn:providers:while:log:clock:operation:)`` is for tasks, for those who use an `OperationQueue`:
///
/// ```swift
/// let download = RetryingOperation<Data>(.web) { run in
///     fetch { result in
///         switch result {
///         case .success(let data): run.end(returning: data)
///         case .failure(let error): run.end(throwing: error)
///         }
///     }
/// }
/// queue.addOperation(download)
/// ```
///
/// The closure begins one attempt, on a queue of the operation's own, and says how it ended through the ``Run`` that it is given:
/// before it returns if the work is synchronous, or later from anywhere. `isExecuting` and `isFinished` are seen to.
///
/// No thread waits between attempts. Until then ``retryNow()``, ``retry(in:)`` and ``retry(wakingOn:)`` bring the next attempt
/// forward or put it off; where nothing waits they do nothing, and the log says so.
///
/// **Concurrent calls.** Everything may be called from anywhere.
///
/// **Cancellation.** A cancelled operation is not attempted again. While it waits it finishes before `cancel()` returns; while an
/// attempt is being made, it finishes when that ends, which ``Run/onCancel(_:)`` can see to. Its ``result`` is a
/// `CancellationError` then, unless the attempt succeeded all the same.
public class RetryingOperation<Output: Sendable>: Operation, @unchecked Sendable {
    // `@unchecked` must be restated for a subclass of `Operation`; everything in here is a `let` of a type that is `Sendable`.

    struct State: Sendable {
        var machine: RetryStateMachine
        var history = RetryHistory()
        /// The attempt that is being made.
        var open: Open?
        /// What the operation waits in.
        var race: RetryRace?
        var hasStarted = false
        var isExecuting = false
        /// Whether somebody is about to set the result.
        var isEnding = false
        var result: Result<Output, any Error>?
    }

    /// An attempt that has not said how it ended.
    struct Open: Sendable {
        let index: Int
        let began: Duration
        let pass: RetryHost.Pass?
        var onCancel: (@Sendable () -> Void)?
    }

    let course: RetryLoop
    let base: @Sendable (Run) -> Void
    let state: Locked<State>
    private let queue = DispatchQueue(label: "mux.retry.operation")

    package init(_ course: RetryLoop, base: @escaping @Sendable (Run) -> Void) {
        self.course = course
        self.base = base
        self.state = Locked(State(machine: RetryStateMachine(course.policy)))
        super.init()
    }

    /// Makes an operation of work that says by itself when it has ended.
    ///
    /// - Parameters:
    ///   - policy: How often, and how long in between.
    ///   - host: Whom the work asks. Its ``RetryBudget`` then bounds the retries of all together.
    ///   - wakeUps: What may end a wait before its time.
    ///   - providers: Who decides whether there is another attempt, before the error and the policy do.
    ///   - log: Receives what happens.
    ///   - clock: Measures the waits.
    ///   - base: Begins an attempt. It has to end the run it is given, once, now or later.
    public convenience init(
        _ policy: RetryPolicy = .web,
        on host: RetryHost? = nil,
        wakingOn wakeUps: [RetryWakeUp] = [],
        providers: [RetryProvider] = [],
        log: RetryLog = .silent,
        clock: any Clock<Duration> = ContinuousClock(),
        base: @escaping @Sendable (Run) -> Void
    ) {
        let course = RetryLoop(
            policy,
            host: host,
            wakeUps: wakeUps,
            providers: providers,
            log: log,
            time: TimeSource(clock)
        )
        self.init(course, base: base)
    }

    /// Makes an operation of asynchronous work.
    ///
    /// - Parameters:
    ///   - policy: How often, and how long in between.
    ///   - host: Whom the work asks. Its ``RetryBudget`` then bounds the retries of all together.
    ///   - wakeUps: What may end a wait before its time.
    ///   - providers: Who decides whether there is another attempt, before the error and the policy do.
    ///   - log: Receives what happens.
    ///   - clock: Measures the waits.
    ///   - work: Makes an attempt, in a task that is cancelled with the operation.
    /// - Returns: The operation.
    public static func running(
        _ policy: RetryPolicy = .web,
        on host: RetryHost? = nil,
        wakingOn wakeUps: [RetryWakeUp] = [],
        providers: [RetryProvider] = [],
        log: RetryLog = .silent,
        clock: any Clock<Duration> = ContinuousClock(),
        work: @escaping @Sendable @concurrent (RetryAttempt) async throws -> Output
    ) -> RetryingOperation {
        RetryingOperation(
            policy,
            on: host,
            wakingOn: wakeUps,
            providers: providers,
            log: log,
            clock: clock,
            base: Self.base(of: work)
        )
    }

    /// What begins an attempt of asynchronous work.
    package static func base(
        of work: @escaping @Sendable @concurrent (RetryAttempt) async throws -> Output,
        _ spawn: TaskLauncher = TaskLauncher()
    ) -> @Sendable (Run) -> Void {
        { run in
            let task = spawn(name: "mux.retry.operation") {
                do {
                    run.end(returning: try await work(run.attempt))
                } catch {
                    run.end(throwing: error)
                }
            }
            run.onCancel { task.cancel() }
        }
    }

    // MARK: - What it knows

    /// How it ended; `nil` until then.
    ///
    /// A failure is a ``RetryError`` with what each attempt met, or a `CancellationError`.
    public var result: Result<Output, any Error>? { self.state.withLock { $0.result } }

    /// What the attempts met so far; of more than 100, the last 100.
    public var attempts: [RetryError.Attempt] { self.state.withLock { $0.history.attempts } }

    /// How many attempts followed the first; `nil` before it begins and after it ended.
    public var numberOfRetries: Int? {
        self.state.withLock { state in state.isExecuting ? state.machine.index : nil }
    }

    /// Always `true`: no thread is held while it waits.
    public override var isAsynchronous: Bool { true }

    /// Whether it has begun and not ended; a wait between attempts counts.
    public override var isExecuting: Bool { self.state.withLock { $0.isExecuting } }

    /// Whether it has ended.
    public override var isFinished: Bool { self.state.withLock { $0.result != nil } }

    // MARK: - Beginning and ending

    /// Makes the first attempt; called by the operation queue.
    public override func start() {
        let isFirst = self.state.withLock { state -> Bool in
            defer { state.hasStarted = true }
            return !state.hasStarted
        }
        guard isFirst else { return }
        self.willChangeValue(forKey: "isExecuting")
        self.state.withLock { $0.isExecuting = true }
        self.didChangeValue(forKey: "isExecuting")
        let now = self.course.time.now
        let begins = !self.isCancelled && self.state.withLock { $0.machine.started(at: now) }
        guard begins else { return self.finish(.failure(CancellationError())) }
        self.makeAttempt(0)
    }

    /// Ends the operation, or has the present attempt end it.
    public override func cancel() {
        super.cancel()
        let (onCancel, race, isWaiting) = self.state.withLock { state -> ((@Sendable () -> Void)?, RetryRace?, Bool) in
            switch state.machine.ended() {
            case .ignore, .nothing: return (nil, nil, false)
            case .stopAttempt:
                defer { state.open?.onCancel = nil }
                return (state.open?.onCancel, nil, false)
            case .stopWaiting:
                defer { state.race = nil }
                return (nil, state.race, true)
            }
        }
        onCancel?()
        race?.callOff()
        if isWaiting { self.finish(.failure(CancellationError())) }
    }

    /// Ends the operation, unless it has ended.
    func finish(_ result: Result<Output, any Error>) {
        let attempts = self.state.withLock { state -> Int? in
            guard !state.isEnding else { return nil }
            state.isEnding = true
            _ = state.machine.ended()
            return state.history.attempts.last.map { $0.index + 1 } ?? 0
        }
        guard let attempts else { return }
        self.tellEnd(result, attempts)
        self.willChangeValue(forKey: "isExecuting")
        self.willChangeValue(forKey: "isFinished")
        self.state.withLock { state in
            state.isExecuting = false
            state.result = result
        }
        self.didChangeValue(forKey: "isExecuting")
        self.didChangeValue(forKey: "isFinished")
    }

    private func tellEnd(_ result: Result<Output, any Error>, _ attempts: Int) {
        switch result {
        case .success: self.course.log(.succeeded(attempts: attempts + 1))
        case .failure(let error as RetryError): self.course.log(.gaveUp(error.reason, attempts: attempts))
        case .failure: self.course.log(.cancelled(attempts: attempts))
        }
    }

    func onQueue(_ work: @escaping @Sendable () -> Void) { self.queue.async(execute: work) }
}

extension RetryingOperation {
    /// One attempt of a ``RetryingOperation``, as the work sees it.
    ///
    /// It is ended once; what is said after that counts for nothing.
    public struct Run: Sendable {
        /// The index of the attempt, and what went before.
        public let attempt: RetryAttempt

        let operation: RetryingOperation

        /// Whether the operation was cancelled, so that the attempt is to end soon.
        public var isCancelled: Bool { self.operation.isCancelled }

        /// Has `handler` called if the operation is cancelled during this attempt; at once if it is already.
        ///
        /// One handler is kept, the last. Stop the work there; the run has to be ended nevertheless.
        public func onCancel(_ handler: @escaping @Sendable () -> Void) {
            self.operation.onCancel(of: self.attempt.index, handler)
        }

        /// The work is done.
        public func end(returning output: Output) {
            self.operation.ended(self.attempt.index, .success(output), .pass)
        }

        /// The work failed.
        ///
        /// - Parameters:
        ///   - error: What it met.
        ///   - plan: What is to follow; by default what the providers, the error and the policy say.
        public func end(throwing error: any Error, _ plan: RetryPlan = .pass) {
            self.operation.ended(self.attempt.index, .failure(error), plan)
        }

        /// The work could not even begin, and another attempt would not help.
        func giveUp(_ reason: RetryError.Reason, _ error: any Error) {
            self.operation.ended(self.attempt.index, .failure(error), .never, reason: reason)
        }
    }
}

extension RetryingOperation.Run where Output == Void {
    /// The work is done.
    public func end() { self.end(returning: ()) }
}
