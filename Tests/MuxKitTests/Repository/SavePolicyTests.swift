import Foundation
import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
struct SavePolicyTests {
    @Test func `RP-08 values are saved by themselves a while after they were fetched, together`() async throws {
        let clock = VirtualClock()
        let store = UnreliableStore()
        let saved = Gate<Void>()
        saved.openForGood(returning: ())
        let repository = MuxRepository(store: store, savePolicy: .afterFetch(debounce: .seconds(5)), clock: clock)
        let map = MultiplexerMap<Int, Int>(
            cacheKey: "Map",
            policy: .init(fetchTimeout: .seconds(1_000)),
            repository: repository
        ) { $0 }
        _ = try await map.request(key: 1)
        map.store(2, key: 2)
        // One sleeper is the deadline of the fetch, the other one the debounce.
        await clock.waitForSleepers(2)
        #expect(try await store.load(.init(domain: "Map", key: "1")) == nil)
        store.beforeSave.withLock { $0 = { try? await saved.pass() } }
        clock.advance(by: .seconds(5))
        await saved.waitForCall(1)
        // The save is in the lane: whatever comes after it there finds it done.
        #expect(await map.save().unchanged == 2)
        #expect(saved.callCount == 1, "one save for both")
        #expect(try await store.load(.init(domain: "Map", key: "2")) != nil)

        map.store(3, key: 3)
        await clock.waitForSleepers(2)
        clock.advance(by: .seconds(5))
        await saved.waitForCall(2)
        #expect(await map.save().unchanged == 3)
    }

    @Test func `RP-08 by default nothing is saved unasked`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        world.clock.advance(by: .seconds(1_000))
        #expect(try await world.store.load(.init(domain: "Number")) == nil)
    }
}
