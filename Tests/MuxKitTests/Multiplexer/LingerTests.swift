import Dispatch
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LingerTests {
    @Test func `MX-05 when two callers leave, the linger of the last caller counts`() async throws {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor))
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        await world.clock.waitForSleepers(1)  // the deadline of the fetch

        // The first caller is held just after the start of its linger timer.
        executor.holdNext()
        DispatchQueue.global().async { first.cancel() }
        await executor.waitForHeld()
        await world.clock.waitForSleepers(2)
        // Meanwhile another caller adopts the flight and leaves.
        let second = Task { try await number.request() }
        await world.events.wait(for: .joined)
        second.cancel()
        _ = await second.result
        await world.clock.waitForSleepers(3)
        executor.release()
        _ = await first.result

        world.clock.advance(by: .seconds(1))
        executor.settle()

        #expect(gate.heldCount == 0, "nobody has waited for a second")
        await number.expectAtRest()
    }

    @Test func `MX-05 an endless linger is a sleep that any clock can represent`() async throws {
        let clock = InstantClock()

        try await TimeSource(clock).sleep(for: .seconds(Int64.max))

        let slept = clock.slept.withLock { $0 }
        #expect(slept == [.longest])
        #expect(Duration.longest > .seconds(100 * 365 * 24 * 60 * 60))
    }
}

/// A stopped clock that accepts every duration and returns from each sleep at once.
private struct InstantClock: Clock {
    struct Instant: InstantProtocol {
        var offset = Duration.zero
        func advanced(by duration: Duration) -> Instant { Instant(offset: self.offset + duration) }
        func duration(to other: Instant) -> Duration { other.offset - self.offset }
        static func < (a: Instant, b: Instant) -> Bool { a.offset < b.offset }
    }

    let slept = Locked<[Duration]>([])
    var now: Instant { Instant() }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        self.slept.withLock { $0.append(deadline.offset) }
    }
}
