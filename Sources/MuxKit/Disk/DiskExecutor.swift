import Dispatch

/// Runs the jobs of one actor on a thread that may block, never on the pool that all tasks share.
///
/// `DispatchSerialQueue` would do the same, but Linux has none (Swift 6.3.1).
package final class DiskExecutor: SerialExecutor {
    private let queue: DispatchQueue

    package init(label: String) { self.queue = DispatchQueue(label: label) }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.queue.async { unsafe job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    package func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        unsafe UnownedSerialExecutor(ordinary: self)
    }
}
