extension MuxRepository {
    /// What a save did.
    public struct SaveReport: Sendable {
        /// An entry that could not be saved.
        public typealias Failure = MuxStoreError.PartialSave.Failure

        /// How many entries were written, and are what a process finds that starts now.
        public var saved = 0

        /// How many entries the disk had already.
        public var unchanged = 0

        /// The number of refreshes that were written: of entries that are only on disk, and of whole maps.
        public var refreshed = 0

        /// Entries that could not be encoded or written, were too large, had to make room in the same save
        /// (``MuxStoreError/noRoom``), or belonged to a session that another process ended meanwhile
        /// (``MuxError/sessionEnded``).
        ///
        /// They stay in memory as long as there is room, unless their session ended, and the next save tries them again.
        public var failed: [Failure] = []

        /// Entries of which there is a newer value, of another process or of another multiplexer with the same `cacheKey`.
        ///
        /// The value in memory is removed; the next request reads the newer one.
        public var superseded: [MuxStoreKey] = []

        /// What went wrong making good what failed earlier: a removal, or a sign-out.
        ///
        /// It is tried again at the next save, unless it can never succeed.
        public var repairFailures: [any Error] = []

        /// The entries that were not written, or were still being written, when the time was up, and those that changed meanwhile.
        ///
        /// What is being written goes on; the next save does the rest.
        public var leftOverNames: [MuxStoreKey] = []

        /// How many ``leftOverNames`` there are.
        public var leftOver: Int { self.leftOverNames.count }

        /// How many values had to leave memory before they could be saved, since the report before this.
        ///
        /// A map keeps its bound (``MuxPolicy/maximumCount``, ``MuxPolicy/maximumCost``) also where the disk cannot be written. An
        /// observer gets an event for each, see ``MuxEvent/Kind/evictedUnsaved``.
        public var letGo = 0

        /// Nothing failed, nothing is left over, and nothing was evicted unsaved.
        public var isComplete: Bool {
            self.failed.isEmpty && self.repairFailures.isEmpty && self.leftOverNames.isEmpty && self.letGo == 0
        }
    }
}

extension MuxRepository.SaveReport: CustomStringConvertible, CustomReflectable {
    /// Shows what ``description`` shows and nothing more: keys may be names of people.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The counts, and what was wrong first; no names of entries and no values.
    public var description: String {
        let counts = [
            (self.saved, "saved"), (self.refreshed, "refreshed"), (self.unchanged, "unchanged"),
            (self.failed.count, "failed"),
            (self.superseded.count, "superseded"), (self.leftOver, "left over"), (self.letGo, "let go"),
            (self.repairFailures.count, "repairs failed"),
        ]
        let told = counts.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }
        let text = told.isEmpty ? "nothing to save" : told.joined(separator: ", ")
        let error = self.failed.first?.error ?? self.repairFailures.first
        return error.map { "\(text): \($0.sentence)" } ?? text
    }
}

extension MuxRepository {
    /// What a removal, or a sign-out, could not do.
    public struct ClearReport: Sendable {
        /// What went wrong on disk, or in the store that several machines share.
        ///
        /// Memory is cleared in any case, what is left on disk is not read again by this process, and the next save or sign-out
        /// tries again. What a shared store has not confirmed is sent to it again until it has.
        public var failures: [any Error] = []

        /// Everything was removed.
        public var isComplete: Bool { self.failures.isEmpty }
    }
}

extension MuxRepository {
    /// When a repository saves.
    public enum SavePolicy: Sendable, Hashable {
        /// When it is told to: ``MuxRepository/saveAll(within:)``.
        ///
        /// Under any policy a map whose ``MuxPolicy/maximumCount`` is taken up by values that are not on disk yet saves them.
        case explicit

        /// When it is told to, and on Apple platforms when the app enters the background, or a Mac app is left or quit.
        ///
        /// The system is asked for the time that it takes; an app that is quit is held up for it, for four seconds at most.
        /// Elsewhere there is no background, and this is ``explicit``.
        case enteringBackground

