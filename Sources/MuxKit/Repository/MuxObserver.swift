/// Something that a multiplexer, a repository or a runner decided.
public struct MuxEvent: Sendable, Equatable {
    /// What was decided.
    @nonexhaustive public enum Kind: Sendable, Hashable {
        /// A request was answered from memory.
        case hit
        /// A request waits for a flight that was running already.
        case joined
        /// A request started a flight.
        case missed
        /// An entry was read from disk.
        case loaded
        /// A fetch began.
        case fetchStarted
        /// A fetch failed and is attempted again.
        case fetchRetried
        /// A fetch brought a value.
        case fetched
        /// A fetch failed.
        case fetchFailed
        /// A stale value was served in place of an error.
        case servedStale
        /// An outcome from before a fence was kept out of the cache.
        case fenceDropped
        /// An entry could not be read from disk, or not be decoded: a miss.
        case loadFailed
        /// An entry left memory to make room for another.
        case evicted
        /// An entry left memory to make room for another though it is not on disk, which cannot be written.
        case evictedUnsaved
        /// The session ended.
        case sessionEnded
        /// Two living multiplexers have one `cacheKey`: they share entries on disk, and the later save wins.
        case cacheKeyShared
        /// A multiplexer belongs to another repository than the dependency that its fetch needs: its requests fail with
        /// ``MuxError/repositoryMismatch``.
        case repositoryMismatch
        /// A call of a runner waits for the update of a dependency.
        case dependencyAwaited
        /// A download waits for its turn.
        case queued
        /// An update of a dependency began.
        case updateStarted
        /// An update of a dependency brought one.
        case updated
        /// An update of a dependency failed, or was refused.
        case updateFailed
        /// An earlier process began to renew tokens, and did not live to say how that ended: this one tries them.
        case updateInterrupted
        /// Something could not be kept on disk, or not be looked up there, and work goes on without: ``MuxEvent/problem`` says
        /// what. It is told once, and again only after it has worked in between.
        case storageFailed
    }

    /// What was decided.
    public let kind: Kind

    /// The multiplexer's `cacheKey`, if it has one.
    public let cacheKey: String?

    /// The entry's key as text, if there is one; never a value, a token or an error's text.
    public let key: String?

    /// How long it took, for what takes time: ``Kind/loaded``, ``Kind/loadFailed``, ``Kind/fetched``, ``Kind/fetchFailed``,
    /// ``Kind/updated`` and ``Kind/updateFailed``; `nil` for the rest, which happens at once.
    public let duration: Duration?

    /// What went wrong and why, in words, for ``Kind/storageFailed``; never a value, a token or a path.
    public let problem: String?

    /// Describes an event.
    public init(
        _ kind: Kind,
        cacheKey: String? = nil,
        key: String? = nil,
        duration: Duration? = nil,
        problem: String? = nil
    ) {
        self.kind = kind
        self.cacheKey = cacheKey
        self.key = key
        self.duration = duration
        self.problem = problem
    }
}

/// Receives what happens in everything that uses a repository.
public protocol MuxObserver: Sendable {
    /// Called after each decision, on the thread that made it and outside all locks: keep it short.
    func observe(_ event: MuxEvent)
}

extension MuxObserver {
    /// Tells of `event`; a task that the observer starts is not part of the operation in which that happened.
    package func tell(_ event: MuxEvent) { ReentrantAsyncMutex.outside { self.observe(event) } }
}

extension MuxRepository {
    /// What a multiplexer counted since it was made.
    public struct Statistics: Sendable, Equatable {
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
        public static func + (a: MuxRepository.Statistics, b: MuxRepository.Statistics) -> MuxRepository.Statistics {
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
}
