package import Foundation

/// The SHA-256 hash (FIPS 180-4), of a whole message or part by part.
///
/// ```swift
/// var hash = SHA256()
/// for part in parts { hash.update(part) }
/// let digest = hash.finalize()
/// ```
package struct SHA256: Sendable {
    private var core = PlatformSHA256()

    package init() {}

    /// Adds `bytes`.
    package mutating func update(_ bytes: some ContiguousBytes) {
        unsafe bytes.withUnsafeBytes { unsafe self.core.update($0) }
    }

    /// Returns the hash, 32 bytes, of all added bytes; no bytes may be added after this call.
    package mutating func finalize() -> [UInt8] { self.core.finalize() }

    /// The hash of `bytes`.
    package static func hash(_ bytes: some ContiguousBytes) -> [UInt8] {
        var hash = SHA256()
        hash.update(bytes)
        return hash.finalize()
    }

    /// The hash of `text` in UTF-8.
    package static func hash(_ text: String) -> [UInt8] { self.hash(Array(text.utf8)) }

    /// A hash as 64 lower-case hexadecimal digits.
    package static func text(_ digest: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: digest.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}

/// SHA-256 (FIPS 180-4) in Swift, for platforms without a system implementation.
package struct PortableSHA256: Sendable {
    /// Section 4.2.2: from the cube roots of the first 64 primes.
    private static let constants: [UInt32] = [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
        0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
        0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
        0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
        0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
        0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
        0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ]

    private static let blockSize = 64

    /// Section 5.3.3: from the square roots of the first 8 primes.
    private var state: SIMD8<UInt32> = [
        0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
    ]
    /// The bytes of an incomplete block.
    private var rest: [UInt8] = []
    /// The number of bytes added: less than 2^61 by FIPS 180-4.
    private var count: UInt64 = 0

    package init() {}

    /// Adds `bytes`.
    package mutating func update(_ bytes: UnsafeRawBufferPointer) {
        self.count &+= UInt64(bytes.count)
        var start = 0
        if !self.rest.isEmpty {
            start = min(Self.blockSize - self.rest.count, bytes.count)
            unsafe self.rest.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[..<start]))
            guard self.rest.count == Self.blockSize else { return }
            let block = self.rest
            unsafe block.withUnsafeBytes { unsafe self.compress($0) }
            self.rest.removeAll(keepingCapacity: true)
        }
        let end = start + (bytes.count - start) / Self.blockSize * Self.blockSize
        if end > start { unsafe self.compress(UnsafeRawBufferPointer(rebasing: bytes[start..<end])) }
        if end < bytes.count {
            unsafe self.rest.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[end...]))
        }
    }

    /// The hash, 32 bytes, of all added bytes; no bytes may be added after this call.
    package mutating func finalize() -> [UInt8] {
        // Section 5.1.1: a 1 bit, 0 bits, and the length in bits, to the end of a block.
        let bits = self.count &* 8
        var padding: [UInt8] = [0x80]
        let filled = (self.rest.count + 1 + 8) % Self.blockSize
        if filled > 0 { padding += [UInt8](repeating: 0, count: Self.blockSize - filled) }
        padding += (0..<8).map { UInt8(truncatingIfNeeded: bits >> (56 - $0 * 8)) }
        unsafe padding.withUnsafeBytes { unsafe self.update($0) }
        return (0..<8).flatMap { index in
            [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: self.state[index] >> $0) }
        }
    }

    /// Section 6.2.2, for each block; `blocks` contains whole blocks only.
    private mutating func compress(_ blocks: UnsafeRawBufferPointer) {
        var state = self.state
        unsafe withUnsafeTemporaryAllocation(of: UInt32.self, capacity: 64) { schedule in
            unsafe Self.constants.withUnsafeBufferPointer { constants in
                var offset = 0
                while offset < blocks.count {
                    for index in 0..<16 {
                        unsafe schedule[index] = UInt32(
                            bigEndian: blocks.loadUnaligned(fromByteOffset: offset + index * 4, as: UInt32.self)
                        )
                    }
                    for index in 16..<64 {
                        let (early, late) = unsafe (schedule[index - 15], schedule[index - 2])
                        let first = Self.rotate(early, 7) ^ Self.rotate(early, 18) ^ (early >> 3)
                        let second = Self.rotate(late, 17) ^ Self.rotate(late, 19) ^ (late >> 10)
                        unsafe schedule[index] = schedule[index - 16] &+ first &+ schedule[index - 7] &+ second
                    }
                    var (a, b, c, d) = (state[0], state[1], state[2], state[3])
                    var (e, f, g, h) = (state[4], state[5], state[6], state[7])
                    for index in 0..<64 {
                        let mix = Self.rotate(e, 6) ^ Self.rotate(e, 11) ^ Self.rotate(e, 25)
                        let choice = (e & f) ^ (~e & g)
                        let first = unsafe h &+ mix &+ choice &+ constants[index] &+ schedule[index]
                        let blend = Self.rotate(a, 2) ^ Self.rotate(a, 13) ^ Self.rotate(a, 22)
                        let majority = (a & b) ^ (a & c) ^ (b & c)
                        (h, g, f, e) = (g, f, e, d &+ first)
                        (d, c, b, a) = (c, b, a, first &+ blend &+ majority)
                    }
                    state = state &+ SIMD8(a, b, c, d, e, f, g, h)
                    offset += Self.blockSize
                }
            }
        }
        self.state = state
    }

    private static func rotate(_ word: UInt32, _ count: UInt32) -> UInt32 { word >> count | word << (32 - count) }
}

/// The 64-bit FNV-1a hash, to find keys and to detect damage on disk.
///
/// The hash does not protect against deliberate changes.
///
/// Every step is a bijection of the state, so a change of a single byte of the input always changes the
/// result. Source: draft-eastlake-fnv-21, section 2 (the function) and section 5 (the 64-bit constants).
package struct FNV: Sendable {
    package private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    package init() {}

    private static let prime: UInt64 = 0x0000_0100_0000_01b3

    package mutating func combine(_ bytes: some Sequence<UInt8>) {
        let start = self.value
        // Contiguous bytes are read in place: this loop is most of the cost of reading a record.
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

    /// Adds eight bytes in a single step.
    package mutating func combine(word: UInt64) { self.value = Self.step(self.value, word) }

    /// A step for eight bytes at a time, similar to a step of FNV-1a, but not equal.
    ///
    /// Multiplication carries differences upwards only: two changes of the highest bits would cancel out. The
    /// shift moves differences to lower bits.
    package static func step(_ value: UInt64, _ word: UInt64) -> UInt64 {
        let product = (value ^ word) &* Self.prime
        return product ^ (product >> 32)
    }

    /// Adds the text's length and bytes, so "ab", "c" and "a", "bc" differ.
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
