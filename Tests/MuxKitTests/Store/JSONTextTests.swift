import Foundation
import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct JSONTextTests {
    private let format = RecordCodec(store: 5)

    /// The fields of a header, for `JSONEncoder`.
    private struct Facts: Encodable {
        var digest: String
        var domain: String
        var fetched: Double
        var key: String
        var schema: Int
        var ttl: Int64
        var validator: String
    }

    @Test func `DK-01 the header equals the output of JSONEncoder`() throws {
        let texts =
            (0..<128).map { "a" + String(UnicodeScalar(UInt8($0))) } + [
                "", "é", "e\u{301}", "👩‍🚀", "\u{2028}", "\u{7f}", "\\u0041",
            ]
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]

        for (number, text) in texts.enumerated() {
            var entry = sample(text, number, domain: text + "\\\"")
            entry.validator = text
            entry.fetchedAt = Date(timeIntervalSince1970: Double(number) * 1_000_003.0625)
            let record = try self.format.record(of: entry)
            let facts = Facts(
                digest: "fnv64x8:" + Hex.text(of: PayloadDigest.hash(entry.payload)),
                domain: entry.name.domain,
                fetched: entry.fetchedAt.timeIntervalSince1970,
                key: text,
                schema: 1,
                ttl: 1800,
                validator: text
            )
            let expected = try encoder.encode(facts).dropFirst() + [0x0a]

            #expect(record.starts(with: Array("{\"mux\":1,\"check\":\"".utf8)))
            #expect(record.dropLast(entry.payload.count + 1).suffix(expected.count).elementsEqual(expected), "\(text)")
            #expect(self.format.entry(in: record) == entry)
        }
    }

    @Test func `DK-01 a frame decodes to the encoded header`() {
        for kind in RecordHeader.Kind.allCases {
            for number: UInt64 in [0, 1, 9, 10, 12_345, .max] {
                let frame = RecordHeader(
                    kind: kind,
                    store: number,
                    digest: .init(domain: ~number, key: number &* 7),
                    epoch: number,
                    payloadCount: Int64(min(number, RecordCodec.maximumPayload)),
                    usableUntil: UInt32(clamping: number)
                )
                #expect(RecordHeader(frame.bytes.dropFirst()) == frame)
            }
        }
    }
}
