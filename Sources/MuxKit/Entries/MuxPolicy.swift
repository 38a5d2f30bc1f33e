import Foundation

/// The lifetime of cached values, and the rules for fetches, failures and memory.
///
/// Every member has a default: `.init(timeToLive: .seconds(60))`.
public struct MuxPolicy: Sendable {
    /// The name of the multiplexer in events and logs.
    ///
    /// Default: `nil`. The name is then the `cacheKey` of the multiplexer, or the type of the values if the
    /// multiplexer has no `cacheKey`.
    public var name: String?

    /// The freshness lifetime of a value, unless the fetch returns another lifetime.
    ///
    /// Default: 30 minutes.
    ///
    /// With zero or less, every value is stale at once.
    public var timeToLive: Duration

    /// The jitter of the time to live: the maximum reduction, as a fraction from 0 to 1.
    ///
    /// Default: 0.
    ///
    /// Each value draws a random reduction between zero and the maximum. With 0.1, a value lives for 90% to
    /// 100% of ``timeToLive``.
    ///
    /// With jitter, values that were fetched together do not expire together. A lifetime that the fetch
    /// returns has no jitter.
    public var timeToLiveJitter: Double

    /// The time after the time to live in which a request gets the stale value at once, and starts a renewal.
    ///
    /// Default: zero. A limit of the fetch (``Fetched/staleWhileRevalidate``) or of the request
    /// (``RequestOptions/staleWhileRevalidate``) takes precedence. In two cases a request gets no stale value
    /// at once, except during ``errorBackoff``: after a refresh, and if the request has a maximum age.
    public var staleWhileRevalidate: Duration

    /// The time before the end of the time to live in which a request may start a renewal; `nil` for no early
    /// renewal.
    ///
    /// Default: `nil`.
    ///
    /// Each value draws a random moment in this window, more often late than early, so that values that were
    /// fetched together are not renewed together.
    public var refreshAhead: Duration?

    /// Returns the time for which a failure is remembered; `nil` or zero for a failure that is not
    /// remembered.
    ///
    /// Default: no failure is remembered.
    ///
    /// While a failure is remembered, only a request with ``RequestOptions/reload`` fetches.
    ///
    /// Other requests get a usable value in memory, or a stale value if the failure is silenceable; otherwise
    /// the requests throw the failure. An example is 60 seconds for HTTP status 404. Cancellations, time-outs
    /// of ``fetchTimeout``, decoding failures and the end of a session are never remembered. After a refresh,
    /// a clear or a new value, the failure is no longer remembered.
    public var remembersFailure: @Sendable (any Error) -> Duration?

    /// The time after the time to live in which a stale value may replace a silenceable failure of a fetch.
    ///
    /// Default: 7 days. A limit of the fetch (``Fetched/staleIfError``) takes precedence.
    public var staleIfError: Duration

    /// Whether a stale value may replace an error.
    ///
    /// Default: ``SilenceableError/isSilenceable(_:)``.
    public var isSilenceable: @Sendable (any Error) -> Bool

    /// The time after a failed fetch in which a cached value, even if stale, is served without another fetch.
    ///
    /// Default: 1 second; zero or less for no such time.
    ///
    /// - After each failure that a cached value may replace (``staleIfError``), requests get the cached value
    ///   without a fetch for this time. A longer time of ``remembersFailure`` takes precedence.
    /// - Background renewals (``staleWhileRevalidate``, ``refreshAhead``) pause after any failure. The pause
    ///   doubles with each consecutive failure, up to one minute or this time, whichever is longer. A success
    ///   ends the pause.
    /// - A `Retry-After` of the server, which an error reports by ``RetryAdvice/retryAfter``, extends both
    ///   times. A `Retry-After` of more than one hour counts as one hour.
    ///
    /// A request with ``RequestOptions/reload`` and the first request after a refresh always fetch. A request
    /// without a servable value also fetches, unless a failure is remembered (``remembersFailure``).
    public var errorBackoff: Duration

    /// The treatment of a fetch after the cancellation of its last caller.
    ///
    /// Default: the fetch is cancelled after one second.
    ///
    /// A renewal in the background, and a fetch of ``Multiplexer/reload()``, continue without callers. A
    /// fence of the key (see ``Multiplexer``) always cancels a fetch without callers.
    public var whenAbandoned: WhenAbandoned

