import MuxKit

/// A store in memory that fails where a test says, and holds loads and saves where a test says.
struct UnreliableStore: MuxStore {
    struct Failure: Error {}

    let failsRemovals = Guarded(false)
    let failsSaves = Guarded(false)
    let failsLoads = Guarded(false)
    let failsEpochs = Guarded(false)
    let beforeSave = Guarded<@Sendable () async -> Void>({})
    let beforeRemoval = Guarded<@Sendable () async -> Void>({})
    let afterLoad = Guarded<@Sendable () async -> Void>({})
    private let memory: any MuxStore = MemoryStore()

    func sessionEpoch() async throws -> UInt64 {
        if self.failsEpochs.withLock({ $0 }) { throw Failure() }
        return try await self.memory.sessionEpoch()
    }

    func raiseSessionEpoch(to epoch: UInt64) async throws {
        if self.failsEpochs.withLock({ $0 }) { throw Failure() }
        try await self.memory.raiseSessionEpoch(to: epoch)
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        if self.failsLoads.withLock({ $0 }) { throw Failure() }
        let entry = try await self.memory.load(name)
        await self.afterLoad.withLock { $0 }()
        return entry
    }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        await self.beforeSave.withLock { $0 }()
        if self.failsSaves.withLock({ $0 }) { throw Failure() }
        try await self.memory.save(entries, durability: durability)
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        if self.failsRemovals.withLock({ $0 }) { throw Failure() }
        try await self.memory.remove(names, durability: durability)
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        if self.failsRemovals.withLock({ $0 }) { throw Failure() }
        try await self.memory.removeAll(domain: domain, durability: durability)
    }

    func removeEverything() async throws {
        await self.beforeRemoval.withLock { $0 }()
        if self.failsRemovals.withLock({ $0 }) { throw Failure() }
        try await self.memory.removeEverything()
    }

    func statistics() async -> MuxStoreStatistics { await self.memory.statistics() }
}
