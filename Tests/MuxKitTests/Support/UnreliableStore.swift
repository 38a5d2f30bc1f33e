import MuxKit

/// A store in memory with injected failures and delays.
struct UnreliableStore: MuxStore {
    struct Failure: Error {}

    let failsRemovals = Locked(false)
    let failsSaves = Locked(false)
    let failsLoads = Locked(false)
    /// Whether loads of an entry fail.
    let isUnreadable = Locked<@Sendable (MuxStoreKey) -> Bool>({ _ in false })
    /// Whether a call that loads more than one entry fails.
    let failsPortions = Locked(false)
    /// The number of names in each call.
    let portions = Locked<[Int]>([])
    let failsEpochs = Locked(false)
    let beforeEpoch = Locked<@Sendable () async throws -> Void>({})
    /// Whether calls of a cancelled task throw.
    let heedsCancellation = Locked(false)
    let beforeSave = Locked<@Sendable () async -> Void>({})
    let beforeRemoval = Locked<@Sendable () async -> Void>({})
    let beforeLoad = Locked<@Sendable () -> Void>({})
    let afterLoad = Locked<@Sendable () async -> Void>({})
    let beforeRaise = Locked<@Sendable () throws -> Void>({})
    let afterRaise = Locked<@Sendable () -> Void>({})
    private let memory: any MuxStore = MemoryStore()

    private func pass(_ fails: Locked<Bool>) throws {
        if self.heedsCancellation.withLock({ $0 }) { try Task.checkCancellation() }
        if fails.withLock({ $0 }) { throw Failure() }
    }

    func sessionEpoch() async throws -> UInt64 {
        try self.pass(self.failsEpochs)
        try await self.beforeEpoch.withLock { $0 }()
        return try await self.memory.sessionEpoch()
    }

    func raiseSessionEpoch(to epoch: UInt64) async throws {
        try self.pass(self.failsEpochs)
        try self.beforeRaise.withLock { $0 }()
        try await self.memory.raiseSessionEpoch(to: epoch)
        self.afterRaise.withLock { $0 }()
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        self.beforeLoad.withLock { $0 }()
        try self.pass(self.failsLoads)
        if self.isUnreadable.withLock({ $0 })(name) { throw Failure() }
        let entry = try await self.memory.load(name)
        await self.afterLoad.withLock { $0 }()
        return entry
    }

    func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        self.portions.withLock { $0.append(names.count) }
        if names.count > 1 { try self.pass(self.failsPortions) }
        var entries: [MuxStoredEntry?] = []
        for name in names { entries.append(try await self.load(name)) }
        return entries
    }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        await self.beforeSave.withLock { $0 }()
        try self.pass(self.failsSaves)
        try await self.memory.save(entries, durability: durability)
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try self.pass(self.failsRemovals)
        try await self.memory.remove(names, durability: durability)
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        try self.pass(self.failsRemovals)
        try await self.memory.removeAll(domain: domain, durability: durability)
    }

    func removeEverything() async throws {
        await self.beforeRemoval.withLock { $0 }()
        try self.pass(self.failsRemovals)
        try await self.memory.removeEverything()
    }

    func statistics() async -> JournalStore.Statistics { await self.memory.statistics() }
}
