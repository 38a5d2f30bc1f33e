import Foundation

/// How often something is tried, and how long is waited in between.
///
/// ```swift
/// let page = try await retry(.web) { _ in try await fetchPage() }
/// let patient = RetryPolicy.exponential(base: .milliseconds(500), maxAttempts: 4)
/// ```
///
/// A value: it can be compared, stored and sent. What is retried at all is said by the error, see ``RetryableError``, and by
/// ``RetryProvider``.
public struct RetryPolicy: Sendable, Hashable {
    /// How many attempts there are in all, the first included; at least 1.
    public var maxAttempts: Int

    /// How the delay between attempts grows.
    public var backoff: RetryBackoff

    /// How much of each delay is left to chance.
    public var jitter: RetryJitter

    /// The longest delay before jitter; 6 hours.
    public var maximumDelay: Duration

    /// How long after the beginning of the first attempt another one may begin; `nil` for any time.
    ///
    /// It bounds every wait: at this time, one that nothing has woken ends with ``RetryError/Reason/timeExhausted``, and a delay
    /// that would be longer is not waited for at all. Chance keeps to it: a random delay that could be too long is drawn from
    /// the time that is left, once. An attempt that is being made is not cut short.
    public var maximumDuration: Duration?

    /// The longest wait that a server may ask for with `Retry-After`; 5 minutes.
    ///
    /// A shorter one is kept to, and no wake-up shortens it. A longer one ends the attempts, for nobody would wait so long.
    public var maximumRetryAfter: Duration

    /// How long after an early wake-up the next attempt may begin, chosen at random; 3 seconds.
    ///
    /// What wakes one waits for wakes many: not all of them come back in the same moment.
    public var wakeJitter: Duration

    /// Whether work is repeated of which a second run may do harm, such as a `POST`; `false`.
    public var repeatsUnsafeWork: Bool

    /// The status codes that are worth another attempt; 408, 425, 429, 500, 502, 503 and 504.
    public var retriedStatuses: Set<Int>

    /// The status codes that are never worth another attempt, whatever else is said; none.
    public var refusedStatuses: Set<Int>

    /// Makes a policy of the given parts.
    public init(
        maxAttempts: Int = 3,
        backoff: RetryBackoff = .exponential(base: .milliseconds(500)),
        jitter: RetryJitter = .full,
        maximumDelay: Duration = .seconds(6 * 60 * 60),
        maximumDuration: Duration? = nil,
        maximumRetryAfter: Duration = .seconds(5 * 60),
        wakeJitter: Duration = .seconds(3),
        repeatsUnsafeWork: Bool = false,
        retriedStatuses: Set<Int> = [408, 425, 429, 500, 502, 503, 504],
        refusedStatuses: Set<Int> = []
    ) {
        self.maxAttempts = maxAttempts
        self.backoff = backoff
        self.jitter = jitter
        self.maximumDelay = maximumDelay
        self.maximumDuration = maximumDuration
        self.maximumRetryAfter = maximumRetryAfter
        self.wakeJitter = wakeJitter
        self.repeatsUnsafeWork = repeatsUnsafeWork
        self.retriedStatuses = retriedStatuses
        self.refusedStatuses = refusedStatuses
    }

    // MARK: - Ready-made

    /// One attempt, and no other.
    public static let never = RetryPolicy(maxAttempts: 1, backoff: .immediate)

    /// One more attempt, at once.
    public static let once = RetryPolicy(maxAttempts: 2, backoff: .immediate)

    /// For requests over the network: three attempts, up to half a second and up to a second apart.
    public static let web = RetryPolicy(maxAttempts: 3, backoff: .exponential(base: .milliseconds(500)))

