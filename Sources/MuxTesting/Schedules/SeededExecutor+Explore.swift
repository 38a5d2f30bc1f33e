import Dispatch
public import Foundation
import MuxKit

extension SeededExecutor {
    /// Runs `body` in many orders, one after another, until the first failure.
    ///
    /// The environment variable `MUX_SCHEDULES=100` multiplies the number of orders by a hundred;
    /// `MUX_SEED=7` runs only the order of seed 7.
    ///
    /// An error of `body` after an advance of virtual time is not final at once: the order is repeated with
    /// more real time for work outside the schedule.
    ///
    /// - Parameters:
    ///   - count: The number of orders, with the seeds 0, 1, 2 and so on, before `MUX_SCHEDULES` and
    ///     `MUX_SEED` apply.
    ///   - body: The test, with fresh objects for each order; throws if an expectation fails.
    /// - Returns: The number of executed orders.
    /// - Throws: ``ScheduleError``; `CancellationError` if the task is cancelled.
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
        let seeds = try self.seeds(count, in: environment)
        var grace = Grace.none
        for number in 0..<seeds.count { try await self.explore(seed: seeds.first &+ UInt64(number), &grace, body) }
        return seeds.count
    }

    /// The first seed and the number of orders, which `MUX_SEED` and `MUX_SCHEDULES` may change.
    static func seeds(_ count: Int, in environment: [String: String]) throws -> (first: UInt64, count: Int) {
        let factor: Int = try self.number("MUX_SCHEDULES", in: environment) ?? 1
        if let seed: UInt64 = try self.number("MUX_SEED", in: environment) { return (seed, 1) }
        let (total, overflow) = max(0, count).multipliedReportingOverflow(by: max(1, factor))
        return (0, overflow ? Int.max : total)
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

    /// Runs `body` in the order of one seed, and repeats the order if virtual time may have advanced during
    /// work outside.
    ///
    /// The first attempt uses `grace`; an arrival from outside sets `grace` to ``Grace/short``.
    private static func explore(
        seed: UInt64,
        _ grace: inout Grace,
        _ body: @escaping @Sendable @concurrent (SeededExecutor) async throws -> Void
    ) async throws {
        var first: (any Error)?
        var isExcused = false
        for attempt in grace == .none ? [.none, .short, .long] : [Grace.short, .long] {
            try Task.checkCancellation()
            let schedule = SeededExecutor(seed: seed, grace: attempt)
            let result = await schedule.outcome { try await body(schedule) }
            let visits = schedule.visits
            if visits.arrivals > 0 { grace = .short }
            switch result {
            case .success:
                if visits.late > 0, attempt != .long { continue }
                // The first failure counts, unless work outside may have caused the failure
                // (`isCausedOutside`): some work outside is not detected, so this includes any time-out.
                if let first, visits.arrivals == 0, !isExcused { throw first }
                return
            case .failure(let error):
                // The error of a cancelled body contains no information about the order.
                try Task.checkCancellation()
                if error is ScheduleError { throw error }
                let failure = ScheduleError.failed(seed: seed, underlying: error)
                guard visits.jumps > 0 else { throw failure }
                first = first ?? failure
                isExcused = isExcused || schedule.isCausedOutside(error)
                guard attempt == .long else { continue }
                guard schedule.isCausedOutside(error) else { throw failure }
                throw ScheduleError.outside(seed: seed, underlying: error)
            }
        }
    }
}

extension SeededExecutor {
    /// Runs `body` in many orders, with the main actor in the schedule, until the first failure.
    ///
    /// - Parameters:
    ///   - count: The number of orders; see ``explore(_:_:)`` for the environment.
    ///   - body: The test, with fresh objects for each order; throws if an expectation fails.
    /// - Returns: The number of executed orders.
    /// - Throws: ``ScheduleError``; `CancellationError` if the task is cancelled.
    @MainActor
    @discardableResult
    package static func exploreWithMainActor(
        _ count: Int,
        _ body: @escaping @MainActor (SeededExecutor) async throws -> Void
    ) async throws -> Int {
        let seeds = try self.seeds(count, in: ProcessInfo.processInfo.environment)
        for number in 0..<seeds.count {
            try Task.checkCancellation()
            let schedule = SeededExecutor(seed: seeds.first &+ UInt64(number))
            do {
                try await schedule.runWithMainActor { try await body(schedule) }
            } catch {
                // The error of a cancelled body contains no information about the order.
                try Task.checkCancellation()
                throw error is ScheduleError ? error : ScheduleError.failed(seed: schedule.seed, underlying: error)
            }
        }
        return seeds.count
    }

