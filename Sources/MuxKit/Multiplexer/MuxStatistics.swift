/// What a multiplexer counted since it was made.
public struct MuxStatistics: Sendable, Equatable {
    /// Requests answered from memory without waiting.
    public var hits = 0

    /// Requests that waited for a flight which was running already.
    public var joins = 0

    /// Requests that started a flight, that asked for no more than what is cached, which was nothing, or that would have had
    /// to wait and whose task was cancelled already.
    public var misses = 0

    /// Flights answered from disk, without a fetch.
    public var diskHits = 0

    /// Fetches that were started.
    public var fetches = 0

    /// Attempts that followed a failed one within the same fetch; see ``MuxPolicy/retry``.
    public var retries = 0

    /// Fetches that failed, cancelled ones included.
    public var failures = 0

    /// Answers with a stale value: one for each flight that failed and was answered for so, and one for each request that
    /// was answered from memory so.
    public var staleServed = 0

    /// Outcomes that a fence kept out of the cache.
    public var fenceDrops = 0

    /// Entries that left memory to make room for others.
    public var evictions = 0

    /// How long all fetches took together, those that failed or were abandoned included; the disk is not counted.
    ///
    /// A fetch counts when it ends. Those that run at the same time count each, so this can grow faster than the clock.
    public var fetchTime: Duration = .zero

    /// Statistics of nothing.
    public init() {}

    /// Requests in all: each is a hit, a join or a miss.
    ///
    /// One that is an error in itself is none: ``MuxError/wouldDeadlock``, ``MuxError/unusableKey``.
    public var requests: Int { self.hits + self.joins + self.misses }

    /// Counts a request that was answered without waiting.
    @usableFromInline
    mutating func hit(isStale: Bool) {
        self.hits += 1
        if isStale { self.staleServed += 1 }
    }

    /// Adds up what two multiplexers counted.
    public static func + (a: MuxStatistics, b: MuxStatistics) -> MuxStatistics {
        var sum = a
        sum.hits += b.hits
        sum.joins += b.joins
        sum.misses += b.misses
        sum.diskHits += b.diskHits
        sum.fetches += b.fetches
        sum.retries += b.retries
        sum.failures += b.failures
        sum.staleServed += b.staleServed
        sum.fenceDrops += b.fenceDrops
        sum.evictions += b.evictions
        sum.fetchTime = .sum(a.fetchTime, b.fetchTime)
        return sum
    }
}
