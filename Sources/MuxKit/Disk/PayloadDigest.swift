package import Foundation

/// Tells whether a value on disk is as it was written: ``FNV``'s step for eight bytes at a time.
///
/// Not a protection against an adversary. Every step is a bijection of the state, so changing any one byte always changes
/// the result. Byte by byte the hash of a large value would take longer than the system takes to read it.
package enum PayloadDigest {
    /// What stands before the digits in a file.
    package static let name: StaticString = "fnv64x8:"

    private static let start: UInt64 = 0xcbf2_9ce4_8422_2325

    /// The digest of `bytes`.
    package static func hash(_ bytes: some ContiguousBytes) -> UInt64 {
        unsafe bytes.withUnsafeBytes { buffer in
            var value = self.start
            var offset = 0
            while offset + 8 <= buffer.count {
                let word = unsafe buffer.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                value = FNV.step(value, UInt64(littleEndian: word))
                offset += 8
            }
            var rest: UInt64 = 0
            for index in offset..<buffer.count { rest = rest << 8 | UInt64(unsafe buffer[index]) }
            return FNV.step(FNV.step(value, rest), UInt64(buffer.count))
        }
    }
}
