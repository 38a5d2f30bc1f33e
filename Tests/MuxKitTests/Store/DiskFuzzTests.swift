import Foundation
import MuxKit
import MuxTestSupport
import Testing

/// Seeded mutations of all data read from disk.
///
/// `MUX_FUZZ=100` multiplies the number of mutations by 100; `MUX_SEED=7` starts with seed 7.
@Suite(.standard(minutes: 60))
struct DiskFuzzTests {
    private let format = RecordCodec(store: 9)
    private let fuzz = FuzzRun()

    init() { self.fuzz.announce() }

    private func run(_ count: Int, _ body: (inout Mutator, Comment) async throws -> Void) async throws {
        for number in 0..<(count * self.fuzz.factor) {
            var mutator = Mutator(seed: self.fuzz.seed &+ UInt64(number), words: Mutator.journalWords)
            try await body(&mutator, "MUX_SEED=\(self.fuzz.seed &+ UInt64(number))")
        }
    }

    private var entry: MuxStoredEntry {
        var entry = sample("a\n\"é", 5)
        entry.validator = "\"v\\1\""
        entry.timeToLive = .seconds(1) / 3
        return entry
    }

    @Test func `DK-03 a mutated record decodes to the written entry or is rejected`() async throws {
        let record = try self.format.record(of: self.entry)

        try await self.run(3000) { mutator, seed in
            let found = self.format.entry(in: mutator.mutated(record))
            #expect(found == nil || found == self.entry, seed)
        }
    }

    @Test func `DK-03 a mutated record with a correct checksum decodes to a writable entry or is rejected`()
        async throws
    {
        let record = try self.format.record(of: self.entry)
        let end = try #require(record.firstIndex(of: 0x0a))
        let rest = Array(record[ChecksummedLine.restOffset..<end])

        try await self.run(3000) { mutator, seed in
            let line = ChecksummedLine.sealed(mutator.mutated(rest))
            guard let found = self.format.entry(in: line + record[end...]) else { return }
            // The decoded entry can be encoded and decoded again.
            #expect(throws: Never.self, seed) {
                let again = self.format.entry(in: try self.format.record(of: found))
                #expect(again == found, seed)
            }
        }
    }

    @Test func `DK-03 a time to live beyond the longest written time counts as damage`() throws {
        let record = try self.format.record(of: self.entry)
        let end = try #require(record.firstIndex(of: 0x0a))
        let facts = String(decoding: record[ChecksummedLine.restOffset..<end], as: UTF8.self)
        for (seconds, isRead) in [("9223372036854775806", true), ("9223372036854775807", false)] {
            let other = facts.replacing(#""ttl":0,"#, with: "\"ttl\":\(seconds),")
            try #require(other != facts)
            #expect(
                (self.format.entry(in: ChecksummedLine.sealed(Array(other.utf8)) + record[end...]) != nil) == isRead
            )
        }
    }

    @Test func `DK-07 a mutated index decodes to the written index or is rejected`() async throws {
        let anchor = IndexSnapshot.Anchor(store: 9, generation: 8, covered: 9_000, lastOffset: 8_500, lastStamp: 7)
        let rows = (0..<5).map { number in
            JournalIndex.Location(
                digest: .init(domain: 1, key: UInt64(number)),
                offset: Int64(number) * 100,
                count: 90,
                epoch: 0
            )
        }
        let kept = IndexSnapshot(anchor: anchor, rows: rows)
        let bytes = kept.encoded
        let end = try #require(bytes.firstIndex(of: 0x0a))
        let rest = Array(bytes[ChecksummedLine.restOffset..<end])

        try await self.run(2000) { mutator, seed in
            let found = IndexSnapshot(mutator.mutated(bytes))
            #expect(found == nil || found == kept, seed)
            // With a correct checksum all decoded rows are inside the journal.
            guard let other = IndexSnapshot(ChecksummedLine.sealed(mutator.mutated(rest)) + bytes[end...]) else {
                return
            }
            let isInside = other.rows.allSatisfy {
                $0.offset >= 0 && $0.byteCount > 0 && $0.offset + $0.byteCount <= other.anchor.covered
            }
            #expect(isInside && other.anchor.lastOffset >= 0 && other.anchor.lastOffset < other.anchor.covered, seed)
        }
    }

    @Test func `DK-07 two changes in an index do not cancel each other in the digest`() {
        let anchor = IndexSnapshot.Anchor(store: 9, generation: 8, covered: 9_000, lastOffset: 8_500, lastStamp: 7)
        let rows = (0..<4).map { number in
            JournalIndex.Location(digest: .init(domain: 1, key: UInt64(number)), offset: 100, count: 90, epoch: 0)
        }
        let bytes = IndexSnapshot(anchor: anchor, rows: rows).encoded
        let start = bytes.count - rows.count * IndexSnapshot.rowSize
        var accepted = 0
        for bit in 0..<64 {
            for first in stride(from: start, to: bytes.count, by: 8) {
                for second in stride(from: first + 8, to: bytes.count, by: 8) {
                    var changed = bytes
                    for word in [first, second] { changed[word + bit / 8] ^= 1 << UInt8(bit % 8) }
                    if IndexSnapshot(changed) != nil { accepted += 1 }
                }
            }
        }
        #expect(accepted == 0)
    }

    @Test func `DK-03 a mutated session file decodes to the written file, as damaged or as newer`() async throws {
        let file = SessionFile(epoch: 5, store: 7)

        try await self.run(1000) { mutator, seed in
            let found = SessionFile.decode(Data(mutator.mutated([UInt8](file.encoded))))
            #expect([.present(file), .damaged, .newer].contains(found), seed)
        }
    }

    @Test func `DK-03 a store on mutated files finds written entries or no entry`() async throws {
        let scratch = Scratch()
        let first = scratch.store(indexFloor: 2)
        for number in 0..<4 { try await first.save([sample("\(number)", number)], durability: .relaxed) }
        let segment = [UInt8](try Data(contentsOf: scratch.segment))
        let index = [UInt8](try Data(contentsOf: scratch.index))
        let session = [UInt8](try Data(contentsOf: scratch.session))

        try await self.run(100) { mutator, seed in
            try Data(Bool.random(using: &mutator) ? mutator.mutated(segment) : segment).write(to: scratch.segment)
            try Data(Bool.random(using: &mutator) ? mutator.mutated(index) : index).write(to: scratch.index)
            try Data(session).write(to: scratch.session)
            let store = scratch.store(indexFloor: 2)
            for number in 0..<4 {
                let found = try await store.load(name("\(number)"))
                #expect(found == nil || found == sample("\(number)", number), seed)
            }
            try await store.save([sample("new", 9)], durability: .relaxed)
            #expect(try await scratch.store(indexFloor: 2).load(name("new")) == sample("new", 9), seed)
        }
    }
}
