import MuxKit

/// A store that breaks one rule.
struct BrokenStore: MuxStore {
    enum Flaw: CaseIterable, Sendable {
        case forgetsValidator
        case forgetsStaleIfError
        case forgetsStaleWhileRevalidate
        case keepsFirst
        case mixesNoKeyWithEmpty
        case foldsCase
        case ignoresRemoval
        case removesTooMuch
        case domainStays
        case everythingStays
        case sessionFalls
        case sessionLingers
    }

    let flaw: Flaw
    private let base = MemoryStore()
    private let fallen = Locked<UInt64?>(nil)

    init(_ flaw: Flaw) { self.flaw = flaw }

    private func stored(_ name: MuxStoreKey) -> MuxStoreKey {
        switch self.flaw {
        case .mixesNoKeyWithEmpty: MuxStoreKey(domain: name.domain, key: name.key ?? "")
        case .foldsCase: MuxStoreKey(domain: name.domain.lowercased(), key: name.key)
        default: name
        }
    }

    func sessionEpoch() async throws -> UInt64 {
        if let fallen = self.fallen.withLock({ $0 }) { return fallen }
        return await self.base.sessionEpoch()
    }

    func raiseSessionEpoch(to epoch: UInt64) async throws {
        switch self.flaw {
        case .sessionFalls: self.fallen.withLock { $0 = epoch }
        case .sessionLingers: self.fallen.withLock { $0 = max($0 ?? 0, epoch) }
        default: await self.base.raiseSessionEpoch(to: epoch)
        }
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        var entry = await self.base.load(self.stored(name))
        entry?.name = name
        return entry
    }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        for var entry in entries {
            entry.name = self.stored(entry.name)
            if self.flaw == .forgetsValidator { entry.validator = entry.validator ?? "" }
            if self.flaw == .forgetsStaleIfError { entry.staleIfError = nil }
            if self.flaw == .forgetsStaleWhileRevalidate { entry.staleWhileRevalidate = nil }
            if self.flaw == .keepsFirst, await self.base.load(entry.name) != nil { continue }
            await self.base.save([entry], durability: durability)
        }
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        switch self.flaw {
        case .ignoresRemoval: return
        case .removesTooMuch:
            for name in names { await self.base.removeAll(domain: name.domain, durability: durability) }
        default: await self.base.remove(names.map(self.stored), durability: durability)
        }
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        guard self.flaw != .domainStays else { return }
        await self.base.removeAll(domain: domain, durability: durability)
    }

    func removeEverything() async throws {
        guard self.flaw != .everythingStays else { return }
        await self.base.removeEverything()
    }

    func statistics() async -> JournalStore.Statistics { await self.base.statistics() }
}
