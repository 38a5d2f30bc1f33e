/// Runs `operation`, and repeats the operation after a transient error.
///
/// ```swift
/// let page = try await retry { try await fetchPage() }
/// let other = try await retry(
///     .exponential(base: .milliseconds(500), maxAttempts: 4, jitter: .full),
///     wakingOn: .reachable(host), .signal(button)
/// ) { attempt in try await fetchPage(isFirst: attempt.index == 0) }
/// ```
///
/// A result can also request another attempt:
///
/// ```swift
/// let job = try await retry(.fixed(.seconds(2), maxAttempts: 30), while: { !$0.isDone }) { _ in
///     try await api.job(id)
/// }
/// ```
///
/// The operation runs in the caller's isolation, one attempt after another. A wake-up can end a wait between
/// two attempts before the deadline of the wait.
///
/// **Cancellation.** A cancellation before the first attempt or during a wait throws `CancellationError` at
/// once. A running attempt must check for cancellation. Even after a cancellation of the task, the final
/// output of the attempt is returned; an error of the attempt becomes a `CancellationError`.
///
/// - Parameters:
///   - policy: The number of attempts, and the delays between attempts.
///   - host: The host of the request. The ``RetryBudget`` of the host bounds the retries of all callers
///     together.
///   - wakeUps: Can end a wait early.
///   - providers: Decide about another attempt, in order, before the error and the policy.
///   - isUnfinished: Whether an output requires another attempt.
///   - log: Receives the events of the retry.
///   - clock: Measures the time.
///   - operation: Makes one attempt.
/// - Returns: The output of the last attempt.
/// - Throws: ``RetryError`` with the last 100 failed attempts, or `CancellationError`.
public func retry<Output>(
    _ policy: RetryPolicy = .web,
    on host: RetryPolicy.Host? = nil,
    wakingOn wakeUps: RetrySignal.WakeUp...,
    providers: [RetryProvider] = [],
    while isUnfinished: (Output) -> Bool = { _ in false },
    log: RetryLog = .silent,
    clock: any Clock<Duration> = ContinuousClock(),
    operation: (RetryPolicy.Attempt) async throws -> Output
) async throws -> Output {
    let loop = RetryLoop(policy, host: host, wakeUps: wakeUps, providers: providers, log: log, time: TimeSource(clock))
    return try await loop.run { attempt in
        let output = try await operation(attempt)
        return isUnfinished(output) ? .retry : .output(output)
    }
}

/// Runs `work`, and repeats `work` after a transient error: `try await retry { try await fetchPage() }`.
///
/// The same as ``retry(_:on:wakingOn:providers:while:log:clock:operation:)``, for work that does not use the
/// attempt.
///
/// - Parameters:
///   - policy: The number of attempts, and the delays between attempts.
///   - host: The host of the request. The ``RetryBudget`` of the host bounds the retries of all callers
///     together.
///   - wakeUps: Can end a wait early.
///   - providers: Decide about another attempt, in order, before the error and the policy.
///   - isUnfinished: Whether an output requires another attempt.
///   - log: Receives the events of the retry.
///   - clock: Measures the time.
///   - work: Makes one attempt.
/// - Returns: The output of the last attempt.
/// - Throws: ``RetryError`` with the last 100 failed attempts, or `CancellationError`.
public func retry<Output>(
    _ policy: RetryPolicy = .web,
    on host: RetryPolicy.Host? = nil,
    wakingOn wakeUps: RetrySignal.WakeUp...,
    providers: [RetryProvider] = [],
    while isUnfinished: (Output) -> Bool = { _ in false },
    log: RetryLog = .silent,
    clock: any Clock<Duration> = ContinuousClock(),
    work: () async throws -> Output
) async throws -> Output {
    let loop = RetryLoop(policy, host: host, wakeUps: wakeUps, providers: providers, log: log, time: TimeSource(clock))
    return try await loop.run { _ in
        let output = try await work()
        return isUnfinished(output) ? .retry : .output(output)
    }
}

/// Runs `operation` with one value after another until success, as with the mirrors of a server.
///
/// ```swift
/// let data = try await retry(trying: mirrors) { mirror in try await fetch(from: mirror) }
/// ```
///
/// Each value gets at most one attempt. After any error except a cancellation, the next attempt starts
/// without a delay: the `Retry-After` of one server does not apply to the next server.
///
/// - Parameters:
///   - values: The values, in order of preference.
///   - log: Receives the events of the retry.
///   - operation: Makes an attempt with one value.
/// - Returns: The output of the first successful attempt.
/// - Throws: ``RetryError`` with the last 100 failed attempts, or `CancellationError`.
public func retry<Value, Output>(
    trying values: some Collection<Value>,
    log: RetryLog = .silent,
    operation: (Value) async throws -> Output
) async throws -> Output {
    guard var value = values.first else { throw RetryError(.nothingToTry, attempts: [], lastError: nil) }
    var rest = values.dropFirst()
    let loop = RetryLoop(
        .immediate(maxAttempts: values.count),
        providers: [RetryProvider { _ in .after(.zero) }],
        log: log,
        time: TimeSource(ContinuousClock())
    )
    return try await loop.run { attempt in
        if attempt.index > 0, let next = rest.popFirst() { value = next }
        return .output(try await operation(value))
    }
}

extension RetryPolicy {
    /// One attempt of a retry, at the start of the attempt or after its failure.
    ///
    /// An operation receives the attempt at the start. A ``RetryProvider`` receives the failed attempt, and
    /// ``RetryError/attempts`` contains the last 100 failed attempts.
    public struct Attempt: Sendable {
        /// The index of the attempt; the first is 0.
        public let index: Int

        /// The start of this attempt, measured from the start of the first attempt.
        public let began: Duration

        /// The time since the start of the first attempt, measured at the start of this attempt, or at its
        /// failure.
        public private(set) var elapsed: Duration

        /// The error of the attempt; `nil` at the start, and after an attempt without an error.
        public private(set) var error: (any Error)?

        /// The error of the previous attempt; `nil` for the first attempt, and after an output that required
        /// another attempt.
        public let previousError: (any Error)?

        package init(index: Int, elapsed: Duration, previousError: (any Error)? = nil) {
            self.index = index
            self.began = elapsed
            self.elapsed = elapsed
            self.previousError = previousError
        }

        /// This attempt, with its failure.
        func failed(_ error: (any Error)?, elapsed: Duration) -> RetryPolicy.Attempt {
            var failed = self
            failed.error = error
            failed.elapsed = elapsed
            return failed
        }
    }
}
