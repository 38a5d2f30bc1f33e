import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct JournalDamageTests {
    private static let keys = ["a", "b", "c"]

    /// A closed store with three entries.
    private func filled() async throws -> Scratch {
        let scratch = Scratch()
        let store = scratch.store()
        for (number, key) in Self.keys.enumerated() {
            try await store.save([sample(key, number)], durability: .relaxed)
        }
        return scratch
    }

    /// The numbers of the keys that a new store finds; a value that was never saved is recorded as an issue.
    private func readable(_ scratch: Scratch, _ what: String) async throws -> (keys: [Int], JournalStore.Statistics) {
        let store = scratch.store()
        var keys: [Int] = []
        for (number, key) in Self.keys.enumerated() {
            guard let found = try await store.load(name(key)) else { continue }
            if found == sample(key, number) { keys.append(number) } else { Issue.record("\(what): \(found)") }
        }
        return (keys, await store.statistics())
    }

    @Test func `DK-03 a flipped byte of the journal is a counted miss of one entry`() async throws {
        let scratch = try await self.filled()
        let bytes = try [UInt8](Data(contentsOf: scratch.segment))
        let lines = bytes.split(separator: 0x0a).map { $0.endIndex }

        for index in stride(from: 0, to: bytes.count, by: Scratch.stride) {
            var damaged = bytes
            damaged[index] ^= 0x41
            try Data(damaged).write(to: scratch.segment)
            let (keys, statistics) = try await self.readable(scratch, "byte \(index)")
            // The first two lines are the journal's begin record; damage there affects no entry.
            let hit = (lines.firstIndex { index <= $0 } ?? 0) / 2 - 1
            #expect(keys == [0, 1, 2].filter { $0 != hit }, "byte \(index)")
            // The value of the begin record has no information and is not checked.
            #expect(statistics.damagedRecords == 1 || hit < 0, "byte \(index)")
        }
    }

    @Test func `DK-03 a journal cut at any length gives the entries before the cut and accepts new entries`()
        async throws
    {
        let scratch = try await self.filled()
        let bytes = try [UInt8](Data(contentsOf: scratch.segment))
        let lineEnds = bytes.indices.filter { bytes[$0] == 0x0a }.map { $0 + 1 }
        let ends = [0] + stride(from: 1, to: lineEnds.count, by: 2).map { lineEnds[$0] }

        for count in stride(from: 0, to: bytes.count, by: Scratch.stride) {
            try Data(bytes.prefix(count)).write(to: scratch.segment)
            let store = scratch.store()
            let whole = ends.filter { $0 <= count }.count - 1
            // The first record is the journal's begin record.
            for (number, key) in Self.keys.enumerated() {
                #expect(
                    try await store.load(name(key)) == (number < whole - 1 ? sample(key, number) : nil),
                    "cut at \(count)"
                )
            }
            #expect(await store.statistics().tornBytes == count - ends[whole], "cut at \(count)")
            try await store.save([sample("d")], durability: .relaxed)
            #expect(try await scratch.store().load(name("d")) == sample("d"), "cut at \(count)")
        }
    }

    @Test func `DK-03 damaged records are dropped permanently`() async throws {
        let scratch = try await self.filled()
        var bytes = try [UInt8](Data(contentsOf: scratch.segment))
        bytes[try scratch.beginning() + 5] ^= 1
        try Data(bytes).write(to: scratch.segment)

        let first = try await self.readable(scratch, "first")
        let second = try await self.readable(scratch, "second")

        #expect(first.keys == [1, 2] && first.1.damagedRecords == 1 && first.1.compactions == 1)
        #expect(second.keys == [1, 2] && second.1.damagedRecords == 0)
    }

    @Test func `DK-03 a damaged value is counted once`() async throws {
        let scratch = try await self.filled()
        var bytes = try [UInt8](Data(contentsOf: scratch.segment))
        bytes[bytes.count - 3] ^= 1
        try Data(bytes).write(to: scratch.segment)
        let store = scratch.store()

        for _ in 0..<3 { #expect(try await store.load(name("c")) == nil) }

        #expect(await store.statistics().damagedRecords == 1)
        try await store.save([sample("c", 2)], durability: .full)
        #expect(try await store.load(name("c")) == sample("c", 2))
        #expect(try await self.readable(scratch, "after").1.damagedRecords == 0)
    }

    @Test func `DK-03 a journal swapped with another store's journal counts as damage`() async throws {
        let (one, other) = (Scratch(), Scratch())
        try await one.store().save([sample("a", 1)], durability: .relaxed)
        try await other.store().save([sample("a", 2)], durability: .relaxed)
        let (first, second) = (try Data(contentsOf: one.segment), try Data(contentsOf: other.segment))

        try second.write(to: one.segment)
        try first.write(to: other.segment)

        for scratch in [one, other] {
            let store = scratch.store()
            #expect(try await store.load(name("a")) == nil)
            #expect(await store.statistics().damagedRecords == 1)
        }
    }

    @Test func `DK-03 two keys with the same digest never get each other's value`() async throws {
        let scratch = Scratch()
        let store = JournalStore(StoreFolder(scratch.root), fileSystem: POSIXFileSystem()) { _ in
            .init(domain: 1, key: 1)
        }
        try await store.save([sample("a", 1)], durability: .relaxed)

        #expect(try await store.load(name("b")) == nil)
        #expect(await store.statistics().damagedRecords == 1)
        try await store.save([sample("b", 2)], durability: .relaxed)

        #expect(try await store.load(name("b")) == sample("b", 2))
        #expect(try await store.load(name("a")) == nil)
    }

    @Test func `DK-03 garbage in place of the journal or the session file only causes misses`() async throws {
        for garbage in [
            "", "\n", "garbage", "{}\n{}\n", String(repeating: "\u{0}", count: 5000), "{\"mux\":1,\"check\":\"\n",
        ] {
            for isSession in [true, false] {
                let scratch = try await self.filled()
                try Data(garbage.utf8).write(to: isSession ? scratch.session : scratch.segment)

                #expect(try await self.readable(scratch, garbage).keys == [])

                let store = scratch.store()
                let epoch = try await store.sessionEpoch()
                #expect(isSession ? epoch > 1 << 40 : epoch == 0)
                try await store.save([sample("a", 5, epoch: epoch)], durability: .full)
                #expect(try await scratch.store().load(name("a")) == sample("a", 5, epoch: epoch))
            }
        }
    }

    @Test func `DK-03 a lost session file does not restore an earlier session`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.save([sample("a", epoch: 0), sample("b", epoch: 3)], durability: .full)
        try await store.raiseSessionEpoch(to: 3)
        try FileManager.default.removeItem(at: scratch.session)

        let later = scratch.store()

        #expect(try await later.sessionEpoch() > 3)
        #expect(try await later.load(name("a")) == nil)
        #expect(try await later.load(name("b")) == nil)
    }

    @Test func `DK-05 data of a later version is not changed`() async throws {
        let scratch = try await self.filled()
        let newer = ChecksummedLine.sealed(Array("\",\"future\":true}".utf8), version: 2) + Array("\n{}\n".utf8)
        var bytes = try [UInt8](Data(contentsOf: scratch.segment))
        bytes[try scratch.beginning() + 5] ^= 1
        try Data(bytes + newer).write(to: scratch.segment)

        #expect(try await self.readable(scratch, "newer record").keys == [1, 2])
        try await scratch.store().save([sample("d")], durability: .full)
        let after = try Data(contentsOf: scratch.segment)
        #expect(after.range(of: Data(newer)) != nil)

        try Data(newer.prefix { $0 != 0x0a } + [0x0a]).write(to: scratch.session)
        await #expect(throws: MuxStoreError.newerFormat) { try await scratch.store().load(name("b")) }
        #expect(try Data(contentsOf: scratch.segment) == after)
    }
}
