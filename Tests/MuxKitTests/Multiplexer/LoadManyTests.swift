import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Requests for many keys when some entries are on disk.
@Suite(.standard)
struct LoadManyTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let store = UnreliableStore()

    /// The values on disk for `keys` and the fetched values for `others`.
    private func expected(_ keys: Range<Int>, fetched others: Range<Int> = 0..<0) -> [Int: Int] {
        var values: [Int: Int] = [:]
        for key in keys { values[key] = key * 10 }
        for key in others { values[key] = -key }
        return values
    }

    /// A relaunch after a run that saved `key * 10` for each of `keys`, with fetches that return `-key`.
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

    @Test func `PF-03 many keys are read in portions, and only keys that are not on disk are fetched`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<1_000)

        let values = try await map.request(keys: 0..<1_020)

        #expect(values == self.expected(0..<1_000, fetched: 1_000..<1_020))
        // The additional entry is the map's last refresh, which the first portions may read concurrently.
        let portions = self.store.portions.withLock { $0 }
        let count = portions.reduce(0, +)
        #expect(count > 1_020 && count <= 1_028)
        #expect(portions.count { $0 > 1 } == 8)
        #expect(portions.max() == 128)
        #expect(map.statistics.fetches == 20)
        #expect(map.statistics.diskHits == 1_000)
        #expect(map.statistics.misses == 1_020)
        let isKept = (0..<1_000).allSatisfy { map.cachedValue(key: $0) == $0 * 10 }
        #expect(isKept)
        await map.expectAtRest()
    }

    @Test func `PF-03 a key without a fresh entry on disk is fetched`() async throws {
        let (world, map) = try await self.relaunched(saving: 0..<20, .init(timeToLive: .seconds(60), maximumCount: nil))
        map.refresh(key: 3)
        #expect(try await map.request(keys: 0..<4) == self.expected(0..<3, fetched: 3..<4))

        #expect(try await map.request(keys: 5..<7, .reload) == self.expected(0..<0, fetched: 5..<7))
        world.wallShift.withLock { $0 += .seconds(61) }
        #expect(try await map.request(keys: 10..<12) == self.expected(0..<0, fetched: 10..<12))
    }

    @Test func `PF-03 if a read of many entries fails, each entry is read alone`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<10)
        self.store.failsPortions.withLock { $0 = true }

        #expect(try await map.request(keys: 0..<10) == self.expected(0..<10))
        map.clearMemory()
        #expect(try await map.request(keys: 0..<10, .cacheOnly)[7] == 70)
        #expect(map.statistics.fetches == 0)
    }

    @Test func `PF-03 an entry that is cleared during its read is not cached`() async throws {
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
        #expect(map.cachedValue(key: 3) == -3, "its fetch began after the clear")
        #expect(map.cachedValue(key: 4) == 40)
        await map.expectAtRest()
    }

    @Test func `PF-03 a sign-out during a read of many entries leaves no entry in memory`() async throws {
        let (world, map) = try await self.relaunched(saving: 0..<10)
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: 0..<10) }
        await gate.waitForCall(1)

        self.store.afterLoad.withLock { $0 = {} }
        await world.repository.clearAll()
        gate.openForGood(returning: ())

        await #expect(throws: MuxError.sessionEnded) { try await caller.value }
        for key in 0..<10 { #expect(map.cachedValue(key: key) == nil) }
        await map.expectAtRest()
    }

    @Test func `PF-03 a cancelled caller does not wait for the disk`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<10)
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: 0..<20) }
        await gate.waitForCall(1)

        caller.cancel()
        await #expect(throws: CancellationError.self) { try await caller.value }

        gate.openForGood(returning: ())
        await map.expectAtRest()
    }

    /// Cancels a request during its read of the disk.
    private func abandonRequest(for keys: Range<Int>, of map: Map) async {
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: keys) }
        await gate.waitForCall(1)
        caller.cancel()
        _ = await caller.result
        gate.openForGood(returning: ())
        await map.expectAtRest()
    }

    @Test func `PF-03 a flight that is abandoned during its disk read does not fetch`() async throws {
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero), maximumCount: nil)
        let (_, map) = try await self.relaunched(saving: 0..<1, policy)
        for _ in 0..<20 { await self.abandonRequest(for: 10..<20, of: map) }
        #expect(map.statistics.fetches == 0)
    }

    @Test func `PF-03 a flight that is abandoned during the read of stale entries does not fetch`() async throws {
        let policy = MuxPolicy(
            timeToLive: .seconds(60),
            whenAbandoned: .cancel(linger: .zero),
            maximumCount: nil
        )
        let (world, map) = try await self.relaunched(saving: 0..<10, policy)
        world.clock.advance(by: .seconds(120))
        await self.abandonRequest(for: 0..<10, of: map)
        #expect(map.statistics.fetches == 0)
    }

    @Test func `PF-03 a key that needs no disk read does not wait for the disk`() async throws {
        let (world, map) = try await self.relaunched(saving: 0..<10)
        map.store(5, key: 100)
        world.clock.advance(by: .seconds(1_000_000_000))
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: [3, 100]) }
        await gate.waitForCall(1)
        await world.events.wait(for: .fetched)
        #expect(map.cachedValue(key: 100) == -100)

        gate.openForGood(returning: ())
        _ = try await caller.value
    }

    @Test func `PF-03 large values are read from disk, too`() async throws {
        let world = World(store: self.store)
        let text = String(repeating: "x", count: 100_000)
        let first = MultiplexerMap<Int, String>(cacheKey: "Text", repository: world.repository) { _ in "" }
        for key in 0..<5 { first.store("\(key)" + (key % 2 == 0 ? text : ""), key: key) }
        #expect(await world.repository.saveAll().isComplete)
        let next = world.relaunched()
        let map = MultiplexerMap<Int, String>(cacheKey: "Text", repository: next.repository) { "fetched \($0)" }

        let values = try await map.request(keys: 0..<6)

        for key in 0..<5 { #expect(values[key] == "\(key)" + (key % 2 == 0 ? text : "")) }
        #expect(values[5] == "fetched 5")
        #expect(map.statistics.diskHits == 5)
        #expect(map.statistics.fetches == 1)
        await map.expectAtRest()
    }

    @Test func `PF-03 the options of each caller decide whether a stale value from disk is returned`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(60), maximumCount: nil)
        let (world, map) = try await self.relaunched(saving: 0..<10, policy)
        world.wallShift.withLock { $0 += .seconds(100) }
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let stale = Task { try await map.request(keys: 0..<10, .staleWhileRevalidate) }
        await world.events.wait(for: .missed, count: 10)
        let fresh = Task { try await map.request(keys: 0..<10) }
        await world.events.wait(for: .joined, count: 10)

        gate.openForGood(returning: ())

        #expect(try await stale.value == self.expected(0..<10))
        #expect(try await fresh.value == self.expected(0..<0, fetched: 0..<10))
        await map.expectAtRest()
    }

    @Test func `PF-03 the fetch timeout includes the disk read`() async throws {
        let policy = MuxPolicy(fetchTimeout: .seconds(5), maximumCount: nil)
        let (world, map) = try await self.relaunched(saving: 0..<10, policy)
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(keys: 0..<10) }
        await gate.waitForCall(1)
        await world.clock.waitForSleepers()

        world.clock.advance(by: .seconds(6))
        await #expect(throws: MuxError.timedOut(after: .seconds(5))) { try await caller.value }

        gate.openForGood(returning: ())
        await map.expectAtRest()
    }

    @Test func `PF-03 requests for the same keys share a disk read`() async throws {
        let (world, map) = try await self.relaunched(saving: 0..<100)
        let gate = Gate<Void>()
        self.store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let first = Task { try await map.request(keys: 0..<100) }
        await world.events.wait(for: .missed, count: 100)
        await gate.waitForCall(1)
        let callers = [first] + (0..<2).map { _ in Task { try await map.request(keys: 0..<100) } }
        await world.events.wait(for: .joined, count: 200)

        gate.openForGood(returning: ())

        for caller in callers { #expect(try await caller.value == self.expected(0..<100)) }
        #expect(self.store.portions.withLock { $0.filter { $0 > 1 } } == [100])
    }

    @Test func `PF-03 a store that requests a key during its load gets an error instead of a deadlock`() async throws {
        let (_, map) = try await self.relaunched(saving: 0..<10)
        let errors = Locked<[any Error]>([])
        self.store.afterLoad.withLock {
            $0 = {
                do {
                    _ = try await map.request(key: 7)
                } catch {
                    errors.withLock { $0.append(error) }
                }
            }
        }

        #expect(try await map.request(keys: 0..<10) == self.expected(0..<10))

        #expect(errors.withLock { !$0.isEmpty && $0.allSatisfy { $0 as? MuxError == .wouldDeadlock } })
        self.store.afterLoad.withLock { $0 = {} }
        await map.expectAtRest()
    }

    @Test func `PF-03 a map with a small memory limit returns all entries on disk`() async throws {
        let (world, _) = try await self.relaunched(saving: 0..<500)
        let few = Map(cacheKey: "Map", policy: .init(maximumCount: 10), repository: world.repository) { -$0 }

        #expect(try await few.request(keys: 0..<500) == self.expected(0..<500))
        #expect(few.statistics.fetches == 0)
        #expect((0..<500).count { few.cachedValue(key: $0) != nil } <= 10)
    }
}
