import MuxKit

/// Limits the number of tests that run at a time: a counting semaphore, first come, first served.
final class Turns: Sendable {
    private struct State: Sendable {
        var free: Int
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    @TaskLocal private static var isTaken = false
    private let state: Locked<State>

    init(_ count: Int) { self.state = Locked(State(free: count)) }

    /// Runs `work` when a permit is free; at once inside work that has a permit, of any ``Turns``.
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
