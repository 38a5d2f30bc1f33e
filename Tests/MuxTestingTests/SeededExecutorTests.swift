import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard(minutes: 60))
struct SeededExecutorTests {
    /// Records names in order.
    private final class Visitors: Sendable {
        let names = Locked<[Int]>([])

        func come(_ name: Int) { self.names.withLock { $0.append(name) } }
    }

    /// The order of tasks of a schedule; with the main actor, the tasks change between executors.
    private func order(_ seed: UInt64, withMainActor: Bool) async throws -> ([Int], UInt64) {
        let schedule = SeededExecutor(seed: seed)
        let visitors = Visitors()
        let visit: @Sendable @concurrent () async -> Void = {
            await withTaskGroup { group in
                for name in 0..<4 {
                    group.addTask {
                        for _ in 0..<3 {
                            await schedule.pause()
                            if withMainActor {
                                await MainActor.run { visitors.come(name) }
                            } else {
                                visitors.come(name)
                            }
                        }
                    }
                }
            }
        }
        if withMainActor {
            try await schedule.runWithMainActor(visit)
            #expect(schedule.visits.arrivals == 0)
        } else {
            try await schedule.run(visit)
        }
        return (visitors.names.withLock { $0 }, schedule.fingerprint)
    }

    /// The number of different orders of 100 seeds; each seed runs twice.
    private func orderCount(withMainActor: Bool) async throws -> Int {
        var orders: Set<[Int]> = []
        for seed in UInt64(0)..<100 {
            let (names, fingerprint) = try await self.order(seed, withMainActor: withMainActor)
            let (again, same) = try await self.order(seed, withMainActor: withMainActor)
            #expect(names == again && fingerprint == same)
            orders.insert(names)
        }
        return orders.count
    }

    @Test func `SC-02 a seed determines the order also with the main actor`() async throws {
        #expect(try await self.orderCount(withMainActor: true) > 50)
    }

    @Test func `Q-04 the same seed gives the same order, and most seeds give different orders`() async throws {
        #expect(try await self.orderCount(withMainActor: false) > 90)
    }

    @Test func `SC-02 an operation without an end is stuck also with the main actor, and a failure has its seed`()
        async throws
    {
        struct Failed: Error {}
        await #expect {
            try await SeededExecutor(seed: 7).runWithMainActor {
                let (never, continuation) = AsyncStream<Never>.makeStream()
                for await _ in never {}
                continuation.finish()
            }
        } throws: { error in
            if case SeededExecutor.ScheduleError.stuck(7) = error { true } else { false }
        }
        await #expect {
            try await SeededExecutor.exploreWithMainActor(5) { if $0.seed == 3 { throw Failed() } }
        } throws: { error in
            if case SeededExecutor.ScheduleError.failed(3, is Failed) = error { true } else { false }
        }
    }

    @Test @MainActor func `P-04 a cancellation during an order with the main actor is no failed order`() async {
        struct Failed: Error {}
        let task = Locked<Task<Int, any Error>?>(nil)
        let exploration = Task {
            try await SeededExecutor.exploreWithMainActor(5) { _ in
                task.withLock { $0 }?.cancel()
                throw Failed()
            }
        }
        task.withLock { $0 = exploration }
        await #expect(throws: CancellationError.self) { try await exploration.value }
    }

    /// A counter with a lost-update bug across an `await`.
    private actor CarelessCounter {
        private(set) var count = 0

        func add(_ schedule: SeededExecutor) async {
            let before = self.count
            await schedule.pause()
            self.count = before + 1
        }
    }

    private struct Lost: Error {}

    @Test func `P-04 an order with a failure is found, named and found again`() async throws {
        let body: @Sendable (SeededExecutor) async throws -> Void = { schedule in
            let counter = CarelessCounter()
            async let one: Void = counter.add(schedule)
            async let two: Void = counter.add(schedule)
            _ = await (one, two)
            if await counter.count != 2 { throw Lost() }
        }

        let error = await #expect(throws: SeededExecutor.ScheduleError.self) {
            _ = try await SeededExecutor.explore(100, in: [:], body)
        }

        guard case .failed(let seed, let underlying)? = error else { throw Lost() }
        let text = try #require(error).description
        #expect(underlying is Lost && text.hasPrefix("MUX_SEED=\(seed)"))
        let schedule = SeededExecutor(seed: seed)
        await #expect(throws: Lost.self) { try await schedule.run { try await body(schedule) } }
    }

    @Test(arguments: [false, true])
    func `P-04 an endless wait is reported and does not delay the run`(ignoringCancellation: Bool) async {
        let schedule = SeededExecutor(seed: 7)
        let gate = Gate<Int>()

        await #expect {
            try await schedule.run { try await gate.pass(ignoringCancellation: ignoringCancellation) }
        } throws: { error in
            guard case .stuck(seed: 7)? = error as? SeededExecutor.ScheduleError else { return false }
            return true
        }

        gate.openForGood(returning: 1)
    }

    @Test func `P-04 virtual time passes when no job can run`() async throws {
        let schedule = SeededExecutor(seed: 1)
        let clock = schedule.clock

        let end = try await schedule.run {
            async let long: Void = clock.sleep(for: .seconds(60))
            try await clock.sleep(for: .seconds(5))
            #expect(clock.now.offset == .seconds(5))
            try await long
            return clock.now.offset
        }

        #expect(end == .seconds(60))
    }

    @Test func `PT-01 no time passes after the end of the operation`() async throws {
        let schedule = SeededExecutor(seed: 1)
        let clock = schedule.clock

        let sleeper = try await schedule.run {
            let sleeper = Task(executorPreference: schedule) { try await clock.sleep(for: .seconds(60)) }
            while clock.sleeperCount == 0 { await schedule.pause() }
            return sleeper
        }

        #expect(clock.now.offset == .zero && clock.sleeperCount == 1)
        sleeper.cancel()
        await #expect(throws: CancellationError.self) { try await sleeper.value }
    }

    @Test func `P-04 the library and its repositories follow the schedule`() async throws {
        let count = try await SeededExecutor.explore(50) { schedule in
            let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
            let fetches = Locked(0)
            let name = Multiplexer<Int>(cacheKey: "Name", repository: repository) {
                let count = fetches.withLock { count in
                    count += 1
                    return count
                }
                try await schedule.clock.sleep(for: .seconds(1))
                return count
            }
            async let before = name.request()
            name.refresh()
            async let saved = repository.saveAll()
            let after = try await name.request()
            let values = try await (before, saved.failed.count)
            guard values.1 == 0, values.0 <= after, after == fetches.withLock({ $0 }) else { throw Lost() }
        }

        #expect(count > 0)
    }
}
