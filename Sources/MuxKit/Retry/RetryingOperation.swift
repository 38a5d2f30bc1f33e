public import Foundation

/// An operation for an `OperationQueue` with retries after transient errors.
///
/// The equivalent of ``retry(_:on:wakingOn:providers:while:log:clock:operation:)``, without `while`.
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
/// The closure begins one attempt, on a dispatch queue of this operation, and ends its ``Run``: before the
/// closure returns, or later from any thread. The operation updates `isExecuting` and `isFinished`.
///
/// No thread is blocked between attempts. During a wait ``retryNow()``, ``retry(in:)`` and
/// ``retry(wakingOn:)`` reschedule the next attempt; at other times these methods only write a line to the
/// log.
///
/// **Concurrent calls.** All members can be called from any thread.
///
/// **Cancellation.** If the operation is cancelled while an attempt begins, the attempt may still run, and
/// ``Run/isCancelled`` is `true`; no further attempt begins. A waiting operation finishes before `cancel()`
/// returns, and an operation that has not started finishes at its start. With a running attempt, the
/// operation finishes at the end of the attempt; a handler of ``Run/onCancel(_:)`` can end the attempt early.
/// After a cancellation before the start, during a wait or during an attempt, the ``result`` is the output of
/// this attempt, if any, or a `CancellationError`.
public class RetryingOperation<Output: Sendable>: Operation, @unchecked Sendable {
    // A subclass of `Operation` must restate `@unchecked`; all stored properties are `let`s of `Sendable`
    // types.

    private struct State: Sendable {
        var hasStarted = false
        var isExecuting = false
        /// Set before ``result``, so only one call sets the result.
        var isEnding = false
        var result: Result<Output, any Error>?
        /// Runs the loop of attempts.
        var task: Task<Void, Never>?
        /// The attempt with an unfinished ``Run``.
        var open: Open?
    }

    private struct Open: Sendable {
        let index: Int
        let result = FirstValue<RetryResult<Output>>()
        var onCancel: (@Sendable () -> Void)?
    }

    private let loop: RetryLoop
    private let control: RetryControl
    private let work: @Sendable @concurrent (RetryingOperation, RetryPolicy.Attempt) async throws -> RetryResult<Output>
    private let state = Locked(State())

    package init(_ loop: RetryLoop, base: @escaping @Sendable (Run) -> Void) {
        let queue = DispatchQueue(label: "mux.retry.operation")
        self.loop = loop
        self.control = RetryControl(loop)
        self.work = { operation, attempt in
            let open = Open(index: attempt.index)
            operation.state.withLock { $0.open = open }
            queue.async {
                let run = Run(attempt: attempt, operation: operation)
                if run.isCancelled { run.end(throwing: CancellationError()) } else { base(run) }
            }
            return await open.result.wait()
        }
        super.init()
    }

    package init(_ loop: RetryLoop, work: @escaping @Sendable @concurrent (RetryPolicy.Attempt) async throws -> Output)
    {
        self.loop = loop
        self.control = RetryControl(loop)
        self.work = { _, attempt in .output(try await work(attempt)) }
        super.init()
    }

