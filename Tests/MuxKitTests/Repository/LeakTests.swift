import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Many operations of each kind leak no resource.
@Suite(.standard(minutes: 60), .serialized)
struct LeakTests {
    private static let count = repetitions(10_000)

    /// A wait that is retained by each of its observers, listening tasks and timers.
    private struct Wait {
        weak var race: RetryRace?
    }

    @Test func `PT-02 waits leave no observer, listener, helper or timer`() async {
        let (clock, center, signal) = (VirtualClock(), NotificationCenter(), RetrySignal())
        let (helpers, streams) = (Locked(0), Locked(0))
        let name = Notification.Name("PT-02")
        let wakeUps: [RetrySignal.WakeUp] = [
            .after(.seconds(5)), .signal(signal), .notification(name, in: center),
            RetrySignal.WakeUp("helper", .signal) { _, _ in
                helpers.withLock { $0 += 1 }
                return { helpers.withLock { $0 -= 1 } }
            },
            .element {
                let (stream, continuation) = AsyncStream<Void>.makeStream()
                streams.withLock { $0 += 1 }
                continuation.onTermination = { _ in streams.withLock { $0 -= 1 } }
                return stream
            },
        ]
        let loop = RetryLoop(.web, time: TimeSource(clock))
        var waits: [Wait] = []
        for number in 0..<Self.count {
            let race = RetryRace { _ in }
            waits.append(Wait(race: race))
            race.start(wakeUps, loop)
            switch number % 3 {
            case 0: signal.retryNow()
            case 1: center.post(name: name, object: nil)
            default: race.callOff()
            }
        }
        #expect(helpers.withLock { $0 } == 0)
        #expect(signal.retryNow() == 0)
        let left = await settledOccupancy {
            (waits.count { $0.race != nil }, streams.withLock { $0 } + clock.sleeperCount, 0)
        }
        #expect(left.tasks == 0, "listening tasks and timers")
        #expect(left.waiters == 0, "observers")
    }

    @Test func `PT-02 batches leave no key, dictionary, timer or task`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Int>(
            batching: .init(window: .seconds(1), maximumSize: 2),
            repository: world.repository
        ) { keys in Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) }) }
        for number in 0..<Self.count {
            let (first, second) = (2 * number, 2 * number + 1)
            let caller = Task { try await map.request(key: first) }
            _ = try await map.request(key: second)
            world.clock.advance(by: .seconds(1))
            _ = try await caller.value
        }
        await map.expectAtRest()
    }

    @Test func `PT-02 participants leave no slot`() async throws {
        let world = World()
        for number in 0..<Self.count {
            let values = Multiplexer<Int>(cacheKey: "P\(number)", repository: world.repository) { number }
            _ = try await values.request()
        }
        // Up to 32 vacant slots wait for their common removal.
        #expect(world.repository.participantPlaces <= 33)
        #expect(await world.repository.faults() == [])
    }

    @Test func `PT-02 claims and received invalidations leave no wait or listener`() async throws {
        let store = MemorySharedStore()
        let connections = [store.connection(), store.connection()]
        do {
            let repositories = connections.map { MuxRepository(sharedStore: $0) }
            let maps = repositories.map { repository in
                MultiplexerMap<String, Int>(cacheKey: "Values", repository: repository) { _ in 1 }
            }
            // Each round makes two claims and an invalidation. Keys repeat after 50 rounds.
            for number in 0..<Self.count / 4 {
                let key = "\(number % 50)"
                async let other = maps[1].request(key: key)
                _ = try await (maps[0].request(key: key), other)
                await maps[number % 2].clear(key: key)
            }
            for map in maps { await map.expectAtRest() }
            for repository in repositories {
                #expect(await settled({ await repository.faults() }, when: { $0.isEmpty }) == [])
            }
        }
        for _ in 0..<Self.count { _ = MuxRepository(sharedStore: connections[0]) }
        let left = await settledOccupancy { (0, store.listenerCount, 0) }
        #expect(left.tasks == 0, "listening tasks")
    }
}

#if os(macOS) || os(Linux)
extension LeakTests {
    @Test(.ownThreads) func `PT-02 saved fetches leave no file, descriptor, thread, timer or wait`() async {
        await #expect(processExitsWith: .success) {
            let scratch = Scratch()
            try await Leftovers.expectNone(in: scratch.folder) { count in
                let repository = MuxRepository(store: scratch.store(), durability: .relaxed)
                let policy = MuxPolicy(timeToLive: .zero, fetchTimeout: .seconds(3_600))
                let inner = MultiplexerMap<String, Int>(policy: policy, repository: repository) { Int($0) ?? 0 }
                let outer = MultiplexerMap<String, Int>(cacheKey: "Outer", policy: policy, repository: repository) {
                    try await inner.request(key: $0)
                }
                for number in 0..<count {
                    _ = try await outer.request(key: "\(number % 100)")
                    if number % 10 == 0 { _ = await repository.saveAll() }
                }
                for map in [inner, outer] { await map.expectAtRest() }
            }
        }
    }
}
#endif
