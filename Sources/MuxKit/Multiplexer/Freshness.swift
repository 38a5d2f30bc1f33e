/// How good an entry is for one request at one moment; decided only here.
@usableFromInline
package enum Freshness: Sendable, Hashable {
    /// Serve it; if it renews, fetch behind it.
    case fresh(renews: Bool)
    /// Stale, but served at once; if it renews, fetch behind it.
    case servable(renews: Bool)
    /// Stale: fetch, and serve it only if that fails silenceably or exceeds the wait limit.
    ///
    /// A remembered failure is the answer without a fetch, unless this is a reload.
    case fallback
    /// Too old to replace a failed fetch: fetch, unless a failure is remembered.
    case unusable

    /// The facts about the entry.
    @usableFromInline
    package struct Facts: Sendable, Equatable {
        /// Time since it was fetched.
        package var age: Duration
        /// How long it counts as fresh.
        package var timeToLive: Duration
        /// The age from which it is renewed ahead of time; `nil` for never.
        package var renewalAge: Duration?
        /// The fetch's own limits for its use when stale.
        package var stale: StaleLimits
        /// Whether a refresh came after it.
        package var isRefreshed: Bool
        /// Whether a fetch failed so recently that it is too early for another.
        package var isInBackoff: Bool
        /// Whether a failure is remembered.
        package var isFailureRemembered: Bool
        /// Whether a fetch failed so recently that it is too early for one behind a request.
        package var isRenewalPaused: Bool

        @usableFromInline
        package init(
            age: Duration,
            timeToLive: Duration,
            renewalAge: Duration? = nil,
            stale: StaleLimits = StaleLimits(),
            isRefreshed: Bool = false,
            isInBackoff: Bool = false,
            isFailureRemembered: Bool = false,
            isRenewalPaused: Bool = false
        ) {
            self.age = age
            self.timeToLive = timeToLive
            self.renewalAge = renewalAge
            self.stale = stale
            self.isRefreshed = isRefreshed
            self.isInBackoff = isInBackoff
            self.isFailureRemembered = isFailureRemembered
            self.isRenewalPaused = isRenewalPaused
        }
    }

    /// The limits of the policy and the request.
    @usableFromInline
    package struct Limits: Sendable, Equatable {
        /// How long after its time to live an entry may answer at once, unless the fetch said otherwise.
        package var staleWhileRevalidate: Duration
        /// How long after its time to live an entry may answer for a failed fetch, unless the fetch said otherwise.
        package var staleIfError: Duration
        /// How long after its time to live this request takes an entry at once; overrides policy and fetch.
        package var toleratedStaleness: Duration?
        /// The greatest age for this request.
        package var maximumAge: Duration?
        /// Whether this request fetches in any case.
        @usableFromInline package var isReload: Bool
        /// Whether the entry is for this request.
        package var takesStored: Bool

        package init(
            staleWhileRevalidate: Duration = .zero,
            staleIfError: Duration = .zero,
            toleratedStaleness: Duration? = nil,
            maximumAge: Duration? = nil,
            isReload: Bool = false,
            takesStored: Bool = true
        ) {
            self.staleWhileRevalidate = staleWhileRevalidate
            self.staleIfError = staleIfError
            self.toleratedStaleness = toleratedStaleness
            self.maximumAge = maximumAge
            self.isReload = isReload
            self.takesStored = takesStored
        }
    }

    /// Judges an entry.
    @usableFromInline
    package static func of(_ facts: Facts, _ limits: Limits) -> Freshness {
        guard limits.takesStored else { return .unusable }
        let age = facts.age
        let staleIfError = facts.stale.ifError ?? limits.staleIfError
        let isOldEnoughToGo = age >= Self.sum(facts.timeToLive, staleIfError)
        if limits.isReload { return isOldEnoughToGo ? .unusable : .fallback }
        let mayRenew = !facts.isFailureRemembered && !facts.isRenewalPaused
        if !facts.isRefreshed, age < facts.timeToLive, age < limits.maximumAge ?? .longest {
            let isDue = facts.renewalAge.map { age >= $0 } ?? false
            return .fresh(renews: isDue && !facts.isInBackoff && mayRenew)
        }
        if facts.isInBackoff, !isOldEnoughToGo { return .servable(renews: false) }
        let maySkipTheWait = !facts.isRefreshed && limits.maximumAge == nil
        let staleWhileRevalidate =
            limits.toleratedStaleness ?? facts.stale.whileRevalidate ?? limits.staleWhileRevalidate
        if maySkipTheWait, age < Self.sum(facts.timeToLive, staleWhileRevalidate) {
            return .servable(renews: mayRenew)
        }
        return isOldEnoughToGo ? .unusable : .fallback
    }

    /// A time to live and the limit beyond it; saturates.
    private static func sum(_ timeToLive: Duration, _ beyond: Duration) -> Duration {
        .sum(max(timeToLive, .zero), max(beyond, .zero))
    }
}

/// An entry's own limits for its use after its time to live.
@usableFromInline
package struct StaleLimits: Sendable, Hashable {
    /// How long it answers at once while it is renewed; `nil` for the policy's limit.
    @usableFromInline package var whileRevalidate: Duration?
    /// How long it replaces a failed fetch; `nil` for the policy's limit.
    @usableFromInline package var ifError: Duration?

    @inlinable
    package init(whileRevalidate: Duration? = nil, ifError: Duration? = nil) {
        self.whileRevalidate = whileRevalidate
        self.ifError = ifError
    }
}
