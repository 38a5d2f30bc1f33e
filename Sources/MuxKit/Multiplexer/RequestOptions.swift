/// Limits of one request on the age, the source and the wait.
///
/// ```swift
/// let now = try await profile.request(.reload)
/// let recent = try await profile.request(.maxAge(.seconds(5)).within(.seconds(1)))
/// ```
public struct RequestOptions: Sendable, Hashable {
    /// The permitted sources of a value.
    @usableFromInline
    enum Mode: Sendable, Hashable {
        /// Memory, the disk, a shared store or a fetch.
        case usual
        /// Memory, the disk or a shared store.
        case cacheOnly
        /// A fetch.
        case reload
    }

    @usableFromInline var mode: Mode
    /// Whether the request may use an entry in memory, on disk or in a shared store.
    @usableFromInline var takesStored = true
    /// The maximum age in nanoseconds, the unit in which a hit compares ages.
    @usableFromInline var maximumNanoseconds: Int64?
    var staleWhileRevalidate: Duration?
    @usableFromInline var waitLimit: Duration?
    /// Whether the request is a prefetch.
    ///
    /// A prefetch raises a flight to priority `low` at most, and starts no early renewal of a fresh entry.
    @usableFromInline var isPrefetch = false
    /// The ``StateCounts/outcomes`` of the key at the decision to renew; `nil` for a request without
    /// ``renewal(since:always:)``.
    @usableFromInline var outcomes: UInt64?
}

extension RequestOptions {
    /// Options without limits: the policy decides.
    public init() { self.init(mode: .usual) }

    /// Options for a request that returns a value in memory, on disk or in a shared store, and never fetches.
    ///
    /// The value may be stale.
    ///
    /// The disk may drop a value after its time to live and the longer of ``MuxPolicy/staleIfError`` and
    /// ``MuxPolicy/staleWhileRevalidate`` (30 days later with a validator). The byte limit of the repository
    /// may remove a value earlier.
    ///
    /// The request throws ``MuxError/notCached`` without a value, or if the value is not younger than the age
    /// of ``maxAge(_:)-swift.type.method``.
    public static let cacheOnly = RequestOptions(mode: .cacheOnly)

    /// Options for a request that fetches, or joins a running fetch, even if a fresh value is cached.
    ///
    /// If the fetch fails, the request gets the previous value if the policy permits.
    public static let reload = RequestOptions(mode: .reload)

    /// Options for a request that returns a stale value of any age at once, and starts a renewal.
    ///
    /// The request waits for a fetch instead in three cases: without a cached value; after a refresh; with a
    /// maximum age, unless the cached value is fresh and younger. After failures, ``MuxPolicy/errorBackoff``
    /// and ``MuxPolicy/remembersFailure`` can prevent the renewal or the fetch.
    ///
    /// ``cacheOnly`` documents the age at which values leave the disk.
    public static let staleWhileRevalidate = RequestOptions(mode: .usual, staleWhileRevalidate: .longest)

    /// Options for a request of ``MultiplexerMap/prefetch(keys:)``.
    ///
    /// Even with a stale value, a prefetch waits for its fetch, so that the number of simultaneous fetches is
    /// bounded.
    static let prefetch = RequestOptions(mode: .usual, staleWhileRevalidate: .zero, isPrefetch: true)

    /// Options for a request that ignores ``MuxPolicy/staleWhileRevalidate`` and
    /// ``Fetched/staleWhileRevalidate``.
    ///
    /// The request throws ``AlreadyAnswered`` instead of a fetch if the key has had a new outcome since
    /// `counts`, or has no consumer of states any more.
    ///
    /// - Parameters:
    ///   - counts: The counts at the decision to request.
    ///   - always: Whether to fetch even if a fresh value is in memory.
    /// - Returns: The options.
    package static func renewal(since counts: StateCounts, always: Bool) -> RequestOptions {
        RequestOptions(mode: always ? .reload : .usual, staleWhileRevalidate: .zero, outcomes: counts.outcomes)
    }

    /// Options for a request that fetches unless a cached value is fresh and younger than `age`.
    ///
    /// During ``MuxPolicy/errorBackoff``, the request can get an older value without a fetch.
    public static func maxAge(_ age: Duration) -> RequestOptions { RequestOptions().maxAge(age) }

    /// Options for a request that returns a usable value after a wait of `waitLimit`.
    ///
    /// Usable values are stale values within the limit for failures of the policy or of the fetch
    /// (``MuxPolicy/staleIfError``), and fresh values that ``reload`` or a maximum age excludes. The fetch
    /// continues, unless a fence (see ``Multiplexer``) has made the fetch outdated. Without a usable value,
    /// the request continues to wait.
    public static func within(_ waitLimit: Duration) -> RequestOptions { RequestOptions().within(waitLimit) }

    /// These options with a maximum age.
    ///
    /// - Parameter age: The maximum age.
    /// - Returns: The options.
    public func maxAge(_ age: Duration) -> RequestOptions {
        var options = self
        options.maximumNanoseconds = age.saturatedNanoseconds
        return options
    }

    /// These options with a wait limit, after which the request returns a usable value.
    ///
    /// Without a usable value, the request continues to wait.
    ///
    /// - Parameter waitLimit: The time after which the request returns a usable value.
    /// - Returns: The options.
    public func within(_ waitLimit: Duration) -> RequestOptions {
        var options = self
        options.waitLimit = waitLimit
        return options
    }

    var maximumAge: Duration? { self.maximumNanoseconds.map { .nanoseconds($0) } }

    /// The limits of a request with these options and `policy`.
    @usableFromInline
    func limits(_ policy: MuxPolicy) -> Freshness.Limits {
        Freshness.Limits(
            staleWhileRevalidate: policy.staleWhileRevalidate,
            staleIfError: policy.staleIfError,
            toleratedStaleness: self.staleWhileRevalidate,
            maximumAge: self.maximumAge,
            isReload: self.mode == .reload,
            takesStored: self.takesStored
        )
    }
}

/// The key has had an outcome since the decision to request, or has no consumer of states any more.
///
/// See ``RequestOptions/renewal(since:always:)``.
@usableFromInline
package struct AlreadyAnswered: Error {
    @inlinable
    init() {}
}
