import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RetryWakeUpTests {
    private let world = RetryWorld()

    /// A call that fails once and returns the elapsed time at the start of its second attempt.
    private func call(_ policy: RetryPolicy, wakingOn wakeUps: RetrySignal.WakeUp...) -> Task<Duration, any Error> {
        var loop = self.world.loop(policy)
        loop.wakeUps = wakeUps
        return Task { [loop] in
            try await loop.run { attempt in
                if attempt.index == 0 { throw Flaky() }
                return .output(attempt.elapsed)
            }
        }
    }

    private let anHour = RetryPolicy.fixed(.seconds(3_600), jitter: .none)

    @Test func `F03 a helper that wakes is set up and torn down once, and so is every other helper`() async throws {
        let (winner, loser) = (CountingHelper(), CountingHelper())
        let caller = self.call(self.anHour, wakingOn: .helper(winner), .helper(loser))
        await loser.waitForSetUp()
        await self.world.clock.waitForSleepers(1)

        winner.fire()
        winner.fire()
        loser.fire()
        _ = await self.world.passWaits(1)

        _ = try await caller.value
        for helper in [winner, loser] {
            await helper.waitForTearDown()
            #expect((helper.setUps, helper.tearDowns) == (1, 1))
        }
    }

    @Test func `F03 a helper is torn down once after the end of the time or a cancellation of the task`() async throws {
        let (timed, cancelled) = (CountingHelper(), CountingHelper())
        let first = self.call(.fixed(.seconds(1), jitter: .none), wakingOn: .helper(timed))
        await timed.waitForSetUp()
        _ = await self.world.passWaits(1)
        _ = try await first.value

        let second = self.call(self.anHour, wakingOn: .helper(cancelled))
        await cancelled.waitForSetUp()
        second.cancel()
        await #expect(throws: CancellationError.self) { try await second.value }

        for helper in [timed, cancelled] {
            await helper.waitForTearDown()
            #expect((helper.setUps, helper.tearDowns) == (1, 1))
        }
    }

    @Test func `F03 a helper that wakes during its set-up is torn down, and the next is not set up`() {
        let (hasty, next) = (CountingHelper(isHasty: true), CountingHelper())
        let ends = Locked<[String]>([])
        let race = RetryRace { winner in ends.withLock { $0.append(winner.name) } }

        race.start([.helper(hasty), .helper(next)], self.world.loop(.web))
        race.callOff()

        #expect(ends.withLock { $0 } == ["helper"])
        #expect((hasty.setUps, hasty.tearDowns) == (1, 1))
        #expect((next.setUps, next.tearDowns) == (0, 0))
    }

    @Test func `F03 a race that is called off before its start sets up no helper`() {
        let helper = CountingHelper()
        let ends = Locked(0)
        let race = RetryRace { _ in _ = ends.next() }
        race.callOff()

        race.start([.helper(helper)], self.world.loop(.web))

        #expect(ends.withLock { $0 } == 0)
        #expect((helper.setUps, helper.tearDowns) == (0, 0))
    }

    @Test(arguments: 1...20)
    func `F03 helpers that wake at the same time end the race once`(round: Int) async {
        let helpers = (0..<8).map { _ in CountingHelper() }
        let ends = Locked(0)
        let race = RetryRace { _ in _ = ends.next() }
        let loop = self.world.loop(.web)

        await withTaskGroup(of: Void.self) { group in
            for helper in helpers {
                group.addTask {
                    await helper.waitForSetUp()
                    helper.fire()
                }
            }
            race.start(helpers.map { .helper($0) }, loop)
            // The cancellation ends the waits for helpers that the race has not set up.
            group.cancelAll()
        }

        #expect(ends.withLock { $0 } == 1)
        for helper in helpers { #expect(helper.setUps == helper.tearDowns) }
    }

    @Test func `F04 the shortest of several times ends a wait`() async throws {
        let caller = self.call(
            .never.with(maxAttempts: 2, .fixed(.seconds(60))),
            wakingOn: .after(.seconds(5)),
            .after(.milliseconds(300))
        )
        await self.world.clock.waitForSleepers(3)

        #expect(self.world.clock.advanceToNextDeadline() == .milliseconds(300))

        #expect(try await caller.value == .milliseconds(300))
        #expect(self.world.clock.sleeperCount == 0, "the others were torn down")
    }

    @Test func `F07 a notification ends a wait once`() async throws {
        let center = NotificationCenter()
        let name = Notification.Name("Test")
        let last = CountingHelper()
        let waiting = self.world.loop(self.anHour, wakingOn: .notification(name, in: center), .helper(last))
        let runs = Locked(0)
        let caller = Task {
            await retryError {
                let _: Int = try await waiting.run { _ in throw Flaky(call: runs.next()) }
            }
        }
        await last.waitForSetUp()
        await self.world.clock.waitForSleepers(1)
        center.post(name: Notification.Name("Other"), object: nil)
        center.post(name: name, object: nil)
        center.post(name: name, object: nil)

        #expect(await self.world.passWaits(2) == [.milliseconds(1_500), .seconds(3_600)])
        _ = await caller.value
        #expect(runs.withLock { $0 } == 3)
        #expect(self.world.lines.withLock { $0.count { $0.hasSuffix("woken by notification") } } == 1)
    }

    @Test func `F07 an element of a sequence ends a wait once, and the end of a sequence ends no wait`() async throws {
        let (elements, continuation) = AsyncStream<Int>.makeStream()
        let caller = self.call(
            self.anHour,
            wakingOn: .element(of: { AsyncStream<Int> { $0.finish() } }),
            .element(of: { elements })
        )
        await self.world.clock.waitForSleepers(1)

        continuation.yield(1)
        continuation.yield(2)

        await self.world.tally.reached(5)  // begins, failed, waiting, woken, waiting
        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await caller.value == .milliseconds(1_500))
    }

    @Test func `F08 a custom helper ends a wait`() async throws {
        let helper = CountingHelper()
        let caller = self.call(self.anHour, wakingOn: .helper(helper))
        await helper.waitForSetUp()
        await self.world.clock.waitForSleepers(1)

        helper.fire()

        await self.world.tally.reached(5)
        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await caller.value == .milliseconds(1_500))
    }

    @Test func `F09 retryNow ends a wait without delay, despite the server's Retry-After`() async throws {
        let button = RetrySignal()
        let last = CountingHelper()
        let loop = self.world.loop(self.anHour, wakingOn: .signal(button), .helper(last))
        #expect(button.retryNow() == 0, "nobody waits")
        let caller = Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Advised.status(503, retryAfter: .seconds(200)) }
                return .output(attempt.elapsed)
            }
        }
        await last.waitForSetUp()
        await self.world.clock.waitForSleepers(1)

        #expect(button.retryNow() == 1)

        #expect(try await caller.value == .zero)
        #expect(button.retryNow() == 0)
        #expect(self.world.clock.sleeperCount == 0)
    }

    @Test(arguments: [nil, Duration.seconds(200)])
    func `F09 retryNow ends the wait that follows an early wake-up`(retryAfter: Duration?) async throws {
        let (button, helper) = (RetrySignal(), CountingHelper())
        let loop = self.world.loop(self.anHour, wakingOn: .signal(button), .helper(helper))
        let caller = Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Advised.status(503, retryAfter: retryAfter) }
                return .output(attempt.elapsed)
            }
        }
        await helper.waitForSetUp()
        await self.world.clock.waitForSleepers(1)
        helper.fire()

        let endedWaits = button.retryNow()
        #expect(endedWaits == 1)
        if endedWaits == 0 { caller.cancel() }
        #expect(try await caller.value == .zero)
        #expect(helper.setUps == 1, "a second wake-up would have no effect")
    }

    @Test(arguments: [(0.0, 0), (0.5, 1_500), (0.999, 2_997)])
    func `F21 an early wake-up is followed by a random delay of up to three seconds`(random: Double, delay: Int)
        async throws
    {
        let helper = CountingHelper()
        var world = self.world
        world.random = { random }
        let loop = world.loop(self.anHour, wakingOn: .helper(helper))
        let caller = Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Flaky() }
                return .output(attempt.elapsed)
            }
        }
        await helper.waitForSetUp()
        await world.clock.waitForSleepers(1)
        world.clock.advance(by: .seconds(100))

        helper.fire()
        if delay > 0 {
            await world.tally.reached(5)
            #expect(await world.passWaits(1) == [.milliseconds(delay)])
        }

        #expect(try await caller.value == .seconds(100) + .milliseconds(delay))
    }

    @Test func `F21 the random delay after a wake-up never extends the wait`() async throws {
        let helper = CountingHelper()
        let caller = self.call(.fixed(.seconds(60), jitter: .none), wakingOn: .helper(helper))
        await helper.waitForSetUp()
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(59))

        helper.fire()
        await self.world.tally.reached(5)
        #expect(await self.world.passWaits(1) == [.seconds(1)])

        #expect(try await caller.value == .seconds(60))
    }

    @Test func `CO-37 a wait without a wake-up ends at the maximum duration`() async {
        var policy = RetryPolicy.web
        policy.maximumDuration = .seconds(30)
        let helper = CountingHelper()
        let loop = self.world.loop(policy, providers: [RetryProvider { _ in .wakingOn([.helper(helper)]) }])
        let caller = Task { await retryError { let _: Int = try await loop.run { _ in throw Flaky() } } }
        await helper.waitForSetUp()

        #expect(await self.world.passWaits(1) == [.seconds(30)])

        let error = await caller.value
        #expect(error?.reason == .timeExhausted)
        #expect(error?.lastError is Flaky)
        #expect(helper.tearDowns == 1)
        #expect(self.world.lines.withLock { $0.contains("retry: waiting for a wake-up") })
    }

    @Test func `CO-37 a wake-up one second before the maximum duration begins an attempt`() async throws {
        var world = self.world
        world.random = { 0.999 }
        var policy = RetryPolicy.web
        policy.maximumDuration = .seconds(30)
        let helper = CountingHelper()
        let loop = world.loop(policy, providers: [RetryProvider { _ in .wakingOn([.helper(helper)]) }])
        let caller = Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Flaky() }
                return .output(attempt.elapsed)
            }
        }
        await helper.waitForSetUp()
        await world.clock.waitForSleepers(1)
        world.clock.advance(by: .seconds(29))

        helper.fire()

        #expect(await world.passWaits(1) == [.milliseconds(999)])
        #expect(try await caller.value == .milliseconds(29_999))
    }

    private final class Token: Sendable {}

    @Test func `PT-02 a wake-up releases its observers after the end of the wait`() async {
        let (clock, center, signal) = (VirtualClock(), NotificationCenter(), RetrySignal())
        let name = Notification.Name("PT-02")
        let (elements, element) = AsyncStream<Void>.makeStream()
        let wakeUps: [RetrySignal.WakeUp] = [
            .after(.seconds(5)), .signal(signal), .notification(name, in: center), .element(of: { elements }),
        ]
        for wakeUp in wakeUps {
            let calls = Locked(0)
            weak var weakToken: Token?
            do {
                let token = Token()
                weakToken = token
                let loop = RetryLoop(.web, time: TimeSource(clock))
                let end = wakeUp.setUp(loop) {
                    withExtendedLifetime(token) {}
                    calls.withLock { $0 += 1 }
                }
                end()
            }
            // The listening task ends asynchronously.
            await settled({ weakToken == nil }, when: { $0 })
            #expect(weakToken == nil, "\(wakeUp.name)")
            clock.advance(by: .seconds(5))
            signal.retryNow()
            center.post(name: name, object: nil)
            #expect(calls.withLock { $0 } == 0, "\(wakeUp.name)")
        }
        withExtendedLifetime(element) {}
    }
}

extension RetryPolicy {
    func with(maxAttempts: Int, _ backoff: RetryPolicy.Backoff) -> RetryPolicy {
        var policy = self
        policy.maxAttempts = maxAttempts
        policy.backoff = backoff
        return policy
    }
}
