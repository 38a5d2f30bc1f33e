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
