/// The usability of an entry for one request at one moment.
///
/// ``of(_:_:)`` determines the usability; ``PackedSlot`` has a fast test for fresh entries. In the cases in
/// which the request fetches, a remembered failure prevents the fetch, except for a reload.
@usableFromInline
package enum Freshness: Sendable, Hashable {
    /// Fresh: the request gets the entry at once; `renews` tells whether a renewal is due.
    case fresh(renews: Bool)
    /// Stale, but the request gets the entry at once; `renews` tells whether a renewal is due.
    ///
    /// During a backoff, this case includes a fresh entry that exceeds the request's maximum age.
    case servable(renews: Bool)
    /// The request fetches, and gets the entry only after a silenceable failure or the wait limit.
    ///
    /// The entry is stale or beyond the request's maximum age, or the request is a reload.
    case fallback
    /// The request fetches: the entry is too old to replace a failed fetch, or excluded by the request
    /// (``Limits/takesStored``).
    case unusable

    /// The facts about the entry.
    @usableFromInline
    package struct Facts: Sendable, Equatable {
        /// The time since the fetch.
        package var age: Duration
        /// The freshness lifetime.
        package var timeToLive: Duration
        /// The age at which an early renewal is due; `nil` for no early renewal.
        package var renewalAge: Duration?
        /// The stale limits of the fetch, which take precedence over the policy's limits.
        package var stale: StaleLimits
        /// Whether a refresh has made the entry stale.
        package var isRefreshed: Bool
        /// Whether, after a recent failure, an entry that is not fresh for the request is served without
        /// another fetch, up to the limit of ``MuxPolicy/staleIfError``.
        package var isInBackoff: Bool
        /// Whether a failure is remembered.
        package var isFailureRemembered: Bool
        /// Whether background renewals are paused after failures.
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
        /// As ``MuxPolicy/staleWhileRevalidate``; a limit of the fetch takes precedence.
        package var staleWhileRevalidate: Duration
        /// As ``MuxPolicy/staleIfError``; a limit of the fetch takes precedence.
        package var staleIfError: Duration
        /// As ``staleWhileRevalidate``, for this request; takes precedence over the policy and the fetch.
        package var toleratedStaleness: Duration?
        /// The maximum age for this request, exclusive; `nil` for no limit.
        package var maximumAge: Duration?
        /// Whether this request always fetches.
        @usableFromInline package var isReload: Bool
        /// Whether this request may use a stored entry.
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

    /// Determines the usability of an entry.
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

    /// The sum of a time to live and a further time; negative times count as zero, and the sum saturates.
    private static func sum(_ timeToLive: Duration, _ beyond: Duration) -> Duration {
        .sum(max(timeToLive, .zero), max(beyond, .zero))
    }
}

/// The limits that a fetch sets for the use of its entry after the time to live.
@usableFromInline
package struct StaleLimits: Sendable, Hashable {
    /// As ``MuxPolicy/staleWhileRevalidate``; `nil` for the policy's limit.
    @usableFromInline package var whileRevalidate: Duration?
    /// As ``MuxPolicy/staleIfError``; `nil` for the policy's limit.
    @usableFromInline package var ifError: Duration?

    @inlinable
    package init(whileRevalidate: Duration? = nil, ifError: Duration? = nil) {
        self.whileRevalidate = whileRevalidate
        self.ifError = ifError
    }
}
