import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ByteLimitTests {
    private static let limit = 40_000

    /// An entry of about 1,000 bytes on disk by default, with a fetch time shifted by `seconds`.
    private func entry(_ key: String, at seconds: Double = 0, size: Int = 700) -> MuxStoredEntry {
        var entry = sample(key)
        entry.fetchedAt += seconds
        entry.payload = Data("\"\(String(repeating: "x", count: size))\"".utf8)
        return entry
    }

    private func size(_ scratch: Scratch) throws -> Int {
        try scratch.listing.reduce(0) { sum, path in
            let attributes = try FileManager.default.attributesOfItem(
                atPath: scratch.root.appending(path: path).path
            )
            guard attributes[.type] as? FileAttributeType == .typeRegular else { return sum }
            return sum + (attributes[.size] as? Int ?? 0)
        }
    }

    @Test func `DK-07 the limit holds after every save`() async throws {
        let scratch = Scratch()
        let store = scratch.store(byteLimit: Self.limit, indexFloor: 8)

        for number in 0..<200 {
            try await store.save([self.entry("\(number % 70)", size: number * 37 % 3000)], durability: .relaxed)
            #expect(try self.size(scratch) <= Self.limit, "after \(number)")
            #expect(try await store.load(name("\(number % 70)")) != nil)
        }

        let statistics = await store.statistics()
        #expect(statistics.evicted > 50 && statistics.damagedRecords == 0)
        #expect(try await store.brokenInvariants().isEmpty)
    }

    @Test func `DK-07 recently used entries stay`() async throws {
        let scratch = Scratch()
        let store = scratch.store(byteLimit: Self.limit)
        for number in 0..<30 { try await store.save([self.entry("\(number)")], durability: .relaxed) }
        for number in 0..<5 { #expect(try await store.load(name("\(number)")) != nil) }

        for number in 30..<45 { try await store.save([self.entry("\(number)")], durability: .relaxed) }

        #expect(await store.statistics().evicted > 0)
        for number in 0..<5 { #expect(try await store.load(name("\(number)")) != nil, "\(number) was used") }
        #expect(try await store.load(name("5")) == nil)
        #expect(try await store.load(name("44")) != nil)
    }

    @Test(arguments: [4, 512])
    func `DK-07 after a relaunch entries are evicted in their order on disk`(indexFloor: Int) async throws {
        let scratch = Scratch()
        let first = scratch.store(byteLimit: Self.limit, indexFloor: indexFloor)
        for number in 0..<32 { try await first.save([self.entry("\(number)")], durability: .relaxed) }
        #expect(await first.statistics().evicted == 0)

        let second = scratch.store(byteLimit: Self.limit, indexFloor: indexFloor)
        for number in 32..<45 { try await second.save([self.entry("\(number)")], durability: .relaxed) }

        #expect(await second.statistics().evicted > 0)
        #expect(try await second.load(name("0")) == nil)
        #expect(try await second.load(name("31")) != nil)
    }

    @Test func `DK-07 uses before a compaction count after a relaunch`() async throws {
        let scratch = Scratch()
        let first = scratch.store(byteLimit: Self.limit)
        for number in 0..<35 { try await first.save([self.entry("\(number)")], durability: .relaxed) }
        for number in 10..<13 { #expect(try await first.load(name("\(number)")) != nil) }
        for _ in 0..<50 where await first.statistics().compactions == 0 {
            try await first.save([self.entry("34")], durability: .relaxed)
        }

        let second = scratch.store(byteLimit: Self.limit)
        for _ in 0..<50 where await second.statistics().evicted == 0 {
            try await second.save([self.entry(UUID().uuidString)], durability: .relaxed)
        }

        #expect(try await second.load(name("13")) == nil)
        for number in 10..<13 { #expect(try await second.load(name("\(number)")) != nil) }
    }

    @Test func `DK-07 a batch that exceeds the limit keeps its newest entries`() async throws {
        let scratch = Scratch()
        let store = scratch.store(byteLimit: Self.limit)
        try await store.save([self.entry("old"), self.entry("99", at: -5)], durability: .relaxed)

        // A repository saves the newest entry first.
        let batch = (0..<100).map { self.entry("\($0)", at: Double(100 - $0)) }
        let error = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await store.save(batch, durability: .full)
        }

        #expect(error?.failures.allSatisfy { $0.error as? MuxStoreError == .noRoom } == true)
        for entry in batch {
            let isKept = try await store.load(entry.name) != nil
            #expect(isKept != error?.failures.contains { $0.name == entry.name })
        }
        #expect(try self.size(scratch) <= Self.limit)
        #expect(try await store.load(name("0")) == batch[0])
        #expect(try await store.load(name("20")) == batch[20])
        #expect(try await store.load(name("old")) == nil)
        #expect(try await store.load(name("99")) == nil, "a form older than the one that was to be saved")
        #expect(await store.statistics().evicted > 60)
        #expect(try await scratch.store().load(name("99")) == nil)
        #expect(try await store.brokenInvariants().isEmpty)
    }

    @Test func `DK-07 an entry larger than the limit is not kept and removes its older version`() async throws {
        let scratch = Scratch()
        let store = scratch.store(byteLimit: Self.limit)
        try await store.save([self.entry("a"), self.entry("b")], durability: .relaxed)

        let error = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await store.save([self.entry("a", size: 50_000)], durability: .relaxed)
        }

        guard case MuxStoreError.entryTooLarge(let bytes)? = error?.failures.first?.error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(bytes > 50_000)
        #expect(try await store.load(name("a")) == nil)
        #expect(try await store.load(name("b")) == self.entry("b"))
        #expect(await store.statistics().evicted == 1)
        #expect(try await scratch.store().load(name("a")) == nil)
    }

    @Test func `DK-07 a folder from before the limit shrinks when it is opened`() async throws {
        let scratch = Scratch()
        try await scratch.store().save((0..<100).map { self.entry("\($0)", at: Double($0)) }, durability: .full)

        let store = scratch.store(byteLimit: Self.limit)

        #expect(try await store.load(name("99")) != nil)
        #expect(try self.size(scratch) <= Self.limit)
    }

    @Test func `DK-07 a batch with one name twice keeps the later entry, independent of fetch times`() async throws {
        let scratch = Scratch()
        let store = scratch.store(byteLimit: Self.limit)

        try await store.save([sample("a", 1), self.entry("b"), self.entry("a", at: -100)], durability: .relaxed)

        #expect(try await store.load(name("a")) == self.entry("a", at: -100))
    }

    @Test func `DK-07 a failed compaction for space is counted and repeated by the next save`() async throws {
        let scratch = Scratch()
        let isFull = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            call.operation == .open && call.name.hasPrefix("00000001.jsonl.") && isFull.withLock { $0 }
                ? .refuse(ENOSPC) : nil
        }
        let store = scratch.store(fileSystem, byteLimit: Self.limit)
        for number in 0..<60 { try await store.save([self.entry("\(number)")], durability: .relaxed) }
        #expect(await store.statistics().failedCompactions > 0)
        #expect(try await store.load(name("0")) != nil)

        isFull.withLock { $0 = false }
        try await store.save([self.entry("60")], durability: .relaxed)

        #expect(try self.size(scratch) <= Self.limit)
        #expect(try await store.load(name("60")) != nil)
    }
}