    /// The number of consecutive turns of the main actor without a ready job before virtual time passes: a
    /// job of the main actor can enqueue another job of the main actor.
    private static let maximumTurns = 10
    /// The limit of a run in real time: with a repeating timer, virtual time advances without end if the
    /// operation waits for an event that never happens.
    private static let runLimit = Duration.seconds(60)

    /// Runs `operation` with the main actor in the schedule.
    ///
    /// The steps run on the main queue. Between two steps, the seed decides whether the ready jobs of the
    /// main actor run, in the order of their arrival. Virtual time advances only if no job is ready. Work
    /// outside the schedule is awaited only if its arrival is expected.
    ///
    /// - Throws: The operation's error; ``ScheduleError/stuck(seed:)`` if the operation has not ended after a
    ///   minute, or if no job can become ready.
    package func runWithMainActor(_ operation: @escaping @Sendable @concurrent () async throws -> Void) async throws {
        let (root, outcome) = self.start(operation)
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                DispatchQueue.main.async {
                    self.begin()
                    self.drive(afterTurns: 0, until: .now + Self.runLimit) {
                        outcome.withLock { $0 != nil }
                    } end: {
                        self.rest()
                        continuation.resume()
                    }
                }
            }
        } onCancel: {
            root.cancel()
        }
        guard let result = outcome.withLock({ $0 }) else {
            root.cancel()
            throw ScheduleError.stuck(seed: self.seed)
        }
        try result.get()
    }

    /// Runs steps until the next turn of the main actor, on the main queue.
    ///
    /// - Parameters:
    ///   - turns: The number of turns since the last ready job.
    ///   - limit: The end of the time for the run.
    ///   - isOver: Whether the operation has ended.
    ///   - end: Called once: at the limit, or when no job is ready and no job can become ready.
    private func drive(
        afterTurns turns: Int,
        until limit: ContinuousClock.Instant,
        isOver: @escaping @Sendable () -> Bool,
        end: @escaping @Sendable () -> Void
    ) {
        guard ContinuousClock.now < limit else { return end() }
        var turns = turns
        steps: while turns > 0 || self.draw(0..<3) > 0 {
            let (canPassTime, isOver) = (self.clock.sleeperCount > 0, isOver())
            switch self.state.withLock({ $0.nextStep(canPassTime: canPassTime, isOver: isOver) }) {
            case .run(let item):
                self.run(item)
                turns = 0
            case .await(isKnown: true): break steps
            case _ where turns < Self.maximumTurns:
                turns += 1
                break steps
            case .passTime:
                self.state.withLock { $0.visits.jumps += 1 }
                self.clock.advanceToNextDeadline()
                turns = 0
            case .await, .end: return end()
            }
        }
        // The main queue runs the block after the ready jobs of the main actor.
        DispatchQueue.main.async { [turns] in self.drive(afterTurns: turns, until: limit, isOver: isOver, end: end) }
    }
}

extension SeededExecutor {
    /// An error of ``explore(_:_:)`` or ``run(_:)``.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum ScheduleError: Error, LocalizedError, CustomStringConvertible, Sendable {
        /// The operation threw an error in the order of this seed.
        case failed(seed: UInt64, underlying: any Error)

        /// The operation waits for an event that never happens, or that the schedule cannot detect.
        ///
        /// An operation that repeats without end does not return, except on the main actor, where this error
        /// follows after a minute.
        case stuck(seed: UInt64)

        /// The operation threw an error, possibly because virtual time passed during work outside the
        /// schedule.
        case outside(seed: UInt64, underlying: any Error)

        /// `MUX_SEED` or `MUX_SCHEDULES` is not a non-negative integer.
        case invalidEnvironment(name: String, value: String)

        /// A text for the test's log, with the environment variable to reproduce the failure.
        public var errorDescription: String? {
            switch self {
            case .failed(let seed, let underlying):
                "MUX_SEED=\(seed): \(underlying)"
            case .stuck(let seed):
                """
                MUX_SEED=\(seed): the operation does not end. The operation repeats without end, or waits for an event that never \
                happens, or that a schedule cannot detect: \(Self.unseen)
                """
            case .outside(let seed, let underlying):
                """
                MUX_SEED=\(seed): virtual time may have passed during work that a schedule cannot detect: \
                \(Self.unseen) The error after the work: \(underlying)
                """
            case .invalidEnvironment(let name, let value):
                "\(name) is \"\(value)\" in the environment; the value must be a non-negative integer."
            }
        }

        private static let unseen =
            "Task.sleep (use the schedule's clock), URLSession (use a ScriptedTransport), a timer, or a thread."

        /// The same text as ``errorDescription``.
        public var description: String { self.errorDescription ?? "" }
    }
}
