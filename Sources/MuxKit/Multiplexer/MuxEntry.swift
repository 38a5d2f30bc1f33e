/// A value with where it came from and how good it is.
public struct MuxEntry<Value: Sendable>: Sendable {
    /// Where a value was found.
    public enum Source: Sendable, Hashable {
        /// It was in memory.
        case memory
        /// It was read from disk for this request.
        case disk
        /// It was fetched for this request, perhaps together with others.
        case fetch
    }

    /// The value.
    public let value: Value

    /// How long ago it was fetched, or stored by hand.
    public let age: Duration

    /// How long after it was fetched it counts as fresh.
    public let timeToLive: Duration

    /// Where it was found.
    public let source: Source

    /// Whether it is older than its time to live, or from before a refresh.
    public let isStale: Bool

    /// Names this version of the entry among all that the multiplexer ever held.
    let revision: UInt64
}
