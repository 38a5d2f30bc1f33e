/// Where numbered things are found by their hashes: open addressing in one flat array of 32-bit words.
///
/// A word holds a number and, in the bits that the numbers do not need, part of its hash, so that hardly ever a thing is
/// looked at in vain. Removal shifts back what follows: no gravestones, and churn leaves nothing behind.
@usableFromInline
package struct FlatIndex: Sendable {
    /// How many bits of a hash are used.
    @inlinable package static var hashBits: UInt64 { 28 }

    /// Where a number is.
    @usableFromInline
    package struct Hit: Sendable {
        @usableFromInline package let position: Int
        @usableFromInline package let number: Int

        @inlinable
        init(position: Int, number: Int) {
            self.position = position
            self.number = number
        }
    }

    @inlinable static var empty: UInt32 { .max }

    @usableFromInline var words: ContiguousArray<UInt32> = []
    @usableFromInline var numberBits: UInt32 = 0
    @usableFromInline var numberMask: UInt32 = 0

    package init() {}

    /// How many words the array has.
    package var size: Int { self.words.count }

    /// The bits of the hash of `key` that the index uses.
    @inlinable
    @inline(__always)
    package static func hash(_ key: some Hashable) -> UInt32 {
        // `hashValue` of the usual keys costs half of what a hasher of our own does. A type may still write it itself, and
        // badly: multiplying lets every bit of it have a say in the upper ones (Knuth, TAOCP 3, 6.4).
        let product = UInt64(truncatingIfNeeded: key.hashValue) &* 0x9E37_79B9_7F4A_7C15
        return UInt32(truncatingIfNeeded: product &>> (64 - Self.hashBits))
    }

    /// Whether `count` numbers, all less than `count`, have room: three quarters of the words.
    @usableFromInline
    package func hasRoom(for count: Int) -> Bool { count <= self.words.count / 4 * 3 }

    /// Starts afresh with room for the numbers up to `room`, and the numbers up to `count` in it.
    package mutating func rebuild(room: Int, count: Int, hash: (Int) -> UInt32) {
        let room = max(room, count, 12)
        self.words = ContiguousArray(repeating: Self.empty, count: (room / 3 + 1) * 4)
        // No number that there is room for fills all its bits: that would look empty.
        self.numberBits = UInt32(Int.bitWidth - (self.words.count / 4 * 3).leadingZeroBitCount)
        self.numberMask = (1 << self.numberBits) &- 1
        for number in 0..<count { self.insert(number, hash: hash(number)) }
    }

    /// Forgets everything, and gives the array back.
    package mutating func removeAll() { self = FlatIndex() }

    /// Finds a number with that hash to which `matches` agrees.
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
                if matches(number) { return Hit(position: position, number: number) }
            }
            position = self.position(after: position)
        }
    }

    /// Adds a number that is not there; there has to be room.
    @usableFromInline
    package mutating func insert(_ number: Int, hash: UInt32) {
        var position = self.home(of: hash)
        while self.words[position] != Self.empty { position = self.position(after: position) }
        self.words[position] = hash << self.numberBits | UInt32(truncatingIfNeeded: number)
    }

    /// Lets another number have the place, and the hash, of the one at `position`.
    package mutating func renumber(at position: Int, to number: Int) {
        self.words[position] = self.words[position] & ~self.numberMask | UInt32(truncatingIfNeeded: number)
    }

    /// Removes the number at `position`.
    package mutating func remove(at position: Int, hash: (Int) -> UInt32) {
        var hole = position
        var next = position
        while true {
            next = self.position(after: next)
            let word = self.words[next]
            if word == Self.empty { break }
            let home = self.home(of: hash(Int(word & self.numberMask)))
            let isBehindHole = hole <= next ? hole < home && home <= next : hole < home || home <= next
            if isBehindHole { continue }
            self.words[hole] = word
            hole = next
        }
        self.words[hole] = Self.empty
    }

    /// How many numbers are there; counts them.
    package var occupancy: Int { self.words.count { $0 != Self.empty } }

    @inlinable
    func home(of hash: UInt32) -> Int {
        Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(self.words.count)) >> Self.hashBits)
    }

    @inlinable
    func position(after position: Int) -> Int { position + 1 == self.words.count ? 0 : position + 1 }
}
