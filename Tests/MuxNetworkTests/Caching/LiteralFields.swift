import Foundation

/// The directives of a `Cache-Control` field: RFC 9111, section 5.2.
struct LiteralDirectives {
    struct Directive {
        /// In lower case.
        let name: String
        let argument: String?
        let isQuoted: Bool
    }

    /// All lines, in lower case.
    let text: String
    /// The valid directives before the first invalid element with a quotation mark.
    private(set) var all: [Directive] = []
    /// The valid directives before the first invalid element.
    private(set) var certain: [Directive] = []
    /// Whether the field has an invalid element.
    private(set) var isCut = false

    init(_ lines: [String]) {
        self.text = lines.joined(separator: ",").lowercased()
        var rest = Array(self.text.utf8)[...]
        func take(while condition: (UInt8) -> Bool) -> String {
            let taken = rest.prefix(while: condition)
            rest = rest.dropFirst(taken.count)
            return String(decoding: taken, as: UTF8.self)
        }
        while !rest.isEmpty {
            _ = take { LiteralText.isBlank($0) || $0 == LiteralText.comma }
            guard !rest.isEmpty else { return }
            let name = take { LiteralText.isToken($0) }
            var argument: String?
            var isSound = !name.isEmpty
            var isQuoted = false
            if rest.first == LiteralText.equals {
                rest.removeFirst()
                isQuoted = rest.first == LiteralText.quote
                if isQuoted {
                    guard let (text, after) = LiteralText.quoted(rest) else {
                        self.isCut = true
                        return
                    }
                    (argument, rest) = (text, after)
                } else {
                    argument = take { LiteralText.isToken($0) }
                    isSound = isSound && argument != ""
                }
            }
            _ = take { LiteralText.isBlank($0) }
            let surplus = take { $0 != LiteralText.comma }
            if isSound, surplus.isEmpty {
                let directive = Directive(name: name, argument: argument, isQuoted: isQuoted)
                self.all.append(directive)
                if !self.isCut { self.certain.append(directive) }
            } else {
                self.isCut = true
                // The end of the quoted text is undefined.
                if isQuoted || surplus.utf8.contains(LiteralText.quote) { return }
            }
        }
    }

    func has(_ name: String) -> Bool { self.all.contains { $0.name == name } }

    func has(_ name: String, withArgument: Bool) -> Bool {
        self.all.contains { $0.name == name && ($0.argument != nil) == withArgument }
    }

    /// The greatest number of seconds that the directive `name` grants; `nil` without the directive.
    ///
    /// An unreadable number or an invalid element of the field counts as unlimited.
    func longest(_ name: String) -> Int? {
        let seconds = self.all.filter { $0.name == name }.map { LiteralText.delta($0.argument) ?? .max }
        return self.isCut ? .max : seconds.max()
    }

    /// The least number of seconds that the directive `name` demands; `nil` without the directive.
    ///
    /// An unreadable number counts as 0.
    func shortest(_ name: String) -> Int? {
        self.all.filter { $0.name == name }.map { LiteralText.delta($0.argument) ?? 0 }.min()
    }
}

/// The grammar of field values: RFC 9110, section 5.6.
enum LiteralText {
    static let comma = UInt8(ascii: ",")
    static let equals = UInt8(ascii: "=")
    static let quote = UInt8(ascii: "\"")

    static func isBlank(_ byte: UInt8) -> Bool { byte == 32 || byte == 9 }

    static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"): true
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }

    static func trimmed(_ text: some StringProtocol) -> String {
        var bytes = Array(text.utf8)
        while let first = bytes.first, self.isBlank(first) { bytes.removeFirst() }
        while let last = bytes.last, self.isBlank(last) { bytes.removeLast() }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The text of a quoted string, and the bytes after the string; `nil` if the string has no end.
    static func quoted(_ bytes: ArraySlice<UInt8>) -> (text: String, rest: ArraySlice<UInt8>)? {
        var text: [UInt8] = []
        var rest = bytes.dropFirst()
        while let byte = rest.popFirst() {
            if byte == self.quote { return (String(decoding: text, as: UTF8.self), rest) }
            guard byte == UInt8(ascii: "\\") else {
                text.append(byte)
                continue
            }
            guard let escaped = rest.popFirst() else { return nil }
            text.append(escaped)
        }
        return nil
    }

    /// A number that consists only of digits.
    private static func number(_ text: some StringProtocol) -> Int? {
        guard !text.isEmpty, text.utf8.allSatisfy({ "0123456789".utf8.contains($0) }) else { return nil }
        return Int(text) ?? .max
    }

    /// RFC 9111, section 1.2.2: a greater number than 2³¹ counts as 2³¹.
    static func delta(_ text: String?) -> Int? {
        text.flatMap { self.number($0) }.map { min($0, 1 << 31) }
    }

    /// The numbers of a range after the prefix `start`; `nil` if a component is not a number.
    static func numbers(_ text: String, _ start: String) -> [Int]? {
        guard self.trimmed(text).hasPrefix(start) else { return nil }
        let parts = self.trimmed(text).dropFirst(start.count).split(omittingEmptySubsequences: false) {
            $0 == "-" || $0 == "/"
        }
        let numbers = parts.compactMap { self.number($0) }
        return numbers.count == parts.count ? numbers : nil
    }
}

