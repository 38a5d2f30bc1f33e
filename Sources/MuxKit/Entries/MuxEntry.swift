/// A value with its source and its freshness.
public struct MuxEntry<Value: Sendable>: Sendable {
    /// The source of a value.
    public enum Source: Sendable, Hashable {
        /// Memory.
        case memory
        /// Disk: memory did not have the value.
        case disk
        /// The shared store of several machines: the value came from the store, or the store confirmed a
        /// value in memory.
        case sharedStore
        /// A fetch for this request, perhaps shared with other requests.
        case fetch
    }

    /// The reason for a stale value.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum StaleReason: Sendable, Hashable {
        /// The fetch failed with an error that ``MuxPolicy/isSilenceable`` accepts.
        case fetchFailed
        /// A recent fetch failed, so that no fetch starts now.
        case backingOff
        /// A renewal is running in the background.
        case revalidating
        /// The fetch took longer than the caller's wait limit.
        case outOfPatience
        /// The request was ``RequestOptions/cacheOnly``.
        case cacheOnly
        /// The response was not kept because of a change during the fetch, such as a refresh, or a newer
        /// value of another machine.
        case fenced
    }

    /// The value.
    public let value: Value

    /// The time since the fetch, the call of `store` or the last renewal.
    public let age: Duration

    /// The freshness lifetime.
    public let timeToLive: Duration

    /// The source of the value.
    public let source: Source

    /// Whether the age has reached ``timeToLive``, a refresh has made the value stale, or a ``staleReason``
    /// is set.
    public let isStale: Bool

    /// The reason for a stale value.
    ///
    /// `nil` for a fresh value, for a stale value that this or another machine fetched during the request,
    /// and for an entry that no request returned.
    public let staleReason: StaleReason?

    /// Identifies the value among all values in the multiplexer; a renewed value keeps its revision.
    @usableFromInline package let revision: UInt64

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
    /// A copy of the entry as a stale entry with a reason.
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
