/// The FNV-1a hash of 64 bits: finds keys and damage on disk.
///
/// Not a protection against an adversary.
///
/// Every step is a bijection of the state, so changing any one byte of the input always changes the result.
/// Source: draft-eastlake-fnv-21, section 2 (the function) and section 5 (the 64-bit constants).
package struct FNV: Sendable {
    package private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    package init() {}

    private static let prime: UInt64 = 0x0000_0100_0000_01b3

    package mutating func combine(_ bytes: some Sequence<UInt8>) {
        let start = self.value
        // Bytes that lie side by side are read where they are: this is most of what reading a record costs.
        let fast = bytes.withContiguousStorageIfAvailable { buffer in
            var value = start
            for index in 0..<buffer.count { value = unsafe (value ^ UInt64(buffer[index])) &* Self.prime }
            return value
        }
        if let fast {
            self.value = fast
        } else {
            self.value = bytes.reduce(start) { ($0 ^ UInt64($1)) &* Self.prime }
        }
    }

    /// Mixes in eight bytes in one step.
    package mutating func combine(word: UInt64) { self.value = Self.step(self.value, word) }

    /// One step with eight bytes at a time, which is like that of FNV-1a and not the same.
    ///
    /// Multiplication carries differences upwards alone: two changes of highest bits would take each other back. The shift
    /// brings them down.
    package static func step(_ value: UInt64, _ word: UInt64) -> UInt64 {
        let product = (value ^ word) &* Self.prime
        return product ^ (product >> 32)
    }

    /// Mixes in the text's bytes with their count in front, so that "ab", "c" and "a", "bc" differ.
    package mutating func combine(field text: String) {
        let count = UInt64(text.utf8.count)
        self.combine((0..<8).map { UInt8(truncatingIfNeeded: count >> ($0 * 8)) })
        self.combine(text.utf8)
    }

    /// The hash of `bytes`.
    package static func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
        var hash = FNV()
        hash.combine(bytes)
        return hash.value
    }
}
