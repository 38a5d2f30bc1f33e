/// Runs each job at once, on the thread that enqueues the job: a new task runs to its first suspension before
/// its creator continues.
package final class InlineExecutor: TaskExecutor {
    package init() {}

    package func enqueue(_ job: consuming ExecutorJob) {
        UnownedJob(job).runSynchronously(on: self.asUnownedTaskExecutor())
    }
}
