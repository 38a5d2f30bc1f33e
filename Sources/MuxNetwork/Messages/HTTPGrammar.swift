package import Foundation

/// Rules of RFC 9110's grammar.
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

    /// The number of `text`, which is digits alone; `nil` for any other, and for one beyond 63 bits.
    package static func number(_ text: some StringProtocol) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return Int64(text)
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

/// Base64 with the alphabet for URLs and without padding: RFC 4648, section 5, as RFC 7515 and RFC 7636 use it.
package enum Base64URL {
    /// Encodes bytes.
    package static func encode(_ data: Data) -> String {
        let bytes = data.base64EncodedData().compactMap { byte -> UInt8? in
            switch byte {
            case UInt8(ascii: "+"): UInt8(ascii: "-")
            case UInt8(ascii: "/"): UInt8(ascii: "_")
            case UInt8(ascii: "="): nil
            default: byte
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Decodes a text; `nil` if it has padding or any character that is not of the alphabet.
    package static func decode(_ text: some StringProtocol) -> Data? {
        var bytes: [UInt8] = []
        for byte in text.utf8 {
            switch byte {
            case 48...57, 65...90, 97...122: bytes.append(byte)
            case UInt8(ascii: "-"): bytes.append(UInt8(ascii: "+"))
            case UInt8(ascii: "_"): bytes.append(UInt8(ascii: "/"))
            default: return nil
            }
        }
        guard bytes.count % 4 != 1 else { return nil }
        while bytes.count % 4 != 0 { bytes.append(UInt8(ascii: "=")) }
        return Data(base64Encoded: Data(bytes))
    }
}
