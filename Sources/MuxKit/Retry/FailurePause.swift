/// The pause before the next attempt after failures in a row: a pure state, for a server that is left alone while it fails.
///
/// The pause doubles with each failure, up to ``longest`` or the first pause if that is longer. It is at least the server's
/// `Retry-After`, of which at most ``longestRetryAfter`` is obeyed. A success ends it.
@usableFromInline
package struct FailurePause: Sendable, Hashable {
    /// The longest pause to which failures grow.
    package static let longest = Duration.seconds(60)

    /// The longest `Retry-After` that is obeyed.
    package static let longestRetryAfter = Duration.seconds(3600)

    /// The number of failures in a row.
    package private(set) var failures = 0

    /// The earliest time of the next attempt.
    package private(set) var end = Moment.distantPast

    /// No failure.
    package init() {}

    /// Whether an attempt may start.
    @usableFromInline
    package func isOver(at now: Moment) -> Bool { self.end <= now }

    /// The time until an attempt may start; `nil` if one may start now.
    package func remaining(at now: Moment) -> Duration? { self.isOver(at: now) ? nil : self.end.duration(since: now) }

    /// An attempt failed.
    ///
    /// - Parameters:
    ///   - now: The time of the failure.
    ///   - first: The pause after the first failure; zero or less for a pause only where the server asks for one.
    ///   - longest: The longest pause to which failures grow, unless `first` is longer.
    ///   - retryAfter: The server's `Retry-After`; `nil` if there is none.
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
        self.end = now.advanced(by: max(own, Self.obeyed(retryAfter)))
    }

    /// An attempt succeeded.
    package mutating func succeeded() { self = FailurePause() }

    /// The part of a `Retry-After` that is obeyed; zero for `nil`.
    package static func obeyed(_ retryAfter: Duration?) -> Duration {
        min(max(retryAfter ?? .zero, .zero), Self.longestRetryAfter)
    }

    /// The doublings after which a pause of a nanosecond exceeds ``longest``.
    private static let mostDoublings = 36
}
