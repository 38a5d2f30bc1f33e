import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Cleared values leave no byte in the folder.
@Suite(.standard)
struct ErasedValueTests {
    private typealias Map = MultiplexerMap<String, String>

    private let scratch = Scratch()

    private func map(_ store: any MuxStore) -> (MuxRepository, Map) {
        let repository = MuxRepository(store: store, durability: .relaxed)
        return (repository, Map(cacheKey: "Map", repository: repository) { $0 })
    }

    @Test(arguments: [false, true])
    func `AC-05 a cleared value and the values that it replaced leave the folder`(isRelaunched: Bool) async throws {
        let (repository, map) = self.map(self.scratch.store(indexFloor: 2))
        for number in 0..<4 {
            for key in ["a", "b", "c"] {
                map.store("secret \(key) \(number) \(String(repeating: "-", count: 500))", key: key)
            }
            await repository.saveAll()
        }
        #expect(!self.scratch.find("secret a 0").isEmpty)
        let (_, cleared) = isRelaunched ? self.map(self.scratch.store(indexFloor: 2)) : (repository, map)

        #expect(await cleared.clear(key: "a").isComplete)

        #expect(self.scratch.find("secret a").isEmpty)
        let (_, later) = self.map(self.scratch.store())
        #expect(await later.loadCachedValue(key: "a") == nil)
        for key in ["b", "c"] { #expect(await later.loadCachedValue(key: key)?.hasPrefix("secret \(key) 3") == true) }

        cleared.store("secret a again", key: "a")
        cleared.store("secret a once more", key: "a")
        await cleared.save()
        #expect(await cleared.clear(key: "a").isComplete)
        #expect(self.scratch.find("secret a").isEmpty)

        #expect(await cleared.clear().isComplete)
        #expect(self.scratch.find("secret").isEmpty)
    }

    @Test func `AC-05 a value that another process replaced or evicted leaves the folder`() async throws {
        let one = self.scratch.store(byteLimit: 20_000)
        let other = self.scratch.store(byteLimit: 20_000)
        func entry(_ text: String, _ size: Int = 300, _ key: String = "a") -> MuxStoredEntry {
            var entry = sample(key)
            entry.payload = Data("\"\(text) \(String(repeating: "-", count: size))\"".utf8)
            return entry
        }
        try await one.save([entry("secret 1"), entry("public", 300, "b")], durability: .full)
        try await one.remove([name("c")], durability: .full)
        try await other.save([entry("secret 2")], durability: .full)
        await #expect(throws: MuxStoreError.PartialSave.self) {
            try await other.save([entry("secret 3", 30_000)], durability: .full)
        }
        #expect(try await one.load(name("a")) == nil)
        try await other.save([entry("secret 4")], durability: .full)

        try await one.remove([name("a")], durability: .full)
        #expect(self.scratch.find("secret").isEmpty)
        #expect(!self.scratch.find("public").isEmpty)
        #expect(try await other.load(name("a")) == nil)
        #expect(await other.statistics().damagedRecords == 0)
    }

    @Test(arguments: [true, false])
    func `AC-05 a value is erased although an index snapshot has a wrong length of the record`(
        isOfHeader: Bool
    ) async throws {
        let scratch = Scratch(isInspected: false)
        var entry = sample("a")
        entry.payload = Data("\"secret\"".utf8)
        try await scratch.store(indexFloor: 1).save([entry], durability: .relaxed)
        var kept = try #require(IndexSnapshot([UInt8](try Data(contentsOf: scratch.index))))
        let row = try #require(kept.rows.first)
        let record = [UInt8](try Data(contentsOf: scratch.segment).dropFirst(Int(row.offset)))
        let header = try #require(record.firstIndex(of: 0x0a)) + 1
        kept.rows = [.init(digest: row.digest, offset: row.offset, count: isOfHeader ? Int64(header) : 1, epoch: 0)]
        try Data(kept.encoded).write(to: scratch.index)

        try await scratch.store().remove([name("a")], durability: .relaxed)

        #expect(scratch.find("secret").isEmpty)
        #expect(try await scratch.store().load(name("a")) == nil)
    }

    @Test func `AC-05 the files of a killed process are removed by the next clear`() async throws {
        let (repository, map) = self.map(self.scratch.store())
        map.store("secret", key: "a")
        await repository.saveAll()
        try Data("secret".utf8).write(to: URL(filePath: self.scratch.segment.path + ".0123456789abcdef.tmp"))
        let trash = self.scratch.root.appending(component: "trash-0123456789abcdef")
        try FileManager.default.createDirectory(at: trash, withIntermediateDirectories: true)
        try Data("secret".utf8).write(to: trash.appending(component: "file"))

        #expect(await map.clear(key: "a").isComplete)
        #expect(self.scratch.find("secret").isEmpty)
    }

    @Test func `AC-05 the next compaction, due after 64 KB of dead records, erases replaced values`() async throws {
        let (repository, map) = self.map(self.scratch.store())
        let filler = String(repeating: "-", count: 1_000)
        map.store("first value \(filler)", key: "a")
        await repository.saveAll()
        var saves = 0
        while !self.scratch.find("first value").isEmpty {
            map.store("value \(saves) \(filler)", key: "a")
            await repository.saveAll()
            saves += 1
        }
        // 64 KB of dead records, of more than 1,000 bytes each.
        #expect(saves < 65)
    }

    @Test func `AC-05 a clear that cannot overwrite its values fails, and the next save erases the values`()
        async throws
    {
        let isBroken = Locked(false)
        let fileSystem = RecordingFileSystem { _, call in
            isBroken.withLock { $0 } && call.operation == .synchronize ? .refuse(EIO) : nil
        }
        let repository = MuxRepository(store: self.scratch.store(fileSystem), durability: .full)
        let map = Map(cacheKey: "Map", repository: repository) { $0 }
        for text in ["secret 1", "secret 2"] {
            map.store(text, key: "a")
            await repository.saveAll()
        }
        isBroken.withLock { $0 = true }
        #expect(await !map.clear(key: "a").isComplete)
        isBroken.withLock { $0 = false }
        #expect(await repository.saveAll().isComplete)
        #expect(self.scratch.find("secret").isEmpty)
    }
}
