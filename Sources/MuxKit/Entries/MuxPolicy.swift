import Foundation

/// The lifetime of cached values, and the behaviour around a fetch.
///
/// Every member has a default: `.init(timeToLive: .seconds(60))`.
public struct MuxPolicy: Sendable {
    /// The name of the multiplexer in events and logs; if `nil`, its `cacheKey` or otherwise the type of its
    /// values.
    public var name: String?

    /// The freshness lifetime of a value, unless the fetch returns another lifetime; 30 minutes.
    ///
    /// Zero or less means that every request fetches.
    public var timeToLive: Duration

    /// The largest fraction of the time to live by which a value expires early, at random; 0, at most 1.
    ///
    /// With jitter, values that were fetched together do not expire together.
    public var timeToLiveJitter: Double

    /// The time after the time to live in which a request gets the stale value at once, and starts a renewal;
    /// zero.
    public var staleWhileRevalidate: Duration

    /// The time before the end of the time to live in which a request may start a renewal; `nil` for no early
    /// renewal.
    ///
    /// Each value draws a random moment in this window, more often late than early. So values that were
    /// fetched together are not renewed together.
    public var refreshAhead: Duration?

    /// How long a failure is remembered; `nil` for a failure that is not remembered.
    ///
    /// Meanwhile only ``RequestOptions/reload`` fetches.
    ///
    /// Other requests get a value in memory that is good enough, or a stale value if the failure permits;
    /// otherwise they get the failure. An example is 60 seconds for HTTP status 404. Cancellations, decoding
    /// failures and the end of a session are never remembered. A refresh, a clear or a stored value ends the
    /// memory of a failure.
    public var remembersFailure: @Sendable (any Error) -> Duration?

    /// The time after the time to live in which a stale value may replace a silenceable failure of a fetch; 7
    /// days.
    public var staleIfError: Duration

    /// Whether a stale value may replace an error; ``SilenceableError/isSilenceable(_:)``.
    public var isSilenceable: @Sendable (any Error) -> Bool

    /// The time without another fetch after a failure, while an older value is served; 1 second, zero or less
    /// for none.
    ///
    /// - A request for which the older value replaces the failed fetch (``staleIfError``) gets the value
    ///   without a fetch for that time after each failure.
    /// - Renewals behind a request (``staleWhileRevalidate``, ``refreshAhead``) pause after any failure. This
    ///   pause doubles with each failure in a row, up to a minute, or up to this time if it is longer. A
    ///   success ends it.
    /// - A `Retry-After` of the server, which an error reports by ``RetryAdvice/retryAfter``, extends both,
    ///   by an hour at most.
    ///
    /// ``RequestOptions/reload``, a refresh, and a request without any value that may be served fetch in any
    /// case.
    public var errorBackoff: Duration

    /// What happens to a fetch without callers; cancelled after a second.
    public var whenAbandoned: WhenAbandoned

    /// The time limit of a fetch, including the read of the disk; 60 seconds.
    ///
    /// At the limit the callers get ``MuxError/timedOut(after:)`` and the fetch is cancelled; a late value is
    /// dropped, and the next request starts a new fetch. A fetch should not block a thread: the limit does
    /// not apply before the first suspension.
    public var fetchTimeout: Duration

    /// The retries of a failed fetch; `nil` for no retry.
    ///
    /// All attempts together are one fetch: callers share the outcome, and ``fetchTimeout`` includes the
    /// delays. If no attempt succeeds, callers get the error of the last attempt. A stale value replaces the
    /// failure only after the last attempt; limit the wait with
    /// ``RequestOptions/within(_:)-swift.type.method``.
    public var retry: RetryPolicy?

    /// The maximum number of values of a ``MultiplexerMap`` in memory; 10,000, `nil` for no limit.
    ///
    /// Above the limit, least used values are evicted (S3-FIFO). With a `cacheKey`, the next request reads an
    /// evicted value from disk, so an unsaved value stays in memory until its save. If unsaved values fill
    /// the memory, the map saves them, regardless of the repository's ``MuxRepository/SavePolicy``. If the
    /// disk cannot be written, unsaved values are evicted: the observer gets an event for each
    /// (``MuxEvent/Kind/evictedUnsaved``), and the next ``MuxRepository/SaveReport`` counts them. At most as
    /// many failures are remembered for keys without a value. A negative number counts as zero: callers share
    /// a fetch, and no value is kept.
    public var maximumCount: Int?

    /// The maximum total cost of the values of a ``MultiplexerMap`` in memory; `nil` for no limit.
    ///
    /// Applies together with ``maximumCount``, with the same eviction. A value above the limit is returned to
    /// the callers and is not kept.
    public var maximumCost: MuxPolicy.CostLimit?

    /// The version of the value's format on disk; 1.
    ///
    /// An entry of an earlier version is migrated, or is a miss. An entry of a later version is a miss and
    /// stays on disk.
    public var schemaVersion: Int

