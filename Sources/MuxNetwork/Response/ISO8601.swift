public import Foundation

/// Reads dates as servers write them: ISO 8601 and RFC 3339, with what is left out or spelled otherwise in practice.
///
/// A date alone is its midnight; a time without a zone is UTC; seconds may be missing or have a fraction after a dot or a
/// comma; the letters may be small, the `T` a blank, and all separators left out. Total: no text traps.
package struct ISO8601: Sendable {
    private var rest: Substring.UTF8View

    private init(_ text: String) { self.rest = text.utf8[...] }

    /// The date that `text` says; `nil` if it says none, or one that the calendar does not have.
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

    /// Seconds since midnight.
    private mutating func time() -> Double? {
        guard let hour = self.number(2), hour <= 23 else { return nil }
        let isExtended = self.take(":")
        guard let minute = self.number(2), minute <= 59 else { return nil }
        let whole = Double(hour * 3600 + minute * 60)
        guard isExtended ? self.take(":") : self.isDigitNext else { return whole }
        // RFC 3339, section 5.6: 60 is a leap second, which no clock here knows.
        guard let second = self.number(2), second <= 60 else { return nil }
        return self.fraction().map { whole + Double(second) + $0 }
    }

    /// The part of a second; 0 if there is none.
    private mutating func fraction() -> Double? {
        guard self.take(".") || self.take(",") else { return 0 }
        guard self.isDigitNext else { return nil }
        let digits = self.rest.prefix { (48...57).contains($0) }
        self.rest = self.rest[digits.endIndex...]
        return Double("0.\(Substring(digits))")
    }

    /// Seconds east of UTC; 0 if nothing is said.
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
    /// ISO 8601 in whatever form: with a zone or without (then UTC), with fractions of a second or without, or a date alone.
    ///
    /// The strategy `iso8601` of Foundation refuses a time without a zone and a blank in place of the `T`.
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
