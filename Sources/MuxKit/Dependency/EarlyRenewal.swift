public import Foundation

/// A dependency with an optional expiry, such as an access token.
///
/// A runner renews the dependency before its end: see ``RunnerPolicy/leeway``.
public protocol ExpiringDependency: Sendable {
    /// The wall-clock time of the dependency's end; `nil` if unknown, for example because the server sent no
    /// lifetime.
    var expiry: Date? { get }
}

/// The rule for the early renewal of a dependency with a known end.
///
/// From ``start`` on, calls request an update. A call of a runner waits for the update: see
/// ``RunnerPolicy/leeway``. A call of ``MuxSessions`` uses the old dependency at once, unless the
/// dependency seems to have ended.
package struct EarlyRenewal: Sendable {
    /// The earliest time of the early renewal.
    let start: Moment
    /// The end of the dependency; `.distantFuture` if the end is not certain.
    let end: Moment

    /// Makes the rule; `nil` if `lifetime` is unknown, or if `lifetime` is not positive and `isNew` is
    /// `true`.
    ///
    /// - Parameters:
    ///   - lifetime: The remaining lifetime of the dependency; `nil` if unknown.
    ///   - isNew: `true` for the result of an update, and for a dependency that the app set together with a
    ///     lifetime; `false` for an initial, set or stored dependency with only an expiry.
    ///   - leeway: The time between the renewal and the end of the dependency; for a new dependency at most
    ///     half of `lifetime`. A negative leeway counts as zero.
    ///   - now: The current time.
    init?(lifetime: Duration?, isNew: Bool, leeway: Duration, at now: Moment) {
        guard let lifetime else { return nil }
        guard lifetime > .zero else {
            // A new dependency should not have ended: the clocks disagree, and the end counts as unknown. Any
            // other dependency is renewed first, and used if the renewal fails, because the wall clock may be
            // wrong.
            if isNew { return nil }
            (self.start, self.end) = (now, .distantFuture)
            return
        }
        self.end = now.advanced(by: lifetime)
        let leeway = max(.zero, isNew ? min(leeway, lifetime / 2) : leeway)
        self.start = self.end.advanced(by: .zero - min(leeway, .longest))
    }

    func isDue(at now: Moment) -> Bool { now >= self.start }

    /// The end of a call's wait for the renewal; `nil` if the end of the dependency is not certain.
    ///
    /// The call waits for at most half of the remaining lifetime, so that the task has the other half.
    func waitLimit(at now: Moment) -> Moment? {
        guard self.end < .distantFuture else { return nil }
        return now.advanced(by: self.end.duration(since: now) / 2)
    }
}

/// The pauses after consecutive failed updates, in addition to the cool-down and to a `Retry-After`.
///
/// Without a valid value, updates pause only after two consecutive failures with a positive
/// ``Failure/longest``. With a valid value, calls use the value, and renewals pause after each failure.
package struct UpdatePauses: Sendable {
    /// A failed update.
    package struct Failure: Sendable {
        /// The longest pause of calls without a valid value.
        ///
        /// Zero for a failure that causes no such pause, and that also ends the pause after earlier failures.
        var longest = Duration.zero
        /// The server's `Retry-After`; `nil` if absent.
        var retryAfter: Duration?
    }

    /// The pause of calls without a valid value.
    private var required = FailurePause()
    /// The pause of renewals of a valid value.
    private var early = FailurePause()

    /// The earliest start of the next update with regard to the pauses.
    func end(hasGoodValue: Bool) -> Moment { hasGoodValue ? self.early.end : self.required.end }

    /// Records a failed update.
    mutating func recordFailure(_ failure: Failure, hasGoodValue: Bool, at now: Moment) {
        self.early.failed(at: now, first: .seconds(1), retryAfter: failure.retryAfter)
        // A failed renewal of a valid value must not delay calls after the end of the value. A failure with
        // the longest pause zero interrupts the consecutive failures of the server.
        guard !hasGoodValue, failure.longest > .zero else { return self.required.succeeded() }
        // The first failure causes no pause. The second failure doubles the 500 ms to one second.
        let first = self.required.failures == 0 ? .zero : min(failure.longest, .milliseconds(500))
        self.required.failed(at: now, first: first, upTo: failure.longest)
    }
}

extension Duration {
    /// The remaining lifetime of `value` at the wall-clock time `now`, not positive after the end; `nil` if
    /// unknown.
    init?(lifetimeOf value: some Sendable, at now: Date) {
        guard let date = (value as? any ExpiringDependency)?.expiry else { return nil }
        self = .saturating(seconds: date.timeIntervalSince(now))
    }
}
