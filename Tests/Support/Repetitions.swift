import Foundation
package import Testing

/// What `MUX_SCHEDULES` multiplies long tests by.
private var factor: Int { max(1, ProcessInfo.processInfo.environment["MUX_SCHEDULES"].flatMap(Int.init) ?? 1) }

/// The number of repetitions of a long test: a quarter of `count`, multiplied by `MUX_SCHEDULES`.
///
/// `.ci/run` sets 4 for the optimised run, and for the tests of crashes.
package func repetitions(_ count: Int) -> Int { max(1, count * factor / 4) }

/// The step through a list that a long test plays in part: 4, or 1 with `MUX_SCHEDULES=4`.
package var repetitionStep: Int { max(1, 4 / factor) }

extension Trait where Self == ConditionTrait {
    /// For a test that takes long and has no part to play alone.
    package static var onlyInWholeRuns: Self {
        .enabled(if: repetitionStep == 1, "runs with MUX_SCHEDULES=4, as in CI")
    }
}