    /// The time limit of a fetch, including the read from disk.
    ///
    /// Default: 60 seconds.
    ///
    /// At the limit the callers get an error, usually ``MuxError/timedOut(after:)``, and the fetch is
    /// cancelled. A late value is dropped, and the next request starts a new fetch. A fetch should not block
    /// a thread: before the first suspension, the fetch may block its caller beyond the limit.
    public var fetchTimeout: Duration

    /// The retries of a failed fetch; `nil` for no retry.
    ///
    /// Default: `nil`.
    ///
    /// All attempts together are one fetch: callers share the outcome, and ``fetchTimeout`` includes the
    /// delays. If no attempt succeeds, callers get the error of the last attempt. A stale value replaces the
    /// failure only after the last attempt; limit the wait with
    /// ``RequestOptions/within(_:)-swift.type.method``.
    public var retry: RetryPolicy?

    /// The events after which a value is fetched again while a view follows the value.
    ///
    /// Default: the end of the value's lifetime.
    public var refetch: Refetch

    /// The maximum number of values of a ``MultiplexerMap`` in memory; `nil` for no limit.
    ///
    /// Default: 10,000.
    ///
    /// Above the limit, least used values are evicted (S3-FIFO; see ``evictsLeastRecentlyUsed``). With values
    /// on disk, the next request reads an evicted value from disk, so an unsaved value stays in memory until
    /// its save. If unsaved values exceed the limit, the map saves them, regardless of the repository's
    /// ``MuxRepository/SavePolicy``. Unsaved values may be evicted if the disk cannot be written, or if the
    /// number of values exceeds 4 × `maximumCount` + 1,024. The observer then gets an event for each eviction
    /// (``MuxEvent/Kind/evictedUnsaved``), and the next ``MuxRepository/SaveReport`` counts the evictions.
    /// The limit also applies to the number of remembered failures of keys without a value. With a limit of
    /// zero or less, callers still share a running fetch, but no value is kept, except an unsaved value until
    /// its save.
    public var maximumCount: Int?

    /// The maximum total cost of the values of a ``MultiplexerMap`` in memory; `nil` for no limit.
    ///
    /// Default: `nil`.
    ///
    /// Applies together with ``maximumCount``, with the same eviction. A value above the limit is returned to
    /// the callers and is not kept in memory; a value that has to be saved stays in memory until its save. If
    /// the total cost exceeds four times the limit, unsaved values may be evicted, too.
    public var maximumCost: MuxPolicy.CostLimit?

    /// Whether a ``MultiplexerMap`` evicts the least recently used value, instead of a value with few uses.
    ///
    /// Default: `false`, which keeps more useful values under most loads.
    ///
    /// Set `true` for keys in neighbourhoods that are revisited soon, such as the thumbnails of a grid that
    /// is scrolled back and forth. A loop over more keys than the limit then never finds a value in memory. A
    /// request is a use, a ``MultiplexerMap/store(_:key:)`` is not. An unsaved value that was kept beyond the
    /// limit counts as used at its save.
    public var evictsLeastRecentlyUsed: Bool

    /// The version of the value's format on disk.
    ///
    /// Default: 1.
    ///
    /// An entry of an earlier version is migrated, or is a miss. An entry of a later version is a miss, and
    /// no save overwrites the entry.
    public var schemaVersion: Int

    /// The migrations of entries from earlier versions.
    ///
    /// Default: no migrations.
    public var migrations: [MuxMigration]

    /// The treatment of a fetch after the cancellation of its last caller; see ``MuxPolicy/whenAbandoned``.
    public enum WhenAbandoned: Sendable, Hashable {
        /// The fetch continues.
        case finish
        /// The fetch is cancelled after `linger`, unless a request arrives in that time.
        case cancel(linger: Duration)
    }

