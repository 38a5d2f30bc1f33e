/// An index from hashes to numbers: open addressing in one flat array of 32-bit words.
///
/// A word holds a number and, in the remaining bits, a part of the hash, so that few keys are compared
/// without a match. A removal shifts the following words back, so the index has no tombstones.
@usableFromInline
package struct FlatIndex: Sendable {
    /// The number of used bits of a hash.
    @inlinable package static var hashBits: UInt64 { 28 }

    /// A number and its position.
    @usableFromInline package typealias Hit = (position: Int, number: Int)

    @inlinable static var empty: UInt32 { .max }

    @usableFromInline var words: ContiguousArray<UInt32> = []
    @usableFromInline var numberBits: UInt32 = 0
    @usableFromInline var numberMask: UInt32 = 0

    package init() {}

    /// The number of words.
    package var size: Int { self.words.count }

    /// The used bits of the hash of `key`.
    @inlinable
    @inline(__always)
    package static func hash(_ key: some Hashable) -> UInt32 {
        // `hashValue` of common keys costs half as much as a `Hasher`. A type may have a bad `hashValue`: the
        // multiplication spreads every bit over the upper bits (Knuth, TAOCP 3, 6.4).
        let product = UInt64(truncatingIfNeeded: key.hashValue) &* 0x9E37_79B9_7F4A_7C15
        return UInt32(truncatingIfNeeded: product &>> (64 - Self.hashBits))
    }

    /// Whether the numbers below `count` fit: at most three quarters of the words are used.
    @usableFromInline
    package func hasRoom(for count: Int) -> Bool { count <= self.words.count / 4 * 3 }

    /// Replaces the array by an array with room for `room` numbers and with the numbers below `count`.
    package mutating func rebuild(room: Int, count: Int, hash: (Int) -> UInt32) {
        let room = max(room, count, 12)
        self.words = ContiguousArray(repeating: Self.empty, count: (room / 3 + 1) * 4)
        // No number that fits has all its bits set, so a word with all bits set marks an empty position.
        self.numberBits = UInt32(Int.bitWidth - (self.words.count / 4 * 3).leadingZeroBitCount)
        self.numberMask = (1 << self.numberBits) &- 1
        for number in 0..<count { self.insert(number, hash: hash(number)) }
    }

    /// Finds a number for which `matches` returns `true`, among the numbers with the same stored part of the
    /// hash as `hash`.
    @inlinable
    @inline(__always)
    package func find(hash: UInt32, where matches: (Int) -> Bool) -> Hit? {
        guard !self.words.isEmpty else { return nil }
        let tag = hash &<< self.numberBits
        var position = self.home(of: hash)
        while true {
            let word = self.words[position]
            if word == Self.empty { return nil }
            if word & ~self.numberMask == tag {
                let number = Int(word & self.numberMask)
                if matches(number) { return (position, number) }
            }
            position = self.position(after: position)
        }
    }

    /// Adds a new number; requires room.
    @usableFromInline
    package mutating func insert(_ number: Int, hash: UInt32) {
        var position = self.home(of: hash)
        while self.words[position] != Self.empty { position = self.position(after: position) }
        self.words[position] = hash << self.numberBits | UInt32(truncatingIfNeeded: number)
    }

    /// Replaces the number at `position`, and keeps the hash.
    @usableFromInline
    package mutating func renumber(at position: Int, to number: Int) {
        self.words[position] = self.words[position] & ~self.numberMask | UInt32(truncatingIfNeeded: number)
    }

    /// Removes the number at `position`.
    @usableFromInline
    package mutating func remove(at position: Int, hash: (Int) -> UInt32) {
        var hole = position
        var next = position
        while true {
            next = self.position(after: next)
            let word = self.words[next]
            if word == Self.empty { break }
            // A word with a home behind the hole stays: a search begins at the home, and would not find the
            // word in the hole.
            let home = self.home(of: hash(Int(word & self.numberMask)))
            let isBehindHole = hole <= next ? hole < home && home <= next : hole < home || home <= next
            if isBehindHole { continue }
            self.words[hole] = word
            hole = next
        }
        self.words[hole] = Self.empty
    }

    /// The number of entries; O(n).
    package var occupancy: Int { self.words.count { $0 != Self.empty } }

    @inlinable
    func home(of hash: UInt32) -> Int {
        Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(self.words.count)) >> Self.hashBits)
    }

    @inlinable
    func position(after position: Int) -> Int { position + 1 == self.words.count ? 0 : position + 1 }
}
