import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The number of lock acquisitions of a request.
@Suite(.standard)
struct LockCountTests {
    @Test func `P-05 a cold persistent miss takes the lock at most seven times`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Numbers", repository: world.repository) { $0 }
        // The first request also starts the timer of the deadlines.
        _ = try await map.request(key: 0)
        await world.events.wait(for: .fetched)
        guard let before = map.lockCount else { return }  // a release build does not count

        #expect(try await map.request(key: 1) == 1)

        await world.events.wait(for: .fetched, count: 2)
        let after = try #require(map.lockCount)
        #expect(after - before <= 7)
        #expect(map.statistics.fetches == 2 && map.statistics.misses == 2)
    }

    @Test func `P-05 a hit takes the lock once`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Int>(cacheKey: "Numbers", repository: world.repository) { $0 }
        _ = try await map.request(key: 1)
        await world.events.wait(for: .fetched)
        guard let before = map.lockCount else { return }

        #expect(try await map.request(key: 1) == 1)

        #expect(map.lockCount == before + 1)
    }
}
