package import Foundation

/// The index key of an entry: a hash of the domain and a hash of the key.
///
/// Two names may collide: readers compare the name of the found entry.
package struct EntryDigest: Sendable, Hashable {
    package var domain: UInt64
    package var key: UInt64

    package init(domain: UInt64, key: UInt64) {
        self.domain = domain
        self.key = key
    }

    /// The digest that journals use.
    package init(_ name: MuxStoreKey) {
        var domain = FNV()
        domain.combine(field: name.domain)
        var key = FNV()
        if let text = name.key { key.combine(field: text) }
        self.init(domain: domain.value, key: key.value)
    }
}

/// The checksum of a payload: the hash step of ``FNV``, applied to eight bytes at a time.
///
/// Not a protection against an adversary. Every step is a bijection of the state, so a change of any single
/// byte changes the result. A bytewise hash would take longer than reading a large payload from disk.
package enum PayloadDigest {
    /// The prefix of the digest in a record's header.
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
