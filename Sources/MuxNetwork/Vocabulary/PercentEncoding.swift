/// Percent-encoding: RFC 3986, section 2.1.
package enum PercentEncoding {
    private static let digits = Array("0123456789ABCDEF".utf8)

    /// RFC 3986, section 2.3: what never needs encoding.
    package static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case 48...57, 65...90, 97...122, 45, 46, 95, 126: true
        default: false
        }
    }

    /// RFC 3986, section 3.3: what may stand in a segment of a path as it is.
    package static func isPathByte(_ byte: UInt8) -> Bool {
        self.isUnreserved(byte) || self.pathMarks.contains(byte)
    }

    private static let pathMarks = Set("!$&'()*+,;=:@".utf8)

    /// Encodes every byte that is not allowed.
    package static func encode(_ text: String, allowing isAllowed: (UInt8) -> Bool = Self.isUnreserved) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count)
        for byte in text.utf8 {
            if isAllowed(byte) {
                bytes.append(byte)
            } else {
                bytes += [UInt8(ascii: "%"), self.digits[Int(byte >> 4)], self.digits[Int(byte & 15)]]
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Decodes what is encoded, and leaves what only looks like it; bytes that are no UTF-8 become replacement characters.
    package static func decode(_ text: some StringProtocol, plusIsBlank: Bool = false) -> String {
        let source = Array(text.utf8)
        var bytes: [UInt8] = []
        bytes.reserveCapacity(source.count)
        var index = 0
        while index < source.count {
            let byte = source[index]
            if byte == UInt8(ascii: "%"), index + 2 < source.count, let high = self.digit(source[index + 1]),
                let low = self.digit(source[index + 2])
            {
                bytes.append(high << 4 | low)
                index += 3
            } else {
                bytes.append(plusIsBlank && byte == UInt8(ascii: "+") ? UInt8(ascii: " ") : byte)
                index += 1
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The same text for whatever means the same: unreserved bytes as they are, others in capital letters (section 6.2.2).
    package static func normalized(_ text: String) -> String {
        let source = Array(text.utf8)
        var bytes: [UInt8] = []
        var index = 0
        while index < source.count {
            if source[index] == UInt8(ascii: "%"), index + 2 < source.count, let high = self.digit(source[index + 1]),
                let low = self.digit(source[index + 2])
            {
                let byte = high << 4 | low
                bytes +=
                    self.isUnreserved(byte)
                    ? [byte] : [UInt8(ascii: "%"), self.digits[Int(high)], self.digits[Int(low)]]
                index += 3
            } else {
                bytes.append(source[index])
                index += 1
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
