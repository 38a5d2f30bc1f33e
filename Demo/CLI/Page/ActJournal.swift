import MuxKit
import MuxTesting

/// What the buttons of the page did.
final class ActJournal: Sendable {
    /// What came of one press.
    struct Outcome: Codable, Sendable {
        var number: Int
        var act: PageAct
        var text: String
        /// Whether it went as the library promises.
        var holds: Bool
    }

    private struct State: Sendable {
        var running: Set<PageAct> = []
        var outcomes: [Outcome] = []
        var count = 0
    }

    private let changes: Tally
    private let state = Locked(State())

    init(changes: Tally) { self.changes = changes }

    var running: [PageAct] { self.state.withLock { state in PageAct.allCases.filter { state.running.contains($0) } } }

    /// The last dozen, the newest first.
    var latest: [Outcome] { self.state.withLock { $0.outcomes } }

    /// Notes that an act begins; `false` if it is under way already.
    func begin(_ act: PageAct) -> Bool {
        defer { self.changes.add() }
        return self.state.withLock { $0.running.insert(act).inserted }
    }

    /// Notes how an act ended.
    func end(_ act: PageAct, _ text: String, holds: Bool) -> Outcome {
        defer { self.changes.add() }
        return self.state.withLock { state in
            state.running.remove(act)
            state.count += 1
            let outcome = Outcome(number: state.count, act: act, text: text, holds: holds)
            state.outcomes.insert(outcome, at: 0)
            state.outcomes = Array(state.outcomes.prefix(12))
            return outcome
        }
    }
}
