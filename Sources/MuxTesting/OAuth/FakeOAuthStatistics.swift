/// What a ``FakeOAuthServer`` counted.
public struct FakeOAuthStatistics: Sendable, Hashable {
    /// Sign-ins that were granted.
    public var signIns = 0

    /// Sign-ins that were refused.
    public var refusedSignIns = 0

    /// Refreshes that reached the server, whatever their outcome.
    public var refreshRequests = 0

    /// Refreshes that were granted.
    public var refreshes = 0

    /// Refresh tokens that came again after they were spent.
    public var reusesDetected = 0

    /// Families of tokens that were revoked, by reuse or on demand.
    public var revocations = 0

    /// Access tokens that were accepted.
    public var resourceHits = 0

    /// Access tokens that were refused: what a client sees as status 401.
    public var refusals = 0

    /// Nothing counted.
    public init() {}
}
