import Foundation

/// Tries every sequence of events up to a length, and reports a shortest sequence with a violation.
///
/// Equal states have the same future, so each state is explored once. The search is breadth first, so the
/// first finding is a shortest sequence.
package struct Explorer<State: Hashable & Sendable, Event: Sendable> {
    package struct Outcome: Sendable {
        /// The number of different states.
        package var states = 0
        /// The number of tried events.
        package var transitions = 0
        /// The number of sequences of the full length; 0 with a finding.
        ///
        /// A `Double`, because the number exceeds integers.
        package var sequences = 0.0
        /// A shortest history with a violation, and the violation.
        package var finding: (history: [Event], what: String)?

        /// The finding as text.
        package var story: String? {
            self.finding.map { finding in
                finding.history.map { "\($0)" }.joined(separator: " → ") + ": " + finding.what
            }
        }
    }

    /// A state with its stored hash, because a growing dictionary hashes its keys again.
    private struct Hashed: Hashable {
        let state: State
        let hash: Int

        init(_ state: State) { (self.state, self.hash) = (state, state.hashValue) }

        static func == (a: Self, b: Self) -> Bool { a.hash == b.hash && a.state == b.state }

        func hash(into hasher: inout Hasher) { hasher.combine(self.hash) }
    }

    private struct Node {
        let parent: Int
        let event: Event
    }

    /// The possible events of a state.
    private let events: (State) -> [Event]
    /// Applies an event and returns a violation, or `nil`.
    private let apply: (inout State, Event) -> String?

    package init(events: @escaping (State) -> [Event], apply: @escaping (inout State, Event) -> String?) {
        self.events = events
        self.apply = apply
    }

    package func explore(from start: State, depth: Int) -> Outcome {
        var outcome = Outcome()
        var numbers = [Hashed(start): 0]
        var nodes: [Node?] = [nil]
        var edges: [(Int32, Int32)] = []
        var frontier = [start]
        var first = 0
        for _ in 0..<depth {
            var next: [State] = []
            for (offset, state) in frontier.enumerated() {
                for event in self.events(state) {
                    var changed = state
                    outcome.transitions += 1
                    if let what = self.apply(&changed, event) {
                        outcome.states = numbers.count
                        outcome.finding = (self.history(to: first + offset, nodes) + [event], what)
                        return outcome
                    }
                    let known = Hashed(changed)
                    let number = numbers[known] ?? numbers.count
                    if number == numbers.count {
                        numbers[known] = number
                        nodes.append(Node(parent: first + offset, event: event))
                        next.append(changed)
                    }
                    edges.append((Int32(first + offset), Int32(number)))
                }
            }
            first += frontier.count
            frontier = next
        }
        outcome.states = numbers.count
        outcome.sequences = self.sequences(edges, states: numbers.count, depth)
        return outcome
    }

    private func history(to number: Int, _ nodes: [Node?]) -> [Event] {
        var events: [Event] = []
        var number = number
        while let node = nodes[number] {
            events.append(node.event)
            number = node.parent
        }
        return events.reversed()
    }

    /// The number of paths of `depth` steps from the start.
    private func sequences(_ edges: [(Int32, Int32)], states: Int, _ depth: Int) -> Double {
        var ways = [Double](repeating: 0, count: states)
        ways[0] = 1
        for _ in 0..<depth {
            var next = [Double](repeating: 0, count: states)
            for (from, to) in edges where ways[Int(from)] > 0 { next[Int(to)] += ways[Int(from)] }
            ways = next
        }
        return ways.reduce(0, +)
    }
}

extension ProofEnvironment {
    /// Prints the coverage of an exploration.
    package static func report<State, Event>(_ id: String, _ what: String, _ outcome: Explorer<State, Event>.Outcome) {
        let sequences = outcome.sequences.formatted(.number.notation(.scientific).precision(.significantDigits(3)))
        print("\(id): \(what): \(sequences) sequences through \(outcome.states) states, \(outcome.transitions) events")
    }
}
