import Foundation
import MuxKit

/// Calls an action of the test before and after each call of the stores of a repository.
final class StepHook: Sendable {
    private let action = Locked<@Sendable (Int) async -> Void>({ _ in })
    private let steps = Locked(0)

    /// The number of steps since ``arm(_:)``.
    var count: Int { self.steps.withLock { $0 } }

    /// Calls `action` with the number of each later step, counted from 1.
    func arm(_ action: @escaping @Sendable (Int) async -> Void) {
        self.steps.withLock { $0 = 0 }
        self.action.withLock { $0 = action }
    }

    /// Removes the action.
    func disarm() { self.action.withLock { $0 = { _ in } } }

    /// Runs `body` between two steps.
    func around<R>(_ body: () async throws -> R) async rethrows -> R {
        await self.action.withLock { $0 }(self.steps.next())
        let result = try await body()
        await self.action.withLock { $0 }(self.steps.next())
        return result
    }
}

/// A store with a step before and after each call.
struct SteppedStore: MuxStore {
    let base: any MuxStore
    let hook: StepHook

    func sessionEpoch() async throws -> UInt64 { try await self.hook.around { try await self.base.sessionEpoch() } }

    func peekSessionEpoch() -> UInt64? { self.base.peekSessionEpoch() }

    func raiseSessionEpoch(to epoch: UInt64) async throws {
        try await self.hook.around { try await self.base.raiseSessionEpoch(to: epoch) }
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? { try await self.base.load(name) }

    func check(_ entry: MuxStoredEntry) throws { try self.base.check(entry) }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        try await self.hook.around { try await self.base.save(entries, durability: durability) }
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try await self.hook.around { try await self.base.remove(names, durability: durability) }
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.hook.around { try await self.base.removeAll(domain: domain, durability: durability) }
    }

    func removeEverything() async throws { try await self.hook.around { try await self.base.removeEverything() } }

    func statistics() async -> JournalStore.Statistics { await self.base.statistics() }
}

/// A token store with a step before and after each call.
struct SteppedTokenStore: TokenStore {
    let base = InMemoryTokenStore()
    let hook: StepHook

    func load() async throws -> Data? { await self.hook.around { await self.base.load() } }
    func save(_ data: Data) async throws { await self.hook.around { await self.base.save(data) } }
    func remove() async throws { await self.hook.around { await self.base.remove() } }
}
