/// Numbers as 16 digits of lower-case hexadecimal.
package enum Hex {
    private static let digits = Array("0123456789abcdef".utf8)

    package static func bytes(of value: UInt64) -> [UInt8] {
        (0..<16).map { Self.digits[Int(truncatingIfNeeded: value >> (60 - $0 * 4)) & 15] }
    }

    /// Puts the 16 digits of `value` in place of the bytes from `index` on.
    package static func write(_ value: UInt64, to bytes: inout [UInt8], at index: Int) {
        for place in 0..<16 {
            bytes[index + place] = self.digits[Int(truncatingIfNeeded: value >> (60 - place * 4)) & 15]
        }
    }

    package static func text(of value: UInt64) -> String { String(decoding: self.bytes(of: value), as: UTF8.self) }

    /// The number that exactly 16 lower-case digits say.
    package static func value(of bytes: some Collection<UInt8>) -> UInt64? {
        guard bytes.count == 16 else { return nil }
        var value: UInt64 = 0
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(byte - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(byte - UInt8(ascii: "a") + 10)
            default: return nil
            }
        }
        return value
    }
}
