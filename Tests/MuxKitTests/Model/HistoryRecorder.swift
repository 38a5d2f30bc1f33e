import MuxKit

/// Records the operations on each key, with moments of a shared logical clock.
final class HistoryRecorder: Sendable {
    private typealias Operation = Linearizability.Operation<Linearizability.Action>

    private struct State: Sendable {
        var time = 0
        var histories: [Int: [Operation]] = [:]
    }

    private let state = Locked(State())

    /// A moment later than all previous moments.
    private func tick() -> Int {
        self.state.withLock { state in
            state.time += 1
            return state.time
        }
    }

    /// A number higher than all previous numbers, for a value.
    func number() -> Int { self.tick() }

    /// Runs `operation` and records the returned action, unless the action is `nil`.
    ///
    /// An operation that takes effect at several moments is recorded `times` times.
    func record(
        _ keys: [Int],
        times: Int = 1,
        _ operation: () async -> Linearizability.Action?
    ) async {
        let called = self.tick()
        guard let action = await operation() else { return }
        let returned = self.tick()
        self.state.withLock { state in
            for key in keys {
                let operation = Operation(action: action, called: called, returned: returned)
                state.histories[key, default: []] += Array(repeating: operation, count: times)
            }
        }
    }

    /// The histories that are not linearizable.
    func violations() async -> [String] {
        let histories = self.state.withLock { $0.histories }
        return await BlockingWork.run { Self.violations(of: histories) }
    }

    private static func violations(of histories: [Int: [Operation]]) -> [String] {
        histories.filter { !Linearizability.holds($0.value, from: Linearizability.Variable()) }.map { key, history in
            "key \(key): " + history.sorted { $0.called < $1.called }.map(\.description).joined(separator: ", ")
        }
    }
}
