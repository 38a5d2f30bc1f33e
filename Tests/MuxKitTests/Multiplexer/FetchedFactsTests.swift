import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Stale limits and `isKept` of a fetched value.
@Suite(.standard)
struct FetchedFactsTests {
    private let world = World()

    /// A multiplexer whose first fetch returns `fetched` and whose later fetches fail offline.
    private func once(_ fetched: Fetched<Int>, _ policy: MuxPolicy = .init(), in world: World? = nil) -> Multiplexer<
        Int
    > {
        let fetch = ScriptedFetch<Fetched<Int>>([.value(fetched)], thereafter: .failure(offline))
        return Multiplexer(cacheKey: "Number", policy: policy, repository: (world ?? self.world).repository) { _ in
            try await fetch()
        }
    }

    @Test func `N01 a value that must be revalidated never replaces an error`() async throws {
        let number = self.once(Fetched(1, timeToLive: .seconds(10), staleIfError: .zero))
        #expect(try await number.request() == 1)
        self.world.clock.advance(by: .seconds(9))
        #expect(try await number.request(.reload) == 1, "it is fresh")
        self.world.clock.advance(by: .seconds(1))

        await #expect(throws: SilenceableError.self) { try await number.request() }
        await #expect(throws: SilenceableError.self) { try await number.request(.within(.zero)) }
    }

    @Test func `N01 the staleIfError of a fetched value overrides the policy`() async throws {
        let policy = MuxPolicy(staleIfError: .seconds(1), errorBackoff: .zero)
        let number = self.once(Fetched(1, timeToLive: .seconds(10), staleIfError: .seconds(60)), policy)
        #expect(try await number.request() == 1)
        self.world.clock.advance(by: .seconds(69))
        #expect(try await number.request() == 1)
        self.world.clock.advance(by: .seconds(1))

        await #expect(throws: SilenceableError.self) { try await number.request() }
    }

    @Test func `N01 a value is served at once within its staleWhileRevalidate while it is renewed`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let number = Multiplexer<Int>(repository: self.world.repository) { _ in
            Fetched(try await fetch(), timeToLive: .seconds(10), staleWhileRevalidate: .seconds(5))
        }
        #expect(try await number.request() == 1)
        self.world.clock.advance(by: .seconds(14))
        #expect(try await number.requestEntry().staleReason == .revalidating)
        await fetch.waitForEnd(2)
        #expect(try await number.request(.maxAge(.seconds(1))) == 2)
        self.world.clock.advance(by: .seconds(15))

