import Foundation

/// How long values stay good, and what happens around a fetch.
///
/// Every member has a default; change what you need: `.init(timeToLive: .seconds(60))`.
public struct MuxPolicy: Sendable {
    /// Names the multiplexer in events and logs; its `cacheKey` if `nil`, or else the type of its values.
    public var name: String?

    /// How long a value counts as fresh after it was fetched, unless the fetch says otherwise; 30 minutes.
    ///
    /// Zero or less means that every request fetches.
    public var timeToLive: Duration

    /// By what fraction of its time to live a value may expire early, chosen at random for each; 0, at most 1.
    ///
    /// Values that were fetched together then do not expire together.
    public var timeToLiveJitter: Double

    /// How long after its time to live a value still answers at once, while it is renewed behind; zero.
    public var staleWhileRevalidate: Duration

    /// How long before the end of its time to live a value may be renewed ahead of time, behind a request; `nil` for never.
    ///
    /// Each value draws its own moment within that window, near the end more often than early, so that values which were
    /// fetched together are not renewed together.
    public var refreshAhead: Duration?

    /// For how long a failure is remembered, during which only ``RequestOptions/reload`` fetches; `nil` for not.
    ///
    /// Other requests are served from memory where the value is good enough, or stale and the failure is one that permits it;
    /// otherwise they get the failure.
    /// For example 60 seconds for the HTTP status 404. Cancellations, decoding failures and the end of a session are never remembered, and a
    /// refresh, a clear or a stored value ends it.
    public var remembersFailure: @Sendable (any Error) -> Duration?

    /// How long after its time to live a value may still answer for a fetch that failed silenceably; 7 days.
    public var staleIfError: Duration

    /// Whether an error permits to answer with an older value; ``SilenceableError/isSilenceable(_:)``.
    public var isSilenceable: @Sendable (any Error) -> Bool

    /// The time without another fetch after a failure, while an older value is served; 1 second, zero or less for none.
    ///
    /// - A request for which the older value replaces the failed fetch (``staleIfError``) gets the value without a fetch for that time
    ///   after each failure.
    /// - Renewals behind a request (``staleWhileRevalidate``, ``refreshAhead``) pause after any failure. This pause doubles with each
    ///   failure in a row, up to a minute, or up to this time if it is longer. A success ends it.
    /// - A `Retry-After` of the server, which an error reports by ``RetryAdvice/retryAfter``, extends both, by an hour at most.
    ///
    /// ``RequestOptions/reload``, a refresh, and a request without any value that may be served fetch in any case.
    public var errorBackoff: Duration

    /// What happens to a fetch whose last caller has left; cancelled after a second.
    public var whenAbandoned: WhenAbandoned

    /// How long a fetch may take, the look at the disk included; 60 seconds.
    ///
    /// Then its callers get ``MuxError/timedOut(after:)``, it is cancelled, its late value is dropped, and the next request
    /// starts another. A fetch should not block a thread: what it does before it first suspends is not cut short.
    public var fetchTimeout: Duration

    /// How a fetch that fails is repeated before its failure counts; `nil` for not at all.
    ///
    /// All attempts are one fetch: callers share it, and ``fetchTimeout`` covers the waits as well. If none succeeds, callers get
    /// what the last one threw. A value that may still answer for a fetch that fails waits for all of them; limit what it
    /// takes with ``RequestOptions/within(_:)-swift.type.method``.
    public var retry: RetryPolicy?

    /// How many values a ``MultiplexerMap`` keeps in memory; 10,000, `nil` for any number.
    ///
    /// When there are more, those that are not asked for go (S3-FIFO). With a `cacheKey` one that went is read from disk
    /// when it is next asked for, so a value that is not on disk yet stays until it was saved. When too many of those are
    /// left they are saved without being told, whatever the repository's ``MuxRepository/SavePolicy``. Where the disk cannot be written, they
    /// go unsaved: each is reported to the observer (``MuxEvent/Kind/evictedUnsaved``), and the next ``MuxRepository/SaveReport`` counts them.
    /// Failures that are remembered of other keys are at most as many again. Less than zero is zero: callers share a fetch,
    /// and nothing is kept.
    public var maximumCount: Int?

