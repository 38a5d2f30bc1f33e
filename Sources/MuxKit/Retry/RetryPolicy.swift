import Foundation

/// The number of attempts of a retry, and the delays between the attempts.
///
/// ```swift
/// let page = try await retry(.web) { _ in try await fetchPage() }
/// let patient = RetryPolicy.exponential(base: .milliseconds(500), maxAttempts: 4)
/// ```
///
/// The policy decides about another attempt together with the ``RetryAdvice`` of the error. A
/// ``RetryProvider`` can decide in place of both, within ``maxAttempts``.
public struct RetryPolicy: Sendable, Hashable {
    /// The maximum number of attempts, including the first; a number below 1 counts as 1.
    public var maxAttempts: Int

    /// The growth of the delay between attempts.
    public var backoff: RetryPolicy.Backoff

    /// The random part of each delay.
    public var jitter: RetryPolicy.Jitter

    /// The longest delay of the ``backoff``, before jitter; by default 6 hours.
    ///
    /// A `Retry-After` or ``RetryProvider/Plan/after(_:)`` may delay an attempt longer.
    public var maximumDelay: Duration

    /// The latest start of another attempt, measured from the start of the first attempt; `nil` for no limit.
    ///
    /// - A wait that only a wake-up ends, ends at this time with ``RetryError/Reason/timeExhausted``.
    /// - If the longest random delay would end after this time, the jitter selects a delay within the
    ///   remaining time. This requires a jitter that permits such a short delay, and happens at most once per
    ///   retry.
    /// - If the longest random delay would end after this time again, or if any other delay would end after
    ///   this time, the retry ends at once with the same reason.
    /// - A running attempt is not cancelled.
    public var maximumDuration: Duration?

    /// The longest accepted `Retry-After`; by default 5 minutes.
    ///
    /// With the plan ``RetryProvider/Plan/after(_:)`` or ``RetryProvider/Plan/wakingOn(_:)``, a `Retry-After`
    /// has no effect. Otherwise a `Retry-After` above this limit ends the retry, and only
    /// ``RetrySignal/WakeUp/signal(_:)`` and the methods of ``RetryingOperation`` can start the next attempt
    /// before the end of a `Retry-After`.
    public var maximumRetryAfter: Duration

    /// The maximum random delay between a wake-up and the next attempt; by default 3 seconds.
    ///
    /// The delay spreads the attempts of many waits after a common event.
    public var wakeJitter: Duration

    /// Whether work that is not idempotent, such as a `POST`, is retried if the request may have reached the
    /// server; by default `false`.
    public var repeatsUnsafeWork: Bool

    /// The status codes that permit a retry; by default 408, 425, 429, 500, 502, 503 and 504.
    public var retriedStatuses: Set<Int>

    /// The status codes that are not retried, even if in ``retriedStatuses``; by default empty.
    public var refusedStatuses: Set<Int>

    /// Makes a policy of the given parts.
    public init(
        maxAttempts: Int = 3,
        backoff: RetryPolicy.Backoff = .exponential(base: .milliseconds(500)),
        jitter: RetryPolicy.Jitter = .full,
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

    /// One attempt.
    public static let never = RetryPolicy(maxAttempts: 1, backoff: .immediate)

    /// Two attempts without a delay.
    public static let once = RetryPolicy(maxAttempts: 2, backoff: .immediate)

    /// For network requests: three attempts, with random delays of up to half a second and up to one second.
    public static let web = RetryPolicy(maxAttempts: 3, backoff: .exponential(base: .milliseconds(500)))

    /// Attempts without a delay between them.
    ///
    /// - Parameter maxAttempts: The maximum number of attempts, including the first.
    /// - Returns: The policy.
    public static func immediate(maxAttempts: Int = 3) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .immediate)
    }

    /// Attempts with the same delay between them.
    ///
    /// - Parameters:
    ///   - delay: The delay before jitter.
    ///   - maxAttempts: The maximum number of attempts, including the first.
    ///   - jitter: The random part of each delay.
    /// - Returns: The policy.
    public static func fixed(_ delay: Duration, maxAttempts: Int = 3, jitter: RetryPolicy.Jitter = .full) -> RetryPolicy
    {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .fixed(delay), jitter: jitter)
    }

    /// Attempts with linearly growing delays: one step, two steps, three steps.
    ///
    /// - Parameters:
    ///   - step: The first delay, and the increment of each further delay.
    ///   - maxAttempts: The maximum number of attempts, including the first.
    ///   - jitter: The random part of each delay.
    /// - Returns: The policy.
    public static func linear(step: Duration, maxAttempts: Int = 3, jitter: RetryPolicy.Jitter = .full) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .linear(step: step), jitter: jitter)
    }

    /// Attempts with exponentially growing delays: first `base`, then twice the previous delay.
    ///
    /// - Parameters:
    ///   - base: The first delay before jitter; by default 500 milliseconds, as in ``web``.
    ///   - maxAttempts: The maximum number of attempts, including the first.
    ///   - jitter: The random part of each delay.
    /// - Returns: The policy.
    public static func exponential(
        base: Duration = .milliseconds(500),
        maxAttempts: Int = 3,
        jitter: RetryPolicy.Jitter = .full
    ) -> RetryPolicy {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .exponential(base: base), jitter: jitter)
    }

    /// Attempts with the given delays; the last delay repeats.
    ///
    /// - Parameters:
    ///   - delays: The delays, in order; an empty array for attempts without a delay.
    ///   - maxAttempts: The maximum number of attempts, including the first.
    ///   - jitter: The random part of each delay.
    /// - Returns: The policy.
    public static func table(_ delays: [Duration], maxAttempts: Int, jitter: RetryPolicy.Jitter = .full) -> RetryPolicy
    {
        RetryPolicy(maxAttempts: maxAttempts, backoff: .table(delays), jitter: jitter)
    }

    // MARK: - Delays

    /// The longest delay that ``backoff`` and ``jitter`` select before an attempt.
    ///
    /// - Parameter index: The attempt's index; the first attempt has index 0 and no delay.
    /// - Returns: The delay.
    public func delay(beforeAttempt index: Int) -> Duration {
        min(self.backoff.delay(afterFailures: index), max(self.maximumDelay, .zero))
    }

    /// The delay before an attempt, selected by `random` from 0 to 1.
    ///
    /// The delay is below `limit` if the jitter permits such a short delay.
    package func delay(beforeAttempt index: Int, below limit: Duration? = nil, random: Double) -> Duration {
        self.jitter.applied(to: self.delay(beforeAttempt: index), below: limit, random: random)
    }

    /// Whether the policy retries after an error with this advice.
    package func permits(_ advice: RetryAdvice) -> Bool {
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

    /// Decodes a policy; missing members get their defaults.
    ///
    /// - Throws: `DecodingError`.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        func decode<Value: Decodable>(_ key: CodingKeys, into value: inout Value) throws {
            value = try container.decodeIfPresent(Value.self, forKey: key) ?? value
        }
        self.init()
        try decode(.maxAttempts, into: &self.maxAttempts)
        try decode(.backoff, into: &self.backoff)
        try decode(.jitter, into: &self.jitter)
        try decode(.maximumDelay, into: &self.maximumDelay)
        try decode(.maximumDuration, into: &self.maximumDuration)
        try decode(.maximumRetryAfter, into: &self.maximumRetryAfter)
        try decode(.wakeJitter, into: &self.wakeJitter)
        try decode(.repeatsUnsafeWork, into: &self.repeatsUnsafeWork)
        try decode(.retriedStatuses, into: &self.retriedStatuses)
        try decode(.refusedStatuses, into: &self.refusedStatuses)
    }

    /// Encodes all members except a `maximumDuration` of `nil`, durations in the format of the standard
    /// library.
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

