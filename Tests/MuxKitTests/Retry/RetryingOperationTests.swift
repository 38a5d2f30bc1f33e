import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RetryingOperationTests {
    private let world = OperationWorld()
    private var clock: VirtualClock { self.world.retry.clock }

    @Test(arguments: Manner.allCases)
    func `F01 F19 an operation begins, ends and finishes without further calls`(manner: Manner) async throws {
        let operation = self.world.operation(manner, steps: [.value(7)])
        #expect(operation.isReady)
        #expect(operation.isAsynchronous)
        #expect(!operation.isExecuting)
        #expect(!operation.isFinished)
        #expect(operation.result == nil)

        await self.world.run(operation)

        #expect(!operation.isExecuting)
        #expect(operation.isFinished)
        #expect(try operation.result?.get() == 7)
        #expect(self.world.runs.value == 1)
    }

    @Test func `F01 an operation is executing during its work and during its waits`() async {
        let helper = CountingHelper()
        let seen = Locked<[Bool]>([])
        let later = Later<RetryingOperation<Int>>()
        let operation = RetryingOperation<Int> { run in
            guard let operation = try? later() else { return }
            seen.withLock { $0 += [operation.isExecuting, !operation.isFinished] }
            if run.attempt.index > 0 { return run.end(returning: 7) }
            run.end(throwing: Flaky(), .wakingOn([.helper(helper)]))
        }
        later.set(operation)
        let end = self.world.begin(operation)
        await helper.waitForSetUp()
        #expect(operation.isExecuting)
        #expect(!operation.isFinished)

        operation.retryNow()
        await end.value

        #expect(seen.withLock { $0 } == [true, true, true, true])
    }

    @Test func `F01 an operation that is started without a queue begins once`() async {
        let gate = Tally()
        let operation = RetryingOperation<Void> { run in
            run.onCancel { run.end() }
            gate.add()
        }

        operation.start()
        operation.start()
        await gate.reached(1)
        #expect(operation.isExecuting && !operation.isFinished)
        operation.cancel()
        operation.start()

        #expect(operation.isFinished)
        #expect(gate.value == 1)
    }

    @Test func `F14 a cancellation handler that is set after the cancellation runs at once`() async {
        let later = Later<RetryingOperation<Void>>()
        let operation = RetryingOperation<Void> { run in
            (try? later())?.cancel()
            run.onCancel { run.end(throwing: CancellationError()) }
        }
        later.set(operation)

        await self.world.run(operation)

        #expect(throws: CancellationError.self) { try operation.result?.get() }
    }

    @Test func `F01 only the first end of an attempt counts`() async throws {
        let runs = Locked<[RetryingOperation<Int>.Run]>([])
        let operation = RetryingOperation<Int>(.immediate(maxAttempts: 2)) { run in
            runs.withLock { $0.append(run) }
            if run.attempt.index == 0 {
                run.end(throwing: Flaky())
                run.end(returning: 1)
                run.end(throwing: Flaky())
            } else {
                runs.withLock { $0[0] }.end(returning: 2)
                run.end(returning: 3)
            }
        }

        await self.world.run(operation)

        #expect(try operation.result?.get() == 3)
        #expect(operation.attempts.count == 1)
    }

    @Test(arguments: Manner.allCases)
    func `F02 F19 an attempt with the plan never is the only attempt`(manner: Manner) async {
        let operation = self.world.operation(manner, steps: [.failure(.never)])

        await self.world.run(operation)

        #expect(self.world.runs.value == 1)
        #expect((try? operation.result?.get()) == nil)
        #expect(operation.isFinished)
    }

    @Test(arguments: Manner.allCases)
    func `F02 F19 an attempt with a plan of a tenth of a second is repeated after that time`(manner: Manner)
        async throws
    {
        let operation = self.world.operation(manner, steps: [.failure(.after(.milliseconds(100))), .value(7)])
        let end = self.world.begin(operation)

        #expect(await self.world.retry.passWaits(1) == [.milliseconds(100)])

        await end.value
        #expect(self.world.runs.value == 2)
        #expect(try operation.result?.get() == 7)
    }

    @Test(arguments: Manner.allCases)
    func `F02 F08 F19 an attempt that names helpers waits until one of the helpers wakes`(manner: Manner) async throws {
        let (first, second) = (CountingHelper(), CountingHelper())
        let plan = RetryProvider.Plan.wakingOn([.helper(first), .helper(second)])
        let operation = self.world.operation(manner, steps: [.failure(plan), .value(7)])
        let end = self.world.begin(operation)
        await second.waitForSetUp()
        #expect(self.world.runs.value == 1)
        #expect(self.clock.sleeperCount == 0, "no time ends this wait")

        second.fire()
        _ = await self.world.retry.passWaits(1)

        await end.value
        #expect(try operation.result?.get() == 7)
        #expect(self.world.runs.value == 2)
        for helper in [first, second] {
            await helper.waitForTearDown()
            #expect((helper.setUps, helper.tearDowns) == (1, 1))
        }
    }

    @Test(arguments: Manner.allCases)
    func `F02 F19 the policy decides if the work does not`(manner: Manner) async {
        let operation = self.world.operation(
            manner,
            .fixed(.seconds(4), maxAttempts: 3, jitter: .none),
            steps: [.failure(.pass), .failure(.pass), .failure(.pass), .value(7)]
        )
        let end = self.world.begin(operation)

        #expect(await self.world.retry.passWaits(2) == [.seconds(4), .seconds(4)])

        await end.value
        #expect(self.world.runs.value == 3)
    }

    @Test(arguments: Manner.allCases)
    func `F03 F10 F19 a replaced helper is torn down once`(manner: Manner) async {
        let (first, second) = (CountingHelper(), CountingHelper())
        let operation = self.world.operation(manner, steps: [.failure(.wakingOn([.helper(first)])), .value(7)])
        let end = self.world.begin(operation)
        await first.waitForSetUp()

        operation.retry(wakingOn: [.helper(second)])
        await first.waitForTearDown()
        #expect((first.setUps, first.tearDowns) == (1, 1))
        #expect((second.setUps, second.tearDowns) == (1, 0))
        first.fire()
        #expect(self.world.runs.value == 1, "the one that was replaced wakes nobody")
        second.fire()
        _ = await self.world.retry.passWaits(1)

        await end.value
        await first.waitForTearDown()
        #expect((first.setUps, first.tearDowns) == (1, 1))
        await second.waitForTearDown()
        #expect((second.setUps, second.tearDowns) == (1, 1))
        #expect(self.world.runs.value == 2)
    }

    @Test(arguments: Manner.allCases)
    func `F04 F19 the shortest of several timers ends a wait`(manner: Manner) async {
        let timers = RetryProvider.Plan.wakingOn([.after(.seconds(5)), .after(.milliseconds(300))])
        let operation = self.world.operation(manner, steps: [.failure(timers), .value(7)])
        let end = self.world.begin(operation)
        await self.clock.waitForSleepers(2)

        #expect(self.clock.advanceToNextDeadline() == .milliseconds(300))

        await end.value
        #expect(self.world.runs.value == 2)
        #expect(self.clock.sleeperCount == 0)
    }

    @Test(arguments: Manner.allCases)
    func `F09 F19 retryNow restarts a waiting operation at once and tears down once`(manner: Manner) async {
        let helper = CountingHelper()
        let operation = self.world.operation(
            manner,
            wakingOn: [.helper(helper)],
            steps: [.failure(.retry), .value(7)]
        )
        let end = self.world.begin(operation)
        await helper.waitForSetUp()

        operation.retryNow()

        await end.value  // without an advance of the clock
        #expect(self.world.runs.value == 2)
        await helper.waitForTearDown()
        #expect((helper.setUps, helper.tearDowns) == (1, 1))
    }

    @Test(arguments: Manner.allCases)
    func `F10 F19 a timer of a fifth of a second replaces a timer of a minute`(manner: Manner) async {
        let helper = CountingHelper()
        let operation = self.world.operation(
            manner,
            wakingOn: [.helper(helper)],
            steps: [.failure(.after(.seconds(60))), .value(7)]
        )
        let end = self.world.begin(operation)
        await helper.waitForSetUp()
        await self.clock.waitForSleepers(1)

        operation.retry(in: .milliseconds(200))
        await helper.waitForTearDown()
        #expect((helper.setUps, helper.tearDowns) == (1, 1))

        #expect(await self.world.retry.passWaits(1) == [.milliseconds(200)])
        await end.value
        #expect(self.world.runs.value == 2)
    }

    @Test(arguments: Manner.allCases)
    func `F11 F19 an operation with an empty list of helpers waits until retryNow`(manner: Manner) async {
        let operation = self.world.operation(manner, steps: [.failure(.wakingOn([])), .value(7)])
        let end = self.world.begin(operation)
        await self.world.retry.tally.reached(3)  // attempt, failed, waiting
        #expect(self.world.count("waiting for a wake-up") == 1)
        self.clock.advance(by: .seconds(1_000_000))
        #expect(self.world.runs.value == 1)
        #expect(self.clock.sleeperCount == 0)

        operation.retryNow()

        await end.value
        #expect(self.world.runs.value == 2)
    }

    @Test(arguments: Manner.allCases)
    func `F12 F19 a demand without a wait is ignored and logged once`(manner: Manner) async {
        let demands: [@Sendable (RetryingOperation<Int>) -> Void] = [
            { $0.retryNow() }, { $0.retry(in: .zero) }, { $0.retry(wakingOn: [.after(.zero)]) },
        ]
        for demand in demands {
            let world = OperationWorld()
            let later = Later<RetryingOperation<Int>>()
            let log = RetryLog { event in
                world.retry.log(event)
                // The demand runs on the thread of the attempt, before the work begins.
                if case .attempt = event, let operation = try? later() { demand(operation) }
            }
            var loop = world.retry.loop(.web)
            loop.log = log
            let operation = RetryingOperation(loop) { run in
                world.runs.add()
                switch manner {
                case .synchronous: run.end(returning: 7)
                case .asynchronous, .task: DispatchQueue.global().async { run.end(returning: 7) }
                }
            }
            later.set(operation)

            demand(operation)
            #expect(world.count("a demand was ignored, because the retry is unstarted") == 1)
            await world.run(operation)
            #expect(world.count("a demand was ignored, because the retry is running") == 1)
            demand(operation)
            #expect(world.count("a demand was ignored, because the retry is finished") == 1)

            #expect(world.runs.value == 1)
            #expect(world.retry.clock.sleeperCount == 0)
        }
    }

    @Test(arguments: Manner.allCases)
    func `F13 F19 the number of retries is nil, then counts from zero, then is nil`(manner: Manner) async {
        let (first, second) = (CountingHelper(), CountingHelper())
        let operation = self.world.operation(
            manner,
            steps: [.failure(.wakingOn([.helper(first)])), .failure(.wakingOn([.helper(second)])), .value(7)]
        )
        #expect(operation.numberOfRetries == nil)
        let end = self.world.begin(operation)

        await first.waitForSetUp()
        #expect(operation.numberOfRetries == 0)
        operation.retryNow()
        await second.waitForSetUp()
        #expect(operation.numberOfRetries == 1)
        operation.retryNow()
        await end.value

        #expect(operation.numberOfRetries == nil)
    }

    @Test(arguments: [Manner.asynchronous, .task])
    func `F14 F19 an operation that is cancelled during its work is not retried`(manner: Manner) async {
        let helper = CountingHelper()
        let gate = Gate<Int>()
        let plan = RetryProvider.Plan.wakingOn([.helper(helper)])
        let loop = self.world.retry.loop(.web, providers: [RetryProvider { _ in plan }])
        let operation: RetryingOperation<Int> =
            switch manner {
            case .task:
                RetryingOperation(loop, work: { _ in do { return try await gate.pass() } catch { throw Flaky() } })
            default:
                RetryingOperation(loop) { run in
                    run.onCancel { run.end(throwing: Flaky(), plan) }
                    Task { try await gate.pass() }
                }
            }
        let end = self.world.begin(operation)
        await gate.waitForCall(1)

        operation.cancel()

        await end.value
        #expect(gate.callCount == 1)
        #expect(helper.setUps == 0)
        #expect(throws: CancellationError.self) { try operation.result?.get() }
        gate.openForGood(returning: 0)
    }

    @Test func `F14 F19 a synchronous operation that is cancelled during its work is not retried`() async {
        let later = Later<RetryingOperation<Int>>()
        let calls = Locked(0)
        let operation = RetryingOperation<Int>(.immediate(maxAttempts: 3)) { run in
            _ = calls.next()
            (try? later())?.cancel()
            #expect(run.isCancelled)
            run.end(throwing: Flaky(), .after(.zero))
        }
        later.set(operation)

        await self.world.run(operation)

        #expect(calls.withLock { $0 } == 1)
        #expect(throws: CancellationError.self) { try operation.result?.get() }
    }

    @Test func `F14 an operation that is cancelled before its start makes no attempt`() async {
        let operation = self.world.operation(.synchronous, steps: [.value(7)])
        operation.cancel()

        await self.world.run(operation)

        #expect(self.world.runs.value == 0)
        #expect(operation.isFinished)
    }

    @Test func `F14 an attempt that waits for its queue does not begin after a cancellation`() async {
        let runs = Tally()
        let later = Later<RetryingOperation<Int>>()
        let log = RetryLog { if case .attempt(1) = $0 { try? later().cancel() } }
        let operation = RetryingOperation<Int>(.fixed(.zero, maxAttempts: 3, jitter: .none), log: log) { run in
            runs.add()
            run.end(throwing: Flaky(call: run.attempt.index))
        }
        later.set(operation)

        await self.world.begin(operation).value

        #expect(runs.value == 1)
    }

    @Test func `F14 an attempt that succeeds after its cancellation keeps its result`() async throws {
        let begun = Tally()
        let operation = RetryingOperation<Int> { run in
            run.onCancel { run.end(returning: 7) }
            begun.add()
        }
        let end = self.world.begin(operation)
        await begun.reached(1)

        operation.cancel()

        await end.value
        #expect(try operation.result?.get() == 7)
    }

    @Test func `F15 the closure of a cancellation runs before the loop continues`() async throws {
        let executor = OrderedExecutor()
        let loop = RetryLoop(.fixed(.seconds(600), jitter: .none), time: TimeSource(self.clock))
        let control = RetryControl(loop)
        let hasEnded = Locked(false)
        let run = Task(executorPreference: executor) {
            defer { hasEnded.withLock { $0 = true } }
            return try await loop.run(control) { _ -> RetryResult<Int> in throw FetchFailed() }
        }
        await self.clock.waitForSleepers(1)
        executor.settle()

        var wasFirst: Bool?
        control.cancel {
            executor.settle()  // runs all jobs that are ready
            wasFirst = !hasEnded.withLock { $0 }
        }

        #expect(wasFirst == true)
        await #expect(throws: CancellationError.self) { try await run.value }
    }

    @Test(arguments: Manner.allCases)
    func `F15 F19 cancelling a waiting operation ends it at once and tears down once`(manner: Manner) async {
        let helper = CountingHelper()
        let operation = self.world.operation(
            manner,
            wakingOn: [.helper(helper)],
            steps: [.failure(.retry), .value(7)]
        )
        let end = self.world.begin(operation)
        await helper.waitForSetUp()

        operation.cancel()

        #expect(operation.isFinished, "before cancel returned")
        await helper.waitForTearDown()
        #expect((helper.setUps, helper.tearDowns) == (1, 1))
        await end.value
        helper.fire()
        #expect(self.world.runs.value == 1)
        #expect(throws: CancellationError.self) { try operation.result?.get() }
    }

    #if os(macOS) || os(Linux)
    @Test(.ownThreads) func `F19 operations that wait hold no thread`() async {
        // The threads of other tests would be counted in the same process.
        await #expect(processExitsWith: .success) {
            let threads = { (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task"))?.count ?? 0 }
            let world = OperationWorld()
            let helpers = (0..<1_000).map { _ in CountingHelper() }
            world.queue.maxConcurrentOperationCount = 2_000
            let operations = helpers.enumerated().map { index, helper in
                world.operation(
                    Manner.allCases[index % 3],
                    steps: [.failure(.wakingOn([.helper(helper)])), .value(7)]
                )
            }
            let ends = operations.map { world.begin($0) }
            for helper in helpers { await helper.waitForSetUp() }
            #expect(threads() < 300, "333 operations of each manner wait")
            #expect(operations.count(where: { $0.isExecuting }) == 1_000)

            for operation in operations { operation.retryNow() }
            for end in ends { await end.value }

            #expect(operations.count(where: { (try? $0.result?.get()) == 7 }) == 1_000)
            #expect(world.runs.value == 2_000)
        }
    }
    #endif

    @Test(arguments: Manner.allCases)
    func `F20 F19 the final error contains the failure of each attempt`(manner: Manner) async throws {
        let operation = self.world.operation(
            manner,
            .immediate(maxAttempts: 3),
            steps: [.failure(.pass), .failure(.retry), .failure(.pass)]
        )

        await self.world.run(operation)

        let error = #expect(throws: RetryError.self) { try operation.result?.get() }
        #expect(error?.reason == .attemptsExhausted)
        #expect(error?.attempts.map { $0.error as? Flaky } == (0..<3).map { Flaky(call: $0) })
        #expect(error?.lastError as? Flaky == Flaky(call: 2))
        #expect(operation.attempts.count == 3)
    }

    @Test(arguments: Manner.allCases)
    func `F21 F19 an early wake-up restarts an operation after a short random delay`(manner: Manner) async {
        let helper = CountingHelper()
        let operation = self.world.operation(
            manner,
            .fixed(.seconds(600), jitter: .none),
            wakingOn: [.helper(helper)],
            steps: [.failure(.pass), .value(7)]
        )
        let end = self.world.begin(operation)
        await helper.waitForSetUp()
        await self.clock.waitForSleepers(1)

        helper.fire()

        #expect(await self.world.retry.passWaits(1) == [.milliseconds(1_500)])
        await end.value
        #expect(self.world.runs.value == 2)
    }

    @Test func `F21 a cancellation during the random delay ends the operation at once`() async {
        let helper = CountingHelper()
        let operation = self.world.operation(
            .synchronous,
            .fixed(.seconds(600), jitter: .none),
            wakingOn: [.helper(helper)],
            steps: [.failure(.pass), .value(7)]
        )
        let end = self.world.begin(operation)
        await helper.waitForSetUp()
        await self.clock.waitForSleepers(1)
        helper.fire()

        operation.cancel()

        #expect(operation.isFinished)
        await end.value
        #expect(self.world.runs.value == 1)
        await helper.waitForTearDown()
        #expect((helper.setUps, helper.tearDowns) == (1, 1))
    }

    @Test func `F22 every step is a line of the log, without the text of an error`() async {
        let operation = self.world.operation(
            .synchronous,
            .fixed(.seconds(10), maxAttempts: 2, jitter: .none),
            steps: [.failure(.pass), .failure(.pass)]
        )
        let end = self.world.begin(operation)
        _ = await self.world.retry.passWaits(1)
        await end.value
        operation.retryNow()

        #expect(
            self.world.retry.lines.withLock { $0 } == [
                "retry: attempt 0 begins", "retry: attempt 0 failed with an error of type Flaky",
                "retry: waiting for 10 seconds", "retry: woken by time", "retry: attempt 1 begins",
                "retry: attempt 1 failed with an error of type Flaky",
                "retry: gave up after 2 attempt(s): attemptsExhausted",
                "retry: warning: a demand was ignored, because the retry is finished",
            ]
        )
    }

    @Test func `E16 an operation uses its host's budget`() async throws {
        var options = RetryBudget.Limits()
        options.failuresToOpen = 3
        let host = RetryPolicy.Host("dead", budget: RetryBudget(options, clock: self.clock))
        let loop = self.world.retry.loop(.immediate(maxAttempts: 5), on: host)
        let operation = RetryingOperation<Int>(loop) { run in run.end(throwing: Flaky()) }

        await self.world.run(operation)

        let error = #expect(throws: RetryError.self) { try operation.result?.get() }
        #expect(error?.reason == .hostDown)
        #expect(error?.attempts.count == 3)
    }

    private func limited(_ manner: Manner, _ plan: RetryProvider.Plan) -> RetryingOperation<Int> {
        var policy = RetryPolicy.fixed(.seconds(10), maxAttempts: 9, jitter: .none)
        policy.maximumDuration = .seconds(30)
        return self.world.operation(manner, policy, steps: [.failure(plan), .value(7)])
    }

    private func reason(of operation: RetryingOperation<Int>) -> RetryError.Reason? {
        guard case .failure(let error as RetryError)? = operation.result else { return nil }
        return error.reason
    }

    @Test(arguments: Manner.allCases)
    func `CO-37 a waiting operation without a deadline ends at the maximum duration`(manner: Manner) async {
        let operation = self.limited(manner, .wakingOn([]))
        let end = self.world.begin(operation)

        #expect(await self.world.retry.passWaits(1) == [.seconds(30)])

        await end.value
        #expect(self.reason(of: operation) == .timeExhausted)
        #expect(self.world.runs.value == 1)
    }

    @Test(arguments: Manner.allCases)
    func `CO-37 a wait beyond the limit ends the operation`(manner: Manner) async {
        let operation = self.limited(manner, .pass)
        let end = self.world.begin(operation)
        await self.clock.waitForSleepers(1)

        operation.retry(in: .seconds(31))

        await end.value
        #expect(self.reason(of: operation) == .timeExhausted)
        #expect(self.world.runs.value == 1)
    }

    @Test func `CO-37 a wait for other wake-ups ends at the limit, and a wait up to the limit is permitted`()
        async throws
    {
        let parked = self.limited(.task, .pass)
        var end = self.world.begin(parked)
        await self.clock.waitForSleepers(1)
        parked.retry(wakingOn: [])
        await self.clock.waitForSleepers(1)
        #expect(await self.world.retry.passWaits(1) == [.seconds(30)])
        await end.value
        #expect(self.reason(of: parked) == .timeExhausted)

        let demanded = self.limited(.task, .pass)
        end = self.world.begin(demanded)
        await self.clock.waitForSleepers(1)
        demanded.retry(in: .seconds(30))
        await self.clock.waitForSleepers(1)
        #expect(await self.world.retry.passWaits(1) == [.seconds(30)])
        await end.value
        #expect(try demanded.result?.get() == 7)
    }
}
