import MuxKit

/// Runs each job at once, on the thread that enqueues it: a task gets as far as it can before its creator goes on.
final class InlineExecutor: TaskExecutor {
    func enqueue(_ job: consuming ExecutorJob) {
        UnownedJob(job).runSynchronously(on: self.asUnownedTaskExecutor())
    }
}
