import Foundation

/// The part of a long test that this run plays: a quarter of `count`, or all of it with `MUX_SCHEDULES=4`, which `.ci/run` sets.
package func repetitions(_ count: Int) -> Int {
    let factor = ProcessInfo.processInfo.environment["MUX_SCHEDULES"].flatMap(Int.init) ?? 1
    return max(1, count / 4 * max(1, factor))
}
