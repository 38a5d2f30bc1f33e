/// The few rules of RFC 9110's grammar that several types share.
package enum HTTPGrammar {
    private static let marks = Set("!#$%&'*+-.^_`|~".utf8)

    /// Whether `byte` may stand in a token: RFC 9110, section 5.6.2.
    package static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 48...57, 65...90, 97...122: true
        default: self.marks.contains(byte)
        }
    }

    /// Whether `text` is a token, as methods and names of header fields are.
    package static func isToken(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { self.isTokenByte($0) }
    }

    /// Whether `text` may be the value of a header field: RFC 9110, section 5.5, without control characters but the tab.
    package static func isFieldValue(_ text: String) -> Bool {
        text.utf8.allSatisfy { $0 == 9 || ($0 >= 32 && $0 != 127) }
    }

    /// `text` as it is if it is a token, otherwise as a quoted string: RFC 9110, section 5.6.4.
    package static func quotedIfNeeded(_ text: String) -> String {
        guard !self.isToken(text) else { return text }
        var quoted = "\""
        for scalar in text.unicodeScalars {
            if scalar == "\"" || scalar == "\\" { quoted.unicodeScalars.append("\\") }
            quoted.unicodeScalars.append(scalar)
        }
        return quoted + "\""
    }

    /// `text` without blanks and tabs at its ends.
    package static func trimmed(_ text: some StringProtocol) -> String {
        let isBlank = { (scalar: Unicode.Scalar) in scalar == " " || scalar == "\t" }
        var scalars = Substring(text).unicodeScalars.drop(while: isBlank)
        while let last = scalars.last, isBlank(last) { scalars.removeLast() }
        return String(scalars)
    }
}
