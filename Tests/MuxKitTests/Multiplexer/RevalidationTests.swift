import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Fetches that revalidate the previous value.
@Suite(.standard)
struct RevalidationTests {
    /// A server with one resource, which responds "not modified" to the current version's validator.
    private final class Server: Sendable {
        let version = Locked(1)
        let asked = Locked<[String?]>([])
        let gate: Gate<Void>?

        init(gate: Gate<Void>? = nil) { self.gate = gate }

        func answer(_ before: FetchedBefore<[Int]>?) async throws -> Fetched<[Int]> {
            let version = self.version.withLock { $0 }
            self.asked.withLock { $0.append(before?.validator) }
            if before != nil { try await self.gate?.pass() }
            if let before, before.validator == "v\(version)" { return before.notModified(timeToLive: .seconds(20)) }
            return Fetched([version], timeToLive: .seconds(10), validator: "v\(version)")
        }
    }

    private let world = World()

    private func multiplexer(_ server: Server, _ policy: MuxPolicy = .init(), in world: World? = nil) -> Multiplexer<
        [Int]
    > {
        Multiplexer(cacheKey: "Numbers", policy: policy, repository: (world ?? self.world).repository) {
            try await server.answer($0)
        }
    }

    @Test func `MX-05 a renewal that a cancelled caller began continues for a caller with a stale value`() async throws
    {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(timeToLive: .seconds(60), staleWhileRevalidate: .seconds(600), fetchTimeout: .longest)
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        world.clock.advance(by: .seconds(61))
        let first = Task { try await number.request(.maxAge(.zero)) }
        await gate.waitForCall(1)
        first.cancel()
        _ = await first.result

        #expect(try await number.requestEntry().staleReason == .revalidating)
        await world.clock.waitForSleepers(1)
        world.clock.advance(by: .seconds(2))
        for _ in 0..<200 { await Task.yield() }
        #expect(gate.heldCount == 1)
        gate.openForGood(returning: 2)
        await number.expectAtRest()
        #expect(number.cachedValue == 2)
    }

    @Test func `N02 an unchanged value gets a new lifetime and keeps its identity`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        let first = try await numbers.requestEntry()
        self.world.clock.advance(by: .seconds(10))
        #expect(numbers.cachedEntry?.isStale == true)

        let second = try await numbers.requestEntry()

