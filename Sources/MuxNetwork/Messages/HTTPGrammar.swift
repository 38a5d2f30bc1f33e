package import Foundation

/// Grammar rules of RFC 9110.
package enum HTTPGrammar {
    private static let marks = Set("!#$%&'*+-.^_`|~".utf8)

    /// Whether `byte` is an ASCII letter or digit.
    static func isAlphanumeric(_ byte: UInt8) -> Bool {
        switch byte {
        case 48...57, 65...90, 97...122: true
        default: false
        }
    }

    /// Whether `byte` is allowed in a token (RFC 9110, section 5.6.2).
    package static func isTokenByte(_ byte: UInt8) -> Bool { self.isAlphanumeric(byte) || self.marks.contains(byte) }

    /// Whether `text` is a token, such as a method or the name of a header field.
    package static func isToken(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { self.isTokenByte($0) }
    }

    /// Whether `text` is allowed as the value of a header field.
    ///
    /// Control characters except the tab are not allowed (RFC 9110, section 5.5).
    package static func isFieldValue(_ text: String) -> Bool {
        text.utf8.allSatisfy { $0 == 9 || ($0 >= 32 && $0 != 127) }
    }

    /// The number in `text`; `nil` if `text` is empty or contains a character that is not a digit, or if the
    /// number exceeds 63 bits.
    package static func number(_ text: some StringProtocol) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int64(text)
    }

    /// Returns a token unchanged, and other text as a quoted string (RFC 9110, section 5.6.4).
    package static func quotedIfNeeded(_ text: String) -> String {
        guard !self.isToken(text) else { return text }
        var quoted = "\""
        for scalar in text.unicodeScalars {
            if scalar == "\"" || scalar == "\\" { quoted.unicodeScalars.append("\\") }
            quoted.unicodeScalars.append(scalar)
        }
        return quoted + "\""
    }

    /// Removes spaces and tabs at both ends of `text`.
    package static func trimmed(_ text: some StringProtocol) -> String {
        let isBlank = { (scalar: Unicode.Scalar?) in scalar == " " || scalar == "\t" }
        // Usually no blank is removed.
        guard isBlank(text.unicodeScalars.first) || isBlank(text.unicodeScalars.last) else { return String(text) }
        var scalars = Substring(text).unicodeScalars.drop(while: isBlank)
        while let last = scalars.last, isBlank(last) { scalars.removeLast() }
        return String(scalars)
    }
}

/// Base64 with the URL alphabet, without padding (RFC 4648, section 5), as in RFC 7515 and RFC 7636.
package enum Base64URL {
    /// Encodes bytes.
    package static func encode(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// Decodes a text; `nil` if `text` has padding, a character outside the alphabet, or an impossible
    /// length.
    package static func decode(_ text: some StringProtocol) -> Data? {
        guard text.utf8.count % 4 != 1, !text.utf8.contains(where: { "+/=".utf8.contains($0) }) else { return nil }
        var base64 = String(text).replacing("-", with: "+").replacing("_", with: "/")
        while base64.utf8.count % 4 != 0 { base64 += "=" }
        return Data(base64Encoded: base64)
    }
}
