import Dispatch
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ManyKeysTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let world = World()

    private func map(
        _ policy: MuxPolicy = .init(),
        _ fetch: @escaping @Sendable (Int) async throws -> Int = { $0 }
    ) -> Map {
        Map(cacheKey: "Map", policy: policy, repository: self.world.repository, onFetch: fetch)
    }

    /// An in-memory map whose fetches wait for the gate.
    private func gatedMap(_ policy: MuxPolicy, _ gate: Gate<Void>) -> Map {
        Map(policy: policy, repository: MuxRepository(store: MemoryStore())) { key in
            try await gate.pass()
            return key
        }
    }

    /// Runs jobs on the pool and counts them.
    private final class CountingExecutor: TaskExecutor {
        private let jobs = Locked(0)

        var count: Int { self.jobs.withLock { $0 } }

        func enqueue(_ job: consuming ExecutorJob) {
            _ = self.jobs.next()
            let job = UnownedJob(job)
            DispatchQueue.global().async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    @Test func `CO-17 a request for many keys has no child task per key`() async throws {
        let executor = CountingExecutor()
        let map = MultiplexerMap<Int, Int>(
            policy: .init(maximumCount: nil),
            repository: MuxRepository(store: MemoryStore(), clock: VirtualClock())
        ) { key -> Int in key }

        // Child tasks would run on the caller's preferred executor. The tasks of the fetches do not.
        let count = repetitions(60_000)
        let values = try await withTaskExecutorPreference(executor) { try await map.request(keys: 0..<count) }

        #expect(values.count == count)
        #expect(values.allSatisfy { $0 == $1 })
        #expect(executor.count < 100, "the caller's own, a few for each portion of the keys")
        #expect(map.statistics.misses == count)
        #expect(map.statistics.fetches == count)
        await map.expectAtRest()
    }

    @Test func `PF-05 no more than 8,192 keys are fetched at a time`() async throws {
        let gate = Gate<Void>()
        let map = self.gatedMap(.init(maximumCount: nil), gate)
        let request = Task { try await map.request(keys: 0..<14_000) }
        await gate.waitForCall(8_192)
        #expect(map.occupancy.waiters == 8_192)
        #expect(map.statistics.fetches == 8_192)
        for call in 1..<4_096 { gate.open(call) }
        while map.occupancy.waiters > 4_097 { await Task.yield() }
        #expect(map.statistics.fetches == 8_192, "half of them are not done yet")
        gate.open(4_096)
        await gate.waitForCall(12_288)
        #expect(map.statistics.fetches == 12_288)
        gate.openForGood(returning: ())
        #expect(try await request.value.count == 14_000)
        await map.expectAtRest()
    }

    @Test func `PF-05 a cancelled request begins no more fetches`() async throws {
        let gate = Gate<Void>()
        let map = self.gatedMap(.init(whenAbandoned: .cancel(linger: .zero)), gate)
        let request = Task { try await map.request(keys: 0..<14_000) }
        await gate.waitForCall(8_192)
        request.cancel()
        await #expect(throws: CancellationError.self) { try await request.value }
        #expect(map.statistics.fetches == 8_192)
        await map.expectAtRest()
    }

    @Test(arguments: [false, true])
    func `PF-05 the first of equal strings is requested and gets its own value`(isCached: Bool) async throws {
        let (composed, decomposed) = ("\u{e9}", "e\u{301}")
        let map = MultiplexerMap<String, Int>(repository: MuxRepository(store: MemoryStore())) { $0.utf8.count }
        if isCached { for key in [composed, decomposed] { _ = try await map.request(key: key) } }
        for (keys, count) in [([composed, decomposed], 2), ([decomposed, composed], 3)] {
            let values = try await map.request(keys: keys)
            #expect(values.map { [$0.key.utf8.count, $0.value] } == [[count, count]])
        }
        let hits = map.statistics.hits
        _ = try await map.request(keys: [composed, composed, composed])
        #expect(map.statistics.hits == hits + 1)
    }

    @Test func `CO-17 a cancelled request for many keys leaves all flights`() async throws {
        let gate = Gate<Int>()
        let map = self.map(.init(whenAbandoned: .cancel(linger: .zero))) { _ in try await gate.pass() }
        let other = Task { try await map.request(key: 7) }
        await gate.waitForCall(1)
        let many = Task { await map.results(keys: 0..<100) }
        await gate.waitForCall(100)
        #expect(map.occupancy.waiters == 101)

        many.cancel()

        let results = await many.value
        #expect(results.count == 100)
        for result in results.values { #expect(throws: CancellationError.self) { try result.get() } }
        #expect(map.occupancy.waiters == 1, "the other caller waits on")
        await self.world.events.wait(for: .fetchFailed, count: 99)
        gate.openForGood(returning: 5)
        #expect(try await other.value == 5)
        await map.expectAtRest()
    }

    @Test func `CO-17 a request of a cancelled task is counted`() async throws {
        let map = self.map()
        map.store(1, key: 1)
        let late = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            let results = await map.results(keys: 1..<4)
            #expect(results.values.count { (try? $0.get()) != nil } == 1)
            for options in [RequestOptions(), .reload, .within(.seconds(1)), .maxAge(.seconds(5))] {
                await #expect(throws: CancellationError.self) { try await map.request(key: 9, options) }
            }
            await #expect(throws: CancellationError.self) { try await map.request(key: 9) }
        }
        await late.value
        #expect(map.statistics.hits == 1)
        #expect(map.statistics.misses == 7)
        #expect(map.statistics.requests == 8)
        #expect(map.statistics.fetches == 0)
        #expect(self.world.events.count(of: .missed) == 7, "the events agree")
        await map.expectAtRest()
    }

    @Test func `CO-17 many keys join flights, count as single requests and use the caller's priority`() async throws {
        let gate = Gate<Int>()
        let priorities = Locked<[TaskPriority]>([])
        let map = self.map { _ in
            priorities.withLock { $0.append(Task.currentPriority) }
            return try await gate.pass()
        }
        let single = Task { try await map.request(key: 0) }
        await gate.waitForCall(1)
        let many = Task(priority: .low) { try await map.request(keys: 0..<10) }
        await gate.waitForCall(10)
        #expect(map.statistics.joins == 1)
        #expect(map.statistics.misses == 10)
        #expect(priorities.withLock { $0.count { $0 == .low } } == 9)
        gate.openForGood(returning: 3)
        #expect(try await many.value.values.allSatisfy { $0 == 3 })
        #expect(try await single.value == 3)
        await map.expectAtRest()
    }

    @Test func `CO-17 many keys share one timer for the caller's time limit`() async throws {
        let gate = Gate<Int>()
        let map = self.map(.init(timeToLive: .seconds(1))) { _ in try await gate.pass() }
        for key in 0..<50 { map.store(key, key: key) }
        self.world.clock.advance(by: .seconds(1))
        let many = Task { try await map.request(keys: 0..<50, .within(.seconds(2))) }
        await gate.waitForCall(50)
        // The other sleeper is the deadline of the fetches.
        await self.world.clock.waitForSleepers(2)
        #expect(self.world.clock.sleeperCount == 2)

        self.world.clock.advance(by: .seconds(2))

        let values = try await many.value
        #expect((0..<50).allSatisfy { values[$0] == $0 }, "the stale values, at the end of the patience")
        #expect(map.statistics.staleServed == 50)
        gate.openForGood(returning: -1)
        await self.world.events.wait(for: .fetched, count: 50)
        await map.expectAtRest()
    }

    @Test func `CO-17 a cacheOnly request for many keys counts as many single requests`() async throws {
        let map = self.map()
        _ = try await map.request(keys: 0..<100)
        #expect(await map.save().saved == 100)
        let next = self.world.relaunched()
        let again = Map(cacheKey: "Map", repository: next.repository) { _ -> Int in throw FetchFailed() }

        let results = await again.results(keys: 0..<110, .cacheOnly)

        #expect((0..<100).allSatisfy { (try? results[$0]?.get()) == $0 })
        for key in 100..<110 { #expect(throws: MuxError.notCached) { try results[key]?.get() } }
        #expect(again.statistics.requests == 110)
    }

    @Test func `CO-17 of many keys only the key that would wait for itself is refused`() async throws {
        let later = Later<Map>()
        let seen = Locked<[Int: String]>([:])
        let map = self.map { key in
            guard key == 0 else { return key }
            let results = try await later().results(keys: 0..<3)
            seen.withLock { $0 = results.mapValues { "\($0)" } }
            return 0
        }
        later.set(map)

        #expect(try await map.request(key: 0) == 0)

        #expect(seen.withLock { $0[0] } == "\(Result<Int, any Error>.failure(MuxError.wouldDeadlock))")
        #expect(seen.withLock { $0[1] } == "\(Result<Int, any Error>.success(1))")
        await map.expectAtRest()
    }

    @Test func `CO-17 a request for many keys does not wait for a fetched key any longer`() async throws {
        let later = Later<Map>()
        let gate = Gate<Int>()
        let isSecond = Locked(false)
        let map = self.map { key in
            switch key {
            case 0: return try await later().request(keys: [1, 2]).count
            case 1: return isSecond.withLock { $0 } ? try await later().request(key: 0) : 1
            default: return try await gate.pass()
            }
        }
        later.set(map)
        let first = Task { try await map.request(key: 0) }
        await gate.waitForCall(1)
        await self.world.events.wait(for: .fetched)
        isSecond.withLock { $0 = true }
        map.refresh(key: 1)

        // The fetch of key 1 waits for the fetch of key 0, which waits for key 2 and no longer for key 1.
        let second = Task { try await map.request(key: 1) }
        await self.world.events.wait(for: .joined)
        gate.open(returning: 2)

        #expect(try await first.value == 2)
        #expect(try await second.value == 2)
        await map.expectAtRest()
    }

    @Test func `CO-17 keys that are not equal to themselves fail alone`() async throws {
        let map = MultiplexerMap<Double, Int>(repository: self.world.repository) { Int($0) }
        let results = await map.results(keys: [1, .nan, 2])
        #expect(results.count == 3)
        for (key, result) in results {
            if key == key {
                #expect(try result.get() == Int(key))
            } else {
                #expect(throws: MuxError.unusableKey) { try result.get() }
            }
        }
    }
}
