import Foundation

/// Reads the fields of a JSON object of strings, numbers and nulls, without white space; stops at any other
/// content.
///
/// Accepts any bytes, and does not recurse.
struct FlatJSONReader {
    /// The position of a field's value.
    enum Value: Equatable {
        /// Without the quotation marks.
        case text(Range<Int>, hasEscapes: Bool)
        case number(Range<Int>)
        case null
    }

    private let bytes: [UInt8]
    private let end: Int
    private var position: Int

    /// Whether the object was read to the end, without further bytes.
    private(set) var isComplete = false

    /// Reads from the opening quotation mark of the first field's name up to `end`.
    init(_ bytes: [UInt8], from start: Int, to end: Int) {
        self.bytes = bytes
        self.position = start
        self.end = min(end, bytes.count)
    }

    /// The next field; `nil` after the last field or an error, which ``isComplete`` distinguishes.
    mutating func next() -> (name: ArraySlice<UInt8>, value: Value)? {
        guard !self.isComplete, case .text(let range, hasEscapes: false)? = self.text(), self.take(UInt8(ascii: ":")),
            let value = self.value()
        else { return nil }
        let name = self.bytes[range]
        if self.take(UInt8(ascii: "}")) {
            self.isComplete = self.position == self.end
            return self.isComplete ? (name, value) : nil
        }
        return self.take(UInt8(ascii: ",")) ? (name, value) : nil
    }

    /// The value as a string; `nil` for another kind of value, or an invalid string.
    func string(_ value: Value) -> String? {
        guard case .text(let range, let hasEscapes) = value else { return nil }
        guard hasEscapes else { return String(validating: self.bytes[range], as: UTF8.self) }
        guard let unescaped = self.unescaped(range) else { return nil }
        return String(validating: unescaped, as: UTF8.self)
    }

    /// The value as an integer; `nil` for any other value.
    func integer<Number: FixedWidthInteger>(_ value: Value) -> Number? {
        guard case .number(let range) = value else { return nil }
        return Number(String(decoding: self.bytes[range], as: UTF8.self))
    }

    /// The value as a finite number; `nil` for any other value.
    func double(_ value: Value) -> Double? {
        guard case .number(let range) = value,
            let number = Double(String(decoding: self.bytes[range], as: UTF8.self)), number.isFinite
        else { return nil }
        return number
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        guard self.position < self.end, self.bytes[self.position] == byte else { return false }
        self.position += 1
        return true
    }

    private mutating func value() -> Value? {
        guard self.position < self.end else { return nil }
        switch self.bytes[self.position] {
        case UInt8(ascii: "\""): return self.text()
        case UInt8(ascii: "n"):
            let range = self.position..<min(self.position + 4, self.end)
            guard "null" ~= self.bytes[range] else { return nil }
            self.position = range.upperBound
            return .null
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"):
            let start = self.position
            while self.position < self.end, Self.isInNumber(self.bytes[self.position]) { self.position += 1 }
            return .number(start..<self.position)
        default: return nil
        }
    }

    private static func isInNumber(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "+"), UInt8(ascii: "."),
            UInt8(ascii: "e"), UInt8(ascii: "E"):
            true
        default: false
        }
    }

    private mutating func text() -> Value? {
        guard self.take(UInt8(ascii: "\"")) else { return nil }
        let start = self.position
        var hasEscapes = false
        while self.position < self.end {
            switch self.bytes[self.position] {
            case UInt8(ascii: "\""):
                defer { self.position += 1 }
                return .text(start..<self.position, hasEscapes: hasEscapes)
            case UInt8(ascii: "\\"):
                hasEscapes = true
                self.position += 2
            case ..<0x20: return nil
            default: self.position += 1
            }
        }
        return nil
    }

    /// The bytes of a string with resolved escapes; `nil` for an invalid escape, and for a `\u` escape of a
    /// character above U+001F.
    private func unescaped(_ range: Range<Int>) -> [UInt8]? {
        var result: [UInt8] = []
        var index = range.lowerBound
        while index < range.upperBound {
            guard self.bytes[index] == UInt8(ascii: "\\") else {
                result.append(self.bytes[index])
                index += 1
                continue
            }
            guard index + 1 < range.upperBound else { return nil }
            let letter = self.bytes[index + 1]
            index += 2
            if letter == UInt8(ascii: "u") {
                // ``JSONText`` writes only characters up to U+001F in this form.
                let digits = self.bytes[index..<min(index + 4, range.upperBound)]
                guard digits.count == 4, let code = UInt8(String(decoding: digits, as: UTF8.self), radix: 16),
                    code < 0x20
                else { return nil }
                result.append(code)
                index += 4
            } else {
                guard let place = JSONText.letters.firstIndex(of: letter) else { return nil }
                result.append(JSONText.escaped[place])
            }
        }
        return result
    }
}

@available(*, unavailable)
extension FlatJSONReader: Sendable {}

/// Whether `bytes` equal `text`, for a `switch` over the name of a field.
func ~= (text: StaticString, bytes: ArraySlice<UInt8>) -> Bool {
    guard bytes.count == text.utf8CodeUnitCount else { return false }
    return text.withUTF8Buffer { unsafe bytes.elementsEqual($0) }
}

/// Writes JSON values, with the same bytes as `JSONEncoder` with `.withoutEscapingSlashes`.
enum JSONText {
    /// The bytes with a short escape, and the letters after the backslash.
    fileprivate static let escaped = Array("\"\\/\u{8}\t\n\u{c}\r".utf8)
    fileprivate static let letters = Array("\"\\/btnfr".utf8)

    /// Appends `text` in quotation marks.
    static func append(_ text: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        if text.utf8.contains(where: { self.needsEscape($0) }) {
            for byte in text.utf8 { self.appendEscaped(byte, to: &bytes) }
        } else {
            bytes += text.utf8
        }
        bytes.append(UInt8(ascii: "\""))
    }

    /// Appends `text` in quotation marks, or `null`.
    static func append(_ text: String?, to bytes: inout [UInt8]) {
        if let text { self.append(text, to: &bytes) } else { bytes += "null".utf8 }
    }

    /// Appends a finite number with the fewest digits that identify the value.
    static func append(_ number: Double, to bytes: inout [UInt8]) {
        let text = number.description
        bytes += text.hasSuffix(".0") ? text.utf8.dropLast(2) : text.utf8[...]
    }

    private static func needsEscape(_ byte: UInt8) -> Bool {
        byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
    }

    private static func appendEscaped(_ byte: UInt8, to bytes: inout [UInt8]) {
        guard self.needsEscape(byte) else { return bytes.append(byte) }
        if let place = self.escaped.firstIndex(of: byte) {
            bytes += [UInt8(ascii: "\\"), self.letters[place]]
        } else {
            bytes += "\\u00".utf8 + [Hex.digits[Int(byte >> 4)], Hex.digits[Int(byte & 15)]]
        }
    }
}

/// Tags as one text: a JSON array, because the header of a record has no arrays.
enum TagText {
    static func text(_ tags: [String]) -> String {
        var bytes = Array("[".utf8)
        for (index, tag) in tags.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            JSONText.append(tag, to: &bytes)
        }
        bytes.append(UInt8(ascii: "]"))
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The tags in `text`; `nil` if `text` is not a JSON array of strings.
    static func tags(_ text: String) -> [String]? { try? JSONDecoder().decode([String].self, from: Data(text.utf8)) }
}
