import Foundation

/// Contestants that take turns, round by round, so that a machine whose speed drifts is fair to all.
struct Contest {
    private let rounds: Int
    private var contestants: [(repeats: Bool, measure: (Int) async throws -> Double)] = []

    /// How long a round of a contestant takes that may repeat itself, in nanoseconds: less than a time slice.
    private static let roundTime = 2e6

    init(rounds: Int) { self.rounds = rounds }

    /// Adds a contestant that measures itself and returns what it measured.
    mutating func add(_ measure: @escaping () async throws -> Double) {
        self.contestants.append((false, { _ in try await measure() }))
    }

    /// Adds a contestant whose nanoseconds for each of `count` times are measured; `body` does all of them.
    mutating func add(times count: Int, _ body: @escaping (Int) async throws -> Void) {
        self.add { try await Self.nanoseconds { try await body(count) } / Double(count) }
    }

    /// Adds a contestant that is repeated as often as a round has room for, at least so many times.
    mutating func add(repeating least: Int, _ body: @escaping (Int) async throws -> Void) {
        var count = least
        let measure = { (round: Int) async throws -> Double in
            let each = try await Self.nanoseconds { try await body(count) } / Double(count)
            // The warm-up tells how often.
            if round < Self.warmUps { count = least * max(1, Int(Self.roundTime / each) / least) }
            return each
        }
        self.contestants.append((true, measure))
    }

    private static let warmUps = 2

    /// Plays all rounds, and some before them to warm up.
    func play() async throws -> Outcome {
        var figures = [[Double]](repeating: [], count: self.contestants.count)
        for round in 0..<(self.rounds + Self.warmUps) {
            for (index, contestant) in self.contestants.enumerated() {
                if round == 0, !contestant.repeats { continue }
                let figure = try await contestant.measure(round)
                if round >= Self.warmUps { figures[index].append(figure) }
            }
        }
        return Outcome(figures: figures)
    }

    /// How long `body` takes.
    static func nanoseconds(_ body: () async throws -> Void) async rethrows -> Double {
        let clock = ContinuousClock()
        let start = clock.now
        try await body()
        return start.duration(to: clock.now).inNanoseconds
    }
}

/// What the rounds brought, by contestant.
struct Outcome: Sendable {
    let figures: [[Double]]

    /// The median of a contestant's rounds.
    func median(_ contestant: Int) -> Double { Self.median(self.figures[contestant]) }

    /// The median of how many times as much one contestant took as another, each time in the same round.
    func ratio(of contestant: Int, to other: Int) -> Double {
        Self.median(zip(self.figures[contestant], self.figures[other]).map { $0 / $1 })
    }

    static func median(_ figures: [Double]) -> Double {
        figures.isEmpty ? .nan : figures.sorted()[figures.count / 2]
    }
}

extension Duration {
    var inNanoseconds: Double {
        let (seconds, attoseconds) = self.components
        return Double(seconds) * 1e9 + Double(attoseconds) / 1e9
    }
}

/// Uses `value`, so that the optimizer cannot leave out what made it.
@inline(never) func consume<Value>(_ value: Value) { withExtendedLifetime(value) {} }
