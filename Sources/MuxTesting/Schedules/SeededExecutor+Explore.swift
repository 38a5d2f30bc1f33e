import Foundation
import MuxKit

extension SeededExecutor {
    /// Runs `body` in many orders, one after another, and stops at the first in which it throws.
    ///
    /// The environment can ask for more, or for a certain one: `MUX_SCHEDULES=100` runs a hundred times as many, `MUX_SEED=7` runs
    /// the one of seed 7.
    ///
    /// - Parameters:
    ///   - count: How many orders; their seeds are 0, 1, 2 and so on.
    ///   - body: Does the same thing each time, with things of its own each time; throws if something is not as it should be.
    /// - Returns: How many orders were run.
    /// - Throws: ``SeededScheduleError`` with the seed.
    @discardableResult
    public static func explore(
        _ count: Int = 1_000,
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws -> Int {
        let environment = ProcessInfo.processInfo.environment
        if let seed = environment["MUX_SEED"].flatMap(UInt64.init) {
            try await self.explore(seed: seed, body)
            return 1
        }
        let factor = max(1, environment["MUX_SCHEDULES"].flatMap(Int.init) ?? 1)
        let (total, overflow) = count.multipliedReportingOverflow(by: factor)
        let last = overflow ? UInt64(Int.max) : UInt64(max(total, 0))
        for seed in 0..<last { try await self.explore(seed: seed, body) }
        return Int(last)
    }

    /// Runs `body` in the order of one seed.
    package static func explore(
        seed: UInt64,
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws {
        try Task.checkCancellation()
        let schedule = SeededExecutor(seed: seed)
        do {
            try await schedule.run { try await body(schedule) }
        } catch let error as SeededScheduleError {
            throw error
        } catch {
            throw SeededScheduleError.failed(seed: seed, underlying: error)
        }
    }
}
