import Synchronization

/// Measures in a minimal program whether several locks make concurrent hits faster than a single lock for all
/// keys.
///
/// A thousand keys are in a dictionary behind a single lock, in sixteen dictionaries with a lock each, and in
/// a dictionary with a lock per thread. In the last variant, a change would have to acquire every lock.
enum LocksGroup {
    private typealias Values = [Int: Profile]

    /// A lock in a separate cache line.
    private final class Stripe: Sendable {
        let values: Mutex<Values>
        let padding = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        init(_ values: Values) { self.values = Mutex(values) }
        func value(_ key: Int) -> Profile? { self.values.withLock { $0[key] } }
    }

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        var values: Values = [:]
        for key in 0..<1_000 { values[key] = Profile(id: key, name: "the value of number \(key)") }
        let one = Stripe(values)
        let shards = (0..<16).map { shard in Stripe(values.filter { $0.key % 16 == shard }) }
        // The sixteen copies of the dictionary share storage, by copy on write.
        let threads = (0..<16).map { _ in Stripe(values) }
        var contest = Contest(rounds: effort.rounds(15))
        let counts = [1, 2, 10]
        for tasks in counts {
            self.add(tasks, to: &contest) { one.value($0) }
            self.add(tasks, to: &contest) { shards[$0 % 16].value($0) }
            self.add(tasks, to: &contest) { threads[CurrentThread.number].value($0) }
        }
        let outcome = try await contest.play()
        let ways = ["a lock for each sixteenth of the keys", "a lock for each thread"]
        return ways.enumerated().flatMap { way, name in
            counts.enumerated().map { index, tasks in
                Row(
                    group,
                    "\(name), \(tasks == 1 ? "1 task" : "\(tasks) tasks")",
                    outcome,
                    figure: 3 * index + 1 + way,
                    limit: ("one lock", 3 * index),
                    goals: tasks == 10 ? [.timesLimit(0.7)] : []
                )
            }
        }
    }

    private static func add(_ tasks: Int, to contest: inout Contest, _ read: @escaping @Sendable (Int) -> Profile?) {
        contest.add(repeating: 10_000) { count in
            try await inTasks(tasks, sharing: count) { task, share in
                for step in 0..<share { consume(read((task &* 100 &+ step) % 1_000)) }
            }
        }
    }
}
