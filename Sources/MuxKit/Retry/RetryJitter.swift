/// How much of a delay is left to chance, so that those who failed together do not come back together.
public enum RetryJitter: Sendable, Hashable, Codable {
    /// Nothing: the delay as it is.
    case none

    /// All: uniform from zero up to, not including, the delay.
    case full

    /// The second half: uniform from half of the delay up to, not including, the delay.
    case equal

    /// The delay that `random`, from 0 to 1, selects; below `limit`, if chance permits one that short.
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

    /// A whole number from zero up to, not including, `limit`; zero if there is none.
    private static func share(of limit: Int64, _ random: Double) -> Int64 {
        guard limit > 0, random > 0 else { return 0 }
        let drawn = Double(limit) * min(random, 1)
        return drawn < Double(limit) ? min(Int64(drawn), limit - 1) : limit - 1
    }
}
