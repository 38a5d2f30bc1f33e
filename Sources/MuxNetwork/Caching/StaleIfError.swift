import MuxKit

/// The error responses that a stale value may replace: RFC 5861, section 4.
enum StaleIfError {
    /// The statuses of a server that counts as unreachable.
    static let statuses: Set<HTTPStatus> = [500, 502, 503, 504]

    /// `policy`, extended: a stale value may also replace an error with one of these statuses.
    static func applied(to policy: MuxPolicy) -> MuxPolicy {
        var tolerant = policy
        tolerant.isSilenceable = { error in
            (error as? HTTPError)?.status.map { self.statuses.contains($0) } ?? false || policy.isSilenceable(error)
        }
        return tolerant
    }
}
