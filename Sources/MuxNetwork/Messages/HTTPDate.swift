public import Foundation

/// Parses the three forms of an HTTP date (RFC 9110, section 5.6.7).
///
/// As recommended by RFC 9111, section 4.2, letters are case-insensitive, and zones other than GMT are
/// invalid.
package enum HTTPDate {
    /// Parses a date.
    ///
    /// - Parameters:
    ///   - text: The value of a header field.
    ///   - now: The current time, for the century of a two-digit year: the result is the latest matching date
    ///     that is at most 50 years in the future.
    /// - Returns: The date; `nil` if `text` is not a valid date.
    package static func parse(_ text: String, now: Date) -> Date? {
        let words = HTTPGrammar.trimmed(text).lowercased().split(separator: " ", omittingEmptySubsequences: false)
        switch words.count {
        // A space pads a one-digit day in the form of `asctime`. At other positions, two adjacent spaces are
        // invalid.
        case 6 where words[2].isEmpty: return self.parseAsctime(Array(words[..<2] + words[3...]), dayDigits: 1)
        case 6: return self.parseIMFFixdate(words)
        case 5: return self.parseAsctime(words, dayDigits: 2)
        case 4: return self.parseRFC850(words, now: now)
        default: return nil
        }
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`.
    private static func parseIMFFixdate(_ words: [Substring]) -> Date? {
        guard words[0].last == ",", self.days.contains(words[0].dropLast()), words[5] == "gmt",
            let day = self.number(words[1], 2), let year = self.number(words[3], 4)
        else { return nil }
        return self.date(year, words[2], day, words[4])
    }

    /// `Sunday, 06-Nov-94 08:49:37 GMT`.
    private static func parseRFC850(_ words: [Substring], now: Date) -> Date? {
        let parts = words[1].split(separator: "-", omittingEmptySubsequences: false)
        guard words[0].last == ",", self.longDays.contains(words[0].dropLast()), words[3] == "gmt", parts.count == 3,
            let day = self.number(parts[0], 2), let short = self.number(parts[2], 2)
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
    private static func parseAsctime(_ words: [Substring], dayDigits: Int) -> Date? {
        guard self.days.contains(words[0]), let day = self.number(words[2], dayDigits),
            let year = self.number(words[4], 4)
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

    /// The number in `text`; `nil` if `text` contains a character that is not a digit, or has a wrong length.
    private static func number(_ text: Substring, _ length: Int) -> Int? {
        guard text.utf8.count == length, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int(text)
    }

    private static func date(_ year: Int, _ month: Substring, _ day: Int, _ time: Substring) -> Date? {
        let clock = time.split(separator: ":", omittingEmptySubsequences: false)
        guard year >= 0, let index = self.months.firstIndex(of: month), clock.count == 3,
            let hour = self.number(clock[0], 2), let minute = self.number(clock[1], 2),
            let second = self.number(clock[2], 2), hour < 24, minute < 60, second <= 60,  // 60: a leap second
            (1...GregorianCalendar.days(ofMonth: index + 1, in: year)).contains(day)
        else { return nil }
        let days = GregorianCalendar.daysSince1970(year, index + 1, day)
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second
        return Date(timeIntervalSince1970: TimeInterval(seconds))
    }
}

/// Parses calendar dates of ISO 8601 and RFC 3339, and common deviations.
///
/// A year has four digits. A date without a time is midnight UTC. A time without a zone is UTC. Seconds may
/// be absent, or have a fraction after a dot or a comma. Letters may be in lower case, and a space may
/// replace the `T`. The hyphens of the date, the colons of the time, and the colon of the zone may be absent.
package struct ISO8601: Sendable {
    private var rest: Substring.UTF8View

    private init(_ text: String) { self.rest = text.utf8[...] }

    /// Parses a date; `nil` if invalid.
    package static func date(_ text: String) -> Date? {
        var reader = ISO8601(text)
        guard let date = reader.read(), reader.rest.isEmpty else { return nil }
        return date
    }

    private mutating func read() -> Date? {
        guard let year = self.number(4) else { return nil }
        let isExtended = self.take("-")
        guard let month = self.number(2), (1...12).contains(month), !isExtended || self.take("-"),
            let day = self.number(2), (1...GregorianCalendar.days(ofMonth: month, in: year)).contains(day)
        else { return nil }
        let midnight = Double(GregorianCalendar.daysSince1970(year, month, day)) * 86_400
        guard !self.rest.isEmpty else { return Date(timeIntervalSince1970: midnight) }
        guard self.take("T") || self.take("t") || self.take(" "), let time = self.time(), let offset = self.offset()
        else { return nil }
        return Date(timeIntervalSince1970: midnight - Double(offset) + time)
    }

    /// Parses the time as seconds since midnight; `nil` if invalid.
    private mutating func time() -> Double? {
        guard let hour = self.number(2), hour <= 23 else { return nil }
        let isExtended = self.take(":")
        guard let minute = self.number(2), minute <= 59 else { return nil }
        let whole = Double(hour * 3600 + minute * 60)
        guard isExtended ? self.take(":") : self.isDigitNext else { return whole }
        // RFC 3339, section 5.6: 60 is a leap second.
        guard let second = self.number(2), second <= 60 else { return nil }
        return self.fraction().map { whole + Double(second) + $0 }
    }

    /// Parses the fraction of a second; 0 without a fraction, `nil` if invalid.
    private mutating func fraction() -> Double? {
        guard self.take(".") || self.take(",") else { return 0 }
        guard self.isDigitNext else { return nil }
        let digits = self.rest.prefix { (48...57).contains($0) }
        self.rest = self.rest[digits.endIndex...]
        return Double("0.\(Substring(digits))")
    }

    /// Parses the zone as seconds east of UTC; 0 without a zone, `nil` if invalid.
    private mutating func offset() -> Int? {
        if self.rest.isEmpty || self.take("Z") || self.take("z") { return 0 }
        let sign = self.take("+") ? 1 : self.take("-") ? -1 : 0
        guard sign != 0, let hour = self.number(2), hour <= 23 else { return nil }
        guard self.take(":") || self.isDigitNext else { return sign * hour * 3600 }
        guard let minute = self.number(2), minute <= 59 else { return nil }
        return sign * (hour * 3600 + minute * 60)
    }

    private var isDigitNext: Bool { self.rest.first.map { (48...57).contains($0) } ?? false }

    private mutating func take(_ scalar: Unicode.Scalar) -> Bool {
        guard let byte = self.rest.first, UInt32(byte) == scalar.value else { return false }
        self.rest.removeFirst()
        return true
    }

    private mutating func number(_ digits: Int) -> Int? {
        var value = 0
        for _ in 0..<digits {
            guard self.isDigitNext, let byte = self.rest.popFirst() else { return nil }
            value = value * 10 + Int(byte - 48)
        }
        return value
    }
}

extension JSONDecoder.DateDecodingStrategy {
    /// ISO 8601 with or without a zone (default UTC), with or without fractions of a second, or without a
    /// time.
    ///
    /// Foundation's strategy `iso8601` rejects a time without a zone, and a space instead of the `T`.
    public static var tolerantISO8601: JSONDecoder.DateDecodingStrategy {
        .custom { decoder in
            let container = try decoder.singleValueContainer()
            guard let date = ISO8601.date(try container.decode(String.self)) else {
                throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a date of ISO 8601")
            }
            return date
        }
    }
}

/// The proleptic Gregorian calendar.
enum GregorianCalendar {
    /// The number of days of a month; January is 1.
    static func days(ofMonth month: Int, in year: Int) -> Int {
        self.daysSince1970(year, month + 1, 1) - self.daysSince1970(year, month, 1)
    }

    /// The number of days from 1 January 1970 to a date; the month 13 is the next January.
    static func daysSince1970(_ year: Int, _ month: Int, _ day: Int) -> Int {
        // Years begin in March in this calculation, so a leap day is the last day of a year.
        let march = year - (month <= 2 ? 1 : 0)
        let yearOfCycle = (march % 400 + 400) % 400
        let cycle = (march - yearOfCycle) / 400
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return cycle * 146_097 + yearOfCycle * 365 + yearOfCycle / 4 - yearOfCycle / 100 + dayOfYear - 719_468
    }
}

/// A whole number of seconds, as in `max-age` and `Age`: `delta-seconds` of RFC 9111, section 1.2.2.
package enum HTTPDeltaSeconds {
    /// The maximum value; greater numbers are reduced to the maximum.
    package static let greatest: Int64 = 1 << 31

    /// Parses a number; `nil` if `text` is `nil` or empty, or contains a character that is not a digit.
    package static func parse(_ text: String?) -> Int64? {
        guard let text, !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return min(Int64(text) ?? self.greatest, self.greatest)
    }

    /// Converts seconds, truncated to milliseconds, at most ``greatest``; zero for a negative number and for
    /// NaN.
    static func duration(_ seconds: Double) -> Duration {
        guard seconds > 0 else { return .zero }
        return .milliseconds(Int64(min(seconds, Double(self.greatest)) * 1000))
    }
}
