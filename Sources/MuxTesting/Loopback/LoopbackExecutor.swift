import Dispatch

/// Runs what answers the requests of one connection, on a thread of its own.
///
/// A test that waits for another process may block the threads that all tasks share (exit tests of Swift 6.3.1 do), and that
/// process may wait for an answer.
final class LoopbackExecutor: TaskExecutor {
    private let queue = DispatchQueue(label: "MuxTesting.Loopback")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
