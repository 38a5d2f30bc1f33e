import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// An operation without retries, which fails if its number is less than `failures`.
private final class Upload: Operation, @unchecked Sendable {
    let number: Int
    let failures: Int
    private let met = Locked<Flaky?>(nil)
    private let during: @Sendable (Upload) -> Void

    init(_ number: Int, failures: Int, during: @escaping @Sendable (Upload) -> Void = { _ in }) {
        self.number = number
        self.failures = failures
        self.during = during
    }

    var error: Flaky? { self.met.withLock { $0 } }

    override func main() {
        self.during(self)
        if self.number < self.failures { self.met.withLock { $0 = Flaky(call: self.number) } }
    }
}

@Suite(.standard)
struct RetryableOperationWrapperTests {
    private let world = OperationWorld()
    private let made = Locked<[Int]>([])

    private func wrapper(
        _ original: Upload,
        retries: Int = 2,
        in queue: OperationQueue = OperationQueue(),
        another: (@Sendable (Upload) throws -> Upload)? = nil
    ) -> RetryableOperationWrapper<Upload> {
        let made = self.made
        return RetryableOperationWrapper(
            original,
            self.world.retry.loop(.immediate(maxAttempts: retries + 1)),
            in: queue,
            failure: { $0.error },
            another: { failed, attempt in
                made.withLock { $0.append(attempt.index) }
                return try another?(failed) ?? Upload(failed.number + 1, failures: failed.failures)
            }
        )
    }

    @Test func `F16 two retries are three instances, and the first and the current instance can be read`() async throws
    {
        let original = Upload(0, failures: 2)
        let wrapper = self.wrapper(original)
        #expect(wrapper.original === original)
        #expect(wrapper.current === original)

        await self.world.run(wrapper)

        #expect(wrapper.original === original)
        #expect(wrapper.current.number == 2)
        #expect(try wrapper.result?.get() === wrapper.current)
        #expect(self.made.withLock { $0 } == [1, 2])
        #expect(original.isFinished)
    }

    @Test func `F16 each attempt has an instance, up to the limit of the policy`() async throws {
        let wrapper = self.wrapper(Upload(0, failures: 9))

        await self.world.run(wrapper)

        let error = #expect(throws: RetryError.self) { try wrapper.result?.get() }
        #expect(error?.reason == .attemptsExhausted)
        #expect(error?.attempts.map { $0.error as? Flaky } == (0..<3).map { Flaky(call: $0) })
        #expect(wrapper.current.number == 2)
    }

    @Test func `F16 no other instance is made after a success`() async throws {
        let original = Upload(0, failures: 0)
        let wrapper = self.wrapper(original)

        await self.world.run(wrapper)

        #expect(try wrapper.result?.get() === original)
        #expect(self.made.withLock { $0 } == [])
    }

    @Test func `F17 a failure to make the new instance ends the retries and is reported`() async {
        struct CannotMake: Error {}
        let wrapper = self.wrapper(Upload(0, failures: 9)) { _ in throw CannotMake() }

        await self.world.run(wrapper)

        let error = #expect(throws: RetryError.self) { try wrapper.result?.get() }
        #expect(error?.reason == .noOperation)
        #expect(error?.lastError is CannotMake)
        #expect(error?.attempts.count == 2)
        #expect(self.made.withLock { $0 } == [1])
    }

    @Test func `F17 an instance that has already run is refused and does not trap`() async {
        let original = Upload(0, failures: 9)
        let wrapper = self.wrapper(original) { failed in failed }

        await self.world.run(wrapper)

        let error = #expect(throws: RetryError.self) { try wrapper.result?.get() }
        #expect(error?.reason == .operationUsed)
        #expect(error?.lastError is Flaky)
        #expect(error?.description.contains("the operation has run before") == true)
    }

    @Test func `F18 a cancelled instance ends the wrapper without a retry`() async {
        let wrapper = self.wrapper(Upload(0, failures: 9, during: { $0.cancel() }))

        await self.world.run(wrapper)

        #expect(throws: CancellationError.self) { try wrapper.result?.get() }
        #expect(self.made.withLock { $0 } == [])
    }

    @Test func `F18 an instance that was cancelled before its start ends the wrapper without running`() async {
        let ran = Locked(0)
        let original = Upload(0, failures: 9, during: { _ in _ = ran.next() })
        original.cancel()

        await self.world.run(self.wrapper(original))

        #expect(ran.withLock { $0 } == 0)
    }

    @Test func `F18 an instance that was cancelled and has finished ends the wrapper as cancelled`() async {
        let original = Upload(0, failures: 9)
        original.cancel()
        await self.world.run(original)
        let wrapper = self.wrapper(original)

        await self.world.run(wrapper)

        #expect(throws: CancellationError.self) { try wrapper.result?.get() }
    }

    @Test func `F18 a cancellation of all operations of the queue ends the wrapper without a retry`() async {
        let queue = OperationQueue()
        let wrapper = self.wrapper(Upload(0, failures: 9, during: { _ in queue.cancelAllOperations() }), in: queue)

        self.world.queue.addOperation(wrapper)

        // The wrapper ends on another thread.
        await settled({ wrapper.isFinished }, when: { $0 })
        #expect(throws: CancellationError.self) { try wrapper.result?.get() }
        #expect(self.made.withLock { $0 } == [])
    }

    @Test func `F18 cancelling the wrapper cancels the instance`() async {
        let later = Later<RetryableOperationWrapper<Upload>>()
        let wasCancelled = Locked(false)
        let original = Upload(0, failures: 9) { upload in
            (try? later())?.cancel()
            wasCancelled.withLock { $0 = upload.isCancelled }
        }
        let wrapper = self.wrapper(original)
        later.set(wrapper)

        await self.world.run(wrapper)

        #expect(wasCancelled.withLock { $0 })
        #expect(wrapper.isFinished)
        #expect(self.made.withLock { $0 } == [])
    }
}
