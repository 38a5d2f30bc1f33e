import Foundation
import MuxKit

/// Lets a number of pieces of work go on at a time; the others wait for their turn, in the order in which they came.
package final class Turns: Sendable {
    private struct State: Sendable {
        var free: Int
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state: Locked<State>

    package init(_ count: Int) { self.state = Locked(State(free: max(1, count))) }

    @TaskLocal private static var isTaken = false

    /// Runs `work` as soon as its turn has come; at once if it is part of work that has its turn.
    package func take(_ work: () async throws -> Void) async rethrows {
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

extension Turns {
    /// Those of the tests of this process: as many as keep its processors busy.
    package static let tests = Turns(max(4, 2 * ProcessInfo.processInfo.activeProcessorCount))
}
