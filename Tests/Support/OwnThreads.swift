import Foundation
package import Testing

/// Runs a test on separate threads, one for each job.
///
/// For exit tests: Swift Testing (6.3.1) blocks a thread while it reads a process's output, until the process
/// ends. Two such tests would block all threads of the pool on a machine with two processors, and no other
/// test would continue.
package struct OwnThreads: TestTrait, SuiteTrait, TestScoping {
    private final class Threads: TaskExecutor {
        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            let executor = self.asUnownedTaskExecutor()
            Thread.detachNewThread { job.runSynchronously(on: executor) }
        }
    }

    /// Applies to each test of a suite.
    package var isRecursive: Bool { true }

    @concurrent package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        try await withTaskExecutorPreference(Threads()) { try await function() }
    }
}

extension Trait where Self == OwnThreads {
    /// Runs a test on separate threads, because the test ends processes or waits for their end.
    package static var ownThreads: OwnThreads { OwnThreads() }
}
