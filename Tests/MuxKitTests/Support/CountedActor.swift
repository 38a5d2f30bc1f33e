import Dispatch
import MuxKit

/// An actor that counts its jobs.
actor CountedActor {
    private let executor = CountingExecutor()

    nonisolated var unownedExecutor: UnownedSerialExecutor { self.executor.asUnownedSerialExecutor() }

    /// The number of jobs that were enqueued while `body` ran on the actor.
    func jobs(_ body: () async throws -> Void) async rethrows -> Int {
        let before = self.executor.count
        try await body()
        return self.executor.count - before
    }
}

/// A serial executor that counts its jobs.
private final class CountingExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "CountingExecutor")
    private let jobs = Locked(0)

    var count: Int { self.jobs.withLock { $0 } }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.jobs.withLock { $0 += 1 }
        self.queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}
