/// Entries in memory alone: for tests and previews.
///
/// Keeps what any ``MuxStore`` keeps, for as long as it lives, and never throws; there is nothing on disk.
///
/// **Concurrent calls** take effect one after another. **Cancellation** changes nothing: no call waits.
public actor MemoryStore: MuxStore {
    private var entries: [MuxStoreKey: MuxStoredEntry] = [:]
    private let epoch = Locked<UInt64>(0)

    /// Makes an empty store.
    public init() {}

    /// The number of the present session; 0 before the first sign-out.
    public func sessionEpoch() -> UInt64 { self.epoch.withLock { $0 } }

    /// The number of the present session; 0 before the first sign-out.
    public nonisolated func peekSessionEpoch() -> UInt64? { self.epoch.withLock { $0 } }

    /// Moves on to session `epoch`; entries of earlier ones cease to exist.
    public func raiseSessionEpoch(to epoch: UInt64) {
        guard epoch > self.sessionEpoch() else { return }
        self.epoch.withLock { $0 = epoch }
        self.entries = self.entries.filter { $0.value.sessionEpoch >= epoch }
    }

    /// Returns the entry of that name, or `nil` if there is none.
    public func load(_ name: MuxStoreKey) -> MuxStoredEntry? { self.entries[name] }

    /// Keeps `entries`, each in place of the one of the same name.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) {
        let epoch = self.sessionEpoch()
        for entry in entries where entry.sessionEpoch >= epoch { self.entries[entry.name] = entry }
    }

    /// Forgets the entries of those names.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) {
        for name in names { self.entries[name] = nil }
    }

    /// Forgets every entry of `domain`.
    public func removeAll(domain: String, durability: MuxDurability) {
        self.entries = self.entries.filter { !$0.key.domain.utf8.elementsEqual(domain.utf8) }
    }

    /// Forgets every entry of every domain; the session epoch stays.
    public func removeEverything() { self.entries = [:] }

    /// Nothing: there is nothing to count.
    public func statistics() -> MuxStoreStatistics { MuxStoreStatistics() }
}

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
