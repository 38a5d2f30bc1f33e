import Dispatch
import MuxKit
import MuxTesting
import Testing

extension DependentRunner {
    /// Checks what has to hold when nothing is under way.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) {
        let occupancy = self.occupancy
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "updates still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
    }
}

/// Runs the jobs of tasks one after another, in the order in which they were enqueued.
///
/// An actor would not do: a task that is resumed comes back to it by way of the pool (Swift 6.3.1), where two jobs may pass
/// each other.
final class OrderedExecutor: TaskExecutor {
    private let queue = DispatchQueue(label: "OrderedExecutor")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { self.state = seed }

    mutating func next() -> UInt64 {
        self.state &+= 0x9e37_79b9_7f4a_7c15
        var word = self.state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}
