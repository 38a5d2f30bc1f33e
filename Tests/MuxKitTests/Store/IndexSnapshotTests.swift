import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct KeptIndexTests {
    private static let floor = 4

    /// A closed store of ten entries with an index snapshot, and two entries that the index does not cover.
    private func filled() async throws -> Scratch {
        let scratch = Scratch()
        let store = scratch.store(indexFloor: Self.floor)
        try await store.save((0..<10).map { sample("\($0)", $0) }, durability: .relaxed)
        try await store.save([sample("3", 33), sample("new", 1)], durability: .relaxed)
        #expect(try await store.brokenInvariants().isEmpty)
        return scratch
    }

    /// Reopens the store and checks all entries, and whether the index was rebuilt.
    private func check(_ scratch: Scratch, rebuilt: Int, _ what: Comment) async throws {
        let store = scratch.store(indexFloor: Self.floor)
        for number in 0..<10 where number != 3 {
            #expect(try await store.load(name("\(number)")) == sample("\(number)", number), what)
        }
        #expect(try await store.load(name("3")) == sample("3", 33), what)
        #expect(try await store.load(name("new")) == sample("new", 1), what)
        let statistics = await store.statistics()
        #expect(statistics.rebuiltIndexes == rebuilt && statistics.damagedRecords == 0, what)
        #expect(try await store.brokenInvariants().isEmpty, what)
    }

    @Test func `DK-07 an opening with an index snapshot reads only the records after the covered part`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        for part in 0..<10 {
            let numbers = part * 2000..<(part + 1) * 2000
            try await store.save(numbers.map { sample("\($0)", $0) }, durability: .relaxed)
        }
        let recorder = RecordingFileSystem()

        let found = try await scratch.store(recorder).load(name("777"))

        #expect(found == sample("777", 777))
        // The segment has 7 MB: walking it would take about 100 reads.
        let reads = recorder.calls.filter { $0.operation == .read }
        #expect(reads.filter { $0.name == "00000001.jsonl" }.count < 35, "\(reads.count) reads")
        #expect(recorder.calls.filter { $0.operation == .list }.count == 2)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.root.path).count == 3)
    }

    @Test func `DK-07 a valid index is used, and records appended later are walked`() async throws {
        try await self.check(try await self.filled(), rebuilt: 0, "as it is")
    }

    @Test func `DK-07 a missing index loses no entry`() async throws {
        let scratch = try await self.filled()
        try FileManager.default.removeItem(at: scratch.index)

        try await self.check(scratch, rebuilt: 0, "missing")

        #expect(FileManager.default.fileExists(atPath: scratch.index.path))
    }

    @Test func `DK-07 an index with any flipped byte is rejected`() async throws {
        let scratch = try await self.filled()
        let bytes = try Data(contentsOf: scratch.index)
        let segment = try Data(contentsOf: scratch.segment)

        for position in bytes.indices {
            var damaged = bytes
            damaged[position] ^= 1 << UInt8(position % 8)
            #expect(IndexSnapshot([UInt8](damaged)) == nil, "byte \(position)")
            guard position % 25 == 0 else { continue }
            try damaged.write(to: scratch.index)
            try await self.check(scratch, rebuilt: 1, "byte \(position)")
        }
        for count in stride(from: 0, to: bytes.count, by: 61) {
            try bytes.prefix(count).write(to: scratch.index)
            try await self.check(scratch, rebuilt: 1, "cut at \(count)")
        }
        try (bytes + [0]).write(to: scratch.index)
        try await self.check(scratch, rebuilt: 1, "one byte more")
        #expect(try Data(contentsOf: scratch.segment) == segment)
    }

    @Test func `DK-07 an index of another journal or another store is rejected`() async throws {
        let (scratch, other) = (try await self.filled(), try await self.filled())
        try FileManager.default.removeItem(at: scratch.index)
        try FileManager.default.copyItem(at: other.index, to: scratch.index)

        try await self.check(scratch, rebuilt: 1, "of another store")
    }

    @Test func `DK-07 the index of a journal before its compaction is rejected`() async throws {
        let scratch = Scratch()
        let store = scratch.store(indexFloor: Self.floor)
        try await store.save((0..<10).map { sample("\($0)", $0) }, durability: .relaxed)
        let former = try Data(contentsOf: scratch.index)
        let end = try Data(contentsOf: scratch.segment).count
        // The loads change the order of all records except the last record, which keeps its offset.
        for number in [8, 7, 6, 5, 4, 3, 2, 1, 0, 9] { _ = try await store.load(name("\(number)")) }
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 70_000))\"".utf8)
        try await store.save([large], durability: .relaxed)
        try await store.remove([name("large")], durability: .relaxed)
        #expect(await store.statistics().compactions == 1)
        #expect(try await store.brokenInvariants().isEmpty)
        #expect(try Data(contentsOf: scratch.segment).count == end)

        try former.write(to: scratch.index)

        let fresh = scratch.store(indexFloor: Self.floor)
        for number in 0..<10 { #expect(try await fresh.load(name("\(number)")) == sample("\(number)", number)) }
        #expect(await fresh.statistics().rebuiltIndexes == 1)
        #expect(await fresh.statistics().damagedRecords == 0)
    }

    @Test func `DK-07 the index of a journal that was cut and continued differently is rejected`() async throws {
        let scratch = Scratch()
        let store = scratch.store(indexFloor: 5)
        try await store.save((0..<3).map { sample("\($0)", $0) }, durability: .relaxed)
        let before = try Data(contentsOf: scratch.segment)
        try await store.save([sample("3", 3), sample("4", 4)], durability: .relaxed)
        #expect(FileManager.default.fileExists(atPath: scratch.index.path))

        // An older copy of the journal is restored, and grows to the same length.
        try before.write(to: scratch.segment)
        let index = try Data(contentsOf: scratch.index)
        try FileManager.default.removeItem(at: scratch.index)
        try await scratch.store().save([sample("5", 5), sample("6", 6)], durability: .relaxed)
        try index.write(to: scratch.index)

        let fresh = scratch.store(indexFloor: Self.floor)
        #expect(try await fresh.load(name("5")) == sample("5", 5))
        #expect(try await fresh.load(name("3")) == nil)
        #expect(await fresh.statistics().rebuiltIndexes == 1)
        #expect(await fresh.statistics().damagedRecords == 0)
    }

    @Test func `DK-07 an index that covers more than its journal contains is rejected`() async throws {
        let scratch = Scratch()
        let store = scratch.store(indexFloor: Self.floor)
        try await store.save((0..<10).map { sample("\($0)", $0) }, durability: .relaxed)
        let segment = try Data(contentsOf: scratch.segment)
        // The first line of the last record is unchanged.
        try segment.dropLast(5).write(to: scratch.segment)

        let fresh = scratch.store(indexFloor: Self.floor)
        try await fresh.save([sample("new", 1)], durability: .relaxed)

        #expect(await fresh.statistics().rebuiltIndexes == 1)
        #expect(await fresh.statistics().tornBytes > 0)
        #expect(try await fresh.load(name("9")) == nil)
        #expect(try await scratch.store().load(name("new")) == sample("new", 1))
        #expect(try await fresh.brokenInvariants().isEmpty)
    }

    @Test func `DK-07 an index that cannot be written is counted and fails no call`() async throws {
        let scratch = Scratch()
        let fileSystem = RecordingFileSystem { _, call in
            call.name.hasPrefix("00000001.index") && call.operation != .status ? .refuse(ENOSPC) : nil
        }
        let store = scratch.store(fileSystem, indexFloor: Self.floor)

        try await store.save((0..<10).map { sample("\($0)", $0) }, durability: .full)

        #expect(await store.statistics().failedIndexes == 1)
        #expect(try await store.load(name("7")) == sample("7", 7))
        #expect(try await scratch.store().load(name("7")) == sample("7", 7))
    }

    @Test func `RP-04 an index snapshot does not restore an earlier session`() async throws {
        let scratch = Scratch()
        let first = scratch.store(indexFloor: Self.floor)
        try await first.save((0..<10).map { sample("\($0)", $0) }, durability: .relaxed)
        try await first.raiseSessionEpoch(to: 1)

        // The index covers the entire journal, so only its rows show that entries of an ended session remain.
        let store = scratch.store(indexFloor: Self.floor)

        #expect(try await store.load(name("1")) == nil)
        #expect(await store.statistics().rebuiltIndexes == 0)
        #expect(try Data(contentsOf: scratch.segment).isEmpty)
        #expect(try await store.brokenInvariants().isEmpty)
    }

    @Test func `DK-07 a compaction removes the index of the replaced journal`() async throws {
        let scratch = try await self.filled()
        let store = scratch.store()
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 70_000))\"".utf8)
        try await store.save([large], durability: .relaxed)
        try await store.remove([name("large")], durability: .relaxed)
        #expect(await store.statistics().compactions == 1)

        #expect(!FileManager.default.fileExists(atPath: scratch.index.path))
        try await self.check(scratch, rebuilt: 0, "after the compaction")
    }

    @Test func `CO-17 an index of any written size is read`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let store = JournalStore(StoreFolder(folder.url), byteLimit: nil, indexFloor: 1, fileSystem: POSIXFileSystem())
        try await store.save([sample("a")], durability: .relaxed)
        let index = folder.url.appending(path: "journal/00000001.index")
        let segment = folder.url.appending(path: "journal/00000001.jsonl")
        var kept = try #require(IndexSnapshot([UInt8](try Data(contentsOf: index))))
        let row = try #require(kept.rows.first)
        // Simulates many entries and a long journal.
        let file = try FileHandle(forWritingTo: segment)
        try file.truncate(atOffset: 200_000_000)
        try file.close()
        kept.anchor.covered = 200_000_000
        let count: UInt64 = (1 << 24) / UInt64(IndexSnapshot.rowSize) + 1
        kept.rows = (0..<count).map { number in
            JournalIndex.Location(
                digest: .init(domain: 1, key: number),
                offset: row.offset,
                count: row.byteCount,
                epoch: 0
            )
        }
        kept.rows.append(row)
        try Data(kept.encoded).write(to: index)
        let recorder = RecordingFileSystem()

        let later = JournalStore(StoreFolder(folder.url), byteLimit: nil, fileSystem: recorder)

        #expect(try await later.load(name("a")) == sample("a"))
        #expect(await later.statistics() == JournalStore.Statistics())
        #expect(recorder.calls.filter { $0.operation == .read && $0.name == "00000001.jsonl" }.count < 5)
    }

    @Test func `DK-07 an index decodes to the encoded rows`() {
        let anchor = IndexSnapshot.Anchor(store: .max, generation: 1, covered: 1 << 40, lastOffset: 7, lastStamp: .max)
        let rows = (0..<100).map { number in
            JournalIndex.Location(
                digest: .init(domain: .random(in: .min ... .max), key: UInt64(number)),
                offset: Int64(number) << 30,
                count: 1 << 30,
                epoch: .max - UInt64(number),
                usableUntil: number % 2 == 0 ? 0 : UInt32.max
            )
        }
        for rows in [rows, []] {
            let kept = IndexSnapshot(anchor: anchor, rows: rows)
            #expect(IndexSnapshot(kept.encoded) == kept)
        }
        // A row outside the covered range is rejected although the digest is correct.
        for (offset, count): (Int64, Int64) in [
            (-1, 5), (0, 0), (0, -1), (1 << 40, 1), (.max, .max), (.max, 1), ((1 << 40) - 1, .max),
        ] {
            let row = JournalIndex.Location(digest: rows[0].digest, offset: offset, count: count, epoch: 0)
            #expect(IndexSnapshot(IndexSnapshot(anchor: anchor, rows: [row]).encoded) == nil)
        }
    }
}
