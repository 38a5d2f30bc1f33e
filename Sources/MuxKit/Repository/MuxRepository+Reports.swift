extension MuxRepository {
    /// The result of a save.
    public struct SaveReport: Sendable {
        /// An entry that could not be saved.
        public typealias Failure = MuxStoreError.PartialSave.Failure

        /// The number of entries that this save wrote.
        public var saved = 0

        /// The number of entries in memory without unsaved changes.
        public var unchanged = 0

        /// The number of refreshes that this save wrote.
        ///
        /// A refresh of all entries of a map counts as one refresh; apart from that, each refreshed entry
        /// that is only on disk counts as one.
        public var refreshed = 0

        /// Entries that the save could not write or keep on disk, each with the error.
        ///
        /// Examples of errors are an `EncodingError`, ``MuxStoreError/noRoom`` after an eviction for newer
        /// entries of the same save, and ``MuxError/sessionEnded``. Unless the session ended, the entry stays
        /// in memory until an eviction, and the next save tries again.
        public var failed: [Failure] = []

        /// Entries with a newer value on disk, from another process or from another multiplexer with the same
        /// `cacheKey`.
        ///
        /// The value in memory is removed; the next request reads the newer value.
        public var superseded: [MuxStoreKey] = []

        /// Failures of other work of the save, and the error of a refused save.
        ///
        /// An example of other work is the completion of an earlier removal, refresh or sign-out on disk.
        ///
        /// The next save tries again, unless a removal can never succeed.
        public var repairFailures: [any Error] = []

        /// Entries without a result, such as after the time limit, or after a change of the entry during the
        /// save.
        ///
        /// After the time limit, a running write continues. The next save writes the entries that are still
        /// unsaved.
        public var leftOverNames: [MuxStoreKey] = []

        /// The number of ``leftOverNames``.
        public var leftOver: Int { self.leftOverNames.count }

        /// The number of values of the save's multiplexers that were evicted unsaved since the previous
        /// report.
        ///
        /// A map keeps its limits (``MuxPolicy/maximumCount``, ``MuxPolicy/maximumCost``) even if the disk
        /// cannot be written. An observer gets an event for each value: ``MuxEvent/Kind/evictedUnsaved``.
        public var evictedUnsaved = 0

        /// Whether the save had no failure, left no entry, and no value was evicted without a save.
        public var isComplete: Bool {
            self.failed.isEmpty && self.repairFailures.isEmpty && self.leftOverNames.isEmpty && self.evictedUnsaved == 0
        }
    }

    /// The failures of a removal or of a sign-out.
    public struct ClearReport: Sendable {
        /// Failures on disk, or in the shared store of several machines.
        ///
        /// Memory is cleared nevertheless, and this process does not read the remaining entries. The next
        /// save repeats the removal of entries, unless the removal can never succeed; the repository repeats
        /// an invalidation until the shared store confirms the invalidation.
        ///
        /// Only a refused sign-out has no effect. An outbox refuses with a `MuxOutboxError`. The repository
        /// refuses with ``MuxError/calledFromStore`` if a store calls the sign-out during another sign-out,
        /// or if the wait for earlier operations would deadlock.
        public var failures: [any Error] = []

        /// The number of unsent changes of outboxes (`MuxOutbox`) that a sign-out dropped.
        public var droppedChanges = 0

        /// Whether the sign-out was refused, and so has no effect.
        package private(set) var isRefused = false

        package init(failures: [any Error] = []) { self.failures = failures }

        mutating func refuse(because error: any Error) {
            self.failures.append(error)
            self.isRefused = true
        }

        /// Whether the removal or the sign-out had no failure.
        public var isComplete: Bool { self.failures.isEmpty }
    }

    /// Determines when a repository saves.
    public enum SavePolicy: Sendable, Hashable {
        /// When the app calls ``MuxRepository/saveAll(within:)``, or the `save` of a multiplexer.
        ///
        /// With any policy, a map also saves if the map exceeds its ``MuxPolicy/maximumCount`` or
        /// ``MuxPolicy/maximumCost`` because unsaved values cannot be evicted.
        case explicit

        /// At a call, and on Apple platforms when the system announces that the app enters the background or
        /// ends, or that a Mac app becomes inactive.
        ///
        /// Except on macOS, the repository asks the system for background time. The repository delays the end
        /// of an app by at most four seconds. On other platforms this policy is the same as ``explicit``.
        case enteringBackground

        /// Automatically, the delay `debounce` after the first unsaved value; the save includes all values
        /// that arrive in the meantime.
        ///
        /// On Apple platforms, the repository also saves at once as with ``enteringBackground``. A failed
        /// save is repeated after the next change, or at a call. The repository retains a multiplexer with
        /// unsaved values until the save, and at most 1,024 such multiplexers after a failed save.
        case afterFetch(debounce: Duration)
    }

    /// The counters of a multiplexer since its initialisation.
    public struct Statistics: Sendable, Equatable {
        /// Requests that got a value, or a remembered failure, from memory at once.
        ///
        /// With ``RequestOptions/cacheOnly``, also requests that got a value from disk or a shared store.
        public var hits = 0

        /// Requests that joined a running flight.
        public var joins = 0

        /// Requests that are neither hits nor joins.
        ///
        /// - requests that started a flight,
        /// - requests with ``RequestOptions/cacheOnly`` that found no cached value,
        /// - requests of a cancelled task that found no value in memory.
        public var misses = 0

        /// Flights whose callers got a value from disk.
        public var diskHits = 0

        /// Flights whose callers got a value from the shared store, without a fetch by this machine.
        public var sharedHits = 0

        /// Started fetches.
        public var fetches = 0

        /// Repeated attempts within fetches; see ``MuxPolicy/retry``.
        public var retries = 0

        /// Failed fetches, including cancelled fetches.
        public var failures = 0

        /// Requests that returned a stale value, from any source.
        public var staleServed = 0

        /// Fetched values that were not kept because of an event during the fetch.
        ///
        /// Examples are a fence (see ``Multiplexer``), a change of the value's tags, the end of
        /// ``MuxPolicy/fetchTimeout``, and a newer value of another machine.
        public var fenceDrops = 0

        /// Evicted entries.
        public var evictions = 0

        /// The total duration of all fetches, including failed and abandoned fetches, without reads of the
        /// disk.
        ///
        /// A fetch counts at its end. Parallel fetches count separately, so the total can grow faster than
        /// the clock.
        public var fetchTime: Duration = .zero

        /// Zero counters.
        public init() {}

        /// All requests: the sum of hits, joins and misses.
        ///
        /// A request that fails at its arrival with ``MuxError/wouldDeadlock`` or ``MuxError/unusableKey`` is
        /// not counted.
        public var requests: Int { self.hits + self.joins + self.misses }

        /// Counts a hit.
        @usableFromInline
        mutating func hit(isStale: Bool) {
            self.hits += 1
            if isStale { self.staleServed += 1 }
        }

        /// The sums of the counters of two multiplexers.
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

    /// The contents and the activity of all multiplexers, media, caches and runners, and the state of the
    /// store.
    public struct Gauges: Sendable, Equatable {
        /// Values in memory.
        public var entries = 0

        /// Unsaved values in memory.
        public var unsaved = 0

        /// Calls that wait for a flight: a value, a download, a response or a token.
        public var waiters = 0

        /// Flights: fetches, downloads, HTTP exchanges and updates of tokens.
        ///
        /// A sign-in counts as two flights: the sign-in, and the update of the access token that waits for
        /// the sign-in.
        public var flights = 0

        /// The number of failures of the last ``MuxRepository/saveAll(within:)`` or save by the save policy:
        /// ``SaveReport/failed`` and ``SaveReport/repairFailures``.
        public var lastSaveFailures = 0

        /// Whether the store may still contain entries of an ended session; the next save tries to remove
        /// these entries.
        public var owesRemoval = false

        /// The reason of an outage of the shared store; `nil` without an outage or without a shared store.
        public var sharedStoreOutage: MuxEvent.Reason?

        /// The number of invalidations that the shared store has not confirmed; the repository repeats these
        /// invalidations.
        public var pendingInvalidations = 0

        /// The counters of the store.
        public var store = JournalStore.Statistics()

        /// Zero gauges.
        public init() {}

        package init(_ engine: FlightEngine<some Hashable & Sendable, some Sendable, some Sendable>) {
            let occupancy = engine.occupancy
            // A flight on its caller's task is not in `tasks`. `keys` counts a key with several flights once,
            // and omits a cancelled flight from before a fence.
            (self.waiters, self.flights) = (occupancy.waiters, max(occupancy.tasks, occupancy.keys))
        }

        /// The sums of the gauges of two participants.
        package static func + (a: MuxRepository.Gauges, b: MuxRepository.Gauges) -> MuxRepository.Gauges {
            var sum = a
            sum.entries += b.entries
            sum.unsaved += b.unsaved
            sum.waiters += b.waiters
            sum.flights += b.flights
            return sum
        }
    }

    /// The sums of the counters of all living multiplexers, maps and media of this repository.
    public nonisolated var statistics: MuxRepository.Statistics {
        self.participants.reduce(MuxRepository.Statistics()) { $0 + $1.statistics }
    }

    /// The current contents and activity, for a dashboard or a health check.
    ///
    /// Checks the connection to a shared store within ``MuxShared/Policy/budget``, except during a pause.
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

extension MuxRepository.SaveReport: CustomStringConvertible, CustomReflectable {
    /// Contains only the ``description``: keys may be names of people.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }

    /// The counts and the first failure, without names of entries and without values.
    public var description: String {
        let counts = [
            (self.saved, "saved"), (self.refreshed, "refreshed"), (self.unchanged, "unchanged"),
            (self.failed.count, "failed"),
            (self.superseded.count, "superseded"), (self.leftOver, "left over"),
            (self.evictedUnsaved, "evicted unsaved"),
            (self.repairFailures.count, "repairs failed"),
        ]
        let told = counts.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }
        let text = told.isEmpty ? "nothing to save" : told.joined(separator: ", ")
        let error = self.failed.first?.error ?? self.repairFailures.first
        return error.map { "\(text): \($0.sentence)" } ?? text
    }
}