    /// Makes a policy; the parameters have the names of the properties.
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
        refetch: Refetch = Refetch(),
        maximumCount: Int? = 10_000,
        maximumCost: MuxPolicy.CostLimit? = nil,
        evictsLeastRecentlyUsed: Bool = false,
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
        self.refetch = refetch
        self.maximumCount = maximumCount
        self.maximumCost = maximumCost
        self.evictsLeastRecentlyUsed = evictsLeastRecentlyUsed
        self.schemaVersion = schemaVersion
        self.migrations = migrations
    }

    /// The age at which an early renewal is due, selected by `random` (from 0 to 1); `nil` for no early
    /// renewal.
    ///
    /// The time between the renewal and the end of the time to live is exponentially distributed, with a mean
    /// of a quarter of the window, and cut off at the window. See Vattani, Chierichetti, Lowenstein, "Optimal
    /// Probabilistic Cache Stampede Prevention", VLDB 2015.
    @usableFromInline
    package func renewalAge(_ timeToLive: Duration, random: @autoclosure () -> Double) -> Duration? {
        guard let window = self.refreshAhead, window > .zero else { return nil }
        let share = min(-Foundation.log(max(random(), .leastNonzeroMagnitude)) / 4, 1)
        return max(timeToLive - .saturating(seconds: window.secondsValue * share), .zero)
    }

    /// How long `error` is remembered; zero or less for an error that is not remembered.
    func rememberedDuration(of error: any Error) -> Duration {
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
    /// A policy for the values of a service: once a value is in memory, hardly any request waits for a fetch.
    ///
    /// ```swift
    /// let rates = MultiplexerMap<String, Rate>(policy: .service(timeToLive: .seconds(60))) { … }
    /// ```
    ///
    /// - Lifetimes differ by up to a tenth, so values that were fetched together are not renewed together.
    /// - The first request near the end of the time to live starts a renewal, and gets the present value.
    /// - After the end of a lifetime, requests get the stale value during the renewal, for one more time to
    ///   live.
    ///
    /// On average, a renewal begins 1.02 × `timeToLive` after the fetch, so the origin gets no more calls
    /// than with a policy without these options. The age of a served value is at most 2.1 × `timeToLive`.
    /// This limit does not apply to a value with another lifetime from the fetch, to a value that replaces a
    /// failure (``staleIfError``), and to a request with other options, such as ``RequestOptions/cacheOnly``.
    ///
    /// - Parameter timeToLive: About the mean time between the renewals of a value that is requested often.
    /// - Returns: A policy whose other members have their defaults and can be changed.
    public static func service(timeToLive: Duration = .seconds(60)) -> MuxPolicy {
        let timeToLive = min(max(timeToLive, .zero - .longest), .longest)
        return MuxPolicy(
            timeToLive: timeToLive * 1.1,
            timeToLiveJitter: 0.1,
            staleWhileRevalidate: timeToLive,
            refreshAhead: timeToLive * 0.1
        )
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

        /// Limits the total cost of values of one type.
        ///
        /// - Parameters:
        ///   - maximum: The maximum total cost of all values; a negative number counts as zero.
        ///   - cost: Returns the cost of a value; a negative number counts as zero. The map calls `cost`
        ///     under a lock for each new value, and often again for the same value, so `cost` must be fast and
        ///     must not call the map.
        public init<Value: Sendable>(_ maximum: Int, of cost: @escaping @Sendable (Value) -> Int) {
            self.maximum = max(0, maximum)
            self.cost = { ($0 as? Value).map(cost) }
        }

        /// The cost of `value`; zero if the limit is for another type.
        @usableFromInline
        func cost(of value: some Sendable) -> Int { self.cost(value) ?? 0 }
    }
}

extension MuxPolicy {
    /// The events after which a value is fetched again while an `ObservedValue` of MuxUI follows the value.
    ///
    /// ```swift
    /// let policy = MuxPolicy(refetch: .init(every: .seconds(15), onActivation: true))
    /// ```
    public struct Refetch: Sendable, Hashable {
        /// Whether a value is renewed at the end of its lifetime; a refresh always causes a renewal.
        ///
        /// If `true`, a failed request is also repeated when the app becomes active, and when the network is
        /// available again.
        public var whenStale: Bool

        /// The time between an outcome and the next fetch, at least one second; `nil` for no interval.
        public var every: Duration?

        /// Whether even a fresh value is fetched when the app becomes active.
        public var onActivation: Bool

        /// Whether even a fresh value is fetched when the network is available again.
        public var onReconnection: Bool

        /// Selects the events; the parameters have the names of the properties.
        public init(
            whenStale: Bool = true,
            every: Duration? = nil,
            onActivation: Bool = false,
            onReconnection: Bool = false
        ) {
            self.whenStale = whenStale
            self.every = every
            self.onActivation = onActivation
            self.onReconnection = onReconnection
        }
    }
}
