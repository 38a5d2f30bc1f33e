import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct CacheOnlyTests {
    private let world = World()

    private func number() -> Multiplexer<Int> {
        Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
    }

    @Test func `MX-15 cacheOnly with a maxAge returns only a younger value`() async throws {
        let number = self.number()
        number.store(5)
        await number.save()
        self.world.clock.advance(by: .seconds(10))
        for _ in 0..<2 {
            #expect(try await number.request(.cacheOnly.maxAge(.seconds(11))) == 5)
            await #expect(throws: MuxError.notCached) { try await number.request(.cacheOnly.maxAge(.seconds(10))) }
            number.clearMemory()  // the next round reads from disk
        }
        #expect(number.statistics.fetches == 0)
    }

    @Test func `MX-16 an entry on disk from before a refresh is stale`() async throws {
        let number = self.number()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        number.store(5)
        for key in 1...2 { map.store(key, key: key) }
        await self.world.repository.saveAll()
        let next = self.world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 1 }
        let mapAgain = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: next.repository) { $0 }
        #expect(try await again.requestEntry(.cacheOnly).isStale == false)

        again.refresh()
        mapAgain.refresh(key: 1)

        #expect(try await again.requestEntry(.cacheOnly).staleReason == .cacheOnly)
        #expect(try await mapAgain.requestEntry(key: 1, .cacheOnly).isStale)
        #expect(try await mapAgain.requestEntry(key: 2, .cacheOnly).isStale == false)
        mapAgain.refresh()
        #expect(try await mapAgain.requestEntry(key: 2, .cacheOnly).isStale)
    }

    @Test func `MX-17 a value that is stored during a disk read replaces the entry on disk`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let first = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        first.store(1)
        await first.save()
        let gate = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.relaunched().repository) { 2 }
        let caller = Task { try await number.requestEntry(.cacheOnly) }
        let other = Task { await number.loadCachedValue() }
        await gate.waitForCall(2)

        number.store(3)
        gate.openForGood(returning: ())

        let entry = try await caller.value
        #expect(entry.value == 3)
        #expect(entry.source == .memory)
        #expect(await other.value == 3)
    }

    @Test func `MX-27 every request is a hit, a join or a miss, for all options and results`() async throws {
        let gate = Gate<Int>()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { key in
            if key < 0 { throw FetchFailed() }
            return key == 100 ? try await gate.pass() : key
        }
        let options: [RequestOptions] = [
            .cacheOnly, .init(), .reload, .maxAge(.zero), .within(.seconds(1)), .staleWhileRevalidate, .cacheOnly,
        ]
        var count = 0
        for option in options {
            for key in [-1, 1, 2] {
                _ = try? await map.request(key: key, option)
                count += 1
            }
        }
        let callers = (0..<5).map { _ in Task { try await map.request(key: 100) } }
        await gate.waitForCall(1)
        await self.world.events.wait(for: .joined, count: 4)
        gate.open(returning: 5)
        for caller in callers { _ = try await caller.value }

        let statistics = map.statistics
        #expect(statistics.requests == count + 5)
        #expect(statistics.joins == 4)
        #expect(statistics.hits == self.world.events.count(of: .hit))
        #expect(statistics.misses == self.world.events.count(of: .missed))
        await self.world.events.wait(for: .fetchFailed, count: statistics.failures)
        #expect(statistics.failures == self.world.events.count(of: .fetchFailed))
    }
}
