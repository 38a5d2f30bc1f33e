import Foundation

/// How much is tried at random, and from which seed on.
///
/// `MUX_FUZZ=100` multiplies the number; `MUX_SEED=7` begins with that seed.
struct FuzzRun: Sendable {
    let seed: UInt64
    let factor: Int

    init() {
        let environment = ProcessInfo.processInfo.environment
        self.seed = environment["MUX_SEED"].flatMap(UInt64.init) ?? .random(in: 0..<1_000_000_000)
        self.factor = max(1, environment["MUX_FUZZ"].flatMap(Int.init) ?? 1)
    }

    /// Prints both, beforehand, because a trap leaves no time for it.
    func announce() { print("MUX_SEED=\(self.seed) MUX_FUZZ=\(self.factor)") }
}
