public import Foundation
import MuxKit

extension SeededExecutor {
    /// Runs `body` in many orders, one after another, and stops at the first in which it throws.
    ///
    /// The environment can ask for more, or for a certain one: `MUX_SCHEDULES=100` runs a hundred times as many, `MUX_SEED=7` runs
    /// the one of seed 7.
    ///
    /// An order in which virtual time passed, and which then fails, is run again with more real time for work outside the
    /// schedule, before it counts as failed.
    ///
    /// - Parameters:
    ///   - count: How many orders; their seeds are 0, 1, 2 and so on.
    ///   - body: Does the same thing each time, with things of its own each time; throws if something is not as it should be.
    /// - Returns: How many orders were run.
    /// - Throws: ``ScheduleError`` with the seed, or for a number in the environment that is none; `CancellationError` if
    ///   the task is cancelled, whatever the body made of that.
    @discardableResult
    public static func explore(
        _ count: Int = 1_000,
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws -> Int {
        try await self.explore(count, in: ProcessInfo.processInfo.environment, body)
    }

    package static func explore(
        _ count: Int,
        in environment: [String: String],
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws -> Int {
        let factor: Int = try self.number("MUX_SCHEDULES", in: environment) ?? 1
        if let seed: UInt64 = try self.number("MUX_SEED", in: environment) {
            try await self.explore(seed: seed, body)
            return 1
        }
        let (total, overflow) = max(0, count).multipliedReportingOverflow(by: max(1, factor))
        let last = overflow ? Int.max : total
        var grace = Grace.none
        for seed in 0..<last { try await self.explore(seed: UInt64(seed), &grace, body) }
        return last
    }

    private static func number<Number: FixedWidthInteger>(
        _ name: String,
        in environment: [String: String]
    ) throws -> Number? {
        guard let text = environment[name] else { return nil }
        guard let number = Number(text), number >= 0 else {
            throw ScheduleError.invalidEnvironment(name: name, value: text)
        }
        return number
    }

    /// Runs `body` in the order of one seed.
    package static func explore(
        seed: UInt64,
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws {
        var grace = Grace.none
        try await self.explore(seed: seed, &grace, body)
    }

    /// Runs `body` in the order of one seed, and again with more grace if time passed beside work outside, or may have.
    ///
    /// - Parameters:
    ///   - seed: What the order is drawn from.
    ///   - grace: What to begin with; more as soon as there is known to be work outside.
    ///   - body: What to run.
    /// - Throws: ``ScheduleError``, or `CancellationError`.
    private static func explore(
        seed: UInt64,
        _ grace: inout Grace,
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws {
        var first: (any Error)?
        for attempt in grace == .none ? [.none, .short, .long] : [Grace.short, .long] {
            try Task.checkCancellation()
            let schedule = SeededExecutor(seed: seed, grace: attempt)
            let result = await schedule.outcome { try await body(schedule) }
            let visits = schedule.visits
            if visits.arrivals > 0 { grace = .short }
            switch result {
            case .success:
                if visits.late > 0, attempt != .long { continue }
                // What failed before, and cannot have failed by something outside, has failed.
                if let first, visits.arrivals == 0 { throw first }
                return
            case .failure(let error):
                // What becomes of a cancelled body is no fault of its order.
                try Task.checkCancellation()
                if error is ScheduleError { throw error }
                let failure = ScheduleError.failed(seed: seed, underlying: error)
                guard visits.jumps > 0 else { throw failure }
                first = first ?? failure
                guard attempt == .long else { continue }
                guard schedule.isCausedOutside(error) else { throw failure }
                throw ScheduleError.outside(seed: seed, underlying: error)
            }
        }
    }
}

extension SeededExecutor {
    /// What is wrong with an order that a ``SeededExecutor`` ran.
    @nonexhaustive public enum ScheduleError: Error, LocalizedError, CustomStringConvertible, Sendable {
        /// The operation threw an error in the order that belongs to this seed.
        case failed(seed: UInt64, underlying: any Error)

        /// The operation waits for something that never comes, or that the schedule cannot see.
        case stuck(seed: UInt64)

        /// The operation threw an error after virtual time had passed beside something that the schedule cannot see.
        case outside(seed: UInt64, underlying: any Error)

        /// `MUX_SEED` or `MUX_SCHEDULES` is set to what is not a whole number from zero on.
        case invalidEnvironment(name: String, value: String)

        /// A text for the test's log, with what to set in the environment to see it again.
        public var errorDescription: String? {
            switch self {
            case .failed(let seed, let underlying):
                "MUX_SEED=\(seed): \(underlying)"
            case .stuck(let seed):
                """
                MUX_SEED=\(seed): nothing can go on. Something is waited for that never comes, or that a schedule cannot see: \
                \(Self.unseen)
                """
            case .outside(let seed, let underlying):
                """
                MUX_SEED=\(seed): virtual time passed while something was waited for that a schedule cannot see: \(Self.unseen) \
                What failed then: \(underlying)
                """
            case .invalidEnvironment(let name, let value):
                "\(name) is \"\(value)\" in the environment; it has to be a whole number from 0 on."
            }
        }

        private static let unseen =
            "Task.sleep (use the schedule's clock), URLSession (use a ScriptedTransport), a timer, or a thread."

        /// The same text.
        public var description: String { self.errorDescription ?? "" }
    }
}
