/// How good an entry is at one moment: the only place that decides it.
package enum Freshness: Sendable, Equatable {
    /// Younger than its time to live.
    case fresh
    /// Stale, and a fetch failed a moment ago: serve it without trying again.
    case held
    /// Stale: fetch, and serve it only if that fails silenceably.
    case fallback
    /// Too old to answer for a failed fetch.
    case unusable

    /// What decides how good an entry is.
    package struct Facts: Sendable {
        /// Time since it was fetched.
        package var age: Duration
        /// How long it counts as fresh.
        package var timeToLive: Duration
        /// Whether a refresh came after it.
        package var isRefreshed: Bool
        /// Whether the error back-off of a failed fetch is still running.
        package var isInBackoff: Bool

        package init(age: Duration, timeToLive: Duration, isRefreshed: Bool = false, isInBackoff: Bool = false) {
            self.age = age
            self.timeToLive = timeToLive
            self.isRefreshed = isRefreshed
            self.isInBackoff = isInBackoff
        }
    }

    /// Judges an entry.
    package static func of(_ facts: Facts, staleIfError: Duration) -> Freshness {
        if facts.age < facts.timeToLive, !facts.isRefreshed { return .fresh }
        // Held within ±146 years each, so that the sum cannot overflow.
        let limit = min(facts.timeToLive, .longest) + min(max(staleIfError, .zero), .longest)
        guard facts.age < limit else { return .unusable }
        return facts.isInBackoff ? .held : .fallback
    }
}
