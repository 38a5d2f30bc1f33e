import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct JournalWalkerTests {
    private let format = RecordCodec(store: 1)

    /// The result of a walk: offsets of records, numbers of damaged and newer regions, and the end.
    private struct Walk: Equatable {
        var offsets: [Int64] = []
        var damage = 0
        var newer = 0
        var position: Int64 = 0
        var endsTorn = false
        var endsWithLineBreak = true
    }

    private func walk(_ bytes: [UInt8], from start: Int64 = 0) throws -> Walk {
        var walker = JournalWalker(from: start, to: Int64(bytes.count)) { offset, count in
            Array(bytes.dropFirst(Int(offset)).prefix(count))
        }
        var walk = Walk()
        while let step = try walker.next() {
            switch step {
            case .record(_, let offset, _): walk.offsets.append(offset)
            case .damage: walk.damage += 1
            case .newer: walk.newer += 1
            }
        }
        (walk.position, walk.endsTorn) = (walker.position, walker.endsTorn)
        walk.endsWithLineBreak = walker.endsWithLineBreak
        return walk
    }

    private func records(_ count: Int) throws -> [[UInt8]] {
        try (0..<count).map { try self.format.record(of: sample("key \($0)", $0)) }
    }

    @Test func `DK-03 a journal cut anywhere gives the records before the cut`() throws {
        let records = try self.records(3)
        let all = Array(records.joined())
        let ends = records.reduce(into: [0]) { $0.append(($0.last ?? 0) + $1.count) }

        for count in 0...all.count {
            let walk = try self.walk(Array(all.prefix(count)))
            let whole = ends.filter { $0 <= count }.count - 1
            #expect(walk.offsets.count == whole && walk.damage == 0)
            #expect(walk.position == Int64(ends[whole]))
            #expect(walk.endsTorn == !ends.contains(count))
        }
    }

    @Test func `DK-03 a flipped byte costs no other record`() throws {
        let records = try self.records(3)
        let all = Array(records.joined())
        let starts = [0, records[0].count, records[0].count + records[1].count].map(Int64.init)

        for index in all.indices {
            var bytes = all
            bytes[index] ^= 1
            let walk = try self.walk(bytes)
            let hit = starts.lastIndex { $0 <= Int64(index) } ?? 0
            var others = starts
            others.remove(at: hit)
            #expect(others.allSatisfy(walk.offsets.contains), "byte \(index)")
            #expect(walk.position == Int64(all.count) && !walk.endsTorn, "byte \(index)")
            // The walk does not detect damage in a value; a read of the value does.
            #expect(walk.offsets.count + walk.damage == 3, "byte \(index)")
        }
    }

    @Test func `DK-03 bytes missing or added in the middle cost one record`() throws {
        let records = try self.records(3)
        let start = records[0].count

        for index in 0..<records[1].count {
            let missing = records[0] + records[1].prefix(index) + records[1].dropFirst(index + 1) + records[2]
            let walk = try self.walk(missing)
            #expect(walk.offsets.first == 0 && walk.offsets.last == Int64(start + records[1].count - 1), "\(index)")
            let added = records[0] + records[1].prefix(index) + [0x0a] + records[1].dropFirst(index) + records[2]
            let other = try self.walk(added)
            #expect(other.offsets.first == 0 && other.offsets.last == Int64(start + records[1].count + 1), "\(index)")
        }
    }

    @Test func `DK-05 a record of a later version counts neither as damaged nor as torn`() throws {
        let records = try self.records(2)
        let newer = ChecksummedLine.sealed(Array("\",\"lines\":3}".utf8), version: 2) + Array("\n1\n2".utf8)

        let middle = try self.walk(records[0] + newer + [0x0a] + records[1])
        let end = try self.walk(records[0] + newer)

        #expect(middle.offsets.count == 2 && middle.newer == 1 && middle.damage == 0)
        #expect(end.newer == 1 && end.damage == 0 && !end.endsTorn && !end.endsWithLineBreak)
    }

    @Test func `DK-03 the walk steps over a value larger than the read window`() throws {
        var large = sample("large")
        large.payload.replaceSubrange(0..., with: [0x22] + [UInt8](repeating: 0x78, count: 200_000) + [0x22])
        let bytes = try self.format.record(of: large) + self.records(1).joined()

        let walk = try self.walk(bytes)

        #expect(walk.offsets.count == 2 && walk.position == Int64(bytes.count))
    }

    @Test func `DK-03 a walk over arbitrary lines reaches their end`() throws {
        for _ in 0..<200 {
            let bytes = (0..<Int.random(in: 0..<300)).map { _ -> UInt8 in
                [0x0a, 0x7b, 0x22, 0x00, 0xff].randomElement() ?? 0
            }
            let walk = try self.walk(bytes)
            #expect(walk.offsets.isEmpty)
            #expect(walk.position == Int64(bytes.count) || walk.endsTorn)
        }
    }
}
