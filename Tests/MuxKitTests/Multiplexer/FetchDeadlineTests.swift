import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FetchDeadlineTests {
    private let world = World()
    private let policy = MuxPolicy(timeToLive: .zero, fetchTimeout: .seconds(5))
    private let gate = Gate<Int>()

    /// A multiplexer whose fetch waits for the gate and ignores its cancellation.
    private func stubborn() -> Multiplexer<Int> {
        Multiplexer(policy: self.policy, repository: self.world.repository) { [gate] in
            try await gate.pass(ignoringCancellation: true)
        }
    }

    /// Makes a request whose fetch hangs until its timeout.
    private func timedOutRequest(of number: Multiplexer<Int>) async {
        let caller = Task { try await number.request() }
        await self.gate.waitForCall(1)
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(5))
        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await caller.value }
    }

    @Test func `MX-18 the callers of a hanging fetch get timedOut at the fetch's timeout`() async throws {
        let number = self.stubborn()
        let callers = (0..<10).map { _ in Task { try await number.request() } }
        await self.gate.waitForCall(1)
        await self.world.events.wait(for: .joined, count: 9)
        await self.world.clock.waitForSleepers(1)

        self.world.clock.advance(by: .seconds(4))
        #expect(number.occupancy.waiters == 10)
        self.world.clock.advance(by: .seconds(1))

        for caller in callers {
            await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await caller.value }
        }
        #expect(self.gate.heldCount == 1, "nobody waited for the fetch")
        self.gate.open(1, returning: 1)
    }

    @Test func `MX-18 a timed-out fetch is cancelled`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .gated(self.gate))
        let number = Multiplexer<Int>(policy: self.policy, repository: self.world.repository) { try await fetch() }

        await self.timedOutRequest(of: number)

        await fetch.waitForEnd(1)
        await self.world.events.wait(for: .fetchFailed)
        await number.expectAtRest()
    }

    @Test func `MX-18 the next request fetches although a timed-out fetch ignores its cancellation`() async throws {
        let number = self.stubborn()
        await self.timedOutRequest(of: number)

        let next = Task { try await number.request() }
        await self.gate.waitForCall(2)
        self.gate.open(2, returning: 2)

        #expect(try await next.value == 2)
        #expect(self.gate.heldCount == 1)
        self.gate.open(1, returning: 1)
    }

    @Test func `MX-18 the late value of a timed-out fetch is dropped`() async throws {
        let number = self.stubborn()
        await self.timedOutRequest(of: number)

        self.gate.open(1, returning: 1)
        await self.world.events.wait(for: .fenceDropped)

        #expect(number.cachedValue == nil)
        await number.expectAtRest()
    }

    @Test func `MX-18 each fetch has its own timeout`() async throws {
        let gate = self.gate
        let map = MultiplexerMap<Int, Int>(policy: self.policy, repository: self.world.repository) { _ in
            try await gate.pass()
        }
        let early = Task { try await map.request(key: 1) }
        await self.gate.waitForCall(1)
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(3))
        let late = Task { try await map.request(key: 2) }
        await self.gate.waitForCall(2)

        self.world.clock.advance(by: .seconds(2))
        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await early.value }
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(2))
        #expect(map.occupancy.waiters == 1)
        self.world.clock.advance(by: .seconds(1))

        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await late.value }
    }

    @Test func `MX-18 many quick fetches share one sleeper for their timeouts`() async throws {
        let number = Multiplexer<Int>(policy: self.policy, repository: self.world.repository) { 1 }

        for _ in 0..<1_000 { _ = try await number.request() }

        #expect(number.statistics.fetches == 1_000)
        #expect(self.world.clock.sleeperCount <= 1)
    }
}
