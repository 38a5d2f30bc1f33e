import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Abandoned, fenced and recursive batches, and keys that differ only in Unicode form.
@Suite(.standard)
struct BatchEdgeTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let executor: OrderedExecutor
    private let world: World
    /// The fetched batches.
    private let batches = Locked<[[Int]]>([])
    private let leaveAtOnce = MuxPolicy(whenAbandoned: .cancel(linger: .zero))

    init() {
        self.executor = OrderedExecutor()
        self.world = World(spawn: TaskLauncher(executor: self.executor))
    }

    private func map(_ batching: MuxPolicy.Batching = .init(window: .seconds(1))) -> Map {
        Map(policy: self.leaveAtOnce, batching: batching, repository: self.world.repository) { keys in
            self.batches.withLock { $0.append(keys) }
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) })
        }
    }

    /// Starts a request, and waits until its key is in the pending batch.
    private func gather(_ key: Int, _ map: Map, fetches: Int) async -> Task<Int, any Error> {
        let caller = Task { try await map.request(key: key) }
        await self.world.events.wait(for: .fetchStarted, count: fetches)
        self.executor.settle()
        return caller
    }

    private func passWindow() async {
        self.executor.settle()
        // One sleeper is the deadline of the flights, the other sleeper is the window.
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .seconds(1))
    }

    // MARK: - Cancelled callers

    @Test func `MX-23 a key without waiters is not in the batch`() async throws {
        let map = self.map()
        let first = await self.gather(1, map, fetches: 1)
        await self.world.clock.waitForSleepers(2)
        let second = await self.gather(2, map, fetches: 2)
        // A third flight has run in the map, so the second key is in the pending batch.
        let third = await self.gather(3, map, fetches: 3)
        first.cancel()
        _ = await first.result
        await self.world.events.wait(for: .fetchFailed)
        await self.passWindow()

        #expect(try await (second.value, third.value) == (2, 3))
        #expect(self.batches.withLock { $0.map { $0.sorted() } } == [[2, 3]])
        await map.expectAtRest()
    }

    @Test func `MX-23 a pending batch without waiters is not fetched, and the next has its full window`() async throws {
        let map = self.map()
        let first = await self.gather(1, map, fetches: 1)
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .milliseconds(900))
        first.cancel()
        _ = await first.result
        await self.world.events.wait(for: .fetchFailed)

        let second = await self.gather(2, map, fetches: 2)
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .milliseconds(900))
        #expect(self.batches.withLock { $0.isEmpty })
        self.world.clock.advance(by: .milliseconds(100))

        #expect(try await second.value == 2)
        #expect(self.batches.withLock { $0 } == [[2]])
    }

    @Test func `MX-23 a batch that begins before its timer is recorded is cancelled without waiters`() async throws {
        let world = World(spawn: TaskLauncher(executor: InlineExecutor()))
        let gate = Gate<Void>()
        let map = Map(
            policy: self.leaveAtOnce,
            batching: .init(window: .zero),
            repository: world.repository
        ) { _ in
            try await gate.pass()
            return [:]
        }
        let caller = Task { try await map.request(key: 1) }
        await gate.waitForCall(1)

        caller.cancel()
        _ = await caller.result

        await world.events.wait(for: .fetchFailed)
        #expect(gate.heldCount == 0)
        await map.expectAtRest()
    }

    @Test func `MX-23 a batch that hangs times out for each of its keys`() async throws {
        let gate = Gate<Void>()
        let map = Map(
            policy: .init(fetchTimeout: .seconds(60)),
            batching: .init(maximumSize: 2),
            repository: self.world.repository
        ) { _ in
            try await gate.pass()
            return [:]
        }
        let many = Task { await map.results(keys: [1, 2]) }
        await gate.waitForCall(1)
        self.world.clock.advance(by: .seconds(60))

        for (_, result) in await many.value {
            #expect(throws: MuxError.timedOut(after: .seconds(60))) { try result.get() }
        }
        await self.world.events.wait(for: .fetchFailed, count: 2)
        #expect(gate.heldCount == 0, "it is cancelled")
        await map.expectAtRest()
    }

    // MARK: - Fences

    @Test func `MX-23 a key requested before and after a fence is in the batch once`() async throws {
        let map = self.map()
        let before = await self.gather(1, map, fetches: 1)
        await self.world.clock.waitForSleepers(2)
        map.refresh(key: 1)
        map.store(0, key: 1)
        map.refresh(key: 1)
        let after = await self.gather(1, map, fetches: 2)
        let other = await self.gather(2, map, fetches: 3)
        await self.passWindow()

        #expect(try await (before.value, after.value, other.value) == (1, 1, 2))
        #expect(self.batches.withLock { $0.map { $0.sorted() } } == [[1, 2]])
        await map.expectAtRest()
    }

    @Test func `MX-07 a batch from before a refresh does not serve requests after the refresh`() async throws {
        let gate = Gate<Int>()
        let map = Map(batching: .init(maximumSize: 1), repository: self.world.repository) { keys in
            let value = try await gate.pass()
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, value) })
        }
        let before = Task { try await map.request(key: 1) }
        await gate.waitForCall(1)
        map.refresh(key: 1)
        let after = Task { try await map.request(key: 1) }
        await gate.waitForCall(2)
        gate.open(2, returning: 2)
        gate.open(1, returning: 1)

        #expect(try await (before.value, after.value) == (1, 2))
        #expect(map.cachedValue(key: 1) == 2)
    }

    // MARK: - Cycles

    @Test func `MX-19 a batch that requests one of its own keys fails at once`() async throws {
        let later = Later<Map>()
        let map = Map(batching: .init(maximumSize: 2), repository: self.world.repository) { keys in
            [1: try await later().request(key: 2), 2: 2]
        }
        later.set(map)

        let results = await map.results(keys: [1, 2])

        #expect(throws: MuxError.wouldDeadlock) { try results[1]?.get() }
        #expect(throws: MuxError.wouldDeadlock) { try results[2]?.get() }
        await map.expectAtRest()
    }

    @Test func `MX-19 a batch may request a key of another batch`() async throws {
        let later = Later<Map>()
        let map = Map(batching: .init(maximumSize: 1), repository: self.world.repository) { keys in
            guard let key = keys.first, key > 0 else { return [0: 0] }
            return [key: try await later().request(key: key - 1) + 1]
        }
        later.set(map)
        #expect(try await map.request(key: 3) == 3)
    }

    // MARK: - Keys that differ in Unicode form

    @Test func `MX-23 strings that differ in Unicode form each get their own value from one window`() async throws {
        let (composed, decomposed) = ("\u{e9}", "e\u{301}")
        let map = MultiplexerMap<String, Int>(
            batching: .init(maximumSize: 2),
            repository: self.world.repository
        ) { keys in
            Dictionary(uniqueKeysWithValues: keys.map { ($0, $0.unicodeScalars.count) })
        }
        async let one = map.request(key: composed)
        async let two = map.request(key: decomposed)
        #expect(try await (one, two) == (1, 2))
    }

    @Test func `MX-23 a batch result is accepted for its key in another Unicode form`() async throws {
        let map = MultiplexerMap<String, Int>(
            batching: .init(maximumSize: 1),
            repository: self.world.repository
        ) { _ in
            ["e\u{301}": 1]
        }
        #expect(try await map.request(key: "\u{e9}") == 1)
    }

    // MARK: - Hits

    @Test func `MX-23 a cancelled caller gets values that are in memory`() async throws {
        let map = self.map()
        map.store(-1, key: 1)
        let caller = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await map.request(keys: [1])
        }
        #expect(try await caller.value == [1: -1])
    }

    @Test func `MX-20 a request for many keys in memory runs no job on the caller's executor`() async throws {
        let map = self.map()
        for key in 0..<100 { map.store(key, key: key) }
        let jobs = try await CountedActor().jobs {
            for _ in 0..<10 { _ = try await map.request(keys: 0..<100) }
        }
        #expect(jobs == 0)
        #expect(map.statistics.hits == 1_000)
    }

    // MARK: - Priority

    @Test func `MX-21 a batch runs at the highest priority of its callers`() async throws {
        let priority = Locked<TaskPriority?>(nil)
        let map = Map(batching: .init(window: .seconds(1)), repository: self.world.repository) { keys in
            priority.withLock { $0 = Task.currentPriority }
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) })
        }
        let low = Task(priority: .background) { try await map.request(key: 1) }
        await self.world.clock.waitForSleepers(2)
        let high = Task(priority: .high) { try await map.request(key: 2) }
        await self.world.events.wait(for: .fetchStarted, count: 2)
        await self.passWindow()
        _ = await (low.result, high.result)
        #expect(priority.withLock { $0 } == .high)
    }
}
