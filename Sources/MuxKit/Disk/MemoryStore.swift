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
