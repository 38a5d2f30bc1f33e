/// A fetched value with facts about it that the server knows better than the policy.
///
/// ```swift
/// let rates = Multiplexer<Rates>(cacheKey: "Rates") {
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
