/// The pause before the next attempt after consecutive failures of a server; a pure value.
///
/// The pause doubles with each failure, up to a limit (by default ``longest``), or up to the first pause if
/// longer. The pause is at least the server's `Retry-After`, limited to ``longestRetryAfter``. A success ends
/// the pause.
@usableFromInline
package struct FailurePause: Sendable, Hashable {
    /// The longest pause after repeated failures.
    package static let longest = Duration.seconds(60)

    /// The maximum effect of a `Retry-After`: a longer `Retry-After` counts as this duration.
    package static let longestRetryAfter = Duration.seconds(3600)

    /// The number of consecutive failures, counted up to 37.
    package private(set) var failures = 0

    /// The earliest time of the next attempt.
    package private(set) var end = Moment.distantPast

    package init() {}

    /// Whether an attempt may start.
    @usableFromInline
    package func isOver(at now: Moment) -> Bool { self.end <= now }

    /// Reports a failed attempt.
    ///
    /// - Parameters:
    ///   - now: The time of the failure.
    ///   - first: The pause after the first failure; with zero or less, only a `Retry-After` of the server
    ///     causes a pause.
    ///   - longest: The longest pause after repeated failures, unless `first` or `retryAfter` is longer.
    ///   - retryAfter: The server's `Retry-After`; `nil` if absent.
    package mutating func failed(
        at now: Moment,
        first: Duration,
        upTo longest: Duration = Self.longest,
        retryAfter: Duration? = nil
    ) {
        self.failures = min(self.failures + 1, Self.mostDoublings + 1)
        let limit = max(first, longest, .zero).saturatedNanoseconds
        let start = max(first, .zero).saturatedNanoseconds
        let (grown, overflow) = start.multipliedReportingOverflow(by: 1 << Int64(self.failures - 1))
        let own = Duration.nanoseconds(overflow ? limit : min(grown, limit))
        self.end = now.advanced(by: max(own, Self.limitedRetryAfter(retryAfter)))
    }

    package mutating func succeeded() { self = FailurePause() }

    /// A `Retry-After`, limited to ``longestRetryAfter``; zero for `nil`.
    package static func limitedRetryAfter(_ retryAfter: Duration?) -> Duration {
        min(max(retryAfter ?? .zero, .zero), Self.longestRetryAfter)
    }

    /// The number of doublings that raise a pause of one nanosecond above ``longest``.
    private static let mostDoublings = 36
}
