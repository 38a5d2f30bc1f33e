/// Keeps entries in memory only, for tests and previews; no call throws.
///
/// **Concurrent calls** take effect serially. **Cancellation** has no effect: no call suspends.
public final class MemoryStore: MuxStore {
    private struct State: Sendable {
        var epoch: UInt64 = 0
        var entries: [MuxStoreKey: MuxStoredEntry] = [:]
    }

    private let state = Locked(State())
    package let identity: UInt64? = UInt64.random(in: .min ... .max)

    /// Makes an empty store.
    public init() {}

    /// The number of the current session; 0 before the first sign-out.
    public func sessionEpoch() async -> UInt64 { self.state.withLock { $0.epoch } }

    /// The number of the current session; 0 before the first sign-out.
    public func peekSessionEpoch() -> UInt64? { self.state.withLock { $0.epoch } }

    /// Raises the session epoch, and removes the entries of earlier sessions.
    public func raiseSessionEpoch(to epoch: UInt64) async {
        self.state.withLock { state in
            guard epoch > state.epoch else { return }
            state.epoch = epoch
            state.entries = state.entries.filter { $0.value.sessionEpoch >= epoch }
        }
    }

    /// Returns the entry with the name; `nil` for a missing entry.
    public func load(_ name: MuxStoreKey) async -> MuxStoredEntry? { self.state.withLock { $0.entries[name] } }

    /// Returns the entries in the order of `names`; `nil` for a missing entry.
    public func load(_ names: [MuxStoreKey]) async -> [MuxStoredEntry?] {
        self.state.withLock { state in names.map { state.entries[$0] } }
    }

    /// Saves `entries`, and replaces entries with the same names; entries of earlier sessions are dropped.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async {
        self.state.withLock { state in
            for entry in entries where entry.sessionEpoch >= state.epoch { state.entries[entry.name] = entry }
        }
    }

    /// Removes the entries with the names.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) async {
        self.state.withLock { state in
            for name in names { state.entries[name] = nil }
        }
    }

    /// Removes every entry of `domain`.
    public func removeAll(domain: String, durability: MuxDurability) async {
        self.state.withLock { state in
            state.entries = state.entries.filter { !$0.key.domain.utf8.elementsEqual(domain.utf8) }
        }
    }

    /// Removes every entry of every domain; the session epoch stays.
    public func removeEverything() async { self.state.withLock { $0.entries = [:] } }

    /// Always `JournalStore.Statistics()`: this store does not count.
    public func statistics() async -> JournalStore.Statistics { JournalStore.Statistics() }
}

/// A store without entries, for values that stay in memory.
///
/// ```swift
/// let repository = MuxRepository(store: .none)
/// ```
///
/// Multiplexers of such a repository do not encode values, with or without a `cacheKey`, and do not access
/// the disk. Sign-outs work as with any store.
public struct NoStore: MuxStore {
    private let epoch = Locked<UInt64>(0)
    package let identity: UInt64? = UInt64.random(in: .min ... .max)

    /// Makes a store.
    public init() {}

    /// The number of the current session; 0 before the first sign-out with this store.
    public func sessionEpoch() async -> UInt64 { self.epoch.withLock { $0 } }

    /// The number of the current session.
    public func peekSessionEpoch() -> UInt64? { self.epoch.withLock { $0 } }

    /// Raises the session number to `epoch`.
    public func raiseSessionEpoch(to epoch: UInt64) async { self.epoch.withLock { $0 = max($0, epoch) } }

    /// Always `nil`.
    public func load(_ name: MuxStoreKey) async -> MuxStoredEntry? { nil }

    /// Does nothing.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async {}

    /// Does nothing.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) async {}

    /// Does nothing.
    public func removeAll(domain: String, durability: MuxDurability) async {}

    /// Does nothing.
    public func removeEverything() async {}

    /// Always `JournalStore.Statistics()`.
    public func statistics() async -> JournalStore.Statistics { JournalStore.Statistics() }
}

extension MemoryStore: IdentifiedStore {}

extension NoStore: IdentifiedStore {}

extension MuxStore where Self == NoStore {
    /// A store without entries: values stay in memory, and are never encoded.
    public static var none: NoStore { NoStore() }
}
