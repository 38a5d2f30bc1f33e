import MuxTesting

/// Changes bytes at random, the same way for the same seed.
struct Mutator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    init(seed: UInt64) { self.state = seed }

    /// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    mutating func next() -> UInt64 {
        self.state &+= 0x9e37_79b9_7f4a_7c15
        var z = self.state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }

    private static let words: [[UInt8]] =
        [
            "\n", "\"", "\\", "\\u0000", "\\uD83D", "{", "}", "[", ",", ":", "null", "-", "-1", "1e999", "NaN", "0",
            "\r\n",
            "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", " ", "\u{0}",
            "é",
            "{\"mux\":1,\"check\":\"", "\"kind\":\"entry\"", "\"bytes\":", "\"ttl\":", "true", "1.5", "fnv64x8:",
        ].map { Array($0.utf8) } + [[0xff], [0xc3], [0xed, 0xa0, 0x80]]

    /// `bytes` with one to four changes.
    mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for _ in 0...Int.random(in: 0..<4, using: &self) {
            let start = Int.random(in: 0...bytes.count, using: &self)
            let end = min(bytes.count, start + Int.random(in: 0..<24, using: &self))
            switch Int.random(in: 0..<7, using: &self) {
            case 0 where start < bytes.count: bytes[start] ^= 1 << UInt8.random(in: 0..<8, using: &self)
            case 1 where start < bytes.count: bytes[start] = .random(in: 0...255, using: &self)
            case 2: bytes.removeSubrange(start..<end)
            case 3: bytes.insert(contentsOf: bytes[start..<end], at: Int.random(in: 0...bytes.count, using: &self))
            case 4: bytes.removeSubrange(start...)
            default: bytes.replaceSubrange(start..<end, with: Self.words.randomElement(using: &self) ?? [])
            }
        }
        return bytes
    }
}
