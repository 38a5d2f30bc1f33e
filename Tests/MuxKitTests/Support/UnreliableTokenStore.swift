import Foundation
import MuxKit

/// A token store in memory that fails where a test says, and holds saves, once they are done, where a test says.
struct UnreliableTokenStore: TokenStore {
    struct Failure: Error {}

    let failsLoads = Guarded(false)
    let failsSaves = Guarded(false)
    let failsDeletes = Guarded(false)
    let afterSave = Guarded<@Sendable () async -> Void>({})
    let memory = InMemoryTokenStore()

    func load() async throws -> Data? {
        if self.failsLoads.withLock({ $0 }) { throw Failure() }
        return await self.memory.load()
    }

    func save(_ data: Data) async throws {
        if self.failsSaves.withLock({ $0 }) { throw Failure() }
        await self.memory.save(data)
        await self.afterSave.withLock { $0 }()
    }

    func delete() async throws {
        if self.failsDeletes.withLock({ $0 }) { throw Failure() }
        await self.memory.delete()
    }
}
