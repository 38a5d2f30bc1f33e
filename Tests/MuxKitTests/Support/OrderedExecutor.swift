import Dispatch
import MuxKit
import MuxTesting

/// Runs the jobs of tasks one after another, in the order in which they were enqueued.
///
/// An actor would not do: a task that is resumed comes back to it by way of the pool (Swift 6.3.1), where two jobs may pass
/// each other.
final class OrderedExecutor: TaskExecutor {
    private struct State: Sendable {
        /// How many jobs have been enqueued and have not ended.
        var pending = 0
        var holdsNext = false
    }

    private let queue = DispatchQueue(label: "OrderedExecutor")
    private let state = Locked(State())
    private let held = Tally()
    private let released = DispatchSemaphore(value: 0)

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let isHeld = self.state.withLock { state in
            defer { state.holdsNext = false }
            state.pending += 1
            return state.holdsNext
        }
        self.queue.async {
            job.runSynchronously(on: self.asUnownedTaskExecutor())
            self.state.withLock { $0.pending -= 1 }
        }
        guard isHeld else { return }
        self.held.add()
        self.released.wait()
    }

    /// Blocks until every task on the executor has ended, or waits for something that is not on the executor.
    ///
    /// A task that is resumed before this is called counts as one that goes on. Work on Dispatch's threads does not.
    func settle() {
        repeat { self.queue.sync {} } while self.state.withLock { $0.pending } > 0
    }

    /// Lets no job begin until ``resume()``.
    func pause() { self.queue.suspend() }

    /// Goes on after ``pause()``.
    func resume() { self.queue.resume() }

    /// Holds up whoever enqueues the next job, although the job runs, until ``release()``; that must not be a thread of the
    /// pool.
    func holdNext() { self.state.withLock { $0.holdsNext = true } }

    /// Suspends until somebody is held up.
    func waitForHeld() async { await self.held.reached(1) }

    /// Lets whoever is held up go on.
    func release() { self.released.signal() }
}
