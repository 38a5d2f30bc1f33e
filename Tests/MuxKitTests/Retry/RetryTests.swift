import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RetryTests {
    private let world = RetryWorld()

    @Test(arguments: [1, 2, 5, 150])
    func `E01 n attempts are n runs and then an error with the last failure`(count: Int) async throws {
        let runs = Locked(0)

        let error = await retryError {
            try await retry(.immediate(maxAttempts: count)) { _ in throw Flaky(call: runs.next()) }
        }

        #expect(runs.withLock { $0 } == count)
        #expect(error?.reason == .attemptsExhausted)
        #expect(error?.lastError as? Flaky == Flaky(call: count))
        let kept = (1...count).suffix(100)
        #expect(error?.attempts.map { $0.error as? Flaky } == kept.map { Flaky(call: $0) })
        #expect(error?.attempts.map(\.index) == kept.map { $0 - 1 })
    }

    @Test(arguments: [0, -1, Int.min])
    func `E01 fewer attempts than one are one attempt`(count: Int) async {
        let runs = Locked(0)

        let error = await retryError {
            try await retry(.immediate(maxAttempts: count)) { _ in throw Flaky(call: runs.next()) }
        }

        #expect(runs.withLock { $0 } == 1)
        #expect(error?.reason == .attemptsExhausted)
    }

    @Test func `E01 the first success ends the retries`() async throws {
        let runs = Locked(0)

        let output = try await retry(.immediate(maxAttempts: 5)) { _ in
            guard runs.next() == 3 else { throw Flaky() }
            return "done"
        }

        #expect(output == "done")
        #expect(runs.withLock { $0 } == 3)
    }

    @Test func `E02 the delays lie between the attempts`() async {
        let policy = RetryPolicy.exponential(base: .seconds(10), maxAttempts: 7, jitter: .none)
        let loop = self.world.loop(policy)
        let starts = Locked<[Duration]>([])
        let caller = Task {
            await retryError {
                let _: Int = try await loop.run { attempt in
                    starts.withLock { $0.append(attempt.elapsed) }
                    throw Flaky()
                }
            }
        }

        let waits = await self.world.passWaits(6)

        #expect(waits == [10, 20, 40, 80, 160, 320].map { .seconds($0) })
        #expect(await caller.value?.attempts.map(\.began) == [0, 10, 30, 70, 150, 310, 630].map { .seconds($0) })
        #expect(starts.withLock { $0 } == [0, 10, 30, 70, 150, 310, 630].map { .seconds($0) })
        #expect(self.world.clock.sleeperCount == 0)
    }

    @Test func `E04 jitter shortens each delay`() async {
        var world = self.world
        world.random = { 0.25 }
        let loop = world.loop(.fixed(.seconds(8), maxAttempts: 3))
        let caller = Task { await retryError { let _: Int = try await loop.run { _ in throw Flaky() } } }

        #expect(await world.passWaits(2) == [.seconds(2), .seconds(2)])
        #expect(await caller.value?.reason == .attemptsExhausted)
    }

    @Test func `E05 a result that satisfies the while closure is retried like an error`() async throws {
        let runs = Locked(0)

        let asksAgain = { (answer: String) in answer == "retry" }

        let output = try await retry(.immediate(maxAttempts: 5), while: asksAgain) { _ in
            runs.next() < 3 ? "retry" : "done"
        }

        #expect(output == "done")
        #expect(runs.withLock { $0 } == 3)
    }

    @Test func `E05 a last result that satisfies the while closure ends in an error without a last error`() async {
        let error = await retryError {
            let asksAgain = { (answer: Int) in answer == 0 }
            _ = try await retry(.immediate(maxAttempts: 2), while: asksAgain) { _ in 0 }
        }

        #expect(error?.reason == .attemptsExhausted)
        #expect(error?.lastError == nil)
        #expect(error?.attempts.count == 2)
    }

    @Test func `E06 a classifier separates retried errors from refused errors`() async {
        struct Other: Error {}
        let runs = Locked(0)

        let error = await retryError {
            try await retry(.immediate(maxAttempts: 5), providers: [.when { $0 is Flaky }]) { _ in
                if runs.next() == 2 { throw Other() }
                throw Flaky()
            }
        }

        #expect(runs.withLock { $0 } == 2)
        #expect(error?.reason == .refused)
        #expect(error?.lastError is Other)
    }

    @Test(arguments: [
        Advised(.permanent) as any Error, BadDependency(), MuxError.notFound, RunnerError.signedOut,
        DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "")),
        EncodingError.invalidValue(1, .init(codingPath: [], debugDescription: "")),
        NSError(domain: "NSURLErrorDomain", code: -1000), RetryError(.hostDown, attempts: [], lastError: nil),
    ])
    func `E06 a permanent error is not retried`(failure: any Error) async {
        let runs = Locked(0)

        let error = await retryError {
            try await retry(.immediate(maxAttempts: 5)) { _ in
                _ = runs.next()
                throw failure
            }
        }

        #expect(runs.withLock { $0 } == 1)
        #expect(error?.reason == .refused)
    }

    @Test(arguments: [
        Advised(.transient) as any Error, Flaky(), offline, MuxError.timedOut(after: .seconds(1)),
        NSError(domain: "NSURLErrorDomain", code: -1001), NSError(domain: "NSURLErrorDomain", code: -1),
        NSError(domain: "Mine", code: -1000),
    ])
    func `E06 a transient error is retried, and so is an error without advice`(failure: any Error) async throws {
        let runs = Locked(0)

        try await retry(.immediate(maxAttempts: 2)) { _ in if runs.next() == 1 { throw failure } }

        #expect(runs.withLock { $0 } == 2)
    }

    @Test func `E06 the advice of an error that a stale value may replace decides about a retry`() async {
        struct Advised: RetryableError { var retryAdvice: RetryAdvice }
        for (advice, attempts) in [
            (RetryAdvice(isTransient: true, isRepeatable: false), 1), (.permanent, 1), (.transient, 3),
        ] {
            let count = Locked(0)
            await #expect(throws: (any Error).self) {
                try await retry(.immediate(maxAttempts: 3)) {
                    count.withLock { $0 += 1 }
                    throw SilenceableError(Advised(retryAdvice: advice))
                }
            }
            #expect(count.withLock { $0 } == attempts, "\(advice)")
        }
    }

    @Test func `E06 a cancellation is never retried, even if a classifier permits a retry`() async {
        let runs = Locked(0)

        await #expect(throws: CancellationError.self) {
            try await retry(.immediate(maxAttempts: 5), providers: [.when { _ in true }]) { _ in
                _ = runs.next()
                throw CancellationError()
            }
        }

        #expect(runs.withLock { $0 } == 1)
    }

    @Test func `E07 the work gets its index, the elapsed time and the previous error`() async throws {
        let loop = self.world.loop(.fixed(.seconds(10), maxAttempts: 3, jitter: .none))
        let told = Locked<[RetryPolicy.Attempt]>([])
        let caller = Task {
            try await loop.run { attempt in
                told.withLock { $0.append(attempt) }
                self.world.clock.advance(by: .seconds(1))
                if attempt.index < 2 { throw Flaky(call: attempt.index) }
                return .output(attempt.index)
            }
        }

        #expect(await self.world.passWaits(2) == [.seconds(10), .seconds(10)])
        #expect(try await caller.value == 2)
        let attempts = told.withLock { $0 }
        #expect(attempts.map(\.index) == [0, 1, 2])
        #expect(attempts.map(\.elapsed) == [.zero, .seconds(11), .seconds(22)])
        #expect(attempts.map { $0.previousError as? Flaky } == [nil, Flaky(call: 0), Flaky(call: 1)])
    }

    @Test func `E08 cancellation during a wait ends at once with CancellationError`() async {
        let loop = self.world.loop(.fixed(.seconds(3_600)))
        let runs = Locked(0)
        let caller = Task {
            let _: Int = try await loop.run { _ in
                _ = runs.next()
                throw Flaky()
            }
        }
        await self.world.clock.waitForSleepers(1)

        caller.cancel()

        // The clock does not advance, so only the cancellation can have ended the wait.
        await #expect(throws: CancellationError.self) { try await caller.value }
        #expect(runs.withLock { $0 } == 1)
    }

    @Test func `E08 a task that is cancelled before it begins makes no attempt`() async {
        let gate = Gate<Void>()
        let runs = Locked(0)
        let caller = Task {
            try await gate.pass(ignoringCancellation: true)
            return try await retry(.once) { _ in runs.next() }
        }
        await gate.waitForCall(1)
        caller.cancel()
        gate.open()

        await #expect(throws: CancellationError.self) { try await caller.value }
        #expect(runs.withLock { $0 } == 0)
    }

    @Test func `E08 an attempt that fails because of the cancellation ends in CancellationError`() async {
        let gate = Gate<Void>()
        let runs = Locked(0)
        let caller = Task {
            try await retry(.immediate(maxAttempts: 5)) { _ in
                _ = runs.next()
                do { try await gate.pass() } catch { throw Flaky() }
            }
        }
        await gate.waitForCall(1)

        caller.cancel()

        await #expect(throws: CancellationError.self) { try await caller.value }
        #expect(runs.withLock { $0 } == 1)
    }

    @Test func `E16 an attempt that its caller cancels does not count against the host`() async throws {
        var options = RetryBudget.Limits()
        options.failuresToOpen = 1
        let host = RetryPolicy.Host("a", budget: RetryBudget(options, clock: self.world.clock))
        let gate = Gate<Void>()
        let caller = Task {
            try await retry(.never, on: host) { _ in
                do { try await gate.pass() } catch { throw Flaky() }
            }
        }
        await gate.waitForCall(1)

        caller.cancel()

        await #expect(throws: CancellationError.self) { try await caller.value }
        #expect(try await retry(.never, on: host) { _ in 7 } == 7)
    }

    @Test func `E08 F22 a cancellation between two attempts is in the log`() async {
        let events = Locked<[RetryLog.Event]>([])
        let log = RetryLog { event in events.withLock { $0.append(event) } }
        let cancelling = RetryProvider { _ in
            withUnsafeCurrentTask { $0?.cancel() }
            return .retry
        }
        let caller = Task {
            let _: Int = try await retry(.immediate(), providers: [cancelling], log: log) { _ in throw Flaky() }
        }

        await #expect(throws: CancellationError.self) { try await caller.value }
        #expect(events.withLock { $0.last } == .cancelled(attempts: 1))
    }

    @Test func `E08 a success after the cancellation is a success`() async throws {
        let gate = Gate<Int>()
        let caller = Task { try await retry(.web) { _ in try await gate.pass(ignoringCancellation: true) } }
        await gate.waitForCall(1)

        caller.cancel()
        gate.open(returning: 7)

        #expect(try await caller.value == 7)
    }

    @Test func `E11 work that is not idempotent is repeated only if the policy opts in`() async {
        let runs = Locked(0)
        let failure = Advised.status(503, isRepeatable: false)

        let error = await retryError {
            try await retry(.immediate(maxAttempts: 3)) { _ in
                _ = runs.next()
                throw failure
            }
        }
        #expect(error?.reason == .refused)
        #expect(runs.withLock { $0 } == 1)

        var policy = RetryPolicy.immediate(maxAttempts: 3)
        policy.repeatsUnsafeWork = true
        await #expect(throws: RetryError.self) {
            try await retry(policy) { _ in
                _ = runs.next()
                throw failure
            }
        }
        #expect(runs.withLock { $0 } == 4)
    }

    @Test func `E12 a retry waits for as long as the server asks`() async {
        let loop = self.world.loop(.fixed(.seconds(1), maxAttempts: 2))
        let caller = Task {
            await retryError {
                let _: Int = try await loop.run { _ in throw Advised.status(503, retryAfter: .seconds(7)) }
            }
        }

        #expect(await self.world.passWaits(1) == [.seconds(7)])
        #expect(await caller.value?.attempts.map(\.began) == [.zero, .seconds(7)])
    }

    @Test func `E12 a delay that is longer than the server's Retry-After stays`() async {
        let loop = self.world.loop(.fixed(.seconds(9), maxAttempts: 2, jitter: .none))
        let caller = Task {
            await retryError {
                let _: Int = try await loop.run { _ in throw Advised.status(503, retryAfter: .seconds(7)) }
            }
        }

        #expect(await self.world.passWaits(1) == [.seconds(9)])
        _ = await caller.value
    }

    @Test func `E12 no signal shortens the pause that a server asks for`() async {
        let helper = CountingHelper()
        let loop = self.world.loop(.fixed(.seconds(1), maxAttempts: 2), wakingOn: .helper(helper))
        let caller = Task {
            await retryError {
                let _: Int = try await loop.run { _ in throw Advised.status(503, retryAfter: .seconds(7)) }
            }
        }
        await helper.waitForSetUp()
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(1))

        helper.fire()
        #expect(await self.world.passWaits(1) == [.seconds(6)])

        #expect(await caller.value?.attempts.map(\.began) == [.zero, .seconds(7)])
    }

    @Test func `E12 a Retry-After that is too long ends the retries`() async {
        let asked = Duration.seconds(301)

        let error = await retryError {
            try await retry(.web) { _ in throw Advised.status(503, retryAfter: asked) }
        }

        #expect(error?.reason == .retryAfterTooLong(asked))
    }

    @Test(arguments: [(404, 1), (503, 2), (429, 2), (400, 1), (501, 1), (200, 1)])
    func `E13 some status codes are retried and others are not`(status: Int, expected: Int) async {
        let runs = Locked(0)

        _ = await retryError {
            try await retry(.immediate(maxAttempts: 2)) { _ in
                _ = runs.next()
                throw Advised.status(status)
            }
        }

        #expect(runs.withLock { $0 } == expected)
    }

    @Test func `E13 the lists of statuses can be changed, and refused statuses take precedence`() async {
        var policy = RetryPolicy.immediate(maxAttempts: 2)
        policy.retriedStatuses = [404, 503]
        policy.refusedStatuses = [503]
        let runs = Locked(0)

        for status in [404, 503] {
            _ = await retryError {
                try await retry(policy) { _ in
                    _ = runs.next()
                    throw Advised.status(status)
                }
            }
        }

        #expect(runs.withLock { $0 } == 3, "two for 404 and one for 503")
    }

    @Test func `E14 the first provider that decides wins`() async {
        let asked = Locked<[String]>([])
        func provider(_ name: String, _ plan: RetryProvider.Plan) -> RetryProvider {
            RetryProvider { _ in
                asked.withLock { $0.append(name) }
                return plan
            }
        }
        func outcome(_ providers: RetryProvider...) async -> (RetryError.Reason?, [String]) {
            asked.withLock { $0 = [] }
            let error = await retryError {
                try await retry(.immediate(maxAttempts: 2), providers: providers) { attempt in
                    if attempt.index == 0 { throw Advised(.permanent) }
                }
            }
            return (error?.reason, asked.withLock { $0 })
        }

        #expect(
            await outcome(provider("a", .pass), provider("b", .never), provider("c", .retry)) == (.refused, ["a", "b"])
        )
        #expect(await outcome(provider("a", .retry), provider("b", .never)) == (nil, ["a"]))
        #expect(await outcome(provider("a", .after(.zero)), provider("b", .never)) == (nil, ["a"]))
        #expect(
            await outcome(provider("a", .pass), provider("b", .pass)) == (.refused, ["a", "b"]),
            "the error decides"
        )
    }

    @Test func `E14 a provider replaces the helpers of a wait`() async throws {
        let (usual, special) = (CountingHelper(), CountingHelper())
        let plan = RetryProvider.Plan.wakingOn([.helper(special)])
        let loop = self.world.loop(.web, wakingOn: .helper(usual), providers: [RetryProvider { _ in plan }])
        let caller = Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Flaky() }
                return .output(attempt.elapsed)
            }
        }
        await special.waitForSetUp()
        #expect(self.world.clock.sleeperCount == 0, "no time ends this wait")

        special.fire()

        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await caller.value == .milliseconds(1_500))
        #expect((usual.setUps, special.setUps, special.tearDowns) == (0, 1, 1))
    }

    @Test func `E14 a delay of a provider replaces the delay of the policy`() async {
        let loop = self.world.loop(.web, providers: [RetryProvider { _ in .after(.seconds(40)) }])
        let caller = Task { await retryError { let _: Int = try await loop.run { _ in throw Flaky() } } }

        #expect(await self.world.passWaits(2) == [.seconds(40), .seconds(40)])
        #expect(await caller.value?.reason == .attemptsExhausted)
    }

    @Test func `E15 the values of a list are tried in order`() async throws {
        let tried = Locked<[String]>([])

        let winner = try await retry(trying: ["a", "b", "c"]) { value in
            tried.withLock { $0.append(value) }
            guard value == "c" else { throw Advised(.permanent) }
            return value
        }

        #expect(winner == "c")
        #expect(tried.withLock { $0 } == ["a", "b", "c"])
    }

    @Test func `E15 a list without a working value and an empty list end in an error`() async {
        let none = await retryError { try await retry(trying: [Int]()) { _ in } }
        #expect(none?.reason == .nothingToTry)

        let all = await retryError { try await retry(trying: [1, 2]) { throw Flaky(call: $0) } }
        #expect(all?.reason == .attemptsExhausted)
        #expect(all?.attempts.map { $0.error as? Flaky } == [Flaky(call: 1), Flaky(call: 2)])
    }

    @Test func `E01 no attempt begins after the maximum duration`() async {
        var policy = RetryPolicy.fixed(.seconds(10), maxAttempts: 100, jitter: .none)
        policy.maximumDuration = .seconds(25)
        let loop = self.world.loop(policy)
        let caller = Task { await retryError { let _: Int = try await loop.run { _ in throw Flaky() } } }

        #expect(await self.world.passWaits(2) == [.seconds(10), .seconds(10)])

        let error = await caller.value
        #expect(error?.reason == .timeExhausted)
        #expect(error?.attempts.count == 3)
    }

    @Test @MainActor func `E01 the work runs where the caller runs`() async throws {
        var count = 0  // no lock: this compiles because the work stays on the main actor
        try await retry(.immediate(maxAttempts: 3)) { _ in
            MainActor.assertIsolated()
            count += 1
            if count < 3 { throw Flaky() }
        }

        #expect(count == 3)
    }

    @Test func `E01 the text of the error contains only the types of the attempts' errors`() async {
        struct Secret: Error, CustomStringConvertible { let description = "hunter2" }

        let error = await retryError { try await retry(.once) { _ in throw Secret() } }

        for text in ["\(error as Any)", String(reflecting: error), error?.localizedDescription ?? ""] {
            #expect(!text.contains("hunter2"))
            #expect(text.contains("Secret"))
        }
    }

    @Test(arguments: [1, 301, 86_400])
    func `CO-38 the Retry-After of one mirror does not delay the next mirror`(seconds: Int64) async throws {
        let tried = Locked<[Int]>([])
        let events = Locked<[RetryLog.Event]>([])

        let winner = try await retry(trying: 1...4, log: RetryLog { event in events.withLock { $0.append(event) } }) {
            mirror in
            tried.withLock { $0.append(mirror) }
            guard mirror == 4 else { throw Advised.status(503, retryAfter: .seconds(seconds)) }
            return mirror
        }

        #expect(winner == 4)
        #expect(tried.withLock { $0 } == [1, 2, 3, 4])
        let waits = events.withLock { $0 }.filter { if case .waiting = $0 { true } else { false } }
        #expect(waits == Array(repeating: .waiting(.zero), count: 3), "at once")
    }
}
