/// A fetched value with facts about it that the server knows better than the policy.
///
/// ```swift
/// let rates = Multiplexer<Rates>(cacheKey: "Rates") { _ in
///     let reply = try await Backend.rates()
///     return Fetched(reply.rates, timeToLive: .seconds(reply.maxAge))
/// }
/// ```
public struct Fetched<Value: Sendable>: Sendable {
    /// The value.
    public var value: Value {
        didSet { self.renewedRevision = nil }  // it is another one
    }

    /// How long it counts as fresh, without jitter; `nil` for ``MuxPolicy/timeToLive``.
    ///
    /// Zero or less means that it answers those who wait for it, and that the next request fetches.
    public var timeToLive: Duration?

    /// How long after that it still answers at once, while it is renewed; `nil` for ``MuxPolicy/staleWhileRevalidate``.
    public var staleWhileRevalidate: Duration?

    /// How long after its time to live it may answer for a failed fetch; `nil` for ``MuxPolicy/staleIfError``.
    ///
    /// Zero means that a value which is not fresh is never served in place of an error.
    public var staleIfError: Duration?

    /// What the server calls this version of the value, such as an entity tag; kept beside the value on disk.
    ///
    /// The next fetch gets it with ``FetchedBefore``, to ask whether the value is still the same.
    public var validator: String?

    /// Whether the value is kept at all.
    ///
    /// One that is not answers those who wait for it. It is put neither into memory nor on disk, and takes what was there
    /// with it.
    public var isKept: Bool

    /// The revision of the entry that this is a renewal of.
    @usableFromInline var renewedRevision: UInt64?

    /// Describes a fetched value.
    @inlinable
    public init(
        _ value: Value,
        timeToLive: Duration? = nil,
        staleWhileRevalidate: Duration? = nil,
        staleIfError: Duration? = nil,
        validator: String? = nil,
        isKept: Bool = true
    ) {
        self.value = value
        self.timeToLive = timeToLive
        self.staleWhileRevalidate = staleWhileRevalidate
        self.staleIfError = staleIfError
        self.validator = validator
        self.isKept = isKept
    }
}

extension Fetched: Equatable where Value: Equatable {}

/// What was cached when a fetch began, so that the fetch can ask the server whether it is still the same.
///
/// ```swift
/// let rates = Multiplexer<Rates>(cacheKey: "Rates") { before in
///     let reply = try await Backend.rates(ifNoneMatch: before?.validator)
///     if reply.status == 304, let before { return before.notModified() }
///     return Fetched(try reply.rates(), validator: reply.entityTag)
/// }
/// ```
public struct FetchedBefore<Value: Sendable>: Sendable {
    /// The value.
    public let value: Value

    /// What the server called this version of the value; `nil` if it did not say, or if the value is not the server's: it was
    /// stored by hand, or migrated.
    public let validator: String?

    /// How long ago the value was fetched, or found to be still the same.
    public let age: Duration

    /// How long it counted as fresh.
    public let timeToLive: Duration

    /// What was said about its use when stale.
    @usableFromInline package let stale: StaleLimits

    @usableFromInline let revision: UInt64

    @inlinable
    init(
        value: Value,
        validator: String?,
        age: Duration,
        timeToLive: Duration,
        stale: StaleLimits,
        revision: UInt64
    ) {
        self.value = value
        self.validator = validator
        self.age = age
        self.timeToLive = timeToLive
        self.stale = stale
        self.revision = revision
    }

    /// The answer of a fetch that found the value to be still the same.
    ///
    /// The value gets a new lease, in memory and, with the next save, on disk. It stays the same one:
    /// ``Multiplexer/values`` has no news, and ``Multiplexer/store(_:ifUnchangedSince:)`` finds it unchanged.
    ///
    /// - Parameters:
    ///   - timeToLive: How long it counts as fresh from now on; `nil` for ``MuxPolicy/timeToLive``.
    ///   - staleWhileRevalidate: See ``Fetched/staleWhileRevalidate``.
    ///   - staleIfError: See ``Fetched/staleIfError``.
    ///   - validator: What the server calls the version now; `nil` for the same as before.
    /// - Returns: What the fetch has to return.
    public func notModified(
        timeToLive: Duration? = nil,
        staleWhileRevalidate: Duration? = nil,
        staleIfError: Duration? = nil,
        validator: String? = nil
    ) -> Fetched<Value> {
        var fetched = Fetched(
            self.value,
            timeToLive: timeToLive,
            staleWhileRevalidate: staleWhileRevalidate,
            staleIfError: staleIfError,
            validator: validator ?? self.validator
        )
        fetched.renewedRevision = self.revision
        return fetched
    }
}

/// What a multiplexer calls to fetch.
@usableFromInline
package enum FetchFunction<Key: Sendable, Value: Sendable>: Sendable {
    /// Fetches a value.
    case value(@Sendable @concurrent (Key) async throws -> Value)
    /// Fetches a value and what is to be known of it; receives what was cached.
    case fetched(@Sendable @concurrent (Key, FetchedBefore<Value>?) async throws -> Fetched<Value>)

    @inlinable
    @concurrent
    func callAsFunction(_ key: Key, _ before: FetchedBefore<Value>?) async throws -> Fetched<Value> {
        switch self {
        case .value(let fetch): Fetched(try await fetch(key))
        case .fetched(let fetch): try await fetch(key, before)
        }
    }
}

extension Slot {
    /// The entry as a fetch gets it; `nil` if there is none.
    @inlinable
    func fetchedBefore(at now: Moment) -> FetchedBefore<Value>? {
        guard let entry else { return nil }
        return FetchedBefore(
            value: entry.value,
            validator: entry.validator,
            age: max(now.duration(since: entry.fetchedAt), .zero),
            timeToLive: entry.timeToLive,
            stale: entry.stale,
            revision: entry.revision
        )
    }
}
