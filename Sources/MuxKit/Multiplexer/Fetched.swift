/// A fetched value with a validator, and with lifetimes that override the policy.
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
        didSet { self.renewedRevision = nil }  // a changed value is not a renewal
    }

    /// The freshness lifetime, without jitter; `nil` for ``MuxPolicy/timeToLive``.
    ///
    /// With zero or less, the requests that wait for this fetch get the value, which is stale for later
    /// requests.
    public var timeToLive: Duration?

    /// The time after the time to live in which a request gets the stale value at once, and starts a renewal.
    ///
    /// `nil` for ``MuxPolicy/staleWhileRevalidate``.
    public var staleWhileRevalidate: Duration?

    /// The time after the time to live in which the stale value may replace a silenceable failure of a fetch.
    ///
    /// `nil` for ``MuxPolicy/staleIfError``. Before the end of the time to live (such as after a refresh) and
    /// within ``staleWhileRevalidate``, the value may replace a failure even if this limit is zero.
    public var staleIfError: Duration?

    /// The server's validator of the value, such as an entity tag; stored with the value.
    ///
    /// The next fetch gets the validator with ``FetchedBefore``, to revalidate the value.
    public var validator: String?

    /// Whether the value is cached.
    ///
    /// If `false`, the requests that wait for this fetch get the value. The value is not stored, and the
    /// previous value is removed.
    public var isKept: Bool

    /// The tags of the value, for ``MuxRepository/refresh(tags:)`` and ``MuxRepository/clear(tags:)``, in
    /// addition to the tags of ``MultiplexerMap/CacheKey/init(_:tags:)``.
    ///
    /// A change of a tag during the fetch applies to the value, too, although the tags are known only at the
    /// end of the fetch. With a ``MuxSharedStore``, a value with a tag that is not a tag of the key stays on
    /// this machine.
    public var tags: [String]

    /// The revision of the entry that the value renews; `nil` for a new value.
    @usableFromInline var renewedRevision: UInt64?

    /// Describes a fetched value.
    @inlinable
    public init(
        _ value: Value,
        timeToLive: Duration? = nil,
        staleWhileRevalidate: Duration? = nil,
        staleIfError: Duration? = nil,
        validator: String? = nil,
        isKept: Bool = true,
        tags: [String] = []
    ) {
        self.value = value
        self.timeToLive = timeToLive
        self.staleWhileRevalidate = staleWhileRevalidate
        self.staleIfError = staleIfError
        self.validator = validator
        self.isKept = isKept
        self.tags = tags
    }
}

extension Fetched: Equatable where Value: Equatable {}

/// The cached value at the start of a fetch, for a revalidation by the server.
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

    /// The server's validator of the value.
    ///
    /// `nil` if the fetch returned no validator, if the value is from ``Multiplexer/store(_:)``, and after a
    /// migration of the value.
    public let validator: String?

    /// The time since the fetch, the call of `store` or the last successful revalidation.
    public let age: Duration

    /// The freshness lifetime.
    public let timeToLive: Duration

    /// The limits that the previous fetch set for the use of the stale value.
    @usableFromInline package let stale: StaleLimits

    @usableFromInline let tags: [String]
    @usableFromInline let revision: UInt64

    @inlinable
    init(
        value: Value,
        validator: String?,
        age: Duration,
        timeToLive: Duration,
        stale: StaleLimits,
        tags: [String],
        revision: UInt64
    ) {
        self.value = value
        self.validator = validator
        self.age = age
        self.timeToLive = timeToLive
        self.stale = stale
        self.tags = tags
        self.revision = revision
    }

    /// Renews the value after a successful revalidation, such as an HTTP response with status 304.
    ///
    /// The value gets a new lifetime, in memory and, with the next save, on disk. Without changes of the app
    /// (``Multiplexer/change(_:)``), a renewal is not a change of the entry: ``Multiplexer/values`` has no
    /// new element, and ``Multiplexer/store(_:ifUnchangedSince:)`` still replaces the entry. The tags stay.
    ///
    /// - Parameters:
    ///   - timeToLive: The freshness lifetime from now on; `nil` for ``MuxPolicy/timeToLive``.
    ///   - staleWhileRevalidate: See ``Fetched/staleWhileRevalidate``.
    ///   - staleIfError: See ``Fetched/staleIfError``.
    ///   - validator: The server's new validator; `nil` to keep the previous validator.
    /// - Returns: The result that the fetch closure has to return.
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
            validator: validator ?? self.validator,
            tags: self.tags
        )
        fetched.renewedRevision = self.revision
        return fetched
    }
}

/// The fetch closure of a multiplexer.
@usableFromInline
package enum FetchFunction<Key: Sendable, Value: Sendable>: Sendable {
    /// Fetches a value.
    case value(@Sendable @concurrent (Key) async throws -> Value)
    /// Fetches a value with its lifetime and validator; receives the cached value.
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
    /// The cached value for the fetch closure; `nil` without an entry.
    @inlinable
    func fetchedBefore(at now: Moment) -> FetchedBefore<Value>? {
        guard let entry else { return nil }
        return FetchedBefore(
            value: entry.value,
            validator: entry.validator,
            age: max(now.duration(since: entry.fetchedAt), .zero),
            timeToLive: entry.timeToLive,
            stale: entry.stale,
            tags: entry.condition?.texts ?? [],
            revision: entry.revision
        )
    }
}

extension MultiplexerCore {
    /// The entry of a value.
    ///
    /// - Parameters:
    ///   - fetched: The value.
    ///   - key: The key.
    ///   - tagNumber: The number of the last change of any tag before the fetch, or before the call of
    ///     `store`.
    /// - Returns: The entry.
    @inlinable
    func entry(of fetched: Fetched<Value>, _ key: Key, since tagNumber: UInt64) -> Slot<Value>.Entry {
        let timeToLive =
            fetched.timeToLive
            ?? self.policy.jittered(self.policy.timeToLive, random: self.repository.random())
        var entry = Slot<Value>.Entry(
            value: fetched.value,
            fetchedAt: self.repository.time.now,
            timeToLive: timeToLive,
            renewalAge: self.memory.renewalAge(timeToLive),
            stale: StaleLimits(whileRevalidate: fetched.staleWhileRevalidate, ifError: fetched.staleIfError),
            validator: fetched.validator,
            revision: 0,
            isDirty: self.isOnDisk,
            isPersistent: self.isOnDisk
        )
        if !fetched.tags.isEmpty || self.memory.tagsOfKey != nil {
            entry.condition = self.memory.condition(fetched.tags, of: key, since: tagNumber)
        }
        entry.needsSelection = self.memory.needsSelection(fetched.validator)
        return entry
    }
}