        #expect(try await number.request() == 3, "too old to answer at once")
    }

    @Test func `N01 the stale limits of a fetched value survive a relaunch`() async throws {
        let facts = Fetched(1, timeToLive: .seconds(10), staleWhileRevalidate: .seconds(2), staleIfError: .zero)
        let number = self.once(facts)
        #expect(try await number.request() == 1)
        await number.save()

        let soon = Multiplexer<Int>(
            cacheKey: "Number",
            repository: self.world.relaunched(after: .seconds(11)).repository
        ) { () -> Int in throw offline }
        #expect(try await soon.requestEntry().staleReason == .revalidating)
        let later = Multiplexer<Int>(
            cacheKey: "Number",
            repository: self.world.relaunched(after: .seconds(12)).repository
        ) { () -> Int in throw offline }
        await #expect(throws: SilenceableError.self) { try await later.request() }
    }

    @Test func `N01 a map keeps the stale limits of a fetched value`() async throws {
        let calls = Locked(0)
        let map = MultiplexerMap<String, Int>(repository: self.world.repository) { _, _ -> Fetched<Int> in
            guard calls.next() == 1 else { throw offline }
            return Fetched(1, timeToLive: .seconds(10), staleIfError: .zero)
        }
        #expect(try await map.request(key: "a") == 1)
        self.world.clock.advance(by: .seconds(10))

        await #expect(throws: SilenceableError.self) { try await map.request(key: "a") }
    }

    @Test func `N01 a value with isKept false is returned to its waiters and not cached`() async throws {
        let gate = Gate<Fetched<Int>>()
        let fetch = ScriptedFetch<Fetched<Int>>([.gated(gate)], thereafter: .failure(offline))
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { _ in try await fetch() }
        var seen = number.values.makeAsyncIterator()
        _ = await seen.next()
        async let first = number.request()
        async let second = number.request()
        await gate.waitForCall(1)
        await self.world.events.wait(for: .joined)
        gate.open(returning: Fetched(1, isKept: false))

        #expect(try await [first, second] == [1, 1])
        #expect(number.cachedValue == nil)
        await number.save()
        #expect(try await self.world.store.load(.init(domain: "Number")) == nil)
        await #expect(throws: SilenceableError.self) { try await number.request() }
        await number.expectAtRest()
    }

    @Test func `N01 a value with isKept false removes the previous value from memory and disk`() async throws {
        let isKept = Locked(true)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { _ in
            Fetched(1, isKept: isKept.withLock { $0 })
        }
        _ = try await number.request()
        await number.save()
        isKept.withLock { $0 = false }

        #expect(try await number.refresh().request() == 1)

        #expect(number.cachedValue == nil)
        #expect(await number.loadCachedValue() == nil, "what the disk still has is not read")
        await number.save()
        #expect(try await self.world.store.load(.init(domain: "Number")) == nil)
    }

    @Test(arguments: [(false, true), (true, true), (true, false)])
    func `N01 a value with isKept false removes the previous value that could not be read`(
        isRefreshed: Bool,
        fails: Bool
    ) async throws {
        let store = UnreliableStore()
        let first = Multiplexer<Int>(cacheKey: "Number", repository: MuxRepository(store: store)) { 1 }
        _ = try await first.request()
        await first.save()
        store.failsLoads.withLock { $0 = fails }
        let number = Multiplexer<Int>(cacheKey: "Number", repository: MuxRepository(store: store)) { _ in
            Fetched(2, isKept: false)
        }
        // A refresh during the read fences the flight before the fetch.
        if isRefreshed { store.beforeLoad.withLock { $0 = { number.refresh() } } }

        #expect(try await number.request() == 2)

        store.failsLoads.withLock { $0 = false }
        store.beforeLoad.withLock { $0 = {} }
        #expect(await number.loadCachedValue() == nil)
        await number.save()
        #expect(try await store.load(.init(domain: "Number")) == nil)
    }

    @Test(arguments: [true, false])
    func `N01 a refresh of a map during a read leaves no value that must not be kept`(fails: Bool) async throws {
        let store = UnreliableStore()
        let first = MultiplexerMap<Int, Int>(cacheKey: "Numbers", repository: MuxRepository(store: store)) { $0 }
        _ = try await first.request(key: 1)
        await first.save()
        store.failsLoads.withLock { $0 = fails }
        let map = MultiplexerMap<Int, Int>(cacheKey: "Numbers", repository: MuxRepository(store: store)) { _, _ in
            Fetched(2, isKept: false)
        }
        // The refresh leaves no slot of the key.
        store.beforeLoad.withLock { $0 = { map.refresh() } }

        #expect(try await map.request(key: 1) == 2)

        store.failsLoads.withLock { $0 = false }
        store.beforeLoad.withLock { $0 = {} }
        #expect(await map.loadCachedValue(key: 1) == nil)
        await map.save()
        #expect(try await store.load(.init(domain: "Numbers", key: "1")) == nil)
    }

    @Test func `N01 a fenced fetch with isKept false does not remove a stored value`() async throws {
        let gate = Gate<Fetched<Int>>()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { _ in
            try await gate.pass()
        }
        async let asked = number.request()
        await gate.waitForCall(1)
        number.store(5)
        gate.open(returning: Fetched(1, isKept: false))

        #expect(try await asked == 1)
        #expect(number.cachedValue == 5)
    }
}
