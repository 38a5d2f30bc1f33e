/// Runs `operation`, and runs it again after a transient error.
///
/// ```swift
/// let page = try await retry { try await fetchPage() }
/// let other = try await retry(
///     .exponential(base: .milliseconds(500), maxAttempts: 4, jitter: .full),
///     wakingOn: .reachable(host), .signal(button)
/// ) { attempt in try await fetchPage(isFirst: attempt.index == 0) }
/// ```
///
/// A result can ask for another attempt, too:
///
/// ```swift
/// let job = try await retry(.fixed(.seconds(2), maxAttempts: 30), while: { !$0.isDone }) { _ in
///     try await api.job(id)
/// }
/// ```
///
/// The operation runs in the caller's isolation, one attempt after another. A wait between attempts ends at its deadline or with
/// the first wake-up.
///
/// **Cancellation.** Between attempts a cancelled caller gets `CancellationError` at once; an attempt has to check for
/// cancellation itself. A success is returned even if the task was cancelled meanwhile.
///
/// - Parameters:
///   - policy: The number of attempts, and the delays between them.
///   - host: The host of the request. Its ``RetryBudget`` bounds the retries of all callers together.
///   - wakeUps: Can end a wait early.
///   - providers: Decide about another attempt, in order, before the error and the policy do.
///   - isUnfinished: Whether a result asks for another attempt.
///   - log: Receives the events of the retry.
///   - clock: Measures the waits.
///   - operation: Makes one attempt.
/// - Returns: The output of the first successful attempt.
/// - Throws: ``RetryError`` with the error of each attempt, or `CancellationError`.
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

/// ``retry(_:on:wakingOn:providers:while:log:clock:operation:)`` for an operation that does not use its attempt.
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

/// Runs `operation` with one value after another until it succeeds, as with the mirrors of a server.
///
/// ```swift
/// let data = try await retry(trying: mirrors) { mirror in try await fetch(from: mirror) }
/// ```
///
/// Each value has one attempt, whatever the error of the attempt before, and without a delay: the `Retry-After` of one server
/// does not concern the next one.
///
/// - Parameters:
///   - values: The values, best first.
///   - log: Receives the events of the retry.
///   - operation: Makes an attempt with one value.
/// - Returns: The output of the first successful attempt.
/// - Throws: ``RetryError`` with the error of each attempt, or `CancellationError`.
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

/// Ends waits between attempts on an event of the app, such as a screen that appears.
///
/// **Concurrent calls.** For each wait ``setUp(wake:)`` is called once, then ``tearDown()`` once, however the wait ends: by this
/// helper, another one, its deadline, a replacement, or cancellation. An instance that serves several retries at a time has to
/// tell their calls apart itself.
public protocol RetryHelper: Sendable {
    /// A wait has begun. A call of `wake` ends it, from any thread; further calls have no effect.
    ///
    /// Must not block: it runs on the thread that begins the wait.
    func setUp(wake: @escaping @Sendable () -> Void)

    /// The wait has ended. Must not block: it runs on the thread that ended the wait.
    func tearDown()
}

extension RetryPolicy {
    /// One attempt of ``retry(_:on:wakingOn:providers:while:log:clock:operation:)``.
    public struct Attempt: Sendable {
        /// The index of the attempt; the first is 0.
        public let index: Int

        /// The time since the first attempt began; zero for the first.
        public let elapsed: Duration

        /// The error of the attempt before; `nil` for the first, and after a result that asked for another attempt.
        public let previousError: (any Error)?

        package init(index: Int, elapsed: Duration, previousError: (any Error)? = nil) {
            self.index = index
            self.elapsed = elapsed
            self.previousError = previousError
        }
    }
}
