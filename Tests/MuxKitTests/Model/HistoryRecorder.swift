import MuxKit

/// Writes down what happens to each key, with moments that are the same for everybody.
final class HistoryRecorder: Sendable {
    private typealias Operation = Linearizability.Operation<Linearizability.Action>

    private struct State: Sendable {
        var time = 0
        var histories: [Int: [Operation]] = [:]
    }

    private let state = Locked(State())

    /// A moment that lies after all before it.
    private func tick() -> Int {
        self.state.withLock { state in
            state.time += 1
            return state.time
        }
    }

    /// A number higher than all before it, for a value.
    func number() -> Int { self.tick() }

    /// Runs `operation`, and writes down what it says that it did; `nil` says that it did nothing.
    ///
    /// What has its effect more than once, at moments of its own, is written down so often.
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

    /// The histories whose answers nothing explains.
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
