import MuxTesting

/// Changes bytes at random, the same way for the same seed.
struct Scrambler: RandomNumberGenerator, Sendable {
    private var random: SplitMix64

    init(seed: UInt64) { self.random = SplitMix64(state: seed) }

    mutating func next() -> UInt64 { self.random.next() }

    private static let words: [[UInt8]] = [
        "/", "..", ".", "//", "{", "}", "{a}", "%", "%2F", "%2e%2e", "?", "#", "@", ":", ":80", "[", "]", "&", "=", "+",
        " ",
        "\r\n", "\n", "\r", "\0", "\t", "\"", "\\", "\";", ";", ",", "--", "\u{301}", "é", "👩‍🚀", "\u{2028}", "-1",
        "99999999999999999999", "1e999", "null", "e30",
    ].map { Array($0.utf8) }

    /// `bytes` after up to four changes.
    mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<Int.random(in: 0...4, using: &self) {
            let index = Int.random(in: 0...bytes.count, using: &self)
            switch Int.random(in: 0..<6, using: &self) {
            case 0: bytes.insert(UInt8.random(in: 0...255, using: &self), at: index)
            case 1: bytes.insert(contentsOf: Self.words.randomElement(using: &self) ?? [], at: index)
            case 2 where index < bytes.count: bytes[index] = UInt8.random(in: 0...255, using: &self)
            case 3 where index < bytes.count: bytes.remove(at: index)
            case 4: bytes.removeLast(bytes.count - index)
            default: bytes += bytes[index...]
            }
        }
        return bytes
    }

    /// A text made of `text`; bytes that are no UTF-8 become replacement characters.
    mutating func text(like text: String) -> String { String(decoding: self.mutated(Array(text.utf8)), as: UTF8.self) }
}
