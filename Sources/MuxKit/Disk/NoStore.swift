/// Keeps nothing: for values that are to stay in memory.
///
/// ```swift
/// let repository = MuxRepository(store: .none)
/// ```
///
/// Multiplexers of such a repository encode nothing, whether or not they have a `cacheKey`, and touch no disk. Sign-outs
/// work as with any store.
public struct NoStore: MuxStore {
    private let epoch = Locked<UInt64>(0)

    /// Makes a store.
    public init() {}

    /// The number of the present session; 0 before the first sign-out of this process.
    public func sessionEpoch() async -> UInt64 { self.epoch.withLock { $0 } }

    /// The number of the present session.
    public func peekSessionEpoch() -> UInt64? { self.epoch.withLock { $0 } }

    /// Moves on to session `epoch`.
    public func raiseSessionEpoch(to epoch: UInt64) async { self.epoch.withLock { $0 = max($0, epoch) } }

    /// Nothing.
    public func load(_ name: MuxStoreKey) async -> MuxStoredEntry? { nil }

    /// Keeps nothing.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async {}

    /// There is nothing to remove.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) async {}

    /// There is nothing to remove.
    public func removeAll(domain: String, durability: MuxDurability) async {}

    /// There is nothing to remove.
    public func removeEverything() async {}

    /// There is nothing to count.
    public func statistics() async -> MuxStoreStatistics { MuxStoreStatistics() }
}

extension MuxStore where Self == NoStore {
    /// Keeps nothing: values stay in memory, and are never encoded.
    public static var none: NoStore { NoStore() }
}
