import Foundation
import MuxKit
package import Testing

/// Limits how many tests run at a time to what the processors can do.
///
/// Swift Testing (6.3.1) begins all tests at once. On two processors each step of one then waits for a step of a thousand
/// others, for twenty seconds and more, and every limit in real time is exceeded: a silent server, a lease, a fetch.
package struct TakesTurns: TestTrait, SuiteTrait, TestScoping {
    /// What a test does most of its time, of which so many may do it at once.
    fileprivate enum Work { case computing, waiting }

    private static let turns = Turns(max(4, 2 * ProcessInfo.processInfo.activeProcessorCount))
    private static let turnsOfWaiting = Turns(4)

    fileprivate let work: Work

    /// Applies to each test of a suite.
    package var isRecursive: Bool { true }

    @concurrent package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        let turns = self.work == .computing ? Self.turns : Self.turnsOfWaiting
        try await turns.take { try await function() }
    }
}

extension Trait where Self == TakesTurns {
    /// Limits how many tests run at a time to what the processors can do.
    package static var takesTurns: TakesTurns { TakesTurns(work: .computing) }

    /// The same for tests that mostly wait for real time, as for the limit of a call that hangs: they leave their turns to tests that compute.
    package static var takesTurnsWaiting: TakesTurns { TakesTurns(work: .waiting) }
}

/// A counting semaphore, first come, first served, and re-entrant within a task.
final class Turns: Sendable {
    private struct State: Sendable {
        var free: Int
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    @TaskLocal private static var isTaken = false
    private let state: Locked<State>

    init(_ count: Int) { self.state = Locked(State(free: count)) }

    /// Runs `work` when a permit is free; at once inside of work that has one.
    func take(_ work: () async throws -> Void) async rethrows {
        guard !Self.isTaken else { return try await work() }
        await withCheckedContinuation { continuation in
            let isFree = self.state.withLock { state in
                guard state.free > 0 else {
                    state.waiting.append(continuation)
                    return false
                }
                state.free -= 1
                return true
            }
            if isFree { continuation.resume() }
        }
        defer { self.next()?.resume() }
        try await Self.$isTaken.withValue(true) { try await work() }
    }

    private func next() -> CheckedContinuation<Void, Never>? {
        self.state.withLock { state in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
            state.free += 1
            return nil
        }
    }
}
