import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct LostFolderTests {
    @Test(arguments: ["", "store", "store/journal", "store/journal/00000001.jsonl", "store/epoch.json"])
    func `CO-17 what was in a folder that is deleted while running is saved again`(path: String) async throws {
        let scratch = Scratch()
        let repository = MuxRepository(store: scratch.store(), durability: .relaxed)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { $0 }
        for key in 0..<5 { map.store(key, key: key) }
        #expect(await repository.saveAll().saved == 5)
        try FileManager.default.removeItem(at: scratch.folder.appending(path: path))

        let report = await repository.saveAll()
        let again = await repository.saveAll()

        // Where the number of the session was lost, the session is over, and memory has nothing to save.
        let isOver = map.cachedValue(key: 1) == nil
        #expect(isOver == path.hasSuffix("epoch.json"))
        #expect(report.unchanged == 0 && report.saved == (isOver ? 0 : 5))
        #expect(again.unchanged == (isOver ? 0 : 5) && again.isComplete)
        let fresh = MuxRepository(store: scratch.store())
        let found = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: fresh) { _ in -1 }
        for key in 0..<5 { #expect(await found.loadCachedValue(key: key) == (isOver ? nil : key)) }
    }

    @Test func `CO-17 what a sibling compacts or this process signs out is not lost`() async throws {
        let scratch = Scratch()
        let (one, other) = (scratch.store(), scratch.store())
        let repository = MuxRepository(store: one, durability: .relaxed)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
        number.store(1)
        await repository.saveAll()
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 70_000))\"".utf8)
        try await other.save([large], durability: .relaxed)
        try await other.save([sample("large")], durability: .relaxed)
        #expect(await other.statistics().compactions == 1)
        #expect(await repository.saveAll().unchanged == 1)

        await repository.clearAll()
        number.store(2)
        #expect(await repository.saveAll().saved == 1)
        #expect(await repository.saveAll().unchanged == 1)
    }
}
