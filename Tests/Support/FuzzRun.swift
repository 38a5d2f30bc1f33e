import Foundation

/// The factor of the number of random trials, and the first seed.
///
/// `MUX_FUZZ=100` sets the factor 100 and draws the first seed; `MUX_SEED=7` begins with seed 7.
/// Without either variable the seeds are always the same, so a failure after a change is due to the change.
package struct FuzzRun: Sendable {
    package let seed: UInt64
    package let factor: Int

    package init() {
        let environment = ProcessInfo.processInfo.environment
        let factor = environment["MUX_FUZZ"].flatMap(Int.init)
        self.factor = max(1, factor ?? 1)
        self.seed = environment["MUX_SEED"].flatMap(UInt64.init) ?? (factor == nil ? 1 : .random(in: 0..<1_000_000_000))
    }

    /// Prints seed and factor before the trials, because nothing can be printed after a trap.
    package func announce() { print("MUX_SEED=\(self.seed) MUX_FUZZ=\(self.factor)") }
}
