/// A line of JSON that notices when any of its bytes changed.
///
/// `{"mux":1,"check":"0123456789abcdef",…}`: the check is the FNV-1a hash of all other bytes. Every later format keeps
/// this beginning, so that a reader can tell a newer line, which it must not destroy, from a damaged one.
package enum CheckedLine {
    /// The version of the formats that this code writes.
    package static let version: UInt64 = 1

    private static let opening = Array("{\"mux\":".utf8)
    private static let middle = Array(",\"check\":\"".utf8)

    /// What a line turned out to be.
    package enum Content: Sendable, Equatable {
        /// A line of this version; the rest begins after the check, with a comma.
        case present(rest: ArraySlice<UInt8>)
        /// A line of a later version, whose rest means who knows what.
        case newer
    }

    /// The line, without a line break, whose `rest` begins with the quotation mark that closes the check, then a comma.
    package static func sealed(_ rest: [UInt8], version: UInt64 = Self.version) -> [UInt8] {
        let start = self.opening + Array(String(version).utf8)
        return start + self.middle + Hex.bytes(of: self.check(start[...], rest[...])) + rest
    }

    /// Reads a line; `nil` if it is damaged or something else altogether.
    package static func open(_ line: ArraySlice<UInt8>) -> Content? {
        guard line.starts(with: self.opening) else { return nil }
        let digits = line.dropFirst(self.opening.count).prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        guard (1...9).contains(digits.count), digits.first != UInt8(ascii: "0") else { return nil }
        let start = line[line.startIndex..<digits.endIndex]
        guard line[digits.endIndex...].starts(with: self.middle) else { return nil }
        let check = line[digits.endIndex...].dropFirst(self.middle.count).prefix(16)
        let rest = line[check.endIndex...]
        guard let value = Hex.value(of: check), value == self.check(start, rest), rest.starts(with: [0x22, 0x2c]) else {
            return nil
        }
        return digits.elementsEqual(String(self.version).utf8) ? .present(rest: rest.dropFirst()) : .newer
    }

    private static func check(_ start: ArraySlice<UInt8>, _ rest: ArraySlice<UInt8>) -> UInt64 {
        var hash = FNV()
        hash.combine(start)
        hash.combine(rest)
        return hash.value
    }
}
