import Foundation
import MuxKit

/// A token store in memory with injected failures and delays.
struct UnreliableTokenStore: TokenStore {
    struct Failure: Error {}

    let failsLoads = Locked(false)
    let failsSaves = Locked(false)
    let failsDeletes = Locked(false)
    let beforeLoad = Locked<@Sendable () async -> Void>({})
    let afterLoad = Locked<@Sendable () async -> Void>({})
    let afterSave = Locked<@Sendable () async -> Void>({})
    var memory = InMemoryTokenStore()

    func load() async throws -> Data? {
        await self.beforeLoad.withLock { $0 }()
        if self.failsLoads.withLock({ $0 }) { throw Failure() }
        let data = await self.memory.load()
        await self.afterLoad.withLock { $0 }()
        return data
    }

    func save(_ data: Data) async throws {
        if self.failsSaves.withLock({ $0 }) { throw Failure() }
        await self.memory.save(data)
        await self.afterSave.withLock { $0 }()
    }

    func remove() async throws {
        if self.failsDeletes.withLock({ $0 }) { throw Failure() }
        await self.memory.remove()
    }
}