    /// Makes an operation from a closure that receives a ``Run``, and ends the run.
    ///
    /// - Parameters:
    ///   - policy: The number of attempts, and the delays between them.
    ///   - host: The host of the request. The ``RetryBudget`` of the host bounds the retries of all callers
    ///     together.
    ///   - wakeUps: Can end a wait early.
    ///   - providers: Decide about another attempt, in order, before the error and the policy.
    ///   - log: Receives the events of the retry.
    ///   - clock: Measures the time.
    ///   - base: Begins an attempt. The closure must end the run once, before its return or later.
    public convenience init(
        _ policy: RetryPolicy = .web,
        on host: RetryPolicy.Host? = nil,
        wakingOn wakeUps: [RetrySignal.WakeUp] = [],
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

    /// Makes an operation from asynchronous work.
    ///
    /// - Parameters:
    ///   - policy: The number of attempts, and the delays between them.
    ///   - host: The host of the request. The ``RetryBudget`` of the host bounds the retries of all callers
    ///     together.
    ///   - wakeUps: Can end a wait early.
    ///   - providers: Decide about another attempt, in order, before the error and the policy.
    ///   - log: Receives the events of the retry.
    ///   - clock: Measures the time.
    ///   - work: Makes an attempt, in a task; a cancellation of the operation cancels the task.
    /// - Returns: The operation.
    public static func running(
        _ policy: RetryPolicy = .web,
        on host: RetryPolicy.Host? = nil,
        wakingOn wakeUps: [RetrySignal.WakeUp] = [],
        providers: [RetryProvider] = [],
        log: RetryLog = .silent,
        clock: any Clock<Duration> = ContinuousClock(),
        work: @escaping @Sendable @concurrent (RetryPolicy.Attempt) async throws -> Output
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

    /// The result; `nil` until the operation has finished.
    ///
    /// A failure is a ``RetryError`` with the last 100 failed attempts, or a `CancellationError`.
    public var result: Result<Output, any Error>? { self.state.withLock { $0.result } }

    /// The failed attempts so far; only the last 100.
    public var attempts: [RetryPolicy.Attempt] { self.control.history.attempts }

    /// The number of attempts after the first; `nil` before the start and after the end of the operation.
    public var numberOfRetries: Int? {
        self.isExecuting ? self.control.index : nil
    }

    /// Always `true`.
    public override var isAsynchronous: Bool { true }

    /// Whether the operation has begun and not finished; also `true` between attempts.
    public override var isExecuting: Bool { self.state.withLock { $0.isExecuting } }

    /// Whether the operation has finished.
    public override var isFinished: Bool { self.state.withLock { $0.result != nil } }

    // MARK: - Beginning and ending

    /// Begins the first attempt, or finishes a cancelled operation; called by the operation queue.
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
        // `cancel()` may have run before the task was stored.
        if self.isCancelled { task.cancel() }
    }

    private func run() async {
        let result = await Result<_, any Error> {
            try await self.loop.run(self.control) { attempt in
                do {
                    return try await self.work(self, attempt)
                } catch {
                    // `cancel()` cancels the operation, then the task: an error of the attempt between these
                    // two steps counts as a cancellation.
                    throw self.isCancelled ? CancellationError() : error
                }
            }
        }
        self.finish(result)
    }

    /// Ends the operation: at once during a wait, at the end of a running attempt, or at the start of the
    /// operation.
    public override func cancel() {
        super.cancel()
        // Finish here, before the loop ends on another thread: the operation must have finished when
        // `cancel()` returns.
        self.control.cancel { self.finish(.failure(CancellationError())) }
        self.state.withLock { $0.task }?.cancel()
        self.callOnCancel()
    }

    /// Ends the operation, unless already ended.
    private func finish(_ result: Result<Output, any Error>) {
        let isFirst = self.state.withLock { state -> Bool in
            defer { state.isEnding = true }
            return !state.isEnding
        }
        guard isFirst else { return }
        // Outside the lock: observers read the properties, which take the lock.
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

    /// Stores the cancellation handler of an unfinished run.
    fileprivate func onCancel(of index: Int, _ handler: @escaping @Sendable () -> Void) {
        let former = self.state.withLock { state -> (@Sendable () -> Void)? in
            guard state.open?.index == index else { return nil }
            defer { state.open?.onCancel = handler }
            return state.open?.onCancel
        }
        withExtendedLifetime(former) {}
        // `cancel()` may have run before the handler was stored.
        if self.isCancelled { self.callOnCancel() }
    }

    private func callOnCancel() {
        let handler = self.state.withLock { $0.open?.onCancel.take() }
        handler?()
    }

    /// Ends a run, unless already ended.
    fileprivate func endRun(_ index: Int, _ result: RetryResult<Output>) {
        let open = self.state.withLock { state in state.open?.index == index ? state.open.take() : nil }
        guard let open else { return }
        var result = result
        if self.isCancelled {
            // Finish here: if the cancellation handler ends the run, the operation must have finished when
            // `cancel()` returns.
            if case .output(let output) = result {
                self.finish(.success(output))
            } else {
                self.finish(.failure(CancellationError()))
                result = .failure(CancellationError(), .pass)
            }
        }
        open.result.give(result)
    }

    // MARK: - Demands

    /// Ends the wait before the next attempt; without a wait, only writes a line to the log.
    ///
    /// After the policy's ``RetryPolicy/maximumDuration``, the operation ends with
    /// ``RetryError/Reason/timeExhausted``.
    public func retryNow() { self.control.retryNow() }

    /// Replaces the wait for the next attempt with a wait of this length, without wake-ups.
    ///
    /// Without a wait, the call only writes a line to the log. If the new wait would end after the policy's
    /// ``RetryPolicy/maximumDuration``, the operation ends now with ``RetryError/Reason/timeExhausted``.
    public func retry(in delay: Duration) { self.control.reschedule(delay, []) }

    /// Replaces the wait for the next attempt with a wait for the first of the given wake-ups.
    ///
    /// Without a wait, the call only writes a line to the log. At the policy's
    /// ``RetryPolicy/maximumDuration`` the operation ends with ``RetryError/Reason/timeExhausted``.
    ///
    /// - Parameter wakeUps: The wake-ups. With an empty array, the wait ends only at a call of a `retry`
    ///   method, a cancellation or the maximum duration.
    public func retry(wakingOn wakeUps: [RetrySignal.WakeUp]) { self.control.reschedule(nil, wakeUps) }
}

extension RetryingOperation {
    /// One attempt of a ``RetryingOperation``, to be ended once; further ends have no effect.
    public struct Run: Sendable {
        /// The index of the attempt, and the previous error.
        public let attempt: RetryPolicy.Attempt

        let operation: RetryingOperation

        /// Whether the operation was cancelled; a cancelled attempt should end soon.
        public var isCancelled: Bool { self.operation.isCancelled }

        /// Calls `handler` at a cancellation of the operation during this attempt; at once if already
        /// cancelled.
        ///
        /// A later handler replaces an earlier handler; after the end of the run, the call has no effect. The
        /// handler should stop the work, and the run must still be ended.
        public func onCancel(_ handler: @escaping @Sendable () -> Void) {
            self.operation.onCancel(of: self.attempt.index, handler)
        }

        /// Ends the run with an output.
        public func end(returning output: Output) {
            self.operation.endRun(self.attempt.index, .output(output))
        }

        /// Ends the run with an error.
        ///
        /// - Parameters:
        ///   - error: The error of the attempt.
        ///   - plan: The next step; by default the providers, the error and the policy decide.
        public func end(throwing error: any Error, _ plan: RetryProvider.Plan = .pass) {
            self.operation.endRun(self.attempt.index, .failure(error, plan))
        }

        /// Ends the run and the retry: the attempt could not be made.
        func endAsImpossible(_ reason: RetryError.Reason, _ error: (any Error)? = nil) {
            self.operation.endRun(self.attempt.index, .impossible(reason, error))
        }
    }
}

extension RetryingOperation.Run where Output == Void {
    /// Ends the run with success.
    public func end() { self.end(returning: ()) }
}
