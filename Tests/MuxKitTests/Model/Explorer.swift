import Foundation

/// Tries every sequence of events up to a length, and tells the shortest one after which something is wrong.
///
/// States that are equal have the same future, so each is looked at once; breadth first, so the first finding is a shortest one.
struct Explorer<State: Hashable & Sendable, Event: Sendable> {
    /// What came out.
    struct Outcome: Sendable {
        /// How many different states there are.
        var states = 0
        /// How many events were tried in them.
        var transitions = 0
        /// How many sequences of the full length that makes.
        var sequences = 0.0
        /// The shortest history after which something is wrong, and what is.
        var finding: (history: [Event], what: String)?

        /// The finding in words.
        var story: String? {
            self.finding.map { finding in
                finding.history.map { "\($0)" }.joined(separator: " → ") + ": " + finding.what
            }
        }
    }

    /// A state with its stored hash: a dictionary asks for it again whenever it grows.
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

    /// The events that can happen in a state.
    let events: (State) -> [Event]
    /// Lets an event happen; returns what is wrong then, `nil` if nothing is.
    let apply: (inout State, Event) -> String?

    /// Explores.
    func explore(from start: State, depth: Int) -> Outcome {
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

    /// How many ways of `depth` steps lead from the start.
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
    /// Tells what an exploration covered.
    static func report<State, Event>(_ id: String, _ what: String, _ outcome: Explorer<State, Event>.Outcome) {
        let sequences = outcome.sequences.formatted(.number.notation(.scientific).precision(.significantDigits(3)))
        print("\(id): \(what): \(sequences) sequences through \(outcome.states) states, \(outcome.transitions) events")
    }
}
