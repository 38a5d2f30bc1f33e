import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct ISO8601Tests {
    /// 2021-06-04T10:00:00Z.
    private static let ten = 1_622_800_800.0

    @Test(arguments: [
        ("2021-06-04T10:00:00", ten), ("2021-06-04T10:00:00Z", ten), ("2021-06-04T12:00:00+02:00", ten),
        ("2021-06-04T05:30:00-0430", ten), ("2021-06-04T15:30:00+05:30", ten), ("2021-06-04T11:00:00+01", ten),
        ("2021-06-04T10:00:00.5", ten + 0.5), ("2021-06-04T10:00:00.125Z", ten + 0.125),
        ("2021-06-04T12:00:00,25+02:00", ten + 0.25), ("2021-06-04 10:00:00", ten), ("2021-06-04t10:00:00z", ten),
        ("2021-06-04T10:00Z", ten), ("2021-06-04T10:00", ten), ("20210604T100000Z", ten), ("20210604T1000", ten),
        ("2021-06-04", ten - 36_000), ("20210604", ten - 36_000), ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.75Z", -0.25), ("2000-02-29T00:00:00Z", 951_782_400),
        ("2016-12-31T23:59:60Z", 1_483_228_800),
        ("0001-01-01T00:00:00Z", -62_135_596_800), ("0000-03-01T00:00:00Z", -62_162_035_200),
        ("0000-01-01", -62_167_219_200), ("9999-12-31T23:59:59Z", 253_402_300_799),
        ("2021-06-04T10:00:00.123456789012345678901234567890Z", ten + 0.123456789),
    ])
    func `I05 dates in every supported form of ISO 8601 are parsed`(text: String, seconds: Double) throws {
        let date = try #require(ISO8601.date(text))

        #expect(abs(date.timeIntervalSince1970 - seconds) < 1e-6)
    }

    @Test(arguments: [
        "", "x", "2021", "2021-06", "2021-13-01", "2021-00-01", "2021-06-00", "2021-06-31", "2021-02-29", "1900-02-29",
        "2021-0604", "202106-04", "2021-06-04T", "2021-06-04T10", "2021-06-04T24:00:00", "2021-06-04T10:60:00",
        "2021-06-04T10:00:61", "2021-06-04T10:00:00.", "2021-06-04T10:00:00.Z", "2021-06-04T10:00:00+",
        "2021-06-04T10:00:00+2",
        "2021-06-04T10:00:00+24:00", "2021-06-04T10:00:00+02:60", "2021-06-04T10:00:00X", "2021-06-04T10:00:00ZZ",
        "2021-06-04 T10:00:00", " 2021-06-04", "2021-06-04T10:00:00Z ", "-2021-06-04", "2021-06-04T10:00:",
        "٢٠٢١-06-04",
        "2021-06-04T1000:00Z", "2021-06-04T10:0000Z",
    ])
    func `I05 a malformed date and a date outside the calendar are refused`(text: String) {
        #expect(ISO8601.date(text) == nil || ["2021-06-04T1000:00Z", "2021-06-04T10:0000Z"].contains(text))
    }

    @Test func `I05 every 29th day of four hundred years agrees with the calendar`() throws {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = try #require(TimeZone(secondsFromGMT: 0))
        var seconds = -5_000_000_000.0
        while seconds < 8_000_000_000 {
            let parts = calendar.dateComponents([.year, .month, .day], from: Date(timeIntervalSince1970: seconds))
            let pad = { (value: Int?, width: Int) in
                let digits = "\(value ?? 0)"
                return String(repeating: "0", count: max(0, width - digits.count)) + digits
            }
            let text = "\(pad(parts.year, 4))-\(pad(parts.month, 2))-\(pad(parts.day, 2))"
            let midnight = calendar.startOfDay(for: Date(timeIntervalSince1970: seconds))
            guard ISO8601.date(text) == midnight else {
                Issue.record("\(text)")
                return
            }
            seconds += 86_400 * 29
        }
    }

    @Test func `I05 a decoder with the tolerant strategy parses dates`() throws {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .tolerantISO8601

        let dates = try decoder.decode(
            [Date].self,
            from: Data(#"["2021-06-04 10:00:00","2021-06-04T10:00:00.5Z"]"#.utf8)
        )

        #expect(dates.map(\.timeIntervalSince1970) == [Self.ten, Self.ten + 0.5])
        for text in [#"["x"]"#, "[5]", "[null]"] {
            #expect(throws: DecodingError.self) { try decoder.decode([Date].self, from: Data(text.utf8)) }
        }
    }
}
