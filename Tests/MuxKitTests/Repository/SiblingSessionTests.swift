import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Two repositories with a common folder simulate two processes, an app and its widget.
@Suite(.standard)
struct SiblingSessionTests {
    private let scratch = Scratch()
    private let app: MuxRepository
    private let widget: MuxRepository
    private let number: Multiplexer<Int>

    init() {
        self.app = MuxRepository(store: self.scratch.store(), durability: .relaxed)
        self.widget = MuxRepository(store: self.scratch.store(), durability: .relaxed)
        self.number = Multiplexer(cacheKey: "Number", repository: self.app) { 1 }
    }

    /// The value that a new process reads from disk.
    private func onDisk() async -> Int? {
        let fresh = MuxRepository(store: self.scratch.store())
        return await Multiplexer<Int>(cacheKey: "Number", repository: fresh) { 3 }.loadCachedValue()
    }

    @Test func `RP-04 a value of a session that a sibling ended is not written into the next session`() async throws {
        _ = try await self.number.request()

        await self.widget.clearAll()
        await self.app.saveAll()

        #expect(await self.onDisk() == nil)
        #expect(self.number.cachedValue == nil)
    }

    @Test func `DK-10 a value that is saved after a sibling's sign-out is on disk`() async throws {
        _ = try await self.number.request()
        await self.app.saveAll()
        await self.widget.clearAll()
        await self.app.saveAll()

        self.number.store(2)

        #expect(await self.app.saveAll().saved == 1)
        #expect(await self.onDisk() == 2)
    }
}