    /// Attempts without a delay between them.
    ///
    /// - Parameter maxAttempts: How many attempts there are in all, the first included.
    /// - Returns: The policy.
    public static func immediate(maxAttempts: Int = 3) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .immediate)
    }

    /// Attempts with the same delay between them.
    ///
    /// - Parameters:
    ///   - delay: The delay before chance has its share.
    ///   - maxAttempts: How many attempts there are in all, the first included.
    ///   - jitter: How much of each delay is left to chance.
    /// - Returns: The policy.
    public static func fixed(_ delay: Duration, maxAttempts: Int = 3, jitter: RetryJitter = .full) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .fixed(delay), jitter: jitter)
    }

    /// Attempts with delays of once, twice, three times the step between them.
    ///
    /// - Parameters:
    ///   - step: The first delay, and by how much each is longer than the one before.
    ///   - maxAttempts: How many attempts there are in all, the first included.
    ///   - jitter: How much of each delay is left to chance.
    /// - Returns: The policy.
    public static func linear(step: Duration, maxAttempts: Int = 3, jitter: RetryJitter = .full) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .linear(step: step), jitter: jitter)
    }

    /// Attempts with delays between them of which each is twice as long as the one before.
    ///
    /// - Parameters:
    ///   - base: The first delay.
    ///   - maxAttempts: How many attempts there are in all, the first included.
    ///   - jitter: How much of each delay is left to chance.
    /// - Returns: The policy.
    public static func exponential(
        base: Duration,
        maxAttempts: Int = 3,
        jitter: RetryJitter = .full
    ) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .exponential(base: base), jitter: jitter)
    }

    /// Attempts with these delays between them, of which the last one repeats.
    ///
    /// - Parameters:
    ///   - delays: The delays, in order; none for attempts without a delay.
    ///   - maxAttempts: How many attempts there are in all, the first included.
    ///   - jitter: How much of each delay is left to chance.
    /// - Returns: The policy.
    public static func table(_ delays: [Duration], maxAttempts: Int, jitter: RetryJitter = .full) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .table(delays), jitter: jitter)
    }

    // MARK: - What it says

    /// The longest delay before an attempt, which jitter can only shorten.
    ///
    /// - Parameter index: The attempt's index; the first has 0, and no delay.
    /// - Returns: The delay.
    public func delay(beforeAttempt index: Int) -> Duration {
        min(self.backoff.delay(afterFailures: index), max(self.maximumDelay, .zero))
    }

    /// The delay before an attempt that `random`, from 0 to 1, selects; below `limit`, if chance permits one that short.
    package func delay(beforeAttempt index: Int, below limit: Duration? = nil, random: Double) -> Duration {
        self.jitter.applied(to: self.delay(beforeAttempt: index), below: limit, random: random)
    }

    /// Whether this policy gives work another attempt that failed so.
    func permits(_ advice: RetryAdvice) -> Bool {
        guard advice.isRepeatable || self.repeatsUnsafeWork else { return false }
        guard let status = advice.status else { return advice.isTransient }
        return !self.refusedStatuses.contains(status) && self.retriedStatuses.contains(status)
    }
}

extension RetryPolicy: Codable {
    private enum CodingKeys: CodingKey {
        case maxAttempts, backoff, jitter, maximumDelay, maximumDuration, maximumRetryAfter, wakeJitter
        case repeatsUnsafeWork, retriedStatuses, refusedStatuses
    }

    /// Reads a policy; a member that is missing has its default.
    ///
    /// - Throws: `DecodingError`.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        func value<Value: Decodable>(_ key: CodingKeys, or usual: Value) throws -> Value {
            try container.decodeIfPresent(Value.self, forKey: key) ?? usual
        }
        let usual = RetryPolicy()
        self.init(
            maxAttempts: try value(.maxAttempts, or: usual.maxAttempts),
            backoff: try value(.backoff, or: usual.backoff),
            jitter: try value(.jitter, or: usual.jitter),
            maximumDelay: try value(.maximumDelay, or: usual.maximumDelay),
            maximumDuration: try container.decodeIfPresent(Duration.self, forKey: .maximumDuration),
            maximumRetryAfter: try value(.maximumRetryAfter, or: usual.maximumRetryAfter),
            wakeJitter: try value(.wakeJitter, or: usual.wakeJitter),
            repeatsUnsafeWork: try value(.repeatsUnsafeWork, or: usual.repeatsUnsafeWork),
            retriedStatuses: try value(.retriedStatuses, or: usual.retriedStatuses),
            refusedStatuses: try value(.refusedStatuses, or: usual.refusedStatuses)
        )
    }

    /// Writes every member, durations as the standard library does.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(self.maxAttempts, forKey: .maxAttempts)
        try container.encode(self.backoff, forKey: .backoff)
        try container.encode(self.jitter, forKey: .jitter)
        try container.encode(self.maximumDelay, forKey: .maximumDelay)
        try container.encodeIfPresent(self.maximumDuration, forKey: .maximumDuration)
        try container.encode(self.maximumRetryAfter, forKey: .maximumRetryAfter)
        try container.encode(self.wakeJitter, forKey: .wakeJitter)
        try container.encode(self.repeatsUnsafeWork, forKey: .repeatsUnsafeWork)
        try container.encode(self.retriedStatuses.sorted(), forKey: .retriedStatuses)
        try container.encode(self.refusedStatuses.sorted(), forKey: .refusedStatuses)
    }
}

