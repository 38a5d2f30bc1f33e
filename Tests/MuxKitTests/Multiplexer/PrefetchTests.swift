import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Prefetches of maps.
@Suite(.standard)
struct PrefetchTests {
    /// Counts fetches by key, and holds each until the gate opens.
    private final class Server: Sendable {
        let gate = Gate<Int>()
        private let state = Locked((running: 0, most: 0, calls: [Int](), priorities: [Int: TaskPriority]()))

        var calls: [Int] { self.state.withLock { $0.calls } }
        var most: Int { self.state.withLock { $0.most } }

        func priority(_ key: Int) -> TaskPriority? { self.state.withLock { $0.priorities[key] } }

        func fetch(_ key: Int) async throws -> Int {
            self.state.withLock {
                $0.running += 1
                $0.most = max($0.most, $0.running)
                $0.calls.append(key)
                $0.priorities[key] = Task.currentPriority
            }
            defer { self.state.withLock { $0.running -= 1 } }
            _ = try await self.gate.pass()
            // A request raises the priority after its arrival.
            while key == 101, Task.currentPriority < .medium, !Task.isCancelled { await Task.yield() }
            self.state.withLock { $0.priorities[key] = Task.currentPriority }
            return key
        }
    }

    private let server = Server()
    private let clock = VirtualClock()
    private let repository: MuxRepository
    private let map: MultiplexerMap<Int, Int>

    init() {
        self.repository = MuxRepository(store: MemoryStore(), clock: self.clock)
        self.map = MultiplexerMap(
            policy: MuxPolicy(whenAbandoned: .cancel(linger: .zero), fetchTimeout: .longest),
            repository: self.repository
        ) { [server] in try await server.fetch($0) }
    }

    private func until(_ condition: () -> Bool) async { while !condition(), !Task.isCancelled { await Task.yield() } }

    private func settle() async { for _ in 0..<200 { await Task.yield() } }

    @Test func `SC-09 a prefetch fetches each missing key once, six at a time`() async throws {
        self.map.store(0, key: 7)
        let prefetch = Task { await self.map.prefetch(keys: Array(0..<50) + Array(0..<50)) }
        await self.server.gate.waitForCall(6)
        await self.settle()
        #expect(self.server.calls.count == 6)
        self.server.gate.openForGood(returning: 0)
        await prefetch.value
        #expect(self.server.most == 6 && self.server.calls.sorted() == Array(0..<50).filter { $0 != 7 })
        #expect(self.map.cachedValue(key: 49) == 49)
        await self.map.prefetch(keys: 0..<50)
        #expect(self.server.calls.count == 49)
    }

    @Test func `SC-09 a request joins a prefetch, and raises its priority`() async throws {
        let prefetch = Task { await self.map.prefetch(keys: [101]) }
        await self.server.gate.waitForCall()
        #expect(self.server.priority(101).map { $0 <= .low } == true)
        let request = Task(priority: .high) { try await self.map.request(key: 101) }
        await self.until { self.map.statistics.joins == 1 }
        self.server.gate.openForGood(returning: 0)
        #expect(try await request.value == 101)
        await prefetch.value
        #expect(self.server.calls == [101])
    }

    @Test func `SC-09 a cancelled prefetch does not cancel a request`() async throws {
        let prefetch = Task { await self.map.prefetch(keys: 0..<20) }
        await self.server.gate.waitForCall(6)
        let request = Task { try await self.map.request(key: 2) }
        await self.until { self.map.statistics.joins == 1 }
        prefetch.cancel()
        await prefetch.value
        await self.until { self.map.occupancy.tasks == 1 }
        self.server.gate.openForGood(returning: 0)
        #expect(try await request.value == 2)
        #expect(self.server.calls.count == 6 && self.map.cachedValue(key: 3) == nil)
    }

    @Test func `SC-09 single keys are cancelled before and during their fetch`() async throws {
        let prefetch = Task { await self.map.prefetch(keys: 0..<20) }
        await self.server.gate.waitForCall(6)
        let request = Task { try await self.map.request(key: 1) }
        await self.until { self.map.statistics.joins == 1 }
        // Running, running with a request, waiting, unknown.
        self.map.cancelPrefetch(keys: [0, 1, 10, 11, 99])
        // The places of the two cancelled fetches.
        await self.server.gate.waitForCall(8)
        self.server.gate.openForGood(returning: 0)
        await prefetch.value
        #expect(try await request.value == 1)
        #expect(self.server.calls.sorted() == (0..<20).filter { ![10, 11].contains($0) })
        #expect(self.map.cachedValue(key: 0) == nil)
        #expect(self.map.cachedValue(key: 19) == 19)
    }

    @Test func `SC-09 a sign-out ends a prefetch, and no further key is fetched`() async {
        let prefetch = Task { await self.map.prefetch(keys: 0..<20) }
        await self.server.gate.waitForCall(6)
        await self.repository.clearAll()
        await prefetch.value
        #expect(self.server.calls.count == 6)
    }

    @Test func `SC-09 a prefetch of a map with batches fetches whole batches`() async {
        let batches = Locked<[Int]>([])
        let map = MultiplexerMap<Int, Int>(
            batching: .init(window: .seconds(1), maximumSize: 20),
            repository: self.repository
        ) { keys in
            batches.withLock { $0.append(keys.count) }
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) })
        }
        await map.prefetch(keys: 0..<40)
        #expect(batches.withLock { $0 } == [20, 20])
        #expect(map.cachedValue(key: 39) == 39)
    }

    @Test func `SC-09 stale values are prefetched six at a time, and fresh values are not renewed early`() async throws
    {
        let policy = MuxPolicy(
            timeToLive: .seconds(60),
            staleWhileRevalidate: .seconds(3600),
            refreshAhead: .seconds(60),
            fetchTimeout: .longest
        )
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.repository) { [server] in
            try await server.fetch($0)
        }
        for key in 10..<30 { map.store(0, key: key) }
        self.clock.advance(by: .seconds(59))
        for key in 30..<40 { map.store(0, key: key) }
        await map.prefetch(keys: 10..<30)
        #expect(self.server.calls.isEmpty)
        self.clock.advance(by: .seconds(1))
        let prefetch = Task { await map.prefetch(keys: 10..<40) }
        await self.server.gate.waitForCall(6)
        await self.settle()
        #expect(self.server.calls.count == 6)
        self.server.gate.openForGood(returning: 0)
        await prefetch.value
        #expect(self.server.most == 6 && self.server.calls.sorted() == Array(10..<30))
    }

    @Test func `SC-09 keys that no request can find, and failures, do not stop a prefetch`() async {
        let numbers = MultiplexerMap<Double, Int>(repository: self.repository) { key in
            guard key != 1 else { throw MuxError.notFound }
            return Int(key)
        }
        await numbers.prefetch(keys: [.nan, 1, 2])
        #expect(numbers.cachedValue(key: 2) == 2 && numbers.cachedValue(key: 1) == nil)
    }
}
