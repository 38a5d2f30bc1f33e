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
    public var value: Value

    /// How long it counts as fresh, without jitter; `nil` for ``MuxPolicy/timeToLive``.
    public var timeToLive: Duration?

    /// What the server calls this version of the value, such as an entity tag; kept beside the value on disk.
    public var validator: String?

    /// Describes a fetched value.
    public init(_ value: Value, timeToLive: Duration? = nil, validator: String? = nil) {
        self.value = value
        self.timeToLive = timeToLive
        self.validator = validator
    }
}

extension Fetched: Equatable where Value: Equatable {}
