/// How good an entry is for one request at one moment: the only place that decides it.
@usableFromInline
package enum Freshness: Sendable, Hashable {
    /// Serve it; if it renews, fetch behind it.
    case fresh(renews: Bool)
    /// Stale, but served at once; if it renews, fetch behind it.
    case servable(renews: Bool)
    /// Stale: fetch, and serve it only if that fails silenceably, or takes too long for the caller.
    ///
    /// A failure that is remembered is the answer without a fetch, unless this is a reload.
    case fallback
    /// Too old to answer for a failed fetch, so fetch; a failure that is remembered is the answer here, too.
    case unusable

    /// What is known about the entry.
    @usableFromInline
    package struct Facts: Sendable, Equatable {
        /// Time since it was fetched.
        package var age: Duration
        /// How long it counts as fresh.
        package var timeToLive: Duration
        /// The age from which it is renewed ahead of time; `nil` for never.
        package var renewalAge: Duration?
        /// What the fetch said about its use when stale.
        package var stale: StaleLimits
        /// Whether a refresh came after it.
        package var isRefreshed: Bool
        /// Whether a fetch failed a moment ago, so that it is too early for another try.
        package var isInBackoff: Bool
        /// Whether a failure is remembered, so that it is known what another try would bring.
        package var isFailureRemembered: Bool

        @usableFromInline
        package init(
            age: Duration,
            timeToLive: Duration,
            renewalAge: Duration? = nil,
            stale: StaleLimits = StaleLimits(),
            isRefreshed: Bool = false,
            isInBackoff: Bool = false,
            isFailureRemembered: Bool = false
        ) {
            self.age = age
            self.timeToLive = timeToLive
            self.renewalAge = renewalAge
            self.stale = stale
            self.isRefreshed = isRefreshed
            self.isInBackoff = isInBackoff
            self.isFailureRemembered = isFailureRemembered
        }
    }

    /// What the policy and the request permit.
    @usableFromInline
    package struct Limits: Sendable, Equatable {
        /// How long after its time to live an entry may answer at once, unless the fetch said otherwise.
        package var staleWhileRevalidate: Duration
        /// How long after its time to live an entry may answer for a failed fetch, unless the fetch said otherwise.
        package var staleIfError: Duration
        /// How long after its time to live this request takes an entry at once, whatever others say.
        package var toleratedStaleness: Duration?
        /// How old an entry may be for this request, if it says so.
        package var maximumAge: Duration?
        /// Whether this request wants a fetch in any case.
        @usableFromInline package var isReload: Bool

        package init(
            staleWhileRevalidate: Duration = .zero,
            staleIfError: Duration = .zero,
            toleratedStaleness: Duration? = nil,
            maximumAge: Duration? = nil,
            isReload: Bool = false
        ) {
            self.staleWhileRevalidate = staleWhileRevalidate
            self.staleIfError = staleIfError
            self.toleratedStaleness = toleratedStaleness
            self.maximumAge = maximumAge
            self.isReload = isReload
        }
    }

    /// Judges an entry.
    @usableFromInline
    package static func of(_ facts: Facts, _ limits: Limits) -> Freshness {
        let age = facts.age
        let staleIfError = facts.stale.ifError ?? limits.staleIfError
        let isOldEnoughToGo = age >= Self.sum(facts.timeToLive, staleIfError)
        if limits.isReload { return isOldEnoughToGo ? .unusable : .fallback }
        if !facts.isRefreshed, age < facts.timeToLive, age < limits.maximumAge ?? .longest {
            let isDue = facts.renewalAge.map { age >= $0 } ?? false
            return .fresh(renews: isDue && !facts.isInBackoff && !facts.isFailureRemembered)
        }
        if facts.isInBackoff, !isOldEnoughToGo { return .servable(renews: false) }
        let maySkipTheWait = !facts.isRefreshed && limits.maximumAge == nil
        let staleWhileRevalidate =
            limits.toleratedStaleness ?? facts.stale.whileRevalidate ?? limits.staleWhileRevalidate
        if maySkipTheWait, age < Self.sum(facts.timeToLive, staleWhileRevalidate) {
            return .servable(renews: !facts.isFailureRemembered)
        }
        return isOldEnoughToGo ? .unusable : .fallback
    }

    /// A time to live and what is allowed beyond it, each held within 146 years, so that the sum cannot overflow.
    private static func sum(_ timeToLive: Duration, _ beyond: Duration) -> Duration {
        .sum(max(timeToLive, .zero), max(beyond, .zero))
    }
}

/// How long after its time to live an entry may be used, where that is known of the entry itself.
@usableFromInline
package struct StaleLimits: Sendable, Hashable {
    /// For how long it answers at once while it is renewed; `nil` for what the policy says.
    @usableFromInline package var whileRevalidate: Duration?
    /// For how long it answers for a failed fetch; `nil` for what the policy says.
    @usableFromInline package var ifError: Duration?

    @inlinable
    package init(whileRevalidate: Duration? = nil, ifError: Duration? = nil) {
        self.whileRevalidate = whileRevalidate
        self.ifError = ifError
    }
}