    /// What the values that a ``MultiplexerMap`` keeps in memory may cost together; `nil` for any cost.
    ///
    /// Holds beside ``maximumCount``, and in the same way. A value that alone exceeds it is returned to the callers, and is not
    /// kept.
    public var maximumCost: MuxPolicy.CostLimit?

    /// The version of the value's own format on disk; 1.
    ///
    /// An entry of an earlier version is migrated, or a miss; one of a later version is a miss and left alone.
    public var schemaVersion: Int

    /// How entries of earlier versions are brought to the next; none.
    public var migrations: [MuxMigration]

    /// What happens to a fetch whose last caller has left.
    public enum WhenAbandoned: Sendable, Hashable {
        /// It runs to its end, and its value is kept.
        case finish
        /// It is cancelled, unless the value is requested again within `linger`.
        case cancel(linger: Duration)
    }

    /// Makes a policy of the given parts.
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

    /// The age at which a value is renewed ahead of time, by what `random` (from 0 to 1) selects; `nil` for never.
    ///
    /// The lead is exponentially distributed within the window, as in probabilistic early expiration (Vattani, Chierichetti,
    /// Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015).
    @usableFromInline
    package func renewalAge(_ timeToLive: Duration, random: @autoclosure () -> Double) -> Duration? {
        guard let window = self.refreshAhead, window > .zero else { return nil }
        let share = min(-Foundation.log(max(random(), .leastNonzeroMagnitude)) / 4, 1)
        return max(timeToLive - .saturating(seconds: window.secondsValue * share), .zero)
    }

    /// For how long `error` is remembered; zero or less for not.
    func memory(of error: any Error) -> Duration {
        guard !(error is DecodingError), ![.sessionEnded, .fetchCancelled].contains(error as? MuxError) else {
            return .zero
        }
        return self.remembersFailure(error) ?? .zero
    }

    /// `timeToLive`, shortened by the jitter that `random` (from 0 to 1) selects.
    @usableFromInline
    func jittered(_ timeToLive: Duration, random: @autoclosure () -> Double) -> Duration {
        let fraction = self.timeToLiveJitter.isNaN ? 0 : min(max(self.timeToLiveJitter, 0), 1)
        guard fraction > 0 else { return timeToLive }
        return .saturating(seconds: timeToLive.secondsValue * (1 - fraction * random()))
    }
}

extension MuxPolicy {
    /// What the values of a ``MultiplexerMap`` may cost together in memory, in a unit of your choice.
    ///
    /// ```swift
    /// let policy = MuxPolicy(maximumCost: .init(64_000_000) { (photo: Photo) in photo.data.count })
    /// let photos = MultiplexerMap<URL, Photo>(policy: policy) { url in try await Backend.photo(url) }
    /// ```
    public struct CostLimit: Sendable {
        /// The most that all values may cost together.
        public let maximum: Int

        private let cost: @Sendable (any Sendable) -> Int?

        /// Bounds the cost of values of one type.
        ///
        /// - Parameters:
        ///   - maximum: The most that all values may cost together; less than zero is zero.
        ///   - cost: What a value costs; less than zero is zero. Called under a lock when a value comes in, so it has to be quick,
        ///     and must not call the map.
        public init<Value: Sendable>(_ maximum: Int, of cost: @escaping @Sendable (Value) -> Int) {
            self.maximum = max(0, maximum)
            self.cost = { ($0 as? Value).map(cost) }
        }

        /// What `value` costs; nothing if it is not of the type that the limit is for.
        @usableFromInline
        func cost(of value: some Sendable) -> Int { self.cost(value) ?? 0 }
    }
}
