import Foundation

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
