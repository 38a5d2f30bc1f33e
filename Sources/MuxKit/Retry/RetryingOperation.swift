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

    private struct State: Sendable {
        var hasStarted = false
        var isExecuting = false
        /// Set before ``result`` is, so that one call sets it.
        var isEnding = false
        var result: Result<Output, any Error>?
        /// Runs the loop of attempts.
        var task: Task<Void, Never>?
        /// The attempt whose ``Run`` has not been ended.
        var open: Open?
    }

    private struct Open: Sendable {
        let index: Int
        let result = FirstAnswer<RetryResult<Output>>()
        var onCancel: (@Sendable () -> Void)?
    }

    private let loop: RetryLoop
    private let control: RetryControl
    private let work: @Sendable @concurrent (RetryingOperation, RetryAttempt) async throws -> RetryResult<Output>
    private let state = Locked(State())

    package init(_ loop: RetryLoop, base: @escaping @Sendable (Run) -> Void) {
        let queue = DispatchQueue(label: "mux.retry.operation")
        self.loop = loop
        self.control = RetryControl(loop)
        self.work = { operation, attempt in
            let result = operation.open(attempt)
            queue.async { base(Run(attempt: attempt, operation: operation)) }
            return await result.wait()
        }
        super.init()
    }

    package init(_ loop: RetryLoop, work: @escaping @Sendable @concurrent (RetryAttempt) async throws -> Output) {
        self.loop = loop
        self.control = RetryControl(loop)
        self.work = { _, attempt in .output(try await work(attempt)) }
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
        let loop = RetryLoop(
            policy,
            host: host,
            wakeUps: wakeUps,
            providers: providers,
            log: log,
            time: TimeSource(clock)
        )
        self.init(loop, base: base)
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
        let loop = RetryLoop(
            policy,
            host: host,
            wakeUps: wakeUps,
            providers: providers,
            log: log,
            time: TimeSource(clock)
        )
        return RetryingOperation(loop, work: work)
    }

    // MARK: - State

    /// How it ended; `nil` until then.
    ///
    /// A failure is a ``RetryError`` with what each attempt met, or a `CancellationError`.
    public var result: Result<Output, any Error>? { self.state.withLock { $0.result } }

    /// What the attempts met so far; of more than 100, the last 100.
    public var attempts: [RetryError.Attempt] { self.control.history.attempts }

    /// How many attempts followed the first; `nil` before it begins and after it ended.
    public var numberOfRetries: Int? {
        self.isExecuting ? self.control.index : nil
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
        guard !self.isCancelled else {
            self.loop.log(.cancelled(attempts: 0))
            return self.finish(.failure(CancellationError()))
        }
        let task = self.loop.spawn(name: "mux.retry.operation") { await self.run() }
        self.state.withLock { $0.task = task }
        if self.isCancelled { task.cancel() }
    }

    private func run() async {
        do {
            let output = try await self.loop.run(self.control) { try await self.work(self, $0) }
            self.finish(.success(output))
        } catch {
            self.finish(.failure(error))
        }
    }

    /// Ends the operation: at once if it waits, otherwise when the present attempt ends.
    public override func cancel() {
        super.cancel()
        let wasWaiting = self.control.cancel()
        self.state.withLock { $0.task }?.cancel()
        self.callOnCancel()
        if wasWaiting { self.finish(.failure(CancellationError())) }
    }

    /// Ends the operation, unless it has ended.
    private func finish(_ result: Result<Output, any Error>) {
        let isFirst = self.state.withLock { state -> Bool in
            defer { state.isEnding = true }
            return !state.isEnding
        }
        guard isFirst else { return }
        self.willChangeValue(forKey: "isExecuting")
        self.willChangeValue(forKey: "isFinished")
        self.state.withLock { state in
            state.isExecuting = false
            state.result = result
        }
        self.didChangeValue(forKey: "isExecuting")
        self.didChangeValue(forKey: "isFinished")
    }

    // MARK: - Attempts

    private func open(_ attempt: RetryAttempt) -> FirstAnswer<RetryResult<Output>> {
        let open = Open(index: attempt.index)
        self.state.withLock { $0.open = open }
        return open.result
    }

    /// Stores the handler of a run that has not been ended.
    fileprivate func onCancel(of index: Int, _ handler: @escaping @Sendable () -> Void) {
        let former = self.state.withLock { state -> (@Sendable () -> Void)? in
            guard state.open?.index == index else { return nil }
            defer { state.open?.onCancel = handler }
            return state.open?.onCancel
        }
        withExtendedLifetime(former) {}
        if self.isCancelled { self.callOnCancel() }
    }

    private func callOnCancel() {
        let handler = self.state.withLock { state in
            defer { state.open?.onCancel = nil }
            return state.open?.onCancel
        }
        handler?()
    }

    /// Ends a run, unless it has been ended.
    fileprivate func ended(_ index: Int, _ result: RetryResult<Output>) {
        let open = self.state.withLock { state -> Open? in
            guard let open = state.open, open.index == index else { return nil }
            state.open = nil
            return open
        }
        guard let open else { return }
        if self.isCancelled {
            // If the handler of the cancellation ends the run, the operation finishes before `cancel()` returns, too.
            if case .output(let output) = result {
                self.finish(.success(output))
            } else {
                self.finish(.failure(CancellationError()))
            }
        }
        open.result.give(result)
    }

    // MARK: - Demands

    /// Makes the next attempt now, if one is waited for; otherwise it does nothing, and the log says so.
    ///
    /// After the policy's ``RetryPolicy/maximumDuration`` it ends the operation instead.
    public func retryNow() { self.control.retryNow() }

    /// Has the next attempt wait for this long from now, and for nothing else; does nothing where none is waited for.
    ///
    /// If the policy's ``RetryPolicy/maximumDuration`` is over by then, the operation ends now, with
    /// ``RetryError/Reason/timeExhausted``.
    public func retry(in delay: Duration) { self.control.reschedule(delay, []) }

    /// Has the next attempt wait for the first of these, and for nothing else; does nothing where none is waited for.
    ///
    /// The operation ends with ``RetryError/Reason/timeExhausted`` if none of them has come when the policy's
    /// ``RetryPolicy/maximumDuration`` is over.
    ///
    /// - Parameter wakeUps: What may end the wait; if there are none, the operation is parked until it is told.
    public func retry(wakingOn wakeUps: [RetryWakeUp]) { self.control.reschedule(nil, wakeUps) }
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
            self.operation.ended(self.attempt.index, .output(output))
        }

        /// The work failed.
        ///
        /// - Parameters:
        ///   - error: What it met.
        ///   - plan: What is to follow; by default what the providers, the error and the policy say.
        public func end(throwing error: any Error, _ plan: RetryPlan = .pass) {
            self.operation.ended(self.attempt.index, .failure(error, plan))
        }

        /// The attempt could not be made, and no other is.
        func endAsImpossible(_ error: any Error) {
            self.operation.ended(self.attempt.index, .impossible(error))
        }
    }
}

extension RetryingOperation.Run where Output == Void {
    /// The work is done.
    public func end() { self.end(returning: ()) }
}