        /// By itself, so long after a value was fetched or stored; what comes meanwhile is saved with it.
        ///
        /// On Apple platforms also when the app enters the background, without waiting. What could not be saved is tried again
        /// with the next change, or when told to. A multiplexer that is released before the save is kept until its values are
        /// written, or, if the disk fails, as long as there are at most 1,024 of these.
        case afterFetch(debounce: Duration)
    }
}

extension MuxRepository {
    /// What a multiplexer counted since it was made.
    public struct Statistics: Sendable, Equatable {
        /// Requests answered from memory without waiting, or for ``RequestOptions/cacheOnly`` from disk.
        public var hits = 0

        /// Requests that waited for a flight which was running already.
        public var joins = 0

        /// Requests that started a flight, that asked for no more than what is cached, which was nothing, or that would have had
        /// to wait and whose task was cancelled already.
        public var misses = 0

        /// Flights answered from disk, without a fetch.
        public var diskHits = 0

        /// Flights answered by the store that several machines share, without a fetch of this one.
        public var sharedHits = 0

        /// Fetches that were started.
        public var fetches = 0

        /// Attempts that followed a failed one within the same fetch; see ``MuxPolicy/retry``.
        public var retries = 0

        /// Fetches that failed, cancelled ones included.
        public var failures = 0

        /// Requests answered with a stale value, from wherever it came.
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
            sum.sharedHits += b.sharedHits
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

extension MuxRepository {
    /// The contents and the activity of all participants of sign-outs at a moment, and the state of the store.
    public struct Gauges: Sendable, Equatable {
        /// Values in memory.
        public var entries = 0

        /// Values in memory that the next save would write.
        public var unsaved = 0

        /// Calls that wait for a flight: for a value, a download, an answer or a token.
        public var waiters = 0

        /// Flights: fetches, downloads, exchanges and updates of tokens, a sign-in with its update as two.
        public var flights = 0

        /// What the last ``MuxRepository/saveAll(within:)``, by hand or by the save policy, could not write or repair: see
        /// ``SaveReport/failed`` and ``SaveReport/repairFailures``.
        public var lastSaveFailures = 0

        /// Whether entries of an ended session could not be removed from the store yet; the next save tries again.
        public var owesRemoval = false

        /// The reason of an outage of the shared store; `nil` without an outage or without a shared store.
        public var sharedStoreOutage: MuxEvent.Reason?

        /// The number of invalidations without confirmation by the shared store; the repository repeats them.
        public var pendingInvalidations = 0

        /// The counters of the store.
        public var store = MuxStoreStatistics()

        /// Gauges of nothing.
        public init() {}

        package init(_ engine: FlightEngine<some Hashable & Sendable, some Sendable, some Sendable>) {
            let occupancy = engine.occupancy
            // What a caller does itself has no task, and one that a fence has passed has no key.
            (self.waiters, self.flights) = (occupancy.waiters, max(occupancy.tasks, occupancy.keys))
        }

        /// Adds what two participants hold.
        package static func + (a: MuxRepository.Gauges, b: MuxRepository.Gauges) -> MuxRepository.Gauges {
            var sum = a
            sum.entries += b.entries
            sum.unsaved += b.unsaved
            sum.waiters += b.waiters
            sum.flights += b.flights
            return sum
        }
    }

    /// The counters of all multiplexers, maps and media of this repository that are alive, added up.
    public nonisolated var statistics: MuxRepository.Statistics {
        self.participants.reduce(MuxRepository.Statistics()) { $0 + $1.statistics }
    }

    /// What everything holds and does now that takes part in sign-outs, for a dashboard or a health check.
    ///
    /// Checks the connection to a shared store, which takes ``MuxShared/Policy/budget`` at most.
    ///
    /// - Complexity: O(*n*) in the number of unsaved values.
    public nonisolated func gauges() async -> MuxRepository.Gauges {
        var gauges = self.participants.reduce(MuxRepository.Gauges()) { $0 + $1.gauges }
        self.registry.withLock { registry in
            gauges.lastSaveFailures = registry.lastSaveFailures
            gauges.owesRemoval = registry.owesSignOut || registry.owesRemoval
        }
        gauges.store = await self.store.statistics()
        if let sharedStore {
            gauges.sharedStoreOutage = await sharedStore.outage()
            gauges.pendingInvalidations = sharedStore.pendingCount
        }
        return gauges
    }
}
