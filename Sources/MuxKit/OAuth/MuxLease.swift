/// Mutual exclusion between processes or machines for a limited time.
///
/// A lease ends when the holder gives the lease back, or when the duration has passed, even if the holder has
/// died. A holder extends the lease with another ``take(as:for:)``. Between the calls, no lock of the system
/// and no connection needs to be held. ``FileLease`` is a lease between the processes of one machine. A lease
/// on a server works between several machines:
///
/// ```swift
/// struct ServerLease: MuxLease {
///     func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
///         try await api.post("lease", owner, duration)     // atomic on the server
///     }
///     …
/// }
/// ```
///
/// `MuxLeaseConformance` in the module `MuxConformance` tests whether a custom lease obeys the rules of this
/// protocol.
public protocol MuxLease: Sendable {
    /// Takes the lease if the lease is free or has ended; extends the lease if `owner` is the holder.
    ///
    /// - Parameters:
    ///   - owner: A name that no other caller uses.
    ///   - duration: The duration of the lease, measured from this call.
    /// - Returns: The current term, of `owner` or of another owner. The term of `owner` may be shorter than
    ///   `duration`; the holder then extends the lease earlier.
    /// - Throws: An error if the holder cannot be determined.
    func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm

    /// Gives the lease back; does nothing if the lease has another generation than `term`.
    ///
    /// - Parameter term: A term from ``take(as:for:)``; the holder may have extended the lease since that
    ///   call.
    /// - Throws: An error if the lease could not be given back; the lease then ends after its duration.
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

    /// A number that increases at least with each change of the holder, and never decreases.
    ///
    /// An extension does not change the number.
    public var generation: UInt64

    /// The time until the term ends without an extension, measured from the call that returned the term.
    public var remaining: Duration

    /// Describes a term.
    public init(owner: String, generation: UInt64, remaining: Duration) {
        self.owner = owner
        self.generation = generation
        self.remaining = remaining
    }
}
