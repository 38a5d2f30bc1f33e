/// What counts as good enough for one request.
///
/// ```swift
/// let now = try await profile.request(.reload)
/// let recent = try await profile.request(.maxAge(.seconds(5)).within(.seconds(1)))
/// ```
public struct RequestOptions: Sendable, Hashable {
    /// Where a value may come from.
    @usableFromInline
    enum Mode: Sendable, Hashable {
        /// From memory, disk or a fetch.
        case usual
        /// From memory or disk only.
        case cacheOnly
        /// From a fetch only.
        case reload
    }

    @usableFromInline var mode = Mode.usual
    /// Whether an entry in memory or on disk is for this request.
    @usableFromInline var takesStored = true
    /// The greatest age in nanoseconds, in which a hit compares ages.
    @usableFromInline private(set) var maximumNanoseconds: Int64?
    var staleWhileRevalidate: Duration?
    @usableFromInline var waitLimit: Duration?

    /// What the policy says.
    public init() {}

    /// Takes what is in memory or else on disk, however old, and never fetches.
    ///
    /// The disk keeps a value until its time to live and the longer of ``MuxPolicy/staleIfError`` and
    /// ``MuxPolicy/staleWhileRevalidate`` have passed, and a value with a validator for 30 more days. Opening the store, or a
    /// rewrite of its file, removes older values.
    ///
    /// Throws ``MuxError/notCached`` if there is nothing, or nothing younger than what `maxAge` demands.
    public static let cacheOnly: RequestOptions = {
        var options = RequestOptions()
        options.mode = .cacheOnly
        return options
    }()

    /// Fetches, or joins a fetch that is running; the value of before stays as a safety net.
    public static let reload: RequestOptions = {
        var options = RequestOptions()
        options.mode = .reload
        return options
    }()

    /// Takes a stale value at once, whatever its age, and has it renewed behind the caller's back.
    ///
    /// For the age at which values leave the disk, see ``cacheOnly``.
    public static let staleWhileRevalidate: RequestOptions = {
        var options = RequestOptions()
        options.staleWhileRevalidate = .longest
        return options
    }()

    /// Takes a value that is younger than `age` and fresh, or fetches.
    public static func maxAge(_ age: Duration) -> RequestOptions { RequestOptions().maxAge(age) }

    /// Waits no longer than `waitLimit` if there is a stale value to take instead; the fetch goes on.
    public static func within(_ waitLimit: Duration) -> RequestOptions { RequestOptions().within(waitLimit) }

    /// The same, with a value that is younger than `age`.
    ///
    /// - Parameter age: The greatest age.
    /// - Returns: The options.
    public func maxAge(_ age: Duration) -> RequestOptions {
        var options = self
        options.maximumNanoseconds = age.saturatedNanoseconds
        return options
    }

    /// The same, but without waiting longer than `waitLimit` if there is a stale value to take instead.
    ///
    /// - Parameter waitLimit: The longest wait.
    /// - Returns: The options.
    public func within(_ waitLimit: Duration) -> RequestOptions {
        var options = self
        options.waitLimit = waitLimit
        return options
    }

    /// The greatest age.
    var maximumAge: Duration? { self.maximumNanoseconds.map { .nanoseconds($0) } }

    /// What is permitted for a request with these options under `policy`.
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
