import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MapBoundTests {
    private typealias Map = MultiplexerMap<Int, Int>

    @Test func `MX-24 a map keeps its maximum number of entries and counts evictions`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let policy = MuxPolicy(maximumCount: 10)
        let map = Map(policy: policy, repository: world.repository) { _ in try await fetch() }

        for _ in 0..<3 { _ = try await map.request(key: 0) }
        for key in 1..<100 { _ = try await map.request(key: key) }

        #expect((0..<100).count { map.cachedValue(key: $0) != nil } == 10)
        #expect(map.cachedValue(key: 0) != nil, "it was asked for again")
        #expect(map.statistics.evictions == 90)
        // A caller may resume before the observer gets the event.
        await world.events.wait(for: .evicted, count: 90)
        #expect(fetch.callCount == 100)
        #expect(MuxPolicy().maximumCount == 10_000)
        await map.expectAtRest()
    }

    @Test(arguments: [false, true])
    func `EV-05 a map evicts by recency if its policy says so, also after memory was cleared`(
        isByRecency: Bool
    ) async throws {
        let repository = World().repository
        let policy = MuxPolicy(maximumCount: 3, evictsLeastRecentlyUsed: isByRecency)
        let map = Map(policy: policy, repository: repository) { $0 }
        for _ in 0..<2 {
            // Key 0 has the most uses, and was used least recently.
            for key in [0, 0, 0, 0, 1, 2, 3] { _ = try await map.request(key: key) }
            #expect((map.cachedValue(key: 0) == nil) == isByRecency)
            #expect(map.cachedValue(key: 3) == 3)
            repository.clearMemory()
        }
    }

    @Test(arguments: [0, -1, 1, .max, nil] as [Int?])
    func `MX-24 any count limit is valid`(bound: Int?) async throws {
        let store = UnreliableStore()
        let executor = OrderedExecutor()
        let world = World(store: store, spawn: TaskLauncher(executor: executor))
        let gate = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        let policy = MuxPolicy(maximumCount: bound)
        let plain = Map(policy: policy, repository: world.repository) { $0 }
        let kept = Map(cacheKey: "Map", policy: policy, repository: world.repository) { $0 }

        for key in 0..<50 {
            #expect(try await plain.request(key: key) == key)
            #expect(try await kept.request(key: key) == key)
        }
        #expect((0..<50).count { kept.cachedValue(key: $0) != nil } == 50, "not saved yet")
        gate.openForGood(returning: ())
        #expect(await kept.save().isComplete)

        let expected = min(50, max(0, bound ?? .max))
        #expect((0..<50).count { plain.cachedValue(key: $0) != nil } == expected)
        #expect((0..<50).count { kept.cachedValue(key: $0) != nil } == expected)
        for key in 0..<50 { #expect(try await kept.request(key: key) == key) }
        #expect(kept.statistics.fetches == 50, "what went is read from disk")
        #expect(plain.statistics.requests == 50)
        executor.settle()
        await kept.expectAtRest()
    }

    @Test func `MX-24 unsaved entries are not evicted during their save`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let policy = MuxPolicy(maximumCount: 5)
        let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { $0 }
        let gate = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        for key in 0..<20 { map.store(-key, key: key) }
        await gate.waitForCall(1)
        #expect((0..<20).allSatisfy { map.cachedValue(key: $0) == -$0 })

        gate.openForGood(returning: ())
        #expect(await map.save().isComplete)

        #expect((0..<20).count { map.cachedValue(key: $0) != nil } == 5)
        for key in 0..<20 { #expect(try await map.request(key: key) == -key) }
        #expect(map.statistics.fetches == 0)
    }

    @Test func `MX-24 an evicted entry that was refreshed stays stale on disk`() async throws {
        let world = World()
        let policy = MuxPolicy(maximumCount: 2)
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { _ in try await fetch() }
        _ = try await map.request(key: 0)
        await map.save()
        map.refresh(key: 0)
        for key in 1..<200 {
            _ = try await map.request(key: key)
            await map.save()
        }
        #expect(map.cachedValue(key: 0) == nil)

        #expect(try await map.request(key: 0) == 201)
    }

    @Test func `MX-24 many marks become one date and no stale entry counts as fresh`() async throws {
        let world = World()
        let first = Map(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 0..<500 { _ = try await first.request(key: key) }
        await first.save()
        let next = world.relaunched(after: .seconds(1))
        let policy = MuxPolicy(maximumCount: 10)
        let map = Map(cacheKey: "Map", policy: policy, repository: next.repository) { -$0 - 1 }

        for key in 0..<400 { map.refresh(key: key) }

        #expect(map.markCount <= 65)
        for key in 0..<400 { #expect(try await map.request(key: key) == -key - 1) }
        #expect(map.statistics.fetches == 400)
    }

    @Test func `MX-24 a key whose mark became part of one date is not kept`() {
        let map = Map(cacheKey: "Map", policy: MuxPolicy(maximumCount: 10), repository: World().repository) { $0 }
        // The check at the end of the test finds other keys among the unsaved keys.
        for key in 0..<400 { map.refresh(key: key) }
        #expect(map.markCount <= 65)
    }

    @Test func `MX-24 a fetch that fails falls back to a value that was evicted in the meantime`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(maximumCount: 2)
        let map = Map(policy: policy, repository: world.repository) { key in
            guard key == 0 else { return key }
            _ = try await gate.pass()
            throw offline
        }
        map.store(7, key: 0)
        map.refresh(key: 0)
        let caller = Task { try await map.requestEntry(key: 0) }
        await gate.waitForCall(1)
        for key in 1..<200 { _ = try await map.request(key: key) }
        #expect(map.cachedValue(key: 0) == nil)

        gate.open(returning: 0)

        let entry = try await caller.value
        #expect(entry.value == 7)
        #expect(entry.isStale)
        #expect(map.cachedEntry(key: 0)?.isStale == true, "the refresh is not forgotten")
        await map.expectAtRest()
    }

    @Test(arguments: [0, 3]) func `MX-24 a failed fetch falls back to the value on disk even without room in memory`(
        bound: Int
    ) async throws {
        let executor = OrderedExecutor()
        let world = World()
        let first = Map(cacheKey: "Map", repository: world.repository) { $0 }
        _ = try await first.request(key: 1)
        await first.save()
        let next = world.relaunched(after: .seconds(3_600), spawn: TaskLauncher(executor: executor))
        let map = Map(cacheKey: "Map", policy: .init(maximumCount: bound), repository: next.repository) { _ -> Int in
            throw offline
        }

        let entry = try await map.requestEntry(key: 1)

        #expect(entry.value == 1)
        #expect(entry.staleReason == .fetchFailed)
        executor.settle()
        await map.expectAtRest()
    }

    @Test func `MX-24 remembered failures are limited and do not count as evictions`() async throws {
        let world = World()
        let fetches = Locked(0)
        let policy = MuxPolicy(remembersFailure: { _ in .seconds(60) }, maximumCount: 10)
        let map = Map(policy: policy, repository: world.repository) { _ -> Int in
            throw FetchFailed(call: fetches.next())
        }
        for key in 0..<100 { await #expect(throws: FetchFailed.self) { try await map.request(key: key) } }

        #expect(map.failureCount == 10)

        for key in 0..<100 { await #expect(throws: FetchFailed.self) { try await map.request(key: key) } }
        let count = fetches.withLock { $0 }
        #expect((190..<200).contains(count), "some are remembered, and no more than ten")
        #expect(map.statistics.evictions == 0)

        map.store(7, key: 99)
        #expect(try await map.request(key: 99) == 7)
        map.refresh()
        await #expect(throws: FetchFailed.self) { try await map.request(key: 89) }
        #expect(fetches.withLock { $0 } == count + 1, "a refresh of everything ends it")
        await map.expectAtRest()
    }

    @Test func `MX-24 the deinit of an evicted value may use its map`() async throws {
        final class Value: Sendable {
            let holder: Locked<MultiplexerMap<Int, Value>?>
            init(_ holder: Locked<MultiplexerMap<Int, Value>?>) { self.holder = holder }
            deinit { _ = self.holder.withLock { $0 }?.statistics }
        }
        let world = World()
        let holder = Locked<MultiplexerMap<Int, Value>?>(nil)
        let map = MultiplexerMap<Int, Value>(policy: .init(maximumCount: 2), repository: world.repository) { _ in
            Value(holder)
        }
        holder.withLock { $0 = map }
        for key in 0..<20 { _ = try await map.request(key: key) }
        for key in 0..<20 { map.store(Value(holder), key: key) }
        map.refresh()
        // All values except two remaining values and a value that a new value replaced in place.
        #expect(map.statistics.evictions >= 36)
        map.clearMemory()
        #expect((0..<20).allSatisfy { map.cachedValue(key: $0) == nil })
        holder.withLock { $0 = nil }
    }

    // MARK: - Memory pressure

    @Test func `MX-25 clearing memory keeps stored entries and unsaved entries`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in try await fetch() }
        let one = Multiplexer<Int>(cacheKey: "One", repository: world.repository) { 1 }
        let plain = Multiplexer<Int>(repository: world.repository) { 1 }.register()
        let loose = Multiplexer<Int>(repository: world.repository) { 1 }
        for key in 0..<3 { _ = try await map.request(key: key) }
        _ = try await (one.request(), plain.request(), loose.request())
        await world.repository.saveAll()
        map.store(50, key: 2)
        map.refresh(key: 1)

        world.repository.clearMemory()

        #expect(map.cachedValue(key: 0) == nil)
        #expect(map.cachedValue(key: 2) == 50)
        #expect(one.cachedValue == nil)
        #expect(plain.cachedValue == nil)
        #expect(loose.cachedValue == nil, "not registered, and cleared")
        #expect(try await map.request(key: 0) == 1, "from disk")
        #expect(try await map.request(key: 1) == 4, "refreshed before")
        #expect(try await one.request() == 1)
        #expect(one.statistics.fetches == 1)
        #expect(map.statistics.evictions == 0)
        plain.unregister()
    }

    @Test func `MX-25 a refreshed single value stays stale on disk`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let one = Multiplexer<Int>(cacheKey: "One", repository: world.repository) { try await fetch() }
        _ = try await one.request()
        one.clearMemory()
        #expect(one.cachedValue == 1, "not saved yet")
        await one.save()

        one.refresh().clearMemory()
        #expect(one.cachedValue == 1, "the disk does not know yet that it is stale")
        await one.save()
        one.clearMemory()

        #expect(one.cachedValue == nil)
        #expect(try await one.request() == 2)
    }

    @Test func `MX-25 clearing memory does not fence running fetches`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let map = Map(repository: world.repository) { _ in try await gate.pass() }
        let caller = Task { try await map.request(key: 1) }
        await gate.waitForCall(1)

        map.clearMemory()
        gate.open(returning: 5)

        #expect(try await caller.value == 5)
        #expect(map.cachedValue(key: 1) == 5)
        await map.expectAtRest()
    }

    @Test func `MX-24 a map keeps values up to a cost limit`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let gate = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        let policy = MuxPolicy(maximumCost: .init(100) { (value: Int) in value })
        let map = Map(policy: policy, repository: world.repository) { $0 }
        let kept = Map(cacheKey: "Map", policy: policy, repository: world.repository) { $0 }

        for key in [10, 20, 30, 40] { _ = try await map.request(key: key) }
        #expect(map.statistics.evictions == 0)
        for _ in 0..<3 { _ = try await map.request(key: 40) }
        _ = try await map.request(key: 35)
        let left = [10, 20, 30, 40, 35].filter { map.cachedValue(key: $0) != nil }
        #expect(left.reduce(0, +) <= 100)
        #expect(left.contains(40), "it was asked for again")
        #expect(map.statistics.evictions == 5 - left.count)

        #expect(try await map.request(key: 101) == 101)
        #expect(map.cachedValue(key: 101) == nil, "alone beyond the bound")
        #expect(map.cachedValue(key: 40) == 40, "and nothing else had to go for it")
        map.store(99, key: 40)
        #expect(map.cachedValue(key: 40) == 99)
        #expect(map.cachedValue(key: 35) == nil, "the new value costs more")
        map.clearMemory()
        for key in [-5, 60, 40] { _ = try await map.request(key: key) }
        #expect([-5, 60, 40].allSatisfy { map.cachedValue(key: $0) == $0 }, "what is gone costs nothing")

        for key in [60, 70, 80] { _ = try await kept.request(key: key) }
        #expect([60, 70, 80].allSatisfy { kept.cachedValue(key: $0) == $0 }, "not saved yet")
        gate.openForGood(returning: ())
        #expect(await kept.save().isComplete)
        #expect([60, 70, 80].count { kept.cachedValue(key: $0) != nil } == 1)
        await map.expectAtRest()
        await kept.expectAtRest()
    }

    @Test func `MX-24 a cost limit of another type has no effect, and no limit traps`() async throws {
        let world = World()
        for limit in [Int.min, -1, 0, .max] {
            let policy = MuxPolicy(maximumCost: .init(limit) { (_: Int) in .max })
            let map = Map(policy: policy, repository: world.repository) { $0 }
            for key in 0..<3 { #expect(try await map.request(key: key) == key) }
            #expect((0..<3).count { map.cachedValue(key: $0) != nil } == (limit == .max ? 1 : 0))
        }
        let policy = MuxPolicy(maximumCost: .init(0) { (text: String) in text.count })
        let map = Map(policy: policy, repository: world.repository) { $0 }
        for key in 0..<3 { _ = try await map.request(key: key) }
        #expect((0..<3).allSatisfy { map.cachedValue(key: $0) != nil })
    }
}
