import Foundation

/// Contestants that take turns, round by round, so that a machine whose speed drifts is fair to all.
struct Contest {
    /// One way of doing the thing.
    struct Contestant {
        let name: String
        /// Does it so many times.
        let run: (Int) async throws -> Void
    }

    let title: String
    let repetitions: Int
    let rounds: Int
    var contestants: [Contestant] = []

    init(_ title: String, repetitions: Int, rounds: Int = 15) {
        self.title = title
        self.repetitions = repetitions
        self.rounds = rounds
    }

    mutating func add(_ name: String, _ run: @escaping (Int) async throws -> Void) {
        self.contestants.append(Contestant(name: name, run: run))
    }

    /// Runs all rounds and prints a table; the first contestant is the limit that ratios refer to.
    func play() async throws {
        var times = [[Double]](repeating: [], count: self.contestants.count)
        let clock = ContinuousClock()
        for round in 0...self.rounds {
            for (index, contestant) in self.contestants.enumerated() {
                let start = clock.now
                try await contestant.run(self.repetitions)
                let (seconds, attoseconds) = start.duration(to: clock.now).components
                // The first round warms up.
                guard round > 0 else { continue }
                let nanoseconds = Double(seconds) * 1e9 + Double(attoseconds) / 1e9
                times[index].append(nanoseconds / Double(self.repetitions))
            }
        }
        let medians = times.map { $0.sorted()[$0.count / 2] }
        print(self.title)
        for (contestant, median) in zip(self.contestants, medians) {
            let name = Self.padded(contestant.name)
            print(
                "  \(name) \(Self.text(median, 9, decimals: 1)) ns  \(Self.text(median / medians[0], 7, decimals: 2)) ×"
            )
        }
        print("")
    }

    /// A name in its column.
    static func padded(_ name: String) -> String { name.padding(toLength: 46, withPad: " ", startingAt: 0) }

    private static func text(_ number: Double, _ width: Int, decimals: Int) -> String {
        let text = String(format: "%.\(decimals)f", number)
        return String(repeating: " ", count: max(0, width - text.count)) + text
    }
}
