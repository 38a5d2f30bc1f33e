/// Does `operation`, and does it again if it fails in a way that may pass.
///
/// ```swift
/// let page = try await retry(.web) { attempt in try await fetchPage() }
/// let other = try await retry(
///     .exponential(base: .milliseconds(500), maxAttempts: 4, jitter: .full),
///     wakingOn: .reachable(host), .signal(button)
/// ) { attempt in try await fetchPage() }
/// ```
///
/// Not only an error can ask for another attempt; so can a result:
///
/// ```swift
/// let job = try await retry(.fixed(.seconds(2), maxAttempts: 30), while: { !$0.isDone }) { _ in
///     try await api.job(id)
/// }
/// ```
///
/// The operation runs where the caller runs, one attempt after another. A wait between attempts ends when its time is over or
/// the first of the wake-ups comes.
///
/// **Cancellation.** A cancelled caller leaves at once with `CancellationError` if it waits between attempts; an attempt that is
/// being made has to heed the cancellation itself. A success is kept even if the task was cancelled meanwhile.
///
/// - Parameters:
///   - policy: How often, and how long in between.
///   - host: Whom the work asks. Its ``RetryBudget`` then bounds the retries of all together.
///   - wakeUps: What may end a wait before its time.
///   - providers: Who decides whether there is another attempt, before the error and the policy do.
///   - isUnfinished: Whether a result asks for another attempt, as that of a job which is still running does.
///   - log: Receives what happens.
///   - clock: Measures the waits.
///   - operation: Does the work; receives the index of the attempt and the time since the first began.
/// - Returns: What the first successful attempt returned.
/// - Throws: ``RetryError`` with what each attempt met, or `CancellationError`.
public func retry<Output>(
    _ policy: RetryPolicy = .web,
    on host: RetryHost? = nil,
    wakingOn wakeUps: RetryWakeUp...,
    providers: [RetryProvider] = [],
    while isUnfinished: (Output) -> Bool = { _ in false },
    log: RetryLog = .silent,
    clock: any Clock<Duration> = ContinuousClock(),
    operation: (RetryAttempt) async throws -> Output
) async throws -> Output {
    let loop = RetryLoop(
        policy,
        host: host,
        wakeUps: wakeUps,
        providers: providers,
        log: log,
        time: TimeSource(clock)
    )
    return try await loop.run { attempt in
        let output = try await operation(attempt)
        return isUnfinished(output) ? .retry : .output(output)
    }
}

/// Does `operation` with one value after another until it succeeds with one, as with the mirrors of a server.
///
/// ```swift
/// let data = try await retry(trying: mirrors) { mirror in try await fetch(from: mirror) }
/// ```
///
/// Each value has one attempt, without a delay between them, whatever error the attempt before met: how long a server wants to
/// be left alone (`Retry-After`) is no matter to the next one.
///
/// - Parameters:
///   - values: What to try, best first.
///   - log: Receives what happens.
///   - operation: Does the work with one value.
/// - Returns: What the first successful attempt returned.
/// - Throws: ``RetryError`` with what each attempt met, or `CancellationError`.
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

/// Something that can end a wait between two attempts before its time.
///
/// Make your own for what your app knows: a screen that appears, a device that wakes.
///
/// **Concurrent calls.** For one wait ``setUp(wake:)`` is called once, and after it ``tearDown()`` once, however the wait ends:
/// because this helper woke it, another one did, the time was over, it was replaced, or its task was cancelled. Waits follow
/// one another; an instance that is used by several retries at a time has to tell them apart itself.
public protocol RetryHelper: Sendable {
    /// A wait has begun. Call `wake` to end it, from anywhere; more than once does no harm.
    ///
    /// Keep it short: it runs on the thread that begins the wait.
    func setUp(wake: @escaping @Sendable () -> Void)

    /// The wait has ended. Keep it short: it runs on the thread that ended it.
    func tearDown()
}

/// What the work of ``retry(_:on:wakingOn:providers:while:log:clock:operation:)`` is told about the attempt it makes.
public struct RetryAttempt: Sendable {
    /// The attempt's index, which begins with 0.
    public let index: Int

    /// How long it is since the first attempt began; zero for the first.
    public let elapsed: Duration

    /// What the attempt before met; `nil` for the first, and after a result that asked for another.
    public let previousError: (any Error)?

    package init(index: Int, elapsed: Duration, previousError: (any Error)? = nil) {
        self.index = index
        self.elapsed = elapsed
        self.previousError = previousError
    }
}
