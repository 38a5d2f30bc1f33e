import Foundation

/// How much is tried at random, and from which seed on.
///
/// `MUX_FUZZ=100` multiplies the number and draws the first seed; `MUX_SEED=7` begins with that seed. Without either the seeds are
/// always the same: what a change has broken is told from what has never held.
package struct FuzzRun: Sendable {
    package let seed: UInt64
    package let factor: Int

    package init() {
        let environment = ProcessInfo.processInfo.environment
        let factor = environment["MUX_FUZZ"].flatMap(Int.init)
        self.factor = max(1, factor ?? 1)
        self.seed = environment["MUX_SEED"].flatMap(UInt64.init) ?? (factor == nil ? 1 : .random(in: 0..<1_000_000_000))
    }

    /// Prints both, beforehand, because a trap leaves no time for it.
    package func announce() { print("MUX_SEED=\(self.seed) MUX_FUZZ=\(self.factor)") }
}