extension LiteralText {
    struct Time {
        var seconds: Int
        /// Whether the date has only one interpretation.
        var isCertain = true
    }

    private static let days = ["sun", "mon", "tues", "wednes", "thurs", "fri", "satur"]
    private static let months = "jan feb mar apr may jun jul aug sep oct nov dec".split(separator: " ")

    /// A date of RFC 9110, section 5.6.7, without regard to case (RFC 9111, section 4.2); `nil` if invalid.
    static func date(_ text: String, _ now: Int) -> Time? {
        let text = self.trimmed(text).lowercased()
        let words = text.split { " ,-:".contains($0) }.map(String.init)
        func time(_ day: Int, _ month: Int, _ year: Int?, clock: Int) -> Time? {
            let numbers = [day, clock, clock + 1, clock + 2].compactMap { self.number(words[$0]) }
            guard let year, numbers.count == 4, let month = self.months.firstIndex(of: words[month][...]) else {
                return nil
            }
            return self.time(year, month, numbers)
        }
        for day in self.days where text.hasPrefix(day.prefix(3)) {
            if self.hasForm(text, "\(day.prefix(3)), ## @@@ #### ##:##:## gmt") {
                return time(1, 2, self.number(words[3]), clock: 4)
            }
            if self.hasForm(text, "\(day.prefix(3)) @@@ _# ##:##:## ####") {
                return time(2, 1, self.number(words[6]), clock: 3)
            }
            if self.hasForm(text, "\(day)day, ##-@@@-## ##:##:## gmt") {
                var parts = tm()
                var seconds = time_t(now)
                gmtime_r(&seconds, &parts)
                let thisYear = Int(parts.tm_year) + 1900
                // A year more than 50 years ahead is in the past.
                let ahead = ((self.number(words[3]) ?? 0) - thisYear % 100 + 100) % 100
                var found = time(1, 2, thisYear + (ahead > 50 ? ahead - 100 : ahead), clock: 4)
                found?.isCertain = ahead != 50
                return found
            }
        }
        return nil
    }

    /// Whether `text` matches `form`, in which # is a digit, @ a letter, and _ a digit or a blank.
    private static func hasForm(_ text: String, _ form: String) -> Bool {
        let (bytes, marks) = (Array(text.utf8), Array(form.utf8))
        guard bytes.count == marks.count else { return false }
        return zip(bytes, marks).allSatisfy { byte, mark in
            switch mark {
            case UInt8(ascii: "#"): (48...57).contains(byte)
            case UInt8(ascii: "@"): (97...122).contains(byte)
            case UInt8(ascii: "_"): (48...57).contains(byte) || byte == 32
            default: byte == mark
            }
        }
    }

    /// The time of a month, counted from 0, and numbers of day, hour, minute and second; `nil` if invalid.
    private static func time(_ year: Int, _ month: Int, _ numbers: [Int]) -> Time? {
        let isLeap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0
        let lengths = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        guard numbers[0] >= 1, numbers[0] <= lengths[month], numbers[1] < 24, numbers[2] < 60, numbers[3] <= 60 else {
            return nil
        }
        var parts = tm()
        (parts.tm_year, parts.tm_mon, parts.tm_mday) = (Int32(year - 1900), Int32(month), Int32(numbers[0]))
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (Int32(numbers[1]), Int32(numbers[2]), Int32(numbers[3]))
        return Time(seconds: Int(timegm(&parts)))
    }
}
