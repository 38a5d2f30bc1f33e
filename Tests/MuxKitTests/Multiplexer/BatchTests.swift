import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct BatchTests {
    private let executor: OrderedExecutor
    private let world: World
    /// The fetched batches, each with sorted keys.
    private let batches = Locked<[[Int]]>([])

    init() {
        self.executor = OrderedExecutor()
        self.world = World(spawn: TaskLauncher(executor: self.executor))
    }

    private func map(
        _ batching: MuxPolicy.Batching = .init(window: .seconds(1)),
        _ body: @escaping @Sendable ([Int]) async throws -> [Int: Int] = {
            Dictionary(uniqueKeysWithValues: $0.map { ($0, $0) })
        }
    ) -> MultiplexerMap<Int, Int> {
        MultiplexerMap<Int, Int>(cacheKey: "Map", batching: batching, repository: self.world.repository) { keys in
            self.batches.withLock { $0.append(keys.sorted()) }
            return try await body(keys)
        }
    }

    /// Waits for `fetches` started fetches, then advances the clock past the window.
    private func passWindow(fetches: Int) async {
        await self.world.events.wait(for: .fetchStarted, count: fetches)
        // Each fetch has joined the batch after this call.
        self.executor.settle()
        // One sleeper is the deadline of the flights, the other sleeper is the window.
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .seconds(1))
    }

    @Test func `MX-23 a batch after a second refresh reaches the server, although the first batch ended before`()
        async throws
    {
        let gate = Gate<Void>()
        let reloads = Locked<[Bool]>([])
        let map = MultiplexerMap<Int, Int>(
            policy: .init(),
            batching: .init(window: .seconds(1)),
            repository: self.world.repository,
            persistence: nil,
            selection: nil
        ) { keys, isReload in
            reloads.withLock { $0.append(isReload) }
            try await gate.pass()
            return [1: Fetched(7)]
        }
        map.store(1, key: 1)
        map.refresh(key: 1)
        let first = Task { try await map.request(key: 1) }
        await self.passWindow(fetches: 1)
        await gate.waitForCall(1)
        map.refresh(key: 1)
        let second = Task { try await map.request(key: 1) }
        await self.world.events.wait(for: .fetchStarted, count: 2)
        self.executor.settle()
        gate.open()
        _ = try await first.value
        await self.passWindow(fetches: 2)
        await gate.waitForCall(2)
        gate.open()
        _ = try await second.value
        #expect(reloads.withLock { $0 } == [true, true])
    }

    @Test func `MX-23 many keys are fetched in one call, and fresh keys are not fetched`() async throws {
        let map = self.map()
        map.store(-5, key: 5)
        let many = Task { try await map.request(keys: 0..<10) }
        await self.passWindow(fetches: 9)

        let values = try await many.value
        #expect(values.count == 10)
        #expect(values[5] == -5)
        #expect(values[7] == 7)
        #expect(self.batches.withLock { $0 } == [[0, 1, 2, 3, 4, 6, 7, 8, 9]])
        await map.expectAtRest()
    }

    @Test func `MX-23 single requests inside the window gather into one batch`() async throws {
        let map = self.map()
        let callers = (0..<20).map { key in Task { try await map.request(key: key) } }
        await self.passWindow(fetches: 20)
        for (key, caller) in callers.enumerated() { #expect(try await caller.value == key) }
        #expect(self.batches.withLock { $0 } == [Array(0..<20)])
    }

    @Test func `MX-23 a full batch does not wait`() async throws {
        let map = self.map(.init(window: .seconds(1_000), maximumSize: 4))
        let values = try await map.request(keys: 0..<8)
        #expect(values.count == 8)
        #expect(self.batches.withLock { $0.map(\.count) } == [4, 4])
    }

    @Test func `MX-23 single requests and requests for many keys join a key in flight in a batch`() async throws {
        let gate = Gate<Void>()
        let map = self.map { keys in
            try await gate.pass()
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) })
        }
        let many = Task { try await map.request(keys: [1, 2]) }
        await self.passWindow(fetches: 2)
        await gate.waitForCall(1)
        let single = Task { try await map.request(key: 1) }
        await self.world.events.wait(for: .joined)
        let others = Task { try await map.request(keys: [2, 3]) }
        await self.world.events.wait(for: .joined, count: 2)
        await self.passWindow(fetches: 3)
        gate.openForGood(returning: ())

        #expect(try await many.value == [1: 1, 2: 2])
        #expect(try await single.value == 1)
        #expect(try await others.value == [2: 2, 3: 3])
        #expect(self.batches.withLock { $0 } == [[1, 2], [3]])
        await map.expectAtRest()
    }

    @Test func `MX-23 a missing key fails alone, and the failure is not remembered`() async throws {
        let map = self.map(.init(maximumSize: 2)) { keys in
            Dictionary(uniqueKeysWithValues: keys.filter { $0 != 13 }.map { ($0, $0) })
        }
        let results = await map.results(keys: [12, 13])
        #expect(try results[12]?.get() == 12)
        #expect(throws: MuxError.notFound) { try results[13]?.get() }
        #expect(try await map.request(keys: [13, 14]) == [14: 14])
        #expect(self.batches.withLock { $0 } == [[12, 13], [13, 14]])
    }

    @Test func `MX-23 a failed batch fails its keys, and the next batch tries again`() async throws {
        let fetch = ScriptedFetch<Int>([.failure(FetchFailed())], thereafter: .value(1))
        let map = self.map(.init(maximumSize: 2)) { keys in
            let value = try await fetch()
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, value) })
        }
        await #expect(throws: FetchFailed.self) { try await map.request(keys: [1, 2]) }
        #expect(try await map.request(keys: [1, 2]) == [1: 1, 2: 1])
    }

    @Test func `MX-23 a batch without waiters is cancelled`() async throws {
        let gate = Gate<Void>()
        let map = MultiplexerMap<Int, Int>(
            policy: .init(whenAbandoned: .cancel(linger: .zero)),
            batching: .init(maximumSize: 2),
            repository: self.world.repository
        ) { _ in
            try await gate.pass()
            return [:]
        }
        let many = Task { try await map.request(keys: [1, 2]) }
        await gate.waitForCall(1)
        many.cancel()
        await #expect(throws: CancellationError.self) { try await many.value }
        await self.world.events.wait(for: .fetchFailed, count: 2)
        #expect(gate.heldCount == 0)
        await map.expectAtRest()
    }
}
