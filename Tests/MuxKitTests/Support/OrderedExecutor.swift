import Dispatch
import MuxKit
import MuxTesting

/// Runs the jobs of tasks one after another, in the order in which they were enqueued.
///
/// An actor does not guarantee that order: a resumed task returns to the actor through the pool (Swift
/// 6.3.1), where jobs may overtake each other.
final class OrderedExecutor: TaskExecutor {
    private struct State: Sendable {
        /// The number of jobs that have been enqueued and have not ended.
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

    /// Blocks until no job is enqueued or runs; does not wait for work on Dispatch's threads.
    func settle() {
        repeat { self.queue.sync {} } while self.state.withLock { $0.pending } > 0
    }

    /// Starts no job until ``resume()``.
    func pause() { self.queue.suspend() }

    /// Continues after ``pause()``.
    func resume() { self.queue.resume() }

    /// Blocks the thread that enqueues the next job until ``release()``, although the job runs; not for a
    /// thread of the pool.
    func holdNext() { self.state.withLock { $0.holdsNext = true } }

    /// Suspends until a thread is blocked.
    func waitForHeld() async { await self.held.reached(1) }

    /// Unblocks the thread.
    func release() { self.released.signal() }
}