extension RetryPolicy {
    /// The random part of a delay, which spreads the attempts of callers after a common failure.
    public enum Jitter: Sendable, Hashable, Codable {
        /// No random part.
        case none

        /// Uniform from zero up to, but excluding, the delay.
        case full

        /// Uniform from half of the delay up to, but excluding, the delay.
        case equal

        /// The delay selected by `random`, from 0 to 1.
        ///
        /// The delay is below `limit` if the jitter permits such a short delay.
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

        /// A whole number from zero up to, but excluding, `limit`; zero if `limit` is not positive.
        private static func share(of limit: Int64, _ random: Double) -> Int64 {
            guard limit > 0, random > 0 else { return 0 }
            let drawn = Double(limit) * min(random, 1)
            return drawn < Double(limit) ? min(Int64(drawn), limit - 1) : limit - 1
        }
    }

    /// The growth of the delay between attempts.
    ///
    /// Delays are clamped between zero and ``RetryPolicy/maximumDelay``.
    public enum Backoff: Sendable, Hashable, Codable {
        /// No delay.
        case immediate

        /// The same delay each time.
        case fixed(Duration)

        /// The step, then twice the step, then three times: 10, 20, 30, 40 seconds for a step of 10.
        case linear(step: Duration)

        /// Each delay is `factor` times the previous delay: 10, 20, 40, 80 seconds for a base of 10 and the
        /// factor 2.
        case exponential(base: Duration, factor: Double = 2)

        /// The given delays, in order; the last delay repeats. No delay for an empty array.
        case table([Duration])

        /// For hours of retries: 1, 3, 15, 27, 42 and 60 seconds, an hour, then 6 hours each time.
        public static let patient = RetryPolicy.Backoff.table(
            [1, 3, 15, 27, 42, 60, 3_600, 21_600].map { .seconds($0) }
        )

        /// The delay after `failures` failed attempts, before cap and jitter.
        func delay(afterFailures failures: Int) -> Duration {
            guard failures > 0 else { return .zero }
            let delay: Duration =
                switch self {
                case .immediate: .zero
                case .fixed(let delay): delay
                case .linear(let step): Self.scale(step, by: Double(failures))
                case .exponential(let base, let factor):
                    Self.scale(base, by: Foundation.pow(factor, Double(failures - 1)))
                case .table(let delays): delays.isEmpty ? .zero : delays[min(failures, delays.count) - 1]
                }
            return max(delay, .zero)
        }

        /// Scales in nanoseconds: a floating-point number of nanoseconds is exact for durations of months.
        private static func scale(_ duration: Duration, by factor: Double) -> Duration {
            let nanoseconds = Double(duration.saturatedNanoseconds) * factor
            let limit = Double(Duration.longest.saturatedNanoseconds)
            guard nanoseconds < limit else { return nanoseconds.isNaN ? .zero : .longest }
            return nanoseconds > 0 ? .nanoseconds(Int64(nanoseconds.rounded())) : .zero
        }
    }
}
