public import Foundation

/// Retries operations of any class, with a new instance for each attempt after the first.
///
/// ```swift
/// let upload = RetryableOperationWrapper(
///     UploadOperation(file),
///     .exponential(base: .seconds(1), maxAttempts: 3),
///     failure: { $0.error },
///     another: { failed, _ in UploadOperation(failed.file) }
/// )
/// queue.addOperation(upload)
/// ```
///
/// **Cancellation.** A cancellation of the wrapper cancels the running instance, and begins no other
/// instance. If other code cancels an instance, the wrapper ends without another attempt.
///
/// **After a failure.** If `another` throws, the wrapper ends with ``RetryError/Reason/noOperation`` and the
/// thrown error, or with a `CancellationError` if the thrown error is a cancellation. If an instance is
/// already running or has already run, the wrapper ends with ``RetryError/Reason/operationUsed``.
public final class RetryableOperationWrapper<Inner: Operation>: RetryingOperation<Inner>, @unchecked Sendable {
    // A subclass of `Operation` must restate `@unchecked`; all stored properties are `let`s of `Sendable`
    // types.

    /// The instance of the first attempt.
    public let original: Inner

    private let instance: Locked<Inner>

    /// Wraps an operation; the operation must not have run, and must not be in a queue.
    ///
    /// - Parameters:
    ///   - original: Makes the first attempt.
    ///   - policy: The number of attempts, and the delays between attempts.
    ///   - queue: Runs the instances; by default a new queue for this wrapper. The wrapper must be in a
    ///     different queue: a common serial queue would deadlock.
    ///   - wakeUps: Can end a wait early.
    ///   - providers: Decide about another attempt, in order, before the error and the policy.
    ///   - log: Receives the events of the retry.
    ///   - clock: Measures the time.
    ///   - failure: Returns the error of a finished instance; `nil` after a success. Runs on a queue that all
    ///     wrappers of the process share, without the quality of service of `queue`.
    ///   - another: Makes the next instance from the failed instance.
    public convenience init(
        _ original: Inner,
        _ policy: RetryPolicy = .web,
        in queue: OperationQueue = OperationQueue(),
        wakingOn wakeUps: [RetrySignal.WakeUp] = [],
        providers: [RetryProvider] = [],
        log: RetryLog = .silent,
        clock: any Clock<Duration> = ContinuousClock(),
        failure: @escaping @Sendable (Inner) -> (any Error)?,
        another: @escaping @Sendable (_ failed: Inner, _ attempt: RetryPolicy.Attempt) throws -> Inner
    ) {
        let loop = RetryLoop(policy, wakeUps: wakeUps, providers: providers, log: log, time: TimeSource(clock))
        self.init(original, loop, in: queue, failure: failure, another: another)
    }

    package init(
        _ original: Inner,
        _ loop: RetryLoop,
        in queue: OperationQueue,
        failure: @escaping @Sendable (Inner) -> (any Error)?,
        another: @escaping @Sendable (_ failed: Inner, _ attempt: RetryPolicy.Attempt) throws -> Inner
    ) {
        let instance = Locked(original)
        self.original = original
        self.instance = instance
        super.init(loop) { run in
            let inner: Inner
            if run.attempt.index == 0 {
                inner = original
            } else {
                do {
                    let failed = instance.withLock { $0 }
                    inner = try another(failed, run.attempt)
                } catch {
                    return run.endAsImpossible(.noOperation, error)
                }
            }
            let former = instance.withLock { [inner] instance in
                defer { instance = inner }
                return instance
            }
            withExtendedLifetime(former) {}  // released outside the lock
            guard !inner.isCancelled else { return run.end(throwing: CancellationError()) }
            // A queue traps on an operation that is running or has run.
            guard !inner.isExecuting, !inner.isFinished else { return run.endAsImpossible(.operationUsed) }
            let end = BlockOperation {
                if inner.isCancelled {
                    run.end(throwing: CancellationError())
                } else if let error = failure(inner) {
                    run.end(throwing: error)
                } else {
                    run.end(returning: inner)
                }
            }
            end.addDependency(inner)
            run.onCancel { inner.cancel() }
            attemptEndQueue.addOperation(end)
            queue.addOperation(inner)
        }
    }

    /// The instance of the current or last attempt.
    public var current: Inner { self.instance.withLock { $0 } }
}

/// Runs the operations that end the attempts: in the caller's queue, `cancelAllOperations()` would cancel
/// these operations.
private let attemptEndQueue = OperationQueue()
