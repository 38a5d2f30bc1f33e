import Foundation
import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct EntryFormatTests {
    private let format = RecordCodec(store: 0x0123_4567_89ab_cdef)

    @Test func `DK-01 a record is two lines of JSON with the fields in the first line`() throws {
        var entry = sample("a/é", 7, epoch: 3)
        entry.validator = "\"v1\""

        let record = try self.format.record(of: entry)

        let lines = record.split(separator: 0x0a, omittingEmptySubsequences: false)
        #expect(lines.count == 3 && lines[2].isEmpty)
        let header = try #require(try JSONSerialization.jsonObject(with: Data(lines[0])) as? [String: Any])
        #expect(header["mux"] as? Int == 1)
        #expect(header["kind"] as? String == "entry")
        #expect(header["domain"] as? String == "users")
        #expect(header["key"] as? String == "a/é")
        #expect(header["schema"] as? Int == 1)
        #expect(header["epoch"] as? Int == 3)
        #expect(header["fetched"] as? Double == 1_767_225_600.5)
        #expect(header["ttl"] as? Int == 1800)
        #expect(header["validator"] as? String == "\"v1\"")
        #expect(header["bytes"] as? Int == entry.payload.count)
        #expect((header["digest"] as? String)?.hasPrefix("fnv64x8:") == true)
        #expect(Data(lines[1]) == entry.payload)
    }

    @Test func `DK-01 a missing key is encoded as null, and an empty key as an empty string`() throws {
        let without = try self.format.record(of: sample(nil))
        let empty = try self.format.record(of: sample(""))

        #expect(String(decoding: without, as: UTF8.self).contains("\"key\":null"))
        #expect(String(decoding: empty, as: UTF8.self).contains("\"key\":\"\""))
        #expect(EntryDigest(name(nil)) != EntryDigest(name("")))
    }

    @Test func `DK-03 a record with any flipped bit is rejected`() throws {
        let entry = sample("alice", 42)
        let record = try self.format.record(of: entry)
        #expect(self.format.entry(in: record) == entry)

        for index in record.indices {
            for bit in 0..<8 {
                var damaged = record
                damaged[index] ^= 1 << UInt8(bit)
                if self.format.entry(in: damaged) != nil { Issue.record("byte \(index), bit \(bit) went unnoticed") }
            }
        }
    }

    @Test func `DK-03 a truncated or extended record is rejected`() throws {
        let record = try self.format.record(of: sample("alice"))

        #expect(record.indices.allSatisfy { self.format.entry(in: Array(record[..<$0])) == nil })
        #expect(self.format.entry(in: record + [0x0a]) == nil)
        #expect(self.format.entry(in: record + record) == nil)
        #expect(RecordCodec(store: 1).entry(in: record) == nil)
    }

    @Test(arguments: [
        "\"schema\":1,\"fetched\":1e999,\"ttl\":1", "\"schema\":1,\"fetched\":\"NaN\",\"ttl\":1",
        "\"schema\":1,\"fetched\":1,\"ttl\":-1", "\"schema\":1,\"fetched\":1,\"ttl\":1e30",
        "\"schema\":1,\"fetched\":1",
        "\"schema\":1e40,\"fetched\":1,\"ttl\":1", "\"schema\":1,\"fetched\":1,\"ttl\":1,\"ttl_attoseconds\":-1",
        "\"schema\":1,\"fetched\":1,\"ttl\":9223372036854775807,\"ttl_attoseconds\":9223372036854775807",
        "\"fetched\":1,\"ttl\":1", "\"schema\":1,\"fetched\":1,\"ttl\":1} ", "\"schema\":1,\"fetched\":1,\"ttl\":1,",
        "\"schema\":1,\"fetched\":1,\"ttl\":1,\"validator\":\"\\u0041\"",
        "\"x\":\(String(repeating: "[", count: 9000))",
    ])
    func `DK-03 invalid fields with a correct checksum are rejected`(facts: String) {
        let payload = Array("null".utf8)
        let frame = RecordHeader(
            kind: .entry,
            store: self.format.store,
            digest: .init(name("a")),
            epoch: 0,
            payloadCount: 4
        )
        func record(_ facts: String) -> [UInt8] {
            let digest =
                "\"digest\":\"fnv64x8:\(Hex.text(of: PayloadDigest.hash(payload)))\",\"domain\":\"users\",\"key\":\"a\","
            return ChecksummedLine.sealed(frame.bytes + Array((digest + facts + "}").utf8)) + [0x0a] + payload + [0x0a]
        }

        #expect(self.format.entry(in: record("\"schema\":1,\"fetched\":1,\"ttl\":1")) != nil)
        #expect(self.format.entry(in: record(facts)) == nil)
    }

    @Test(arguments: [
        "99999999999", "9999999999", "        -1", "      0x10", "          ", "1e3       ", "      +100",
    ])
    func `DK-03 an invalid length is refused before the value is read`(field: String) {
        let frame = RecordHeader(kind: .entry, store: 1, digest: .init(name("a")), epoch: 0, payloadCount: 4)
        let text = String(decoding: frame.bytes, as: UTF8.self).replacingOccurrences(
            of: "         4,",
            with: field + ","
        )

        let line = ChecksummedLine.sealed(Array(text.utf8))

        #expect(RecordCodec.parseHeader(line[...]) == nil)
    }

    @Test func `DK-03 arbitrary bytes neither trap nor decode`() {
        var generator = SystemRandomNumberGenerator()
        let words = ["{\"mux\":1", ",\"check\":\"", "0123456789abcdef", "\n", "\"", ",", "{", "}", "entry", "\u{0}"]

        for _ in 0..<500 {
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 0..<20, using: &generator) {
                bytes +=
                    Bool.random(using: &generator)
                    ? Array((words.randomElement(using: &generator) ?? "").utf8)
                    : [UInt8.random(in: 0...255, using: &generator)]
            }
            #expect(self.format.entry(in: bytes) == nil)
            #expect(RecordCodec.parseHeader(bytes[...]) == nil)
            #expect(SessionFile.decode(Data(bytes)) == .damaged)
        }
    }

    @Test(arguments: ["{\n}", "\r", "1\r\n", "\n"])
    func `DK-01 a value with a raw line break is refused`(text: String) {
        var entry = sample("a")
        entry.payload = Data(text.utf8)

        #expect(throws: MuxStoreError.lineBreakInPayload) { try self.format.record(of: entry) }
    }

    @Test func `DK-01 times that cannot be read back are refused`() {
        for seconds in [Double.nan, .infinity, -.infinity] {
            var entry = sample("a")
            entry.fetchedAt = Date(timeIntervalSinceReferenceDate: seconds)
            #expect(throws: MuxStoreError.timeOutOfRange) { try self.format.record(of: entry) }
        }
        var entry = sample("a")
        entry.timeToLive = .nanoseconds(-1)
        #expect(throws: MuxStoreError.timeOutOfRange) { try self.format.record(of: entry) }
    }

    @Test func `DK-01 a name too long for the header line is refused`() {
        let entry = sample(String(repeating: "k", count: RecordCodec.maximumHeader))

        #expect(throws: MuxStoreError.self) { try self.format.record(of: entry) }
    }

    @Test func `DK-06 times are restored exactly, up to a maximum`() throws {
        for time in [0.1, 800_000_000.1, 812_345_678.987_654_3, -1e9, .leastNonzeroMagnitude, 1e300] {
            for life in [Duration.zero, .seconds(Int64.max), .nanoseconds(1), .seconds(1) / 7] {
                var entry = sample("a")
                entry.fetchedAt = Date(timeIntervalSinceReferenceDate: time)
                entry.timeToLive = life
                #expect(self.format.entry(in: try self.format.record(of: entry)) == entry)
            }
        }
        var entry = sample("a")
        entry.timeToLive = Duration.seconds(Int64.max) * 2
        #expect(self.format.entry(in: try self.format.record(of: entry))?.timeToLive == .seconds(Int64.max))
    }

    @Test func `DK-02 a flipped bit in the session file is detected`() {
        let file = SessionFile(epoch: 5, store: 7)
        #expect(SessionFile.decode(file.encoded) == .present(file))

        for index in file.encoded.indices {
            for bit in 0..<8 {
                var damaged = file.encoded
                damaged[index] ^= 1 << UInt8(bit)
                #expect(SessionFile.decode(damaged) == .damaged, "byte \(index), bit \(bit)")
            }
        }
        let newer = ChecksummedLine.sealed(Array("\",\"future\":true}".utf8), version: 2) + [0x0a]
        #expect(SessionFile.decode(Data(newer)) == .newer)
    }
}
