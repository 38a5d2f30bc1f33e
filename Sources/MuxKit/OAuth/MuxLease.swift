/// Mutual exclusion between processes or machines, which survives the death of the holder.
///
/// A lease ends when the holder gives the lease back or the duration has passed; a holder extends the lease
/// by another ``take(as:for:)``. Between the calls, no lock of the system and no connection is held.
/// ``FileLease`` is a lease between the processes of one machine. A lease on a server works between several
/// machines:
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
/// `MuxLeaseConformance` of `MuxConformance` tests a custom lease against the rules.
public protocol MuxLease: Sendable {
    /// Takes the lease if the lease is free or has ended; extends the lease if `owner` is the holder.
    ///
    /// - Parameters:
    ///   - owner: A name that no other caller uses.
    ///   - duration: The duration of the lease from now on.
    /// - Returns: The present term, of `owner` or of another owner.
    /// - Throws: An error if the holder is not known.
    func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm

    /// Gives the lease back; does nothing if `term` has already ended.
    ///
    /// - Parameter term: A term from ``take(as:for:)``, before or after an extension.
    /// - Throws: The failure; the lease is then free after its duration.
    func giveBack(_ term: MuxLeaseTerm) async throws

    /// Suspends until the holder may have given `term` back.
    ///
    /// May return early or late: the caller also measures the time of the term.
    ///
    /// - Parameter term: The term of another owner.
    /// - Throws: `CancellationError` as soon as the task is cancelled; any other error if the lease cannot be
    ///   watched.
    func wait(for term: MuxLeaseTerm) async throws
}

/// A period in which one owner has a ``MuxLease``.
public struct MuxLeaseTerm: Sendable, Hashable {
    /// The name of the holder.
    public var owner: String

    /// A number that increases with each change of the holder, and never decreases.
    ///
    /// An extension does not change the number.
    public var generation: UInt64

    /// The remaining time of the term, from the call that returned the term, without an extension.
    public var remaining: Duration

    /// Describes a term.
    public init(owner: String, generation: UInt64, remaining: Duration) {
        self.owner = owner
        self.generation = generation
        self.remaining = remaining
    }
}
