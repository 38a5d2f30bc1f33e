import Foundation
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct HTTPDateTests {
    private static let now = Date(timeIntervalSince1970: 1_767_225_600)  // 1 January 2026

    @Test(
        arguments: [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("  sun, 06 nov 1994 08:49:37 gmt ", 784_111_777),
            ("SUN NOV 06 08:49:37 1994", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
            ("Tue, 29 Feb 2000 12:00:00 GMT", 951_825_600),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            ("Mon, 01 Jan 0001 00:00:00 GMT", -62_135_596_800),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            ("Wednesday, 01-Jan-75 00:00:00 GMT", 3_313_526_400),  // 49 years ahead
            ("Wednesday, 01-Jan-77 00:00:00 GMT", 220_924_800),  // 51 years ahead: the past
            ("Thursday, 01-Jan-26 00:00:00 GMT", 1_767_225_600),
            ("Friday, 01-Jan-99 00:00:00 GMT", 915_148_800),
        ] as [(String, Int)]
    )
    func `N01 a date in any of the three formats is parsed`(text: String, seconds: Int) {
        #expect(HTTPDate.parse(text, now: Self.now) == Date(timeIntervalSince1970: TimeInterval(seconds)))
    }

    @Test(arguments: [
        "", " ", "0", "-1", "now", "1994-11-06T08:49:37Z", "784111777", "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov 1994 08:49:37 +0000", "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun 06 Nov 1994 08:49:37 GMT", "Son, 06 Nov 1994 08:49:37 GMT", "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 29 Feb 1900 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT", "Sun, 06 Nov 1994 08:60:00 GMT", "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 1994 8:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "Sun, 06 Nov 1994 08:49:37:00 GMT",
        "Sun, 06 Now 1994 08:49:37 GMT", "Sun, 06 Nov -994 08:49:37 GMT", "Sun, 06 Nov 1994 -8:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT", "Sunday, 06/Nov/94 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06-Nov-94-1 08:49:37 GMT", "Sun Nov  6 08:49:37 94", "Sun Nov 006 08:49:37 1994",
        "Sun Nov 6 08:49:37 1994",
        "Sunday Nov  6 08:49:37 1994", "Sun, ٠٦ Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT, x",
    ])
    func `N01 an invalid date is rejected`(text: String) {
        #expect(HTTPDate.parse(text, now: Self.now) == nil)
    }

    @Test func `N01 days throughout eight hundred years are parsed as in the Gregorian calendar`() {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = .gmt
        let names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        for day in stride(from: -120_000, to: 170_000, by: 13) {
            let date = Date(timeIntervalSince1970: TimeInterval(day) * 86_400)
            let parts = calendar.dateComponents([.year, .month, .day, .weekday], from: date)
            let number = { (value: Int?, width: Int) in
                let text = String(value ?? 0)
                return String(repeating: "0", count: max(0, width - text.utf8.count)) + text
            }
            let text =
                "\(names[(parts.weekday ?? 1) - 1]), \(number(parts.day, 2)) \(months[(parts.month ?? 1) - 1]) "
                + "\(number(parts.year, 4)) 00:00:00 GMT"
            if HTTPDate.parse(text, now: Self.now) != date { Issue.record("\(text)") }
        }
    }

    @Test func `N01 parsing arbitrary text never traps`() {
        let pieces = [
            "Sun", "Sunday", ",", " ", "06", "6", "-", "Nov", "nov", "94", "1994", "08:49:37", ":", "GMT", "99", "é",
            "\t", "0",
        ]
        var read = 0
        for seed in 0..<5_000 as Range<UInt64> {
            var random = SplitMix64(state: seed)
            var words = Array("Sun, 06 Nov 1994 08:49:37 GMT").map(String.init)
            for _ in 0..<Int.random(in: 0...3, using: &random) {
                let index = Int.random(in: 0..<words.count, using: &random)
                words[index] = pieces.randomElement(using: &random) ?? ""
            }
            let now = Date(timeIntervalSinceReferenceDate: [0, 1e300, -1e300, .infinity, .nan][Int(seed % 5)])
            if HTTPDate.parse(words.joined(), now: now) != nil { read += 1 }
            _ = HTTPDate.parse((0..<9).map { _ in pieces.randomElement(using: &random) ?? "" }.joined(), now: now)
        }
        #expect(read > 100)
    }
}
