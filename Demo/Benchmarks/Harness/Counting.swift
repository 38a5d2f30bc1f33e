import Dispatch
import MuxKit
import Synchronization

/// The counts of a loop.
struct Counts: Sendable {
    /// `nil` where allocations cannot be counted.
    var allocations: Int?
    var jobs: Int
}

/// An actor whose executor counts its jobs.
actor CountedActor {
    private let executor = CountingExecutor()

    nonisolated var unownedExecutor: UnownedSerialExecutor { self.executor.asUnownedSerialExecutor() }

    /// The counts of `body` on the actor: the minimum of some tries, because other threads may allocate.
    ///
    /// `body` states its isolation, because inherited isolation is lost (Swift 6.3.1).
    func counts(_ body: @Sendable (isolated CountedActor) async throws -> Void) async rethrows -> Counts {
        try await body(self)
        var best: Counts?
        for _ in 0..<5 {
            let jobs = self.executor.count
            let before = Allocations.begin()
            try await body(self)
            let counts = Counts(allocations: Allocations.end(since: before), jobs: self.executor.count - jobs)
            best = Counts(
                allocations: counts.allocations.map { min($0, best?.allocations ?? .max) },
                jobs: min(counts.jobs, best?.jobs ?? .max)
            )
        }
        return best ?? Counts(jobs: 0)
    }
}

/// A serial executor that counts.
private final class CountingExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "CountingExecutor")
    private let jobs = Atomic(0)

    var count: Int { self.jobs.load(ordering: .relaxed) }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.jobs.add(1, ordering: .relaxed)
        self.queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}

/// Verifies that the counters count.
enum SelfCheck {
    private static let kept = Mutex<Box?>(nil)

    private final class Box: Sendable {
        let number: Int
        init(_ number: Int) { self.number = number }
    }

    private actor Other {
        private var calls = 0

        @inline(never) func call() { self.calls += 1 }
    }

    static func rows() async throws -> [Row] {
        let counted = CountedActor()
        let other = Other()
        let boxes = await counted.counts { _ in
            // Stores each object for a while, so that the optimizer cannot allocate the object on the stack.
            for number in 0..<1_000 { self.kept.withLock { $0 = Box(number) } }
        }
        let aligned = await counted.counts { _ in
            for _ in 0..<1_000 { UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 64).deallocate() }
        }
        let hops = await counted.counts { _ in
            for _ in 0..<1_000 { await other.call() }
        }
        return [
            .count("self", "allocations of 1,000 objects", boxes.allocations, expected: 1_000),
            .count("self", "allocations of 1,000 aligned blocks", aligned.allocations, expected: 1_000),
            .count("self", "jobs of 1,000 calls of another actor", hops.jobs, expected: 1_000),
        ]
    }
}

/// The two rows with the counts of hits.
///
/// The expected counts are zero.
extension [Row] {
    static func counted(_ group: String, _ name: String, _ counts: Counts) -> [Row] {
        [
            .count(group, "allocations of 1,000 \(name)", counts.allocations, expected: 0),
            .count(group, "executor jobs of 1,000 \(name)", counts.jobs, expected: 0),
        ]
    }
}
