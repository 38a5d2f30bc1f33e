/// Random numbers from a seed (SplitMix64).
struct SeededRandom: RandomNumberGenerator, Sendable {
    private var state: UInt64

    init(_ seed: UInt64) { self.state = seed }

    mutating func next() -> UInt64 {
        self.state &+= 0x9e37_79b9_7f4a_7c15
        var z = self.state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }

    /// Returns a generator that does not depend on later numbers of this generator.
    mutating func split() -> SeededRandom { SeededRandom(self.next()) }

    mutating func chance(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &self) < probability }

    mutating func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &self))
    }

    /// At least one element; in one of three cases, all elements.
    mutating func some<Element>(_ all: [Element]) -> [Element] {
        guard all.count > 1, !self.chance(1 / 3) else { return all }
        return Array(all.shuffled(using: &self).prefix(Int.random(in: 1..<all.count, using: &self)))
    }
}

extension Collection {
    /// A random element, with a frequency proportional to the element's weight.
    func randomElement(using random: inout SeededRandom, weight: (Element) -> Int) -> Element? {
        self.flatMap { Array(repeating: $0, count: weight($0)) }.randomElement(using: &random)
    }
}
