import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Requests from tasks that a fetch starts and may or may not await.
@Suite(.standard)
struct UnawaitedRequestTests {
    private let world = World()

    @Test func `CO-16 a task that outlives its fetch may request the same value`() async throws {
        let gate = Gate<Void>()
        let fetches = Locked(0)
        let inner = Locked<Task<Int, any Error>?>(nil)
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: self.world.repository) {
            let count = fetches.next()
            if count == 1 {
                let task = Task {
                    try await gate.pass()
                    return try await later().refresh().request()
                }
                inner.withLock { $0 = task }
            }
            return count
        }
        later.set(number)

        #expect(try await number.request() == 1)
        gate.open()

        #expect(try await inner.withLock { $0 }?.value == 2)
        await number.expectAtRest()
    }

    @Test func `CO-16 a task of an earlier fetch may join a later fetch of the same key`() async throws {
        let (gate, start) = (Gate<Int>(), Gate<Void>())
        let inner = Locked<Task<Int, any Error>?>(nil)
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: self.world.repository) {
            if inner.withLock({ $0 == nil }) {
                let task = Task {
                    try await start.pass()
                    return try await later().request()
                }
                inner.withLock { $0 = task }
            }
            return try await gate.pass()
        }
        later.set(number)
        gate.open(1, returning: 1)
        #expect(try await number.request() == 1)

        let caller = Task { try await number.refresh().request() }
        await gate.waitForCall(2)
        start.open()
        await self.world.events.wait(for: .joined)
        gate.open(2, returning: 2)

        #expect(try await caller.value == 2)
        #expect(try await inner.withLock { $0 }?.value == 2)
        await number.expectAtRest()
    }

    @Test func `CO-16 a request that its fetch does not await gets the fetched value`() async throws {
        let gate = Gate<Int>()
        let inner = Locked<Task<Int, any Error>?>(nil)
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: self.world.repository) {
            let task = Task { try await later().request() }
            inner.withLock { $0 = task }
            return try await gate.pass()
        }
        later.set(number)
        let caller = Task { try await number.request() }
        await self.world.events.wait(for: .joined)
        gate.open(returning: 7)

        #expect(try await caller.value == 7)
        #expect(try await inner.withLock { $0 }?.value == 7)
        await number.expectAtRest()
    }

    @Test func `CO-16 a request that no fetch awaits causes no deadlock error`() async throws {
        let gate = Gate<Int>()
        let inner = Locked<Task<Int, any Error>?>(nil)
        let (laterOne, laterOther) = (Later<Multiplexer<Int>>(), Later<Multiplexer<Int>>())
        let one = Multiplexer<Int>(repository: self.world.repository) {
            let task = Task { try await laterOther().request() }
            inner.withLock { $0 = task }
            return try await gate.pass()
        }
        let other = Multiplexer<Int>(repository: self.world.repository) { try await laterOne().request() + 1 }
        laterOne.set(one)
        laterOther.set(other)

        let caller = Task { try await one.request() }
        // The other fetch waits for the first fetch, which has requested the other fetch.
        await self.world.events.wait(for: .joined)
        let stranger = Task { try await other.request() }
        await self.world.events.wait(for: .joined, count: 2)
        gate.open(returning: 1)

        #expect(try await caller.value == 1)
        #expect(try await stranger.value == 2)
        #expect(try await inner.withLock { $0 }?.value == 2)
        await one.expectAtRest()
        await other.expectAtRest()
    }

    @Test func `CO-16 a fenced fetch does not wait for a newer fetch of its key`() async throws {
        let gate = Gate<Int>()
        let fetches = Locked(0)
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(repository: self.world.repository) { key in
            if key == 1 { return try await later().request(key: 2) + 1 }
            return fetches.next() == 1 ? try await gate.pass() : try await later().request(key: 1) + 1
        }
        later.set(map)
        let first = Task { try await map.request(key: 1) }
        await gate.waitForCall(1)

        // The newer fetch of key 2 waits for key 1, which waits for the older fetch of key 2: no cycle.
        let second = Task { try await map.refresh(key: 2).request(key: 2) }
        await self.world.events.wait(for: .joined)
        gate.open(returning: 1)

        #expect(try await first.value == 2)
        #expect(try await second.value == 3)
        await map.expectAtRest()
    }

    // MARK: - Cycles

    @Test func `CO-16 a fetch that awaits its own value in another task gets an error at its timeout`() async throws {
        let errors = Locked<[MuxError?]>([])
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: self.world.repository) {
            do {
                return try await Task { try await later().request() }.value
            } catch {
                errors.withLock { $0.append(error as? MuxError) }
                throw error
            }
        }
        later.set(number)
        let caller = Task { try await number.request() }
        await self.world.events.wait(for: .joined)
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(60))

        await #expect(throws: MuxError.timedOut(after: .seconds(60))) { try await caller.value }
        await self.world.events.wait(for: .fetchFailed)
        #expect(errors.withLock { $0 } == [.wouldDeadlock])
        await number.expectAtRest()
    }

    @Test func `CO-16 two fetches that wait for each other through a task get errors at the timeout`() async throws {
        let (laterOne, laterOther) = (Later<Multiplexer<Int>>(), Later<Multiplexer<Int>>())
        let one = Multiplexer<Int>(repository: self.world.repository) {
            try await Task { try await laterOther().request() }.value
        }
        let longer = MuxPolicy(fetchTimeout: .seconds(120))
        let other = Multiplexer<Int>(policy: longer, repository: self.world.repository) {
            try await laterOne().request()
        }
        laterOne.set(one)
        laterOther.set(other)
        let caller = Task { try await one.request() }
        await self.world.events.wait(for: .joined)
        let stranger = Task { try await other.request() }
        await self.world.events.wait(for: .joined, count: 2)
        await self.world.clock.waitForSleepers(2)
        self.world.clock.advance(by: .seconds(60))

        await #expect(throws: MuxError.timedOut(after: .seconds(60))) { try await caller.value }
        await #expect(throws: MuxError.wouldDeadlock) { try await stranger.value }
        await self.world.events.wait(for: .fetchFailed, count: 2)
        await one.expectAtRest()
        await other.expectAtRest()
    }

    @Test func `CO-16 a fetch that refreshes and requests its own value fails at once`() async throws {
        let fetches = Locked(0)
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: self.world.repository) {
            _ = fetches.next()
            return try await later().refresh().request()
        }
        later.set(number)

        await #expect(throws: MuxError.wouldDeadlock) { try await number.request() }
        #expect(fetches.withLock { $0 } == 1)
        await number.expectAtRest()
    }

    @Test func `CO-16 a fetch that refreshes and requests its own value in other tasks fails`() async throws {
        let fetches = Locked(0)
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: self.world.repository) {
            _ = fetches.next()
            return try await Task { try await later().refresh().request() }.value
        }
        later.set(number)

        await #expect(throws: MuxError.wouldDeadlock) { try await number.request() }
        #expect(fetches.withLock { $0 } < 50)
        await number.expectAtRest()
    }

    @Test func `CO-16 a cycle that is closed when a fetch joins another fetch is an error at once`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let loads = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await loads.pass(ignoringCancellation: true) } }
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { key in
            try await later().request(key: 3 - key)
        }
        later.set(map)
        // Key 2 reads the disk, and key 1 waits for key 2.
        let early = Task { try await map.request(key: 2) }
        await loads.waitForCall(1)
        let first = Task { try await map.request(key: 1) }
        await loads.waitForCall(2)
        loads.open(2)
        await world.events.wait(for: .joined)
        // A newer flight of key 2 waits for key 1.
        let second = Task { try await map.refresh(key: 2).request(key: 2) }
        await loads.waitForCall(3)
        loads.open(3)
        await world.events.wait(for: .joined, count: 2)

        // The older flight has not begun its fetch, and joins the newer flight.
        loads.open(1)

        for caller in [early, first, second] {
            await #expect(throws: MuxError.wouldDeadlock) { try await caller.value }
        }
        await map.expectAtRest()
    }
}