/// How much of a delay is left to chance, so that those who failed together do not come back together.
public enum RetryJitter: Sendable, Hashable, Codable {
    /// Nothing: the delay as it is.
    case none

    /// All: uniform from zero up to, not including, the delay.
    case full

    /// The second half: uniform from half of the delay up to, not including, the delay.
    case equal

    /// The delay that `random`, from 0 to 1, selects; below `limit`, if chance permits one that short.
    func applied(to delay: Duration, below limit: Duration? = nil, random: Double) -> Duration {
        let longest = max(delay, .zero).saturatedNanoseconds
        let shortest: Int64
        switch self {
        case .none: return max(delay, .zero)
        case .full: shortest = 0
        case .equal: shortest = longest - longest / 2
        }
        let end = min(longest, limit?.saturatedNanoseconds ?? longest)
        return .nanoseconds(shortest + Self.share(of: end - shortest, random))
    }

    /// A whole number from zero up to, not including, `limit`; zero if there is none.
    private static func share(of limit: Int64, _ random: Double) -> Int64 {
        guard limit > 0, random > 0 else { return 0 }
        let drawn = Double(limit) * min(random, 1)
        return drawn < Double(limit) ? min(Int64(drawn), limit - 1) : limit - 1
    }
}

/// How the delay between attempts grows.
///
/// Delays never overflow: one that would be too long is ``RetryPolicy/maximumDelay``. A negative delay is none.
public enum RetryBackoff: Sendable, Hashable, Codable {
    /// No delay at all.
    case immediate

    /// The same delay each time.
    case fixed(Duration)

    /// Once the step, then twice, then three times as long: 10, 20, 30, 40 seconds for a step of 10.
    case linear(step: Duration)

    /// Each delay `factor` times as long as the one before: 10, 20, 40, 80 seconds for a base of 10 and the factor 2.
    case exponential(base: Duration, factor: Double = 2)

    /// These delays, one after another; the last one repeats. No delay if there are none.
    case table([Duration])

    /// For work that is worth hours of patience: 1, 3, 15, 27, 42 and 60 seconds, an hour, then 6 hours each time.
    public static let patient = RetryBackoff.table([1, 3, 15, 27, 42, 60, 3_600, 21_600].map { .seconds($0) })

    /// The delay after `failures` attempts have failed, before cap and jitter.
    func delay(afterFailures failures: Int) -> Duration {
        guard failures > 0 else { return .zero }
        let delay: Duration =
            switch self {
            case .immediate: .zero
            case .fixed(let delay): delay
            case .linear(let step): Self.scale(step, by: Double(failures))
            case .exponential(let base, let factor): Self.scale(base, by: Foundation.pow(factor, Double(failures - 1)))
            case .table(let delays): delays.isEmpty ? .zero : delays[min(failures, delays.count) - 1]
            }
        return max(delay, .zero)
    }

    /// In nanoseconds, where a floating-point number is exact for months.
    private static func scale(_ duration: Duration, by factor: Double) -> Duration {
        let nanoseconds = Double(duration.saturatedNanoseconds) * factor
        let limit = Double(Duration.longest.saturatedNanoseconds)
        guard nanoseconds < limit else { return nanoseconds.isNaN ? .zero : .longest }
        return nanoseconds > 0 ? .nanoseconds(Int64(nanoseconds.rounded())) : .zero
    }
}
