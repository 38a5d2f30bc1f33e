package import Foundation

/// Reads the three forms of a time that HTTP knows: RFC 9110, section 5.6.7.
///
/// Total: whatever is not a time in one of the forms is `nil`. As RFC 9111, section 4.2, recommends, the case of letters does
/// not count, and a zone other than GMT is not a time.
package enum HTTPDate {
    /// The time that `text` says.
    ///
    /// - Parameters:
    ///   - text: The value of a header field.
    ///   - now: Decides what century a year of two digits is in: more than 50 years ahead means the past.
    /// - Returns: The time; `nil` if it is none.
    package static func parse(_ text: String, now: Date) -> Date? {
        let words = HTTPGrammar.trimmed(text).lowercased().split(separator: " ")
        switch words.count {
        case 6: return self.preferred(words)
        case 5: return self.ofC(words)
        case 4: return self.obsolete(words, now: now)
        default: return nil
        }
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`.
    private static func preferred(_ words: [Substring]) -> Date? {
        guard words[0].last == ",", self.days.contains(words[0].dropLast()), words[5] == "gmt",
            let day = self.number(words[1], 2...2), let year = self.number(words[3], 4...4)
        else { return nil }
        return self.date(year, words[2], day, words[4])
    }

    /// `Sunday, 06-Nov-94 08:49:37 GMT`.
    private static func obsolete(_ words: [Substring], now: Date) -> Date? {
        let parts = words[1].split(separator: "-", omittingEmptySubsequences: false)
        guard words[0].last == ",", self.longDays.contains(words[0].dropLast()), words[3] == "gmt", parts.count == 3,
            let day = self.number(parts[0], 2...2), let short = self.number(parts[2], 2...2)
        else { return nil }
        let latest = now.timeIntervalSince1970 + 50 * self.secondsInYear
        guard latest.isFinite, abs(latest) < 9000 * self.secondsInYear else { return nil }
        let century = Int(1970 + latest / self.secondsInYear) / 100 * 100
        let candidates = [century + 100, century, century - 100].compactMap {
            self.date($0 + short, parts[1], day, words[2])
        }
        return candidates.first { $0.timeIntervalSince1970 <= latest }
    }

    /// `Sun Nov  6 08:49:37 1994`.
    private static func ofC(_ words: [Substring]) -> Date? {
        guard self.days.contains(words[0]), let day = self.number(words[2], 1...2),
            let year = self.number(words[4], 4...4)
        else { return nil }
        return self.date(year, words[1], day, words[3])
    }

    private static let days: Set<Substring> = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    private static let longDays: Set<Substring> = [
        "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
    ]
    private static let months: [Substring] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ]
    private static let secondsInYear = 365.2425 * 86_400

    /// The number that the digits of `text` say; `nil` if there is anything else, or another count of them.
    private static func number(_ text: Substring, _ length: ClosedRange<Int>) -> Int? {
        guard length.contains(text.utf8.count), text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int(text)
    }

    private static func date(_ year: Int, _ month: Substring, _ day: Int, _ time: Substring) -> Date? {
        let clock = time.split(separator: ":", omittingEmptySubsequences: false)
        guard year >= 0, let index = self.months.firstIndex(of: month), clock.count == 3,
            let hour = self.number(clock[0], 2...2), let minute = self.number(clock[1], 2...2),
            let second = self.number(clock[2], 2...2), hour < 24, minute < 60, second <= 60,  // 60: a leap second
            (1...GregorianCalendar.days(ofMonth: index + 1, in: year)).contains(day)
        else { return nil }
        let days = GregorianCalendar.daysSince1970(year, index + 1, day)
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second
        return Date(timeIntervalSince1970: TimeInterval(seconds))
    }
}
