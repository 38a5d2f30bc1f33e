import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Tasks that an operation starts and does not await.
@Suite(.standard)
struct ReentrantAsyncMutexTests {
    private let mutex = ReentrantAsyncMutex(refusal: MuxError.wouldDeadlock)

    @Test func `PT-01 a task that outlives its operation is outside the mutex`() async throws {
        let (mutex, gate) = (self.mutex, Gate<Void>())
        let task = try await mutex.run {
            Task {
                try await gate.pass()
                return mutex.isOutside
            }
        }
        gate.open()
        #expect(try await task.value)
    }

    @Test func `PT-01 an operation holds the mutex until the end of an unawaited nested operation`() async throws {
        let executor = OrderedExecutor()
        let (mutex, gate) = (self.mutex, Gate<Void>())
        let order = Locked<[String]>([])
        let first = Task(executorPreference: executor) {
            try await mutex.run {
                let nested = Task(executorPreference: executor) {
                    try await mutex.run {
                        try await gate.pass()
                        order.withLock { $0.append("nested") }
                    }
                }
                await gate.waitForCall()
                return nested
            }
        }
        await gate.waitForCall()
        let second = Task(executorPreference: executor) {
            try await mutex.run { order.withLock { $0.append("second") } }
        }
        executor.settle()  // the second operation now waits for its turn

        gate.open()
        try await second.value
        try await first.value.value

        #expect(order.withLock { $0 } == ["nested", "second"])
    }
}