    /// The migrations of entries from earlier versions; none.
    public var migrations: [MuxMigration]

    /// What happens to a fetch without callers.
    public enum WhenAbandoned: Sendable, Hashable {
        /// The fetch continues, and its value is kept.
        case finish
        /// The fetch is cancelled after `linger`, unless a request arrives in that time.
        case cancel(linger: Duration)
    }

    /// The parameters have the names of the properties.
    public init(
        name: String? = nil,
        timeToLive: Duration = .seconds(30 * 60),
        timeToLiveJitter: Double = 0,
        staleWhileRevalidate: Duration = .zero,
        refreshAhead: Duration? = nil,
        staleIfError: Duration = .seconds(7 * 24 * 60 * 60),
        isSilenceable: @escaping @Sendable (any Error) -> Bool = SilenceableError.isSilenceable,
        errorBackoff: Duration = .seconds(1),
        remembersFailure: @escaping @Sendable (any Error) -> Duration? = { _ in nil },
        whenAbandoned: WhenAbandoned = .cancel(linger: .seconds(1)),
        fetchTimeout: Duration = .seconds(60),
        retry: RetryPolicy? = nil,
        maximumCount: Int? = 10_000,
        maximumCost: MuxPolicy.CostLimit? = nil,
        schemaVersion: Int = 1,
        migrations: [MuxMigration] = []
    ) {
        self.name = name
        self.timeToLive = timeToLive
        self.timeToLiveJitter = timeToLiveJitter
        self.staleWhileRevalidate = staleWhileRevalidate
        self.refreshAhead = refreshAhead
        self.staleIfError = staleIfError
        self.remembersFailure = remembersFailure
        self.isSilenceable = isSilenceable
        self.errorBackoff = errorBackoff
        self.whenAbandoned = whenAbandoned
        self.fetchTimeout = fetchTimeout
        self.retry = retry
        self.maximumCount = maximumCount
        self.maximumCost = maximumCost
        self.schemaVersion = schemaVersion
        self.migrations = migrations
    }

    /// The age of an early renewal, selected by `random` (from 0 to 1); `nil` for no early renewal.
    ///
    /// The lead is exponentially distributed within the window, as in probabilistic early expiration
    /// (Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015).
    @usableFromInline
    package func renewalAge(_ timeToLive: Duration, random: @autoclosure () -> Double) -> Duration? {
        guard let window = self.refreshAhead, window > .zero else { return nil }
        let share = min(-Foundation.log(max(random(), .leastNonzeroMagnitude)) / 4, 1)
        return max(timeToLive - .saturating(seconds: window.secondsValue * share), .zero)
    }

    /// How long `error` is remembered; zero or less for an error that is not remembered.
    func memory(of error: any Error) -> Duration {
        guard error.firstDecision({ $0 as? DecodingError }) == nil,
            ![.sessionEnded, .fetchCancelled].contains(error as? MuxError)
        else { return .zero }
        return self.remembersFailure(error) ?? .zero
    }

    /// `timeToLive`, shortened by the jitter; `random` (from 0 to 1) selects the jitter.
    @usableFromInline
    func jittered(_ timeToLive: Duration, random: @autoclosure () -> Double) -> Duration {
        let fraction = self.timeToLiveJitter.isNaN ? 0 : min(max(self.timeToLiveJitter, 0), 1)
        guard fraction > 0 else { return timeToLive }
        return .saturating(seconds: timeToLive.secondsValue * (1 - fraction * random()))
    }
}

extension MuxPolicy {
    /// The maximum total cost of the values of a ``MultiplexerMap`` in memory, in a unit of your choice.
    ///
    /// ```swift
    /// let policy = MuxPolicy(maximumCost: .init(64_000_000) { (photo: Photo) in photo.data.count })
    /// let photos = MultiplexerMap<URL, Photo>(policy: policy) { url in try await Backend.photo(url) }
    /// ```
    public struct CostLimit: Sendable {
        /// The maximum total cost of all values.
        public let maximum: Int

        private let cost: @Sendable (any Sendable) -> Int?

        /// Bounds the cost of values of one type.
        ///
        /// - Parameters:
        ///   - maximum: The maximum total cost of all values; a negative number counts as zero.
        ///   - cost: Returns the cost of a value; a negative number counts as zero. The map calls `cost`
        ///     under a lock for each new value, so `cost` must be fast and must not call the map.
        public init<Value: Sendable>(_ maximum: Int, of cost: @escaping @Sendable (Value) -> Int) {
            self.maximum = max(0, maximum)
            self.cost = { ($0 as? Value).map(cost) }
        }

        /// The cost of `value`; zero if the limit is for another type.
        @usableFromInline
        func cost(of value: some Sendable) -> Int { self.cost(value) ?? 0 }
    }
}
