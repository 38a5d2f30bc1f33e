/// A value with where it came from and how good it is.
public struct MuxEntry<Value: Sendable>: Sendable {
    /// Where a value was found.
    public enum Source: Sendable, Hashable {
        /// It was in memory.
        case memory
        /// It was read from disk for this request.
        case disk
        /// It was in the store that several machines share, for this request, or another machine fetched it meanwhile.
        case sharedStore
        /// It was fetched for this request, perhaps together with others.
        case fetch
    }

    /// Why a stale value was served.
    @nonexhaustive public enum StaleReason: Sendable, Hashable {
        /// The fetch failed in a way for which an older value is good enough.
        case fetchFailed
        /// A fetch failed a moment ago, and it is too early for another try.
        case backingOff
        /// It is served at once while it is renewed.
        case revalidating
        /// The fetch took longer than the caller wanted to wait; it goes on.
        case outOfPatience
        /// The caller asked for what is cached, and no more.
        case cacheOnly
        /// A fence passed the fetch that brought it.
        case fenced
    }

    /// The value.
    public let value: Value

    /// How long ago it was fetched, or stored by hand.
    public let age: Duration

    /// How long after it was fetched it counts as fresh.
    public let timeToLive: Duration

    /// Where it was found.
    public let source: Source

    /// Whether it is older than its time to live, from before a refresh, or older than the request wanted.
    public let isStale: Bool

    /// Why a stale value was served; `nil` if it was not served by a request, or is not stale.
    public let staleReason: StaleReason?

    /// Names this version of the entry among all that the multiplexer ever held.
    @usableFromInline let revision: UInt64

    @inlinable
    init(
        value: Value,
        age: Duration,
        timeToLive: Duration,
        source: Source,
        isStale: Bool,
        staleReason: StaleReason?,
        revision: UInt64
    ) {
        self.value = value
        self.age = age
        self.timeToLive = timeToLive
        self.source = source
        self.isStale = isStale
        self.staleReason = staleReason
        self.revision = revision
    }
}

extension MuxEntry {
    /// The same entry, served as stale for that reason.
    @inlinable
    func served(because reason: StaleReason) -> MuxEntry {
        MuxEntry(
            value: self.value,
            age: self.age,
            timeToLive: self.timeToLive,
            source: self.source,
            isStale: true,
            staleReason: reason,
            revision: self.revision
        )
    }
}
