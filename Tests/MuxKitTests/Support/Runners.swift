import MuxKit
import Testing

extension DependentRunner {
    /// Checks what has to hold when nothing is under way.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) {
        let occupancy = self.occupancy
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "updates still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { self.state = seed }

    mutating func next() -> UInt64 {
        self.state &+= 0x9e37_79b9_7f4a_7c15
        var word = self.state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}
