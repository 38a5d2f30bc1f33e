import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RetryBudgetTests {
    private let world = RetryWorld()

    private func budget(_ change: (inout RetryBudget.Limits) -> Void = { _ in }) -> RetryBudget {
        var options = RetryBudget.Limits()
        change(&options)
        return RetryBudget(options, clock: self.world.clock)
    }

    private func loop(_ budget: RetryBudget, _ name: String = "dead", attempts: Int = 8) -> RetryLoop {
        self.world.loop(.immediate(maxAttempts: attempts), on: RetryPolicy.Host(name, budget: budget))
    }

    /// A call whose attempts all fail.
    private func failingCall(_ budget: RetryBudget, _ name: String = "dead", attempts: Int = 1) async -> RetryError? {
        let loop = self.loop(budget, name, attempts: attempts)
        return await retryError { let _: Int = try await loop.run { _ in throw Flaky() } }
    }

    private func succeedingCall(_ budget: RetryBudget, _ name: String = "dead") async throws {
        try await self.loop(budget, name).run { _ in .output(()) }
    }

    /// The number of requests of `count` callers to a dead host.
    ///
    /// All first requests run at the same time.
    private func requests(of count: Int, _ budget: RetryBudget) async -> (
        requests: Int, reasons: [RetryError.Reason: Int]
    ) {
        let requests = Locked(0)
        let arrived = Gate<Void>()
        let loop = self.loop(budget)
        let reasons = await withTaskGroup(of: RetryError.Reason?.self) { group in
            for _ in 0..<count {
                group.addTask {
                    await retryError {
                        let _: Int = try await loop.run { attempt in
                            _ = requests.next()
                            if attempt.index == 0 { try await arrived.pass() }
                            throw Flaky()
                        }
                    }?.reason
                }
            }
            await arrived.waitForCall(count)
            arrived.openForGood(returning: ())
            return await group.reduce(into: [RetryError.Reason: Int]()) { counts, reason in
                if let reason { counts[reason, default: 0] += 1 }
            }
        }
        return (requests.withLock { $0 }, reasons)
    }

    @Test func `E16 a thousand keys of a dead host make at most a tenth more requests than first attempts`() async {
        let result = await self.requests(of: 1_000, self.budget { $0.failuresToOpen = .max })

        #expect(result.requests == 1_100, "all of the share is used, and no more")
        #expect(result.reasons.values.reduce(0, +) == 1_000)
        #expect(result.reasons[.budgetExhausted, default: 0] > 900)
    }

    @Test func `E16 a thousand keys of a dead host make no more requests with the breaker`() async {
        let result = await self.requests(of: 1_000, self.budget())

        #expect(result.requests <= 1_100)
        #expect(result.reasons.values.reduce(0, +) == 1_000)
    }

    @Test func `E16 a single caller may retry without a share`() async {
        let error = await self.failingCall(self.budget(), attempts: 3)

        #expect(error?.reason == .attemptsExhausted)
        #expect(error?.attempts.count == 3)
    }

    @Test func `E16 spent retries expire over time`() async {
        let budget = self.budget { $0.failuresToOpen = .max }
        #expect(await self.failingCall(budget, attempts: 100)?.attempts.count == 11, "ten retries, and no more")
        #expect(await self.failingCall(budget, attempts: 100)?.attempts.count == 1)

        self.world.clock.advance(by: .seconds(10))
        #expect(await self.failingCall(budget, attempts: 100)?.attempts.count == 6, "half of it is forgotten")

        self.world.clock.advance(by: .seconds(1_000_000))
        #expect(await self.failingCall(budget, attempts: 100)?.attempts.count == 11)
    }

    @Test func `E16 each host has a separate share, and host names ignore case`() async {
        let budget = self.budget { $0.failuresToOpen = .max }
        _ = await self.failingCall(budget, "a", attempts: 100)

        #expect(await self.failingCall(budget, "b", attempts: 3)?.reason == .attemptsExhausted)
        #expect(await self.failingCall(budget, "A", attempts: 3)?.reason == .budgetExhausted, "A is a")
    }

    private func open(_ budget: RetryBudget) async {
        for _ in 0..<20 { _ = await self.failingCall(budget) }
    }

    @Test func `E16 consecutive failures open the breaker of a host`() async {
        let budget = self.budget()
        for _ in 0..<19 { _ = await self.failingCall(budget) }
        #expect(await self.failingCall(budget)?.reason == .attemptsExhausted, "the twentieth is still a request")

        let error = await self.failingCall(budget)

        #expect(error?.reason == .hostDown)
        #expect(error?.attempts.isEmpty == true)
        #expect(error.map(SilenceableError.isSilenceable) == true, "a cache may answer with what it has")
        #expect(await self.failingCall(budget, "other")?.reason == .attemptsExhausted)
    }

    @Test func `E16 a success between failures keeps the breaker of a host closed`() async throws {
        let budget = self.budget()
        for _ in 0..<3 {
            for _ in 0..<19 { _ = await self.failingCall(budget) }
            try await self.succeedingCall(budget)
        }

        #expect(await self.failingCall(budget)?.reason == .attemptsExhausted)
    }

    @Test func `E16 a host with an open breaker gets a single request as a probe`() async throws {
        let budget = self.budget()
        await self.open(budget)
        self.world.clock.advance(by: .seconds(5))
        let requests = Gate<Int>()
        let loop = self.loop(budget)

        let callers = (0..<1_000).map { _ in Task { try await loop.run { _ in .output(try await requests.pass()) } } }
        await requests.waitForCall(1)
        // All calls except the probe end. The gate holds the probe.
        let refused = Locked(0)
        let ended = Tally()
        let watch = callers.map { caller in
            Task {
                do { _ = try await caller.value } catch {
                    if (error as? RetryError)?.reason == .hostDown { _ = refused.next() }
                }
                ended.add()
            }
        }
        await ended.reached(999)
        #expect(refused.withLock { $0 } == 999)
        #expect(requests.callCount == 1)

        requests.openForGood(returning: 7)
        for task in watch { await task.value }
        #expect(refused.withLock { $0 } == 999)
        #expect(try await loop.run { _ in .output(try await requests.pass()) } == 7, "the host is asked again")
    }

    @Test func `E16 a failed probe doubles the pause of the breaker, up to a limit`() async {
        let budget = self.budget { $0.maximumPause = .seconds(15) }
        await self.open(budget)

        for pause in [5, 10, 15, 15] {
            self.world.clock.advance(by: .seconds(pause) - .nanoseconds(1))
            #expect(await self.failingCall(budget)?.reason == .hostDown)
            self.world.clock.advance(by: .nanoseconds(1))
            #expect(await self.failingCall(budget)?.reason == .attemptsExhausted, "the probe")
        }
    }

    @Test func `E16 a cancelled probe permits the next probe`() async throws {
        let budget = self.budget()
        await self.open(budget)
        self.world.clock.advance(by: .seconds(5))
        let gate = Gate<Void>()
        let loop = self.loop(budget)
        let probe = Task { try await loop.run { _ in .output(try await gate.pass()) } }
        await gate.waitForCall(1)
        #expect(await self.failingCall(budget)?.reason == .hostDown)

        probe.cancel()
        await #expect(throws: CancellationError.self) { try await probe.value }

        try await self.succeedingCall(budget)
        #expect(await self.failingCall(budget)?.reason == .attemptsExhausted, "it is asked as before")
    }

    @Test func `E16 only transient errors count against a host`() async {
        let budget = self.budget { $0.failuresToOpen = 2 }
        let loop = self.loop(budget)
        for error in [Advised.status(404) as any Error, BadDependency(), Advised(.permanent)] {
            _ = await self.failingCall(budget)
            _ = await retryError { let _: Int = try await loop.run { _ in throw error } }
        }

        #expect(
            await self.failingCall(budget)?.reason == .attemptsExhausted,
            "404 and 401 are answers; the third says nothing"
        )
        #expect(await self.failingCall(budget)?.reason == .hostDown)
    }

    @Test func `E16 a late response closes the breaker, and a late failure does not affect a probe`() {
        var machine = CircuitBreaker(.init(), at: Moment(nanoseconds: 0))
        func ticket(_ seconds: Int64) -> UInt64? { machine.admitRequest(isRetry: false, at: self.at(seconds)) }
        let tickets = (0..<25).compactMap { _ in ticket(0) }
        for ticket in tickets.prefix(20) { machine.failed(ticket, at: self.at(1)) }
        #expect(ticket(2) == nil)
        machine.failed(tickets[20], at: self.at(3))
        #expect(ticket(5) == nil)
        let probe = ticket(6)
        machine.failed(tickets[21], at: self.at(6))
        machine.abandoned(tickets[22], at: self.at(6))
        #expect(probe != nil)
        #expect(ticket(7) == nil, "the probe is still out")
        #expect(ticket(35) == nil, "and nothing else decides")

        machine.answered()

        #expect(ticket(7) != nil)
        #expect(machine.isHealthy)
    }

    private func at(_ seconds: Int64) -> Moment { Moment(nanoseconds: seconds * 1_000_000_000) }

    @Test func `E16 hosts beyond the limit are evicted, healthy hosts first`() async {
        let budget = self.budget { $0.maximumHosts = 8 }
        await self.open(budget)
        for number in 0..<100 { try? await self.succeedingCall(budget, "host \(number)") }

        #expect(budget.hostCount <= 8)
        #expect(await self.failingCall(budget)?.reason == .hostDown, "a dead one is not forgotten for healthy ones")
    }

    @Test(arguments: [Double.nan, -1, .infinity])
    func `E16 an invalid share does not trap`(share: Double) async {
        let budget = self.budget {
            $0.share = share
            $0.minimumRetries = -5
            $0.failuresToOpen = -5
            $0.pause = .seconds(-5)
            $0.maximumPause = .seconds(Int64.max)
            $0.window = .zero
            $0.maximumHosts = -1
        }

        for _ in 0..<30 { _ = await self.failingCall(budget, attempts: 2) }

        #expect(budget.hostCount == 1)
    }

    @Test func `F06 a success on the same host ends a wait, and a success on another host does not`() async throws {
        let budget = self.budget { $0.minimumRetries = 100 }
        let (a, b) = (RetryPolicy.Host("a", budget: budget), RetryPolicy.Host("b", budget: budget))
        func parked(on host: RetryPolicy.Host) -> (Task<Duration, any Error>, CountingHelper) {
            let last = CountingHelper()
            let plan = RetryProvider.Plan.wakingOn([.success(on: host), .helper(last)])
            let loop = self.world.loop(.web, on: host, providers: [RetryProvider { _ in plan }])
            let caller = Task {
                try await loop.run { attempt in
                    if attempt.index == 0 { throw Flaky() }
                    return .output(attempt.elapsed)
                }
            }
            return (caller, last)
        }
        let (callerA, lastA) = parked(on: a)
        let (callerB, lastB) = parked(on: b)
        await lastA.waitForSetUp()
        await lastB.waitForSetUp()
        self.world.clock.advance(by: .seconds(100))

        try await self.succeedingCall(budget, "a")

        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await callerA.value == .milliseconds(101_500))
        #expect(lastB.tearDowns == 0, "b still waits")
        b.answered()
        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await callerB.value == .seconds(103))
    }

    @Test func `CO-39 a probe that never ends does not keep the breaker open`() async throws {
        let budget = self.budget { $0.probeLimit = .seconds(7) }
        await self.open(budget)
        self.world.clock.advance(by: .seconds(5))
        let gate = Gate<Int>()
        let loop = self.loop(budget)
        let hanging = Task { try await loop.run { _ in .output(try await gate.pass()) } }
        await gate.waitForCall(1)
        self.world.clock.advance(by: .seconds(7) - .nanoseconds(1))
        #expect(await self.failingCall(budget)?.reason == .hostDown)

        self.world.clock.advance(by: .nanoseconds(1))
        let second = Task { try await loop.run { _ in .output(try await gate.pass()) } }
        await gate.waitForCall(2)
        #expect(await self.failingCall(budget)?.reason == .hostDown, "one probe at a time")
        self.world.clock.advance(by: .seconds(7))

        try await self.succeedingCall(budget)
        #expect(await self.failingCall(budget)?.reason == .attemptsExhausted, "it is asked as before")
        gate.openForGood(returning: 7)
        #expect(try await hanging.value == 7)
        #expect(try await second.value == 7)
    }

    @Test func `CO-39 the failure of an expired probe does not affect the next probe`() async throws {
        let budget = self.budget()
        await self.open(budget)
        self.world.clock.advance(by: .seconds(5))
        let gate = Gate<Void>()
        let loop = self.loop(budget, attempts: 1)
        let hanging = Task { await retryError { try await loop.run { _ in .output(try await gate.pass()) } } }
        await gate.waitForCall(1)
        self.world.clock.advance(by: .seconds(30))
        let next = Task { try await loop.run { _ in .output(try await gate.pass()) } }
        await gate.waitForCall(2)

        gate.fail(with: Flaky())
        #expect(await hanging.value?.reason == .attemptsExhausted)
        #expect(await self.failingCall(budget)?.reason == .hostDown, "the next one is still out")
        gate.open(returning: ())

        try await next.value
        try await self.succeedingCall(budget)
    }

    @Test(arguments: [Duration.zero, .seconds(-1), .seconds(Int64.max)])
    func `CO-39 no value of the probe limit traps`(limit: Duration) async {
        let budget = self.budget { $0.probeLimit = limit }
        await self.open(budget)
        self.world.clock.advance(by: .seconds(5))

        #expect(await self.failingCall(budget)?.reason == .attemptsExhausted)
        #expect(await self.failingCall(budget)?.reason == .hostDown)
    }

    @Test func `PT-01 first attempts of long ago permit no additional retries`() {
        let clock = VirtualClock()
        let time = TimeSource(clock)
        let options = RetryBudget.Limits()
        var breaker = CircuitBreaker(options, at: time.now)
        for _ in 0..<10_000 {
            _ = breaker.admitRequest(isRetry: false, at: time.now)
            breaker.answered()
        }
        clock.advance(by: options.window * 10)

        let permitted = (0..<200).count { _ in breaker.admitRetry(at: time.now) }

        #expect(permitted == options.minimumRetries)
    }
}
