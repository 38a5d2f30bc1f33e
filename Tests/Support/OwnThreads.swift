import Foundation
package import Testing

/// Runs a test on threads of its own, one for each job.
///
/// For exit tests: Swift Testing (6.3.1) reads what a process says until it ends, and blocks a thread for as long. Two such tests
/// would hold all threads of the pool of a machine with two processors, and no other test goes on meanwhile.
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
    /// Runs a test on threads of its own, for it ends processes or waits for their end.
    package static var ownThreads: OwnThreads { OwnThreads() }
}
