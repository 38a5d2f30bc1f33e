import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FenceTests {
    @Test func `MX-07 a refresh keeps the old value, and the next request fetches`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { try await fetch() }
        _ = try await number.request()
        await number.save()

        number.refresh()

        #expect(number.cachedValue == 1)
        #expect(number.cachedEntry?.isStale == true)
        #expect(try await world.store.load(.init(domain: "Number")) != nil)
        #expect(fetch.callCount == 1)
        #expect(try await number.request() == 2)
        #expect(try await number.request() == 2)
    }

    @Test func `MX-07 the old value is the fallback after a refresh`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline), .failure(FetchFailed())])
        let policy = MuxPolicy(errorBackoff: .zero)
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()

        #expect(try await number.refresh().request() == 1)
        await #expect(throws: FetchFailed.self) { try await number.request() }
        #expect(number.cachedValue == 1)
    }

    @Test func `MX-07 a request after a refresh never gets a value whose fetch began earlier`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let before = Task { try await number.request() }
        await gate.waitForCall(1)

        number.refresh()
        let after = Task { try await number.request() }
        await gate.waitForCall(2)
        gate.open(2, returning: 2)
        #expect(try await after.value == 2)
        gate.open(1, returning: 1)

        #expect(try await before.value == 1)
        #expect(number.cachedValue == 2)
        #expect(number.statistics.fenceDrops == 1)
        await number.expectAtRest()
    }

    @Test func `MX-07 a late value from before a refresh is not cached`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let before = Task { try await number.request() }
        await gate.waitForCall(1)

        number.refresh()
        gate.open(1, returning: 1)
        #expect(try await before.value == 1)

        #expect(number.cachedValue == nil)
        gate.open(2, returning: 2)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-07 after a refresh the first request treats the entry on disk as stale`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await number.save()

        let next = world.relaunched()
        let fetch = ScriptedFetch<Int>([.failure(offline), .value(2)])
        let policy = MuxPolicy(errorBackoff: .zero)
        let again = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: next.repository) {
            try await fetch()
        }

        #expect(try await again.refresh().request() == 1, "the disk is the safety net")
        #expect(fetch.callCount == 1)
        #expect(try await again.request() == 2)
    }

    @Test func `MX-07 a failed fetch from before a refresh starts no back-off after the refresh`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let policy = MuxPolicy(timeToLive: .seconds(10), errorBackoff: .seconds(60))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await gate.pass() }
        number.store(1)
        world.clock.advance(by: .seconds(10))
        let before = Task { try await number.request() }
        await gate.waitForCall(1)

        number.refresh()
        gate.fail(1, with: offline)
        #expect(try await before.value == 1)

        gate.open(2, returning: 2)
        #expect(try await number.request() == 2)
        await number.expectAtRest()
    }

    @Test func `MX-07 a refresh of all keys fences the fetches of the keys, too`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let map = MultiplexerMap<String, Int>(repository: world.repository) { _ in try await gate.pass() }
        let before = Task { try await map.request(key: "a") }
        await gate.waitForCall(1)

        map.refresh()
        gate.open(1, returning: 1)
        #expect(try await before.value == 1)

        gate.open(2, returning: 2)
        #expect(try await map.request(key: "a") == 2)
        await map.expectAtRest()
    }

    @Test func `MX-08 a clear removes the value from memory and disk, and the next request fetches`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline), .value(3)])
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { try await fetch() }
        _ = try await number.request()
        await number.save()

        let report = await number.clear()

        #expect(report.isComplete)
        #expect(number.cachedValue == nil)
        #expect(try await world.store.load(.init(domain: "Number")) == nil)
        #expect(await number.loadCachedValue() == nil)
        await #expect(throws: SilenceableError.self) { try await number.request() }
        #expect(try await number.request() == 3)
        await number.expectAtRest()
    }

    @Test func `MX-08 a flight from before a clear serves its callers, and its value is not cached`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { try await gate.pass() }
        let before = Task { try await number.request() }
        await gate.waitForCall(1)

        await number.clear()
        gate.open(1, returning: 1)

        #expect(try await before.value == 1)
        #expect(number.cachedValue == nil)
        #expect(await number.save().saved == 0)
        #expect(try await world.store.load(.init(domain: "Number")) == nil)
        await number.expectAtRest()
    }

    @Test func `MX-08 values of flights from before a clear of all keys are not cached`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: world.repository) { _ in
            try await gate.pass()
        }
        let before = Task { try await map.request(key: "a") }
        await gate.waitForCall(1)

        await map.clear()
        gate.open(1, returning: 1)

        #expect(try await before.value == 1)
        #expect(map.cachedValue(key: "a") == nil)
        #expect(await map.save().saved == 0)
        await map.expectAtRest()
    }

    @Test func `MX-08 an entry that a flight from before a clear reads from disk is not cached`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await number.save()

        let next = world.relaunched()
        let loading = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await loading.pass() } }
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }
        let before = Task { try await again.request() }
        await loading.waitForCall(1)
        await again.clear()
        loading.openForGood(returning: ())

        // The entry on disk is older than the clear. The fetch began after the clear, so its value is valid.
        #expect(try await before.value == 2)
        #expect(again.cachedValue == 2)
        await again.expectAtRest()
    }

    @Test func `MX-08 a clear cancels a fetch without waiters`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let number = Multiplexer<Int>(repository: world.repository) { try await fetch() }
        let caller = Task { try await number.request() }
        await gate.waitForCall(1)
        caller.cancel()
        _ = await caller.result

        await number.clear()

        await fetch.waitForEnd(1)
        await world.events.wait(for: .fetchFailed)
        await number.expectAtRest()
    }

    @Test func `MX-08 an entry whose removal fails is not read again, and the next save removes it`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let users = MultiplexerMap<String, Int>(cacheKey: "Users", repository: world.repository) { _ in
            try await fetch()
        }
        _ = try await users.request(key: "a")
        _ = try await users.request(key: "b")
        await users.save()

        store.failsRemovals.withLock { $0 = true }
        #expect(await users.clear(key: "a").failures.count == 1)
        #expect(await users.loadCachedValue(key: "a") == nil)
        store.failsRemovals.withLock { $0 = false }
        await users.save()
        #expect(try await store.load(.init(domain: "Users", key: "a")) == nil)

        store.failsRemovals.withLock { $0 = true }
        #expect(try await users.request(key: "a") == 3)
        #expect(await users.clear().failures.count == 1)
        #expect(await users.loadCachedValue(key: "b") == nil)
        #expect(try await users.request(key: "b") == 4)

        store.failsRemovals.withLock { $0 = false }
        #expect(await users.save().saved == 1)
        #expect(try await store.load(.init(domain: "Users", key: "a")) == nil)
        #expect(try await store.load(.init(domain: "Users", key: "b")) != nil)
    }

    @Test func `MX-14 a stored value is served and marked for saving`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { try await fetch() }

        number.store(8)

        #expect(try await number.request() == 8)
        #expect(fetch.callCount == 0)
        #expect(await number.save().saved == 1)
        #expect(await number.save().unchanged == 1)
    }

    @Test func `MX-14 an older flight cannot overwrite a stored value`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let before = Task { try await number.request() }
        await gate.waitForCall(1)

        number.store(8)
        gate.open(returning: 1)

        #expect(try await before.value == 1)
        #expect(try await number.request() == 8)
        await number.expectAtRest()
    }

    @Test func `MX-14 a conditional store succeeds only if the value is unchanged since the read`() async throws {
        let world = World()
        let number = Multiplexer<Int>(repository: world.repository) { 1 }
        let first = try await number.requestEntry()

        // An optimistic update, and its roll-back.
        #expect(number.store(2, ifUnchangedSince: first))
        let second = try #require(number.cachedEntry)
        #expect(number.store(1, ifUnchangedSince: second))

        // Another store came first.
        #expect(!number.store(9, ifUnchangedSince: second))
        #expect(number.cachedValue == 1)
        await number.clear()
        #expect(!number.store(9, ifUnchangedSince: first))
        #expect(number.cachedValue == nil)
    }

    @Test func `MX-14 a refused conditional store does not disturb a flight`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        number.store(0)
        let old = try #require(number.cachedEntry)
        number.store(1)
        number.refresh()
        let caller = Task { try await number.request() }
        await gate.waitForCall(1)

        #expect(!number.store(9, ifUnchangedSince: old))
        gate.open(returning: 2)

        #expect(try await caller.value == 2)
        #expect(number.cachedValue == 2)
    }

    @Test func `MX-17 cachedValue returns a value of any age, and loadCachedValue also reads the disk`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 5 }
        #expect(number.cachedValue == nil)
        #expect(await number.loadCachedValue() == nil)
        _ = try await number.request()
        await number.save()
        world.clock.advance(by: .seconds(1_000_000))
        #expect(number.cachedValue == 5)

        let next = world.relaunched(after: .seconds(1_000_000_000))
        let fetch = ScriptedFetch<Int>()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { try await fetch() }
        #expect(again.cachedValue == nil)
        #expect(await again.loadCachedValue() == 5)
        #expect(fetch.callCount == 0)
    }

    @Test func `MX-07 a refresh of all keys holds although the wall clock was set back meanwhile`() async throws {
        let world = World()
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: world.repository) { _ in 1 }
        _ = try await map.request(key: "a")
        await map.save()

        let next = world.relaunched(after: .seconds(10))
        let again = MultiplexerMap<String, Int>(cacheKey: "Map", repository: next.repository) { _ in 2 }
        next.wallShift.withLock { $0 -= .seconds(3600) }
        again.refresh()
        next.wallShift.withLock { $0 += .seconds(3600) }

        #expect(try await again.request(key: "a") == 2)
    }

    @Test func `MX-07 a refreshed value is stale after a relaunch`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        number.refresh()
        await number.save()

        let next = world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }

        #expect(try await again.request() == 2)
    }
}
