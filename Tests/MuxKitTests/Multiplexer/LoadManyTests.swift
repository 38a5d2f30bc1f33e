import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Requests for many keys of which the disk has some.
@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct LoadManyTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let store = UnreliableStore()

    /// What the disk has for `keys`, and what is fetched for `others`.
    private func expected(_ keys: Range<Int>, fetched others: Range<Int> = 0..<0) -> [Int: Int] {
        var values: [Int: Int] = [:]
        for key in keys { values[key] = key * 10 }
        for key in others { values[key] = -key }
        return values
    }

    /// A relaunch after a run that saved ten times each of `keys`, whose fetches bring the negative key.
    private func relaunched(
        saving keys: Range<Int>,
        _ policy: MuxPolicy = .init(maximumCount: nil)
    ) async throws -> (World, Map) {
        let world = World(store: self.store)
        let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { $0 * 10 }
        for key in keys { map.store(key * 10, key: key) }
        #expect(await world.repository.saveAll().isComplete)
        self.store.portions.withLock { $0 = [] }
        let next = world.relaunched()
        return (next, Map(cacheKey: "Map", policy: policy, repository: next.repository) { -$0 })
    }

    @Test func `PF-03 a request for many keys reads the disk in portions, and has flights for the rest alone`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<1_000)

        let values = try await map.request(keys: 0..<1_020)

        #expect(values == self.expected(0..<1_000, fetched: 1_000..<1_020))
        let portions = self.store.portions.withLock { $0 }
        // The missing are looked for once more; one more entry is the map's last refresh.
        let count = portions.reduce(0, +)
        #expect(count == 1_041)
        #expect(portions.count { $0 > 1 } == 8)
        #expect(portions.max() == 128)
        #expect(map.statistics.fetches == 20)
        #expect(map.statistics.diskHits == 1_000)
        #expect(map.statistics.misses == 1_020)
        let isKept = (0..<1_000).allSatisfy { map.cachedValue(key: $0) == $0 * 10 }
        #expect(isKept)
        await map.expectAtRest()
    }

    @Test func `PF-03 what is not fresh on disk is fetched`() async throws {
        let (world, map) = try await self.relaunched(saving: 0..<20, .init(timeToLive: .seconds(60), maximumCount: nil))
        map.refresh(key: 3)
        #expect(try await map.request(keys: 3..<4) == self.expected(0..<0, fetched: 3..<4))
        #expect(try await map.request(keys: 0..<3) == self.expected(0..<3))

        #expect(try await map.request(keys: 5..<7, .reload) == self.expected(0..<0, fetched: 5..<7))
        world.wallShift.withLock { $0 += .seconds(61) }
        #expect(try await map.request(keys: 10..<12) == self.expected(0..<0, fetched: 10..<12))
    }

    @Test func `PF-03 if many cannot be read, each is asked for alone`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<10)
        self.store.failsPortions.withLock { $0 = true }

        #expect(try await map.request(keys: 0..<10) == self.expected(0..<10))
        map.clearMemory()
        #expect(try await map.request(keys: 0..<10, .cacheOnly)[7] == 70)
        #expect(map.statistics.fetches == 0)
    }

    @Test func `PF-03 what is cleared while it is read does not come back`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<10)
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: 0..<10) }
        await gate.waitForCall(1)

        self.store.afterLoad.withLock { $0 = {} }
        await map.clear(key: 3)
        gate.openForGood(returning: ())

        let values = try await caller.value
        #expect(values[3] == -3)
        #expect(values[4] == 40)
        #expect(map.cachedValue(key: 3) == -3)
    }

    @Test func `PF-03 a sign-out while many are read leaves none of them`() async throws {
        let (world, map) = try await self.relaunched(saving: 0..<10)
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: 0..<10) }
        await gate.waitForCall(1)

        self.store.afterLoad.withLock { $0 = {} }
        await world.repository.clearAll()
        gate.openForGood(returning: ())

        #expect(try await caller.value == self.expected(0..<0, fetched: 0..<10))
        for key in 0..<10 { #expect(map.cachedValue(key: key) == -key) }
    }

    @Test func `PF-03 a map that holds a few answers for all that the disk has`() async throws {
        let (world, _) = try await self.relaunched(saving: 0..<500)
        let few = Map(cacheKey: "Map", policy: .init(maximumCount: 10), repository: world.repository) { -$0 }

        #expect(try await few.request(keys: 0..<500) == self.expected(0..<500))
        #expect(few.statistics.fetches == 0)
        #expect((0..<500).count { few.cachedValue(key: $0) != nil } <= 10)
    }

    @Test func `PF-03 what is only to be read is read in portions too`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<300)

        let results = await map.results(keys: 290..<310, .cacheOnly)

        for (key, result) in results {
            let expected = key < 300 ? key * 10 : nil
            #expect((try? result.get()) == expected)
        }
        #expect(results.count == 20)
        #expect(self.store.portions.withLock { $0.max() } == 20)
        #expect(map.statistics.fetches == 0)
    }
}
