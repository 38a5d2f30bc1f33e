/// A line of JSON with a checksum.
///
/// `{"mux":1,"check":"0123456789abcdef",…}`: the check is the FNV-1a hash of all bytes of the line except
/// `,"check":"` and the digits. Later formats keep this beginning, so readers can distinguish newer lines,
/// which must be kept, from damaged lines.
package enum ChecksummedLine {
    /// The format version that this code writes.
    package static let version: UInt64 = 1

    private static let opening = Array("{\"mux\":".utf8)
    private static let middle = Array(",\"check\":\"".utf8)

    /// The result of reading a line.
    package enum Content: Sendable, Equatable {
        /// A line of this version; `rest` begins with the comma after the check.
        case present(rest: ArraySlice<UInt8>)
        /// A line of a later version, with unknown content.
        case newer
    }

    /// The offset of the closing quotation mark of the check, in a line of this version.
    package static let restOffset = opening.count + String(version).utf8.count + middle.count + 16

    /// Appends the start of a line with a placeholder for the check; ``close(_:from:)`` writes the check.
    package static func begin(_ bytes: inout [UInt8]) {
        bytes += self.blank
    }

    /// Writes the check of the line from `start` to the end of `bytes`.
    package static func close(_ bytes: inout [UInt8], from start: Int) {
        let rest = start + self.restOffset
        let check = self.check(bytes[start..<(rest - 16 - self.middle.count)], bytes[rest...])
        Hex.write(check, to: &bytes, at: rest - 16)
    }

    private static let blank = opening + Array(String(version).utf8) + middle + [UInt8](repeating: 0x30, count: 16)

    /// The line with `rest`, without a line break; `rest` begins with the closing quotation mark of the
    /// check, then a comma.
    package static func sealed(_ rest: [UInt8], version: UInt64 = Self.version) -> [UInt8] {
        let start = self.opening + Array(String(version).utf8)
        return start + self.middle + Hex.bytes(of: self.check(start[...], rest[...])) + rest
    }

    /// Reads a line; `nil` for a damaged line, or another kind of line.
    package static func open(_ line: ArraySlice<UInt8>) -> Content? {
        guard line.starts(with: self.opening) else { return nil }
        let digits = line.dropFirst(self.opening.count).prefix(9).prefix {
            (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
        }
        let end = digits.endIndex
        guard let version = UInt64(String(decoding: digits, as: UTF8.self)), digits.first != UInt8(ascii: "0"),
            line[end...].starts(with: self.middle)
        else { return nil }
        let check = end + self.middle.count
        let rest = check + 16
        guard rest + 2 <= line.endIndex, line[rest] == UInt8(ascii: "\""), line[rest + 1] == UInt8(ascii: ","),
            let value = Hex.value(of: line[check..<rest]), value == self.check(line[..<end], line[rest...])
        else { return nil }
        return version == self.version ? .present(rest: line[(rest + 1)...]) : .newer
    }

    private static func check(_ start: ArraySlice<UInt8>, _ rest: ArraySlice<UInt8>) -> UInt64 {
        var hash = FNV()
        hash.combine(start)
        hash.combine(rest)
        return hash.value
    }
}

/// Numbers as 16 lower-case hexadecimal digits.
package enum Hex {
    static let digits = Array("0123456789abcdef".utf8)

    package static func bytes(of value: UInt64) -> [UInt8] {
        (0..<16).map { Self.digits[Int(truncatingIfNeeded: value >> (60 - $0 * 4)) & 15] }
    }

    /// Replaces the 16 bytes from `index` on by the digits of `value`.
    package static func write(_ value: UInt64, to bytes: inout [UInt8], at index: Int) {
        for place in 0..<16 {
            bytes[index + place] = self.digits[Int(truncatingIfNeeded: value >> (60 - place * 4)) & 15]
        }
    }

    package static func text(of value: UInt64) -> String { String(decoding: self.bytes(of: value), as: UTF8.self) }

    /// The number in exactly 16 lower-case digits; `nil` for any other bytes.
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
