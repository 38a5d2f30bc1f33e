import Foundation
package import Testing

/// The factor of `MUX_SCHEDULES` for the repetitions of long tests.
var longTestFactor: Int { max(1, ProcessInfo.processInfo.environment["MUX_SCHEDULES"].flatMap(Int.init) ?? 1) }

/// The number of repetitions of a long test: a quarter of `count`, multiplied by `MUX_SCHEDULES`.
///
/// `.ci/run` sets 4 for the optimised run, and for the tests that the optimised run skips: tests that end
/// processes or measure memory.
package func repetitions(_ count: Int) -> Int { max(1, count * longTestFactor / 4) }

/// The step through a list of which a long test uses a part: 4 divided by `MUX_SCHEDULES`, at least 1.
package var repetitionStep: Int { max(1, 4 / longTestFactor) }

extension Trait where Self == ConditionTrait {
    /// Skips a long test that cannot be shortened, unless `MUX_SCHEDULES` is 3 or more.
    package static var onlyInWholeRuns: Self {
        .enabled(if: repetitionStep == 1, "runs with MUX_SCHEDULES=4, as in CI")
    }
}
