public import Foundation

/// A dependency that knows when it ends.
///
/// A runner renews it ahead of that: see ``RunnerPolicy/leeway``.
public protocol ExpiringDependency: Sendable {
    /// When it ends, by the time of day.
    var expiry: Date { get }
}

/// A dependency that may know when it ends, such as a token of a server that does not always say.
///
/// A runner renews it as it does an ``ExpiringDependency``.
public protocol PerishableDependency: Sendable {
    /// When it ends, by the time of day; `nil` if that is not known.
    var expiry: Date? { get }
}

/// When a dependency whose end is known is renewed: the one rule for renewal ahead of time.
///
/// The first call after ``start`` starts an update. A call of a runner waits for it; if that fails, or takes longer than half of what the
/// dependency has left, the call uses the old one. A call of ``MuxSessions`` uses the old one at once.
package struct EarlyRenewal: Sendable {
    /// From when on a call renews the dependency before it uses it.
    let start: Moment
    /// When the dependency ends.
    let end: Moment

    /// Applies the policy's leeway.
    ///
    /// - Parameters:
    ///   - lifetime: What the dependency has left; `nil` if that is not known.
    ///   - isNew: Whether an update has just made it, so that `lifetime` is all of its life.
    ///   - leeway: How long before its end it is renewed; of a new one, at most half its life.
    ///   - now: The time.
    init?(lifetime: Duration?, isNew: Bool, leeway: Duration, at now: Moment) {
        guard let lifetime else { return nil }
        guard lifetime > .zero else {
            // The clocks disagree: a new dependency cannot have ended. An old one is renewed first, and used if that fails.
            if isNew { return nil }
            (self.start, self.end) = (now, .distantFuture)
            return
        }
        self.end = now.advanced(by: lifetime)
        let leeway = max(.zero, isNew ? min(leeway, lifetime / 2) : leeway)
        self.start = self.end.advanced(by: .zero - min(leeway, .longest))
    }

    func isDue(at now: Moment) -> Bool { now >= self.start }

    /// Until when a call waits for the renewal at most: half of what is left, so that its task has the other half.
    func waitLimit(at now: Moment) -> Moment? {
        guard self.end < .distantFuture else { return nil }
        return now.advanced(by: self.end.duration(since: now) / 2)
    }
}

/// The pauses after failed updates in a row, beyond the cool-down: a server that fails is left alone.
///
/// A pure state. Calls without a good value ask again at once after one failure. Calls with a good value use it, and pause from the first
/// failure on.
package struct UpdatePauses: Sendable {
    /// A failed update.
    package struct Failure: Sendable {
        /// The longest pause to which failures grow, of calls that have no good value; zero for none.
        var longest = Duration.zero
        /// The server's `Retry-After`; `nil` if there is none.
        var retryAfter: Duration?
    }

    private var required = FailurePause()
    private var early = FailurePause()

    /// When the next update may start.
    func end(hasGoodValue: Bool) -> Moment { hasGoodValue ? self.early.end : self.required.end }

    /// An update threw.
    mutating func failed(_ failure: Failure, hasGoodValue: Bool, at now: Moment) {
        self.early.failed(at: now, first: .seconds(1), retryAfter: failure.retryAfter)
        // The failed renewal of a good value does not delay the calls after its end.
        guard !hasGoodValue, failure.longest > .zero else { return self.required.succeeded() }
        let first = self.required.failures == 0 ? .zero : min(failure.longest, .milliseconds(500))
        self.required.failed(at: now, first: first, upTo: failure.longest)
    }
}

extension Date {
    /// When `value` ends; `nil` if it does not say.
    init?(expiryOf value: some Sendable) {
        let date = (value as? any ExpiringDependency)?.expiry ?? (value as? any PerishableDependency)?.expiry
        guard let date else { return nil }
        self = date
    }
}

extension Duration {
    /// What `value` has left at the time of day `now`; `nil` if it does not say.
    init?(lifetimeOf value: some Sendable, at now: Date) {
        guard let date = Date(expiryOf: value) else { return nil }
        self = .saturating(seconds: date.timeIntervalSince(now))
    }
}
