/// Mutual exclusion between processes, or machines, that survives the death of its holder.
///
/// A lease lasts until it is given back or its duration has passed; a live holder extends it by taking it again. No lock of
/// the system and no connection is held meanwhile. ``FileLease`` is for the processes of one machine. A lease kept on a
/// server serves several machines:
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
    /// Takes the lease if it is free or has ended; extends it if `owner` has it already.
    ///
    /// - Parameters:
    ///   - owner: A name that no other caller uses.
    ///   - duration: How long the lease lasts from now on.
    /// - Returns: The present term, of `owner` or of another one.
    /// - Throws: If the holder is not known.
    func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm

    /// Gives the lease back; does nothing if `term` is over already.
    ///
    /// - Parameter term: What ``take(as:for:)`` returned, in whatever extension.
    /// - Throws: If that failed; the lease is free at its end.
    func giveBack(_ term: MuxLeaseTerm) async throws

    /// Suspends until `term` may be over because it was given back.
    ///
    /// It may return early. It may return late, too: the caller measures the term's time itself.
    ///
    /// - Parameter term: The term of another owner.
    /// - Throws: `CancellationError` as soon as the task is cancelled; any other error if the lease cannot be watched.
    func wait(for term: MuxLeaseTerm) async throws
}

/// A time for which one owner has a ``MuxLease``.
public struct MuxLeaseTerm: Sendable, Hashable {
    /// The name of the holder.
    public var owner: String

    /// Raised each time the lease changes hands, and never lowered; an extension does not change it.
    public var generation: UInt64

    /// How long it lasts, from the call that returned it, unless it is extended.
    public var remaining: Duration

    /// Describes a term.
    public init(owner: String, generation: UInt64, remaining: Duration) {
        self.owner = owner
        self.generation = generation
        self.remaining = remaining
    }
}
