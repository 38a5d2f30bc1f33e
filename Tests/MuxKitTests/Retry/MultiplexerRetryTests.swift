import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MultiplexerRetryTests {
    private let world = World()

    private func number(
        _ fetch: ScriptedFetch<Int>,
        _ retry: RetryPolicy? = .fixed(.seconds(10), maxAttempts: 3, jitter: .none),
        _ change: (inout MuxPolicy) -> Void = { _ in }
    ) -> Multiplexer<Int> {
        var policy = MuxPolicy(fetchTimeout: .seconds(1_000), retry: retry)
        change(&policy)
        return Multiplexer<Int>(policy: policy, repository: self.world.repository) { try await fetch() }
    }

    /// Ends the next wait between attempts.
    ///
    /// The two sleepers are the fetch time-out and the wait.
    private func passWait() async {
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advanceToNextDeadline()
    }

    @Test func `E01 a fetch that fails twice is one fetch with two retries for all its waiters`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(Flaky(call: 1)), .failure(Flaky(call: 2)), .value(7)])
        let number = self.number(fetch)
        let callers = (0..<10).map { _ in Task { try await number.request() } }
        await self.world.events.wait(for: .joined, count: 9)

        await self.passWait()
        await self.world.events.wait(for: .fetchRetried, count: 1)
        await self.passWait()

        for caller in callers { #expect(try await caller.value == 7) }
        #expect(fetch.callCount == 3)
        #expect(number.statistics.fetches == 1)
        #expect(number.statistics.retries == 2)
        #expect(number.statistics.failures == 0)
        #expect(self.world.events.count(of: .fetchStarted) == 1)
        #expect(self.world.events.count(of: .fetchRetried) == 2)
        await number.expectAtRest()
    }

    @Test func `E01 callers get the error of the last attempt, and the fetch counts as one failure`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { throw Flaky(call: $0) })
        let number = self.number(fetch)
        let caller = Task { try await number.request() }

        await self.passWait()
        await self.world.events.wait(for: .fetchRetried, count: 1)
        await self.passWait()

        await #expect(throws: Flaky(call: 3)) { try await caller.value }
        #expect(number.statistics.failures == 1)
        #expect(number.statistics.retries == 2)
        await number.expectAtRest()
    }

    @Test func `E01 isSilenceable gets the error of the fetch's last attempt`() async throws {
        let asked = Locked<[Int]>([])
        let fetch = ScriptedFetch<Int>([.value(1)], thereafter: .computed { throw Flaky(call: $0) })
        let number = self.number(fetch, .immediate(maxAttempts: 2)) { policy in
            policy.isSilenceable = { error in
                asked.withLock { $0.append((error as? Flaky)?.call ?? 0) }
                return true
            }
        }
        #expect(try await number.request() == 1)

        #expect(try await number.refresh().request() == 1)

        #expect(number.statistics.staleServed == 1)
        #expect(asked.withLock { $0 } == [3])
    }

    @Test func `E06 a fetch with a permanent error is not repeated`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .failure(Advised(.permanent)))
        let number = self.number(fetch)

        await #expect(throws: Advised.self) { try await number.request() }

        #expect(fetch.callCount == 1)
        #expect(number.statistics.retries == 0)
    }

    @Test func `E01 without a retry policy no fetch is repeated`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .failure(Flaky()))
        let number = self.number(fetch, nil)

        await #expect(throws: Flaky.self) { try await number.request() }

        #expect(fetch.callCount == 1)
    }

    @Test func `E08 a fetch without waiters is not attempted again`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .failure(Flaky()))
        let number = self.number(fetch) { $0.whenAbandoned = .cancel(linger: .zero) }
        let caller = Task { try await number.request() }
        await self.world.clock.waitForSleepers(2)

        caller.cancel()

        await #expect(throws: CancellationError.self) { try await caller.value }
        await self.world.events.wait(for: .fetchFailed)
        #expect(fetch.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `E08 the time-out of a fetch covers its retries`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .failure(Flaky()))
        let number = self.number(fetch) { $0.fetchTimeout = .seconds(15) }
        let caller = Task { try await number.request() }
        await self.passWait()
        await self.world.events.wait(for: .fetchRetried)
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .seconds(5))

        await #expect(throws: MuxError.timedOut(after: .seconds(15))) { try await caller.value }

        await self.world.events.wait(for: .fetchFailed)
        #expect(fetch.callCount == 2)
        await number.expectAtRest()
    }

    @Test func `E08 a fetch that a refresh has fenced returns to its callers and is not kept`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(Flaky()), .value(1), .value(2)])
        let number = self.number(fetch)
        let caller = Task { try await number.request() }
        await self.world.clock.waitForSleepers(2)

        number.refresh()
        self.world.clock.advanceToNextDeadline()

        #expect(try await caller.value == 1)
        #expect(number.cachedValue == nil)
        #expect(try await number.request() == 2)
        #expect(number.statistics.fenceDrops == 1)
    }

    @Test func `E08 a sign-out ends the wait between attempts`() async {
        let fetch = ScriptedFetch<Int>(thereafter: .failure(Flaky()))
        let policy = MuxPolicy(fetchTimeout: .seconds(1_000), retry: .fixed(.seconds(10), jitter: .none))
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: self.world.repository) {
            try await fetch()
        }
        let caller = Task { try await number.request() }
        await self.world.clock.waitForSleepers(2)

        await self.world.repository.clearAll()

        await #expect(throws: MuxError.sessionEnded) { try await caller.value }
        await self.world.events.wait(for: .fetchFailed)
        #expect(fetch.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `E04 the random numbers of jitter come from the repository`() async throws {
        let world = World(random: { 0.25 })
        let fetch = ScriptedFetch<Int>([.failure(Flaky()), .value(7)])
        let policy = MuxPolicy(fetchTimeout: .seconds(1_000), retry: .fixed(.seconds(8)))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        let caller = Task { try await number.request() }
        await world.clock.waitForSleepers(2)

        #expect(world.clock.advanceToNextDeadline() == .seconds(2))

        #expect(try await caller.value == 7)
    }
}
