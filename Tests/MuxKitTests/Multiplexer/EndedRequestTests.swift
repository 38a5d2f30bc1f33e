import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Clears that end waiting requests, and the eviction of unusable values.
@Suite(.standard)
struct EndedRequestTests {
    private let world = World()
    private let gate = Gate<Int>()

    /// A map whose fetches wait for the gate, with or without persistence.
    private func map(isPersistent: Bool) -> MultiplexerMap<String, Int> {
        let gate = self.gate
        return isPersistent
            ? MultiplexerMap(cacheKey: "Map", repository: self.world.repository) { _ in try await gate.pass() }
            : MultiplexerMap(repository: self.world.repository) { _ in try await gate.pass() }
    }

    @Test(arguments: [false, true])
    func `CO-48 a clear of a key that ends requests fails every waiting request for the key`(isPersistent: Bool)
        async throws
    {
        let map = self.map(isPersistent: isPersistent)
        let waiting = [Task { try await map.request(key: "alice") }, Task { try await map.request(key: "alice") }]
        await self.gate.waitForCall(1)
        await self.world.events.wait(for: .joined)
        let other = Task { try await map.request(key: "bob") }
        await self.gate.waitForCall(2)

        #expect(await map.clear(key: "alice", endingRequests: true).isComplete)

        for task in waiting { await #expect(throws: MuxError.cleared) { try await task.value } }
        let next = Task { try await map.request(key: "alice") }
        await self.gate.waitForCall(3)
        self.gate.open(2, returning: 2)
        self.gate.open(3, returning: 3)
        #expect(try await other.value == 2)
        #expect(try await next.value == 3)
        await map.expectAtRest()
    }

    @Test(arguments: [false, true])
    func `CO-48 a clear of all keys that ends requests fails every waiting request`(
        isPersistent: Bool
    ) async throws {
        let map = self.map(isPersistent: isPersistent)
        let waiting = [Task { try await map.request(key: "a") }, Task { try await map.request(key: "b") }]
        await self.gate.waitForCall(2)

        await map.clear(endingRequests: true)

        for task in waiting { await #expect(throws: MuxError.cleared) { try await task.value } }
        await map.expectAtRest()
    }

    @Test func `CO-48 a clear of a single value that ends requests fails the waiting request`() async throws {
        let gate = self.gate
        let value = Multiplexer(cacheKey: "Value", repository: self.world.repository) { try await gate.pass() }
        let waiting = Task { try await value.request() }
        await self.gate.waitForCall(1)

        await value.clear(endingRequests: true)

        await #expect(throws: MuxError.cleared) { try await waiting.value }
        await value.expectAtRest()
    }

    @Test func `CO-48 a clear that ends requests fails requests of another map of the same name, too`() async throws {
        let (map, other) = (self.map(isPersistent: true), self.map(isPersistent: true))
        let waiting = Task { try await other.request(key: "alice") }
        await self.gate.waitForCall(1)

        await map.clear(key: "alice", endingRequests: true)

        await #expect(throws: MuxError.cleared) { try await waiting.value }
    }

    @Test func `CO-48 by default a clear lets a waiting request receive the fetched value`() async throws {
        let map = self.map(isPersistent: true)
        let waiting = Task { try await map.request(key: "alice") }
        await self.gate.waitForCall(1)

        await map.clear(key: "alice")

        self.gate.open(1, returning: 1)
        #expect(try await waiting.value == 1)
        #expect(map.cachedValue(key: "alice") == nil)
    }

    // MARK: - Eviction of unusable values

    @Test func `CO-48 values that have been unusable for long are evicted while new values arrive`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(60), staleIfError: .seconds(600), maximumCount: nil)
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.world.repository) { $0 }
        for key in 0..<500 { _ = try await map.request(key: key) }
        #expect((0..<500).count { map.cachedValue(key: $0) != nil } == 500)

        // The values may still replace a failed fetch.
        self.world.clock.advance(by: .seconds(659))
        for key in 500..<1_000 { _ = try await map.request(key: key) }
        #expect((0..<500).count { map.cachedValue(key: $0) != nil } == 500)

        self.world.clock.advance(by: .seconds(62))
        for key in 1_000..<2_000 { _ = try await map.request(key: key) }
        #expect((0..<500).count { map.cachedValue(key: $0) != nil } == 0)
        #expect((500..<2_000).count { map.cachedValue(key: $0) != nil } == 1_500)
        #expect(map.statistics.evictions == 500)
    }

    @Test func `CO-48 an unsaved value and a value with a validator are not evicted`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(60), staleIfError: .zero, maximumCount: nil)
        let unsaved = MultiplexerMap<Int, Int>(cacheKey: "Map", policy: policy, repository: self.world.repository) {
            $0
        }
        let confirmed = MultiplexerMap<Int, Int>(policy: policy, repository: self.world.repository) { key, _ in
            Fetched(key, validator: "v")
        }
        for key in 0..<10 {
            _ = try await unsaved.request(key: key)
            _ = try await confirmed.request(key: key)
        }
        self.world.clock.advance(by: .seconds(10_000))
        for key in 10..<100 {
            _ = try await unsaved.request(key: key)
            _ = try await confirmed.request(key: key)
        }
        #expect((0..<10).count { unsaved.cachedValue(key: $0) != nil } == 10)
        #expect((0..<10).count { confirmed.cachedValue(key: $0) != nil } == 10)
    }
}
