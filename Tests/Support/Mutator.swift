import MuxTesting

/// Changes bytes at random, the same way for the same seed.
package struct Mutator: RandomNumberGenerator, Sendable {
    private var random: SplitMix64
    private let words: [[UInt8]]

    /// A mutator that inserts some of `words`.
    package init(seed: UInt64, words: [[UInt8]]) {
        self.random = SplitMix64(state: seed)
        self.words = words
    }

    package mutating func next() -> UInt64 { self.random.next() }

    /// Texts that are difficult for a parser of JSON lines.
    package static let journalWords: [[UInt8]] =
        [
            "\n", "\"", "\\", "\\u0000", "\\uD83D", "{", "}", "[", ",", ":", "null", "-", "-1", "1e999", "NaN", "0",
            "\r\n",
            "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", " ", "\u{0}",
            "é",
            "{\"mux\":1,\"check\":\"", "\"kind\":\"entry\"", "\"bytes\":", "\"ttl\":", "true", "1.5", "fnv64x8:",
        ].map { Array($0.utf8) } + [[0xff], [0xc3], [0xed, 0xa0, 0x80]]

    /// Texts that are difficult for a parser of URLs and header fields.
    package static let messageWords: [[UInt8]] = [
        "/", "..", ".", "//", "{", "}", "{a}", "%", "%2F", "%2e%2e", "?", "#", "@", ":", ":80", "[", "]", "&", "=", "+",
        " ",
        "\r\n", "\n", "\r", "\0", "\t", "\"", "\\", "\";", ";", ",", "--", "\u{301}", "é", "👩‍🚀", "\u{2028}", "-1",
        "99999999999999999999", "1e999", "null", "e30",
    ].map { Array($0.utf8) }

    /// `bytes` after at most four changes.
    package mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<Int.random(in: 0...4, using: &self) {
            let start = Int.random(in: 0...bytes.count, using: &self)
            let end = min(bytes.count, start + Int.random(in: 0..<24, using: &self))
            switch Int.random(in: 0..<8, using: &self) {
            case 0 where start < bytes.count: bytes[start] ^= 1 << UInt8.random(in: 0..<8, using: &self)
            case 1 where start < bytes.count: bytes[start] = .random(in: 0...255, using: &self)
            case 2: bytes.removeSubrange(start..<end)
            case 3: bytes.insert(contentsOf: bytes[start..<end], at: Int.random(in: 0...bytes.count, using: &self))
            case 4: bytes.removeSubrange(start...)
            case 5: bytes.insert(.random(in: 0...255, using: &self), at: start)
            default: bytes.replaceSubrange(start..<end, with: self.words.randomElement(using: &self) ?? [])
            }
        }
        return bytes
    }

    /// A mutation of `text`; bytes that are not UTF-8 become replacement characters.
    package mutating func text(like text: String) -> String {
        String(decoding: self.mutated(Array(text.utf8)), as: UTF8.self)
    }
}
