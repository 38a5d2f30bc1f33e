import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
struct StoreConformanceTests {
    @Test func `DK-08 the journal keeps the rules of a store`() async throws {
        let folders = Guarded<[Scratch]>([])

        try await MuxStoreConformance.run {
            let scratch = Scratch()
            folders.withLock { $0.append(scratch) }
            return scratch.store()
        }
    }

    @Test func `DK-08 the memory keeps the rules of a store`() async throws {
        try await MuxStoreConformance.run { MemoryStore() }
    }
}
