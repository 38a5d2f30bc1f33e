/// Writes JSON without the machinery of an encoder, byte for byte as `JSONEncoder` does if told to leave slashes alone.
enum JSONText {
    private static let hexadecimal = Array("0123456789abcdef".utf8)

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

    /// Appends `text` in quotation marks, or `null` for none.
    static func append(_ text: String?, to bytes: inout [UInt8]) {
        if let text { self.append(text, to: &bytes) } else { bytes += "null".utf8 }
    }

    /// Appends a finite number in the shortest form that reads back the same.
    static func append(_ number: Double, to bytes: inout [UInt8]) {
        let text = number.description
        bytes += text.hasSuffix(".0") ? text.utf8.dropLast(2) : text.utf8[...]
    }

    private static func needsEscape(_ byte: UInt8) -> Bool {
        byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
    }

    private static func appendEscaped(_ byte: UInt8, to bytes: inout [UInt8]) {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
        case 0x08: bytes += "\\b".utf8
        case 0x09: bytes += "\\t".utf8
        case 0x0a: bytes += "\\n".utf8
        case 0x0c: bytes += "\\f".utf8
        case 0x0d: bytes += "\\r".utf8
        case ..<0x20: bytes += "\\u00".utf8 + [self.hexadecimal[Int(byte >> 4)], self.hexadecimal[Int(byte & 15)]]
        default: bytes.append(byte)
        }
    }
}
