import Foundation

/// Contestants that take turns, round by round, so that a drift of the machine's speed affects all
/// contestants alike.
struct Contest {
    private let rounds: Int
    private var contestants: [(repeats: Bool, measure: (Int) async throws -> Double)] = []

    /// The duration of one try of a repeatable contestant, in nanoseconds: far less than a time slice.
    private static let tryTime = 5e5
    /// The number of tries of a repeatable contestant in a round.
    ///
    /// Only the fastest try counts, because other processes interrupt some tries.
    private static let tries = 3

    init(rounds: Int) { self.rounds = rounds }

    /// Adds a contestant that returns its own measurement.
    mutating func add(_ measure: @escaping () async throws -> Double) {
        self.contestants.append((false, { _ in try await measure() }))
    }

    /// Adds a contestant that is measured in nanoseconds for each of `count` operations; `body` performs all of them.
    mutating func add(times count: Int, _ body: @escaping (Int) async throws -> Void) {
        self.add { try await Self.nanoseconds { try await body(count) } / Double(count) }
    }

    /// Adds a repeatable contestant: the number of operations fills the duration of a try, and is at least
    /// `least`.
    mutating func add(repeating least: Int, _ body: @escaping (Int) async throws -> Void) {
        var count = least
        let measure = { (round: Int) async throws -> Double in
            var best = Double.infinity
            for _ in 0..<Self.tries {
                best = min(best, try await Self.nanoseconds { try await body(count) } / Double(count))
            }
            // The warm-up determines the number of operations.
            if round < Self.warmUps { count = least * max(1, Int(Self.tryTime / best) / least) }
            return best
        }
        self.contestants.append((true, measure))
    }

    private static let warmUps = 2

    /// Runs some rounds to warm up, then all rounds.
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

    /// The duration of `body`.
    static func nanoseconds(_ body: () async throws -> Void) async rethrows -> Double {
        let clock = ContinuousClock()
        let start = clock.now
        try await body()
        return start.duration(to: clock.now).inNanoseconds
    }
}

/// The measurements of all rounds, by contestant.
struct Outcome: Sendable {
    let figures: [[Double]]

    /// The median of a contestant's rounds.
    func median(_ contestant: Int) -> Double { Self.median(self.figures[contestant]) }

    /// The median of the ratio of two contestants in the same round.
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

/// Consumes `value`, so that the optimizer cannot remove its computation.
@inline(never) func consume<Value>(_ value: Value) { withExtendedLifetime(value) {} }
