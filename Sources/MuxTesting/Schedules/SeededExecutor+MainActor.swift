import Dispatch
import Foundation
import MuxKit

extension SeededExecutor {
    /// Runs `body` in many orders, with the main actor in the schedule, until the first failure.
    ///
    /// - Parameters:
    ///   - count: The number of orders; see ``explore(_:_:)`` for the environment.
    ///   - body: The test, with fresh objects for each order; throws if an expectation fails.
    /// - Returns: The number of executed orders.
    /// - Throws: ``ScheduleError``.
    @MainActor
    @discardableResult
    package static func exploreWithMainActor(
        _ count: Int,
        _ body: @escaping @MainActor (SeededExecutor) async throws -> Void
    ) async throws -> Int {
        let seeds = try self.seeds(count, in: ProcessInfo.processInfo.environment)
        for number in 0..<seeds.count {
            let schedule = SeededExecutor(seed: seeds.first &+ UInt64(number))
            do {
                try await schedule.runWithMainActor { try await body(schedule) }
            } catch let error as ScheduleError {
                throw error
            } catch {
                throw ScheduleError.failed(seed: schedule.seed, underlying: error)
            }
        }
        return seeds.count
    }

    /// The number of consecutive turns of the main actor without a ready job before virtual time passes: a
    /// job of the main actor can enqueue another job of the main actor.
    private static let maximumTurns = 10

    /// Runs `operation` with the main actor in the schedule.
    ///
    /// The steps run on the main queue. Between two steps, the seed decides whether the ready jobs of the main
    /// actor run, in the order of their arrival. Virtual time passes without ready jobs of the main actor.
    /// Work outside the schedule is not awaited.
    ///
    /// - Throws: The operation's error; ``ScheduleError/stuck(seed:)`` if the operation never ends.
    package func runWithMainActor(_ operation: @escaping @Sendable @concurrent () async throws -> Void) async throws {
        let (root, outcome) = self.start(operation)
        await withCheckedContinuation { continuation in
            DispatchQueue.main.async {
                self.begin()
                self.drive(afterTurns: 0) {
                    outcome.withLock { $0 != nil }
                } end: {
                    self.rest()
                    continuation.resume()
                }
            }
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
    ///   - isOver: Whether the operation has ended.
    ///   - end: Called once, when no job is ready and none will be.
    private func drive(
        afterTurns turns: Int,
        isOver: @escaping @Sendable () -> Bool,
        end: @escaping @Sendable () -> Void
    ) {
        var turns = turns
        steps: while turns > 0 || self.draw(0..<3) > 0 {
            let (canPassTime, isOver) = (self.clock.sleeperCount > 0, isOver())
            switch self.state.withLock({ $0.nextStep(canPassTime: canPassTime, isOver: isOver) }) {
            case .run(let item):
                self.run(item)
                turns = 0
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
        // The block is behind the ready jobs of the main actor.
        DispatchQueue.main.async { [turns] in self.drive(afterTurns: turns, isOver: isOver, end: end) }
    }
}
