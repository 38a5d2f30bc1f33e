import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// An entry on disk is checked against the request options of each caller.
@Suite(.standard)
struct DiskWishTests {
    private let store = UnreliableStore()
    /// Holds disk reads.
    private let disk = Gate<Void>()
    private let fetch = Gate<Int>()
    private let policy = MuxPolicy(timeToLive: .seconds(100))

    /// A relaunched process with the value 1 on disk, stored `age` ago.
    private func relaunched(after age: Duration, _ policy: MuxPolicy? = nil) async -> (World, Multiplexer<Int>) {
        let world = World(store: self.store)
        let first = Multiplexer<Int>(cacheKey: "Number", policy: self.policy, repository: world.repository) { 1 }
        first.store(1)
        await first.save()
        let next = world.relaunched(after: age)
        let fetch = self.fetch
        let policy = policy ?? self.policy
        return (
            next,
            Multiplexer(cacheKey: "Number", policy: policy, repository: next.repository) { try await fetch.pass() }
        )
    }

    private func holdDisk() {
        let disk = self.disk
        self.store.afterLoad.withLock { $0 = { try? await disk.pass() } }
    }

    @Test func `MX-15 maxAge is satisfied by a younger entry on disk`() async throws {
        let (_, number) = await self.relaunched(after: .seconds(5))
        let entry = try await number.requestEntry(.maxAge(.seconds(10)))
        #expect(entry.value == 1)
        #expect(entry.source == .disk)
        #expect(number.statistics.fetches == 0)
        #expect(number.statistics.diskHits == 1)
        await number.expectAtRest()
    }

    @Test func `MX-15 staleWhileRevalidate returns a stale value from disk at once and renews it`() async throws {
        let (world, number) = await self.relaunched(after: .seconds(1_000))
        let entry = try await number.requestEntry(.staleWhileRevalidate)
        #expect(entry.value == 1)
        #expect(entry.staleReason == .revalidating)
        await world.events.wait(for: .servedStale)
        #expect(number.statistics.staleServed == 1)
        await self.fetch.waitForCall(1)
        self.fetch.open(returning: 2)
        await world.events.wait(for: .fetched)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test(arguments: [0, 10_000]) func `MX-15 within returns the stale value read from disk meanwhile`(
        bound: Int
    ) async throws {
        let world = World(store: self.store)
        let first = MultiplexerMap<Int, Int>(cacheKey: "Map", policy: self.policy, repository: world.repository) { $0 }
        first.store(7, key: 1)
        await first.save()
        let next = world.relaunched(after: .seconds(1_000))
        let fetch = self.fetch
        let policy = MuxPolicy(maximumCount: bound)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", policy: policy, repository: next.repository) { _ in
            try await fetch.pass()
        }
        let caller = Task { try await map.requestEntry(key: 1, .within(.seconds(2))) }
        await self.fetch.waitForCall(1)
        // One sleeper is the flight's deadline, the other sleeper is the caller's time limit.
        await next.clock.waitForSleepers(2)
        next.clock.advance(by: .seconds(2))

        let entry = try await caller.value
        #expect(entry.value == 7)
        #expect(entry.staleReason == .outOfPatience)
        #expect(self.fetch.heldCount == 1, "the fetch goes on")
        self.fetch.open(returning: 8)
        await next.events.wait(for: .fetched)
        #expect(map.statistics.staleServed == 1)
        #expect(map.statistics.diskHits == 0)
        #expect(next.events.count(of: .servedStale) == 1)
        await map.expectAtRest()
    }

    @Test func `MX-15 a caller whose time limit ends during the disk read gets the entry on disk`() async throws {
        let (world, number) = await self.relaunched(after: .seconds(1_000))
        self.holdDisk()
        let caller = Task { try await number.requestEntry(.within(.seconds(2))) }
        await self.disk.waitForCall(1)
        await world.clock.waitForSleepers(2)
        world.clock.advance(by: .seconds(2))
        self.disk.openForGood(returning: ())

        let entry = try await caller.value
        #expect(entry.value == 1)
        #expect(entry.staleReason == .outOfPatience)
        await self.fetch.waitForCall(1)
        self.fetch.open(returning: 2)
        await world.events.wait(for: .fetched)
        #expect(number.cachedValue == 2)
    }

    @Test func `MX-15 a reload does not keep other callers from the entry on disk`() async throws {
        let (world, number) = await self.relaunched(after: .seconds(5))
        self.holdDisk()
        let reload = Task { try await number.request(.reload) }
        await self.disk.waitForCall(1)
        let usual = Task { try await number.requestEntry() }
        let young = Task { try await number.request(.maxAge(.seconds(1))) }
        await world.events.wait(for: .joined, count: 2)
        self.disk.openForGood(returning: ())

        #expect(try await usual.value.source == .disk)
        await self.fetch.waitForCall(1)
        self.fetch.open(returning: 2)
        #expect(try await (reload.value, young.value) == (2, 2))
        #expect(number.statistics.fetches == 1)
        await number.expectAtRest()
    }

    @Test func `MX-15 a cancelled reload does not keep later callers from the entry on disk`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(100), whenAbandoned: .cancel(linger: .zero))
        let (world, number) = await self.relaunched(after: .seconds(5), policy)
        let reload = Task { try await number.request(.reload) }
        await self.fetch.waitForCall(1)
        reload.cancel()
        _ = await reload.result
        await world.events.wait(for: .fetchFailed)
        number.clearMemory()

        #expect(try await number.request() == 1)
        #expect(number.statistics.fetches == 1)
        await number.expectAtRest()
    }

    @Test func `MX-12 an entry on disk that is due for renewal is returned at once and renewed`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(100), refreshAhead: .seconds(100))
        let (world, number) = await self.relaunched(after: .seconds(99), policy)
        let entry = try await number.requestEntry()
        #expect(entry.value == 1)
        #expect(!entry.isStale)
        await self.fetch.waitForCall(1)
        self.fetch.open(returning: 2)
        await world.events.wait(for: .fetched)
        #expect(try await number.request() == 2)
        #expect(number.statistics.diskHits == 1)
    }

    @Test func `MX-15 a value stored before the time limit of a caller is returned as fresh`() async throws {
        let (world, number) = await self.relaunched(after: .seconds(1_000))
        let caller = Task { try await number.requestEntry(.within(.seconds(2))) }
        await self.fetch.waitForCall(1)
        await world.clock.waitForSleepers(2)
        number.store(9)
        world.clock.advance(by: .seconds(2))
        let entry = try await caller.value
        #expect(entry.value == 9)
        #expect(!entry.isStale)
        #expect(number.statistics.staleServed == 0)
    }
}
