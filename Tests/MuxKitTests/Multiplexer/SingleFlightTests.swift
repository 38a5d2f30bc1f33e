import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SingleFlightTests {
    @Test func `MX-01 a thousand cold callers share one fetch`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }

        let values = try await withThrowingTaskGroup { group in
            for _ in 0..<1_000 { group.addTask { try await number.request() } }
            await world.events.wait(for: .joined, count: 999)
            gate.open(returning: 5)
            return try await group.reduce(into: []) { $0.append($1) }
        }

        #expect(values == Array(repeating: 5, count: 1_000))
        #expect(fetch.callCount == 1)
        #expect(number.statistics.requests == 1_000)
        #expect(number.statistics.misses == 1)
        await number.expectAtRest()
    }

    @Test func `MX-02 a fetch that always fails never overlaps itself`() async throws {
        let world = World()
        let rounds = repetitions(200)
        let fetch = ScriptedFetch<Int>(thereafter: .computed { throw FetchFailed(call: $0) })
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }

        await withTaskGroup { group in
            for _ in 0..<64 {
                group.addTask {
                    for _ in 0..<rounds {
                        await #expect(throws: FetchFailed.self) { try await number.request() }
                    }
                }
            }
        }

        #expect(fetch.maximumConcurrency == 1)
        #expect(number.statistics.failures == fetch.callCount)
        #expect(number.statistics.requests == 64 * rounds)
        await number.expectAtRest()
    }

    @Test func `MX-02 each caller of a flight gets the error of that flight`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }

        for flight in 1...3 {
            let errors = await withTaskGroup { group in
                for _ in 0..<10 {
                    group.addTask { await #expect(throws: FetchFailed.self) { try await number.request() } }
                }
                await world.events.wait(for: .joined, count: 9 * flight)
                gate.fail(with: FetchFailed(call: flight))
                return await group.reduce(into: []) { $0.append($1?.call) }
            }
            #expect(errors == Array(repeating: flight, count: 10))
        }
        await number.expectAtRest()
    }

    @Test func `MX-03 cancelling the first caller leaves the fetch to the second`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }

        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        let second = Task { try await number.request() }
        await world.events.wait(for: .joined)
        first.cancel()

        await #expect(throws: CancellationError.self) { try await first.value }
        gate.open(returning: 7)
        #expect(try await second.value == 7)
        #expect(gate.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `MX-04 cancelled callers leave at once and the last caller gets the value`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) {
            try await gate.pass(ignoringCancellation: true)
        }

        let callers = (0..<1_000).map { _ in Task { try await number.request() } }
        await world.events.wait(for: .joined, count: 999)
        for caller in callers.dropLast() { caller.cancel() }

        // The fetch still hangs, so no cancelled caller waits for the fetch.
        for caller in callers.dropLast() {
            await #expect(throws: CancellationError.self) { try await caller.value }
        }
        gate.open(returning: 3)
        #expect(try await callers[999].value == 3)
        #expect(gate.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `MX-04 a caller that is cancelled before its request starts no fetch`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .value(1))
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }

        let caller = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await number.request()
        }

        await #expect(throws: CancellationError.self) { try await caller.value }
        #expect(fetch.callCount == 0)
        await number.expectAtRest()
    }

    @Test func `MX-05 a fetch without waiters is cancelled after the linger`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .seconds(2)))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }

        let caller = Task { try await number.request() }
        await gate.waitForCall(1)
        caller.cancel()
        await #expect(throws: CancellationError.self) { try await caller.value }
        await world.clock.waitForSleepers(2)  // the linger, and the deadline of the fetch

        world.clock.advance(by: .seconds(1))
        #expect(gate.heldCount == 1)

        world.clock.advance(by: .seconds(1))
        await fetch.waitForEnd(1)
        await world.events.wait(for: .fetchFailed)
        #expect(gate.heldCount == 0)
        await number.expectAtRest()
    }

    @Test func `MX-05 a caller inside the linger adopts the flight`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }

        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        first.cancel()
        _ = await first.result
        await world.clock.waitForSleepers(2)  // the linger, and the deadline of the fetch

        let second = Task { try await number.request() }
        await world.events.wait(for: .joined)
        #expect(world.clock.sleeperCount == 1, "the linger is off; the deadline is not")
        world.clock.advance(by: .seconds(10))
        gate.open(returning: 4)

        #expect(try await second.value == 4)
        #expect(gate.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `MX-05 a second linger has its full length`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .seconds(2)))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        first.cancel()
        _ = await first.result
        await world.clock.waitForSleepers(2)
        world.clock.advance(by: .seconds(1))

        let second = Task { try await number.request() }
        await world.events.wait(for: .joined)
        second.cancel()
        _ = await second.result
        await world.clock.waitForSleepers(2)

        #expect(world.clock.advanceToNextDeadline() == .seconds(2))
        await fetch.waitForEnd(1)
        await world.events.wait(for: .fetchFailed)
        await number.expectAtRest()
    }

    @Test func `MX-05 policy finish lets the fetch run and keeps its value`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(policy: .init(whenAbandoned: .finish), repository: world.repository) {
            try await gate.pass()
        }

        let caller = Task { try await number.request() }
        await gate.waitForCall(1)
        caller.cancel()
        _ = await caller.result
        gate.open(returning: 9)
        await world.events.wait(for: .fetched)

        #expect(number.cachedValue == 9)
        #expect(try await number.request() == 9)
        #expect(gate.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `MX-05 a caller during the end of a cancelled fetch never starts an overlapping fetch`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { _ in try await gate.pass(ignoringCancellation: true) })
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        first.cancel()
        _ = await first.result

        let second = Task { try await number.request() }
        await world.events.wait(for: .joined)
        gate.fail(with: CancellationError())
        await gate.waitForCall(2)
        gate.open(returning: 6)

        #expect(try await second.value == 6)
        #expect(fetch.maximumConcurrency == 1)
        await number.expectAtRest()
    }

    @Test func `MX-05 a cancelled fetch that succeeds after all serves the callers that came meanwhile`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) {
            try await gate.pass(ignoringCancellation: true)
        }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)
        first.cancel()
        _ = await first.result

        let second = Task { try await number.request() }
        await world.events.wait(for: .joined)
        gate.open(returning: 6)

        #expect(try await second.value == 6)
        #expect(gate.callCount == 1)
        await number.expectAtRest()
    }

    @Test func `MX-20 hits on the main actor neither suspend nor enqueue a job`() async throws {
        let world = World()
        let number = Multiplexer<Int>(repository: world.repository) { 1 }
        let users = MultiplexerMap<String, Int>(repository: world.repository) { $0.count }
        _ = try await number.request()
        _ = try await users.request(key: "alice")

        try await Self.hitOnMainActor(number, users)
    }

    @MainActor private static func hitOnMainActor(
        _ number: Multiplexer<Int>,
        _ users: MultiplexerMap<String, Int>
    ) async throws {
        var hasYielded = false
        let other = Task { @MainActor in hasYielded = true }
        for _ in 0..<1_000 {
            _ = try await number.request()
            _ = try await users.request(key: "alice")
        }
        #expect(!hasYielded)
        await other.value
        #expect(hasYielded)
    }

    @Test func `MX-20 entries, served stale or not, run no job on the caller's executor`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1)], thereafter: .failure(offline))
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .seconds(60))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        let caller = CountedActor()

        let fresh = try await caller.jobs { for _ in 0..<1_000 { _ = try await number.requestEntry() } }
        world.clock.advance(by: .seconds(10))
        _ = try await number.request()
        let held = try await caller.jobs { for _ in 0..<1_000 { _ = try await number.request() } }

        #expect(fresh == 0)
        #expect(held == 0)
    }

    @Test func `MX-20 hits from an actor with its own executor run no job on it`() async throws {
        let world = World()
        let number = Multiplexer<Int>(repository: world.repository) { 1 }
        _ = try await number.request()
        let caller = CountedActor()

        let jobs = try await caller.jobs {
            for _ in 0..<1_000 { _ = try await number.request() }
        }

        #expect(jobs == 0)
        #expect(number.statistics.hits == 1_000)
    }
}
