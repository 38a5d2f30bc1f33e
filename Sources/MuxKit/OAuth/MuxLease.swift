/// Lets one of several processes, or machines, do something at a time, and none for longer than it lives.
///
/// Whoever takes a lease has it until it is given back or its time is up, whichever comes first; a holder that lives takes
/// it again, and so has more time. Nothing else is held: no lock of the system's, no connection. ``FileLease`` is the one
/// for processes of one machine. A lease kept on a server serves several machines:
///
/// ```swift
/// struct ServerLease: MuxLease {
///     func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
///         try await api.post("lease", owner, duration)     // the server compares and answers in one step
///     }
///     …
/// }
/// ```
///
/// `MuxLeaseConformance` in `MuxTesting` checks the rules on a lease of your own.
public protocol MuxLease: Sendable {
    /// Takes the lease if it is free or its time is up; gives `owner` more time if it has it already.
    ///
    /// - Parameters:
    ///   - owner: Names who asks, and nobody else.
    ///   - duration: How long the lease is to last from now on.
    /// - Returns: The term that holds now: that of `owner`, or of somebody else who has the lease.
    /// - Throws: If it is not known who has the lease.
    func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm

    /// Gives the lease back; does nothing if `term` is over already.
    ///
    /// - Parameter term: What ``take(as:for:)`` returned, in whatever extension.
    /// - Throws: If that failed; the lease is then free when its time is up.
    func giveBack(_ term: MuxLeaseTerm) async throws

    /// Suspends until `term` may be over because it was given back.
    ///
    /// Returning early does no harm, and returning late costs no more than the term's time, which the caller counts itself.
    ///
    /// - Parameter term: Somebody else's term.
    /// - Throws: `CancellationError` as soon as the task is cancelled; anything else if there is no way of knowing.
    func wait(for term: MuxLeaseTerm) async throws
}

/// A time for which somebody has a ``MuxLease``.
public struct MuxLeaseTerm: Sendable, Hashable {
    /// Who has it.
    public var owner: String

    /// Raised each time the lease changes hands, and never lowered; having more time changes nothing in it.
    public var generation: UInt64

    /// How long it lasts yet, from when it was asked for, unless it is extended.
    public var remaining: Duration

    /// Describes a term.
    public init(owner: String, generation: UInt64, remaining: Duration) {
        self.owner = owner
        self.generation = generation
        self.remaining = remaining
    }
}
