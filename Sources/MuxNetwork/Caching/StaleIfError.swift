import MuxKit

/// Serves a stale value when the server answers with an error: RFC 5861, section 4.
///
/// For how long is said by the answer's `stale-if-error` (``HTTPFreshness/staleIfError``), or else by `MuxPolicy/staleIfError`.
enum StaleIfError {
    /// The statuses that count as a server that cannot be reached.
    private static let statuses: Set<HTTPStatus> = [500, 502, 503, 504]

    /// `policy`, with these statuses among the errors that permit to answer with an older value.
    static func applied(to policy: MuxPolicy) -> MuxPolicy {
        var tolerant = policy
        tolerant.isSilenceable = { error in
            (error as? HTTPError)?.status.map { self.statuses.contains($0) } ?? false || policy.isSilenceable(error)
        }
        return tolerant
    }
}
