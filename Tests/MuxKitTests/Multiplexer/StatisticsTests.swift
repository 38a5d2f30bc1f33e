import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct StatisticsTests {
    @Test func `MX-27 fetchTime is the sum over all fetches, failures included`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let numbers = MultiplexerMap<Int, Int>(repository: world.repository) { _ in try await gate.pass() }

        async let one = numbers.request(key: 1)
        async let two = numbers.request(key: 2)
        await gate.waitForCall(2)
        #expect(numbers.statistics.fetchTime == .zero, "a fetch counts when it ends")
        world.clock.advance(by: .seconds(3))
        gate.open(returning: 7)
        gate.open(returning: 7)
        _ = try await (one, two)
        #expect(numbers.statistics.fetchTime == .seconds(6), "two at the same time count each")

        let three = Task { try await numbers.request(key: 3) }
        await gate.waitForCall(3)
        world.clock.advance(by: .seconds(4))
        gate.fail(with: FetchFailed())
        await #expect(throws: FetchFailed()) { try await three.value }
        #expect(numbers.statistics.fetchTime == .seconds(10))
        #expect(world.repository.statistics.fetchTime == .seconds(10), "not registered, and counted")
        #expect((world.repository.statistics + numbers.statistics).fetchTime == .seconds(20))
        await numbers.expectAtRest()
    }

    @Test func `MX-27 times add up without overflow`() {
        var long = MuxRepository.Statistics()
        long.fetchTime = .longest
        let sum = long + long
        #expect(sum.fetchTime > .longest)
        #expect((sum + sum).fetchTime >= sum.fetchTime)
    }

    @Test func `MX-28 an event reports its kind, its key and its duration`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let numbers = MultiplexerMap<Int, Int>(cacheKey: "Numbers", repository: world.repository) { _ in
            try await gate.pass()
        }

        async let first = numbers.request(key: 1)
        await gate.waitForCall(1)
        async let second = numbers.request(key: 1)
        await world.events.wait(for: .joined)
        world.clock.advance(by: .seconds(2))
        gate.open(returning: 5)
        _ = try await (first, second)
        await world.events.wait(for: .fetched)
        _ = try await numbers.request(key: 1)
        numbers.refresh(key: 1)
        let third = Task { try await numbers.request(key: 1) }
        await gate.waitForCall(2)
        world.clock.advance(by: .milliseconds(300))
        gate.fail(with: FetchFailed())
        await #expect(throws: FetchFailed()) { try await third.value }
        await world.events.wait(for: .fetchFailed)

        func event(_ kind: MuxEvent.Kind, _ duration: Duration? = nil, _ reason: MuxEvent.Reason? = nil) -> MuxEvent {
            MuxEvent(kind, name: "Numbers", cacheKey: "Numbers", key: "1", duration: duration, reason: reason)
        }
        let failed = event(.fetchFailed, .milliseconds(300), .other("FetchFailed"))
        #expect(
            world.events.events == [
                event(.missed), event(.fetchStarted), event(.joined), event(.fetched, .seconds(2)), event(.hit),
                event(.missed), event(.fetchStarted), failed,
            ]
        )
        await numbers.expectAtRest()
    }

    @Test func `MX-28 a read of the disk reports its duration`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        try await Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }.savedOnce()
        let next = world.relaunched()
        store.beforeLoad.withLock { $0 = { next.clock.advance(by: .seconds(3)) } }
        _ = try await Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }.request()
        let loaded = next.events.events.first { $0.kind == .loaded }
        #expect(loaded == MuxEvent(.loaded, name: "Number", cacheKey: "Number", duration: .seconds(3)))
    }

    @Test func `MX-28 an update reports its duration`() async throws {
        let (clock, events) = (VirtualClock(), EventTally())
        let runner = DependentRunner<Int>(observer: events, clock: clock)
        let task = { (value: Int) -> RunResult<Int> in value == 2 ? .output(value) : .badDependency }
        _ = try await runner.run(task) { failed in
            clock.advance(by: .seconds(5))
            return .updatedDependency((failed ?? 0) + 1)
        }
        let updates = events.events.filter { $0.kind == .updated }
        #expect(updates == Array(repeating: MuxEvent(.updated, name: "Int", duration: .seconds(5)), count: 2))
    }

    /// A key that counts the reads of its description.
    private struct SpiedKey: Hashable, Sendable, CustomStringConvertible {
        static let asked = Locked(0)
        let number: Int
        var description: String {
            _ = Self.asked.next()
            return "\(self.number)"
        }
    }

    @Test func `MX-28 without an observer no event is created`() async throws {
        func ask(_ repository: MuxRepository, settling: () async -> Void = {}) async throws -> Int {
            let before = SpiedKey.asked.withLock { $0 }
            let map = MultiplexerMap<SpiedKey, Int>(repository: repository) { $0.number }
            for _ in 0..<10 { _ = try await map.request(key: SpiedKey(number: 1)) }
            await settling()
            return SpiedKey.asked.withLock { $0 } - before
        }
        let silent = try await ask(MuxRepository(store: MemoryStore(), clock: VirtualClock()))
        let world = World()
        let observed = try await ask(world.repository) { await world.events.wait(for: .fetched) }
        #expect(silent == 0)
        #expect(observed == 12, "nine hits, a miss, and a fetch that began and ended")
    }
}

extension Multiplexer {
    /// Fetches and saves the value.
    fileprivate func savedOnce() async throws {
        _ = try await self.request()
        #expect(await self.save().saved == 1)
    }
}