        #expect(second.value == [1] && !second.isStale && second.age == .zero && second.timeToLive == .seconds(20))
        #expect(server.asked.withLock { $0 } == [nil, "v1"])
        self.world.clock.advance(by: .seconds(19))
        #expect(try await numbers.request() == [1])
        #expect(numbers.statistics.fetches == 2)
        self.world.clock.advance(by: .seconds(1))
        _ = try await numbers.request()
        #expect(server.asked.withLock { $0 } == [nil, "v1", "v1"], "the validator lives on")
        #expect(numbers.store([9], ifUnchangedSince: first), "it is the same value")
        await numbers.expectAtRest()
    }

    @Test func `N02 a not modified result for the input of an earlier fetch is a new value`() async throws {
        let first = Locked<FetchedBefore<Int>?>(nil)
        let number = Multiplexer<Int>(policy: .init(timeToLive: .seconds(10)), repository: self.world.repository) {
            before in
            if let old = first.withLock({ $0 }) { return old.notModified() }
            first.withLock { $0 = before }
            return Fetched(1)
        }
        number.store(1)
        let original = try #require(number.cachedEntry)
        _ = try await number.requestEntry(.reload)
        let present = try #require(number.cachedEntry)

        #expect(try await number.request(.reload) == 1)

        #expect(!number.store(9, ifUnchangedSince: present), "it is another value")
        #expect(!number.store(9, ifUnchangedSince: original), "and not that of then")
    }

    @Test func `N02 a suspended observer gets no element for a renewal`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        _ = try await numbers.request()
        let begun = Tally()
        let watching = Task { () -> [[Int]?] in
            var iterator = numbers.values.makeAsyncIterator()
            var seen: [[Int]?] = []
            while seen.count < 2, let entry = await iterator.next(isolation: nil) {
                seen.append(entry?.value)
                begun.add()
            }
            return seen
        }
        await begun.reached(1)
        for _ in 0..<5 {
            _ = try await numbers.request(.reload)
            for _ in 0..<100 { await Task.yield() }
        }
        numbers.store([2])

        #expect(await watching.value == [[1], [2]])
    }

    @Test func `N02 a changed value replaces the previous value`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        let first = try await numbers.requestEntry()
        server.version.withLock { $0 = 2 }

        let second = try await numbers.refresh().requestEntry()

        #expect(second.value == [2])
        #expect(server.asked.withLock { $0 } == [nil, "v1"])
        #expect(!numbers.store([9], ifUnchangedSince: first))
    }

    @Test func `N02 an observer between two elements gets no element for a renewal`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        _ = try await numbers.request()
        var seen = numbers.values.makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == [1])

        _ = try await numbers.refresh().request()
        numbers.store([7])

        #expect(try #require(await seen.next())?.value == [7])
    }

    @Test func `N02 the validator and the new lifetime are saved to disk`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        _ = try await numbers.request()
        await numbers.save()
        self.world.clock.advance(by: .seconds(10))

        let later = self.world.relaunched()
        let again = self.multiplexer(server, in: later)
        #expect(try await again.request() == [1])
        #expect(server.asked.withLock { $0 } == [nil, "v1"])
        #expect(await again.save().saved == 1, "the lease is written")

        let last = later.relaunched(after: .seconds(19))
        #expect(try await self.multiplexer(server, in: last).request() == [1])
        #expect(server.asked.withLock { $0.count } == 2, "it is fresh after a relaunch")
        let stored = try await self.world.store.load(.init(domain: "Numbers"))
        #expect(stored?.validator == "v1" && stored?.timeToLive == .seconds(20))
    }

    @Test func `N02 a new lifetime that arrives during a write of the value is saved, too`() async throws {
        let (store, gate) = (UnreliableStore(), Gate<Void>())
        store.beforeSave.withLock { $0 = { _ = try? await gate.pass() } }
        let world = World(store: store)
        let server = Server()
        let numbers = self.multiplexer(server, in: world)
        _ = try await numbers.request()
        async let report = numbers.save()
        await gate.waitForCall(1)
        world.clock.advance(by: .seconds(10))

        _ = try await numbers.request()
        gate.openForGood(returning: ())
        _ = await report

        #expect(await numbers.save().saved == 1)
        #expect(try await store.load(.init(domain: "Numbers"))?.timeToLive == .seconds(20))
    }

    @Test func `N02 a fence during a revalidation is obeyed`() async throws {
        for fence in ["refresh", "store", "clear", "sign-out"] {
            let world = World()
            let gate = Gate<Void>()
            let server = Server(gate: gate)
            let numbers = self.multiplexer(server, in: world)
            _ = try await numbers.request()
            world.clock.advance(by: .seconds(10))
            async let asked = numbers.request()
            await gate.waitForCall(1)

            switch fence {
            case "refresh": numbers.refresh()
            case "store": numbers.store([5])
            case "clear": await numbers.clear()
            default: await world.repository.clearAll()
            }
            gate.openForGood(returning: ())
            let answer = try? await asked

            #expect(answer == (fence == "sign-out" ? nil : [1]), "\(fence): those who asked before are answered")
            switch fence {
            case "refresh":
                #expect(numbers.cachedEntry?.isStale == true, "the old answer renews nothing")
                #expect(try await numbers.request() == [1])
                #expect(server.asked.withLock { $0 } == [nil, "v1", "v1"])
            case "store":
                #expect(numbers.cachedValue == [5])
            default:
                #expect(numbers.cachedValue == nil)
                #expect(try await numbers.request() == [1])
                #expect(server.asked.withLock { $0 } == [nil, "v1", nil], "nothing of before is known any more")
            }
            await numbers.expectAtRest()
        }
    }

    @Test func `N02 a not modified result for a replaced value does not renew the cached value`() async throws {
        let kept = Locked<FetchedBefore<[Int]>?>(nil)
        let numbers = Multiplexer<[Int]>(repository: self.world.repository) { before in
            if let old = kept.withLock({ $0 }) { return old.notModified() }
            if let before { kept.withLock { $0 = before } }
            return Fetched([before == nil ? 1 : 2])
        }
        _ = try await numbers.request()
        let second = try await numbers.refresh().requestEntry()
        #expect(second.value == [2])

        let third = try await numbers.refresh().requestEntry()

        #expect(third.value == [1])
        #expect(!numbers.store([9], ifUnchangedSince: second), "the value is another one")
    }

    @Test func `N02 a not modified result with a changed value is a new value`() async throws {
        let numbers = Multiplexer<[Int]>(repository: self.world.repository) { before in
            guard let before else { return Fetched([1]) }
            var fetched = before.notModified()
            fetched.value.append(2)
            return fetched
        }
        let first = try await numbers.requestEntry()
        _ = try await numbers.refresh().request()

        #expect(numbers.cachedValue == [1, 2])
        #expect(!numbers.store([9], ifUnchangedSince: first))
    }

    @Test func `N02 a map without room in memory still revalidates the entry on disk`() async throws {
        let asked = Locked<[String?]>([])
        let policy = MuxPolicy(timeToLive: .seconds(10), maximumCount: 0)
        let map = MultiplexerMap<String, Int>(cacheKey: "M", policy: policy, repository: self.world.repository) {
            key,
            before in
            asked.withLock { $0.append(before?.validator) }
            return before?.notModified() ?? Fetched(key.count, validator: key)
        }
        #expect(try await map.request(key: "abc") == 3)
        await map.save()
        #expect(map.cachedValue(key: "abc") == nil)
        self.world.clock.advance(by: .seconds(10))

        #expect(try await map.request(key: "abc") == 3)
        await map.save()
        self.world.clock.advance(by: .seconds(9))
        #expect(try await map.request(key: "abc") == 3)

        #expect(asked.withLock { $0 } == [nil, "abc"])
    }

    @Test func `N02 a value stored by hand has no validator`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        _ = try await numbers.request()
        numbers.store([3])

        #expect(try await numbers.refresh().request() == [1])
        #expect(server.asked.withLock { $0 } == [nil, nil])
    }

    @Test func `N02 a migrated value is fetched without a validator`() async throws {
        let server = Server()
        let numbers = self.multiplexer(server)
        _ = try await numbers.request()
        await numbers.save()
        let migration = MuxMigration(from: 1) { (old: [Int]) in old + [0] }
        let policy = MuxPolicy(schemaVersion: 2, migrations: [migration])
        let again = self.multiplexer(server, policy, in: self.world.relaunched())
        #expect(try await again.request() == [1, 0])

        #expect(try await again.refresh().request() == [1])
        #expect(server.asked.withLock { $0 } == [nil, nil])
    }
}
