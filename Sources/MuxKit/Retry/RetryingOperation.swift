public import Foundation

/// An operation that retries its work after transient errors: ``retry(_:on:wakingOn:providers:while:log:clock:operation:)`` for
/// an `OperationQueue`.
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
/// The closure begins one attempt, on a queue of the operation's own, and ends its ``Run``: before it returns, or later from any
/// thread. The operation updates `isExecuting` and `isFinished`.
///
/// No thread is blocked between attempts. During a wait ``retryNow()``, ``retry(in:)`` and ``retry(wakingOn:)`` reschedule the
/// next attempt; at other times they have no effect but a line in the log.
///
/// **Concurrent calls.** All members can be called from any thread.
///
/// **Cancellation.** After a cancellation there is no further attempt. An operation that waits finishes before `cancel()`
/// returns; otherwise it finishes when the present attempt ends, which ``Run/onCancel(_:)`` can hasten. Its ``result`` is a
/// `CancellationError` then, unless the attempt succeeded.
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
    private let work: @Sendable @concurrent (RetryingOperation, RetryPolicy.Attempt) async throws -> RetryResult<Output>
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

    package init(_ loop: RetryLoop, work: @escaping @Sendable @concurrent (RetryPolicy.Attempt) async throws -> Output)
    {
        self.loop = loop
        self.control = RetryControl(loop)
        self.work = { _, attempt in .output(try await work(attempt)) }
        super.init()
    }

    /// Makes an operation of work that ends its ``Run`` itself.
    ///
    /// - Parameters:
    ///   - policy: The number of attempts, and the delays between them.
    ///   - host: The host of the request. Its ``RetryBudget`` bounds the retries of all callers together.
    ///   - wakeUps: Can end a wait early.
    ///   - providers: Decide about another attempt, in order, before the error and the policy do.
    ///   - log: Receives the events of the retry.
    ///   - clock: Measures the waits.
    ///   - base: Begins an attempt. It must end the run once, before it returns or later.
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

    /// Makes an operation of asynchronous work.
    ///
    /// - Parameters:
    ///   - policy: The number of attempts, and the delays between them.
    ///   - host: The host of the request. Its ``RetryBudget`` bounds the retries of all callers together.
    ///   - wakeUps: Can end a wait early.
    ///   - providers: Decide about another attempt, in order, before the error and the policy do.
    ///   - log: Receives the events of the retry.
    ///   - clock: Measures the waits.
    ///   - work: Makes an attempt, in a task that is cancelled with the operation.
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
    /// A failure is a ``RetryError`` with the error of each attempt, or a `CancellationError`.
    public var result: Result<Output, any Error>? { self.state.withLock { $0.result } }

    /// The failed attempts so far; of more than 100, the last 100.
    public var attempts: [RetryError.Attempt] { self.control.history.attempts }

    /// The number of attempts after the first; `nil` before the operation begins and after it has finished.
    public var numberOfRetries: Int? {
        self.isExecuting ? self.control.index : nil
    }

    /// Always `true`.
    public override var isAsynchronous: Bool { true }

    /// Whether the operation has begun and not finished; `true` also between attempts.
    public override var isExecuting: Bool { self.state.withLock { $0.isExecuting } }

    /// Whether the operation has finished.
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
            let output = try await self.loop.run(self.control) { attempt in
                do {
                    return try await self.work(self, attempt)
                } catch {
                    // The operation is cancelled before its task is.
                    if self.isCancelled { throw CancellationError() }
                    throw error
                }
            }
            self.finish(.success(output))
        } catch {
            self.finish(.failure(error))
        }
    }

    /// Ends the operation: at once if it waits, otherwise when the present attempt ends.
    public override func cancel() {
        super.cancel()
        // Before the loop ends on its own thread, so that the operation has finished when this returns.
        self.control.cancel { self.finish(.failure(CancellationError())) }
        self.state.withLock { $0.task }?.cancel()
        self.callOnCancel()
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

    private func open(_ attempt: RetryPolicy.Attempt) -> FirstAnswer<RetryResult<Output>> {
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
        var result = result
        if self.isCancelled {
            // If the handler of the cancellation ends the run, the operation finishes before `cancel()` returns, too.
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

    /// Ends the wait for the next attempt; without a wait it has no effect but a line in the log.
    ///
    /// After the policy's ``RetryPolicy/maximumDuration`` it ends the operation with ``RetryError/Reason/timeExhausted`` instead.
    public func retryNow() { self.control.retryNow() }

    /// Replaces the wait for the next attempt with one of this length, without wake-ups; without a wait it has no effect.
    ///
    /// If that is after the policy's ``RetryPolicy/maximumDuration``, the operation ends now with
    /// ``RetryError/Reason/timeExhausted``.
    public func retry(in delay: Duration) { self.control.reschedule(delay, []) }

    /// Replaces the wait for the next attempt with one that ends at the first of these wake-ups; without a wait it has no effect.
    ///
    /// At the policy's ``RetryPolicy/maximumDuration`` the operation ends with ``RetryError/Reason/timeExhausted``.
    ///
    /// - Parameter wakeUps: End the wait; if there are none, only another call of these methods does.
    public func retry(wakingOn wakeUps: [RetrySignal.WakeUp]) { self.control.reschedule(nil, wakeUps) }
}

extension RetryingOperation {
    /// One attempt of a ``RetryingOperation``, to be ended once; further ends have no effect.
    public struct Run: Sendable {
        /// The index of the attempt, and the error of the one before.
        public let attempt: RetryPolicy.Attempt

        let operation: RetryingOperation

        /// Whether the operation was cancelled, so that the attempt should end soon.
        public var isCancelled: Bool { self.operation.isCancelled }

        /// Calls `handler` if the operation is cancelled during this attempt; at once if it is cancelled already.
        ///
        /// Only the last handler is kept. It should stop the work; the run must still be ended.
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
        ///   - error: Why.
        ///   - plan: What follows; by default the providers, the error and the policy decide.
        public func end(throwing error: any Error, _ plan: RetryProvider.Plan = .pass) {
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
