/// What the values of a ``MultiplexerMap`` may cost together in memory, in a unit of your choice.
///
/// ```swift
/// let policy = MuxPolicy(maximumCost: .init(64_000_000) { (photo: Photo) in photo.data.count })
/// let photos = MultiplexerMap<URL, Photo>(policy: policy) { url in try await Backend.photo(url) }
/// ```
public struct MuxCostLimit: Sendable {
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
