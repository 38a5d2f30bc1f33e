import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

#if os(macOS) || os(Linux)
/// An object in a key or an error whose `deinit` calls the map.
private final class Curious: Sendable {
    let map: Locked<MultiplexerMap<CuriousKey, Int>?>
    let gone: Tally

    init(_ map: Locked<MultiplexerMap<CuriousKey, Int>?>, _ gone: Tally) {
        self.map = map
        self.gone = gone
    }

    deinit {
        _ = self.map.withLock { $0 }?.statistics
        self.gone.add()
    }
}

private struct CuriousKey: MuxKey {
    let number: Int
    let object: Curious

    var keyText: String { "\(self.number)" }
    static func == (a: CuriousKey, b: CuriousKey) -> Bool { a.number == b.number }
    func hash(into hasher: inout Hasher) { hasher.combine(self.number) }
}

private struct CuriousError: Error {
    let object: Curious
}

@Suite(.standard)
struct KeyLifetimeTests {
    @Test(.ownThreads) func `CO-17 keys and remembered errors are released outside the lock`() async {
        // A recursive lock ends the process.
        await #expect(processExitsWith: .success) {
            let executor = OrderedExecutor()
            let world = World(spawn: TaskLauncher(executor: executor))
            let holder = Locked<MultiplexerMap<CuriousKey, Int>?>(nil)
            let (made, gone, fails) = (Locked(0), Tally(), Locked(false))
            let object: @Sendable () -> Curious = {
                _ = made.next()
                return Curious(holder, gone)
            }
            // Each use has a new key, so the key in the table is the only reference to its object.
            let key: @Sendable (Int) -> CuriousKey = { CuriousKey(number: $0, object: object()) }
            var policy = MuxPolicy(timeToLive: .seconds(60), staleIfError: .zero, maximumCount: 10)
            policy.remembersFailure = { _ in .seconds(60) }
            let map = MultiplexerMap<CuriousKey, Int>(cacheKey: "Map", policy: policy, repository: world.repository) {
                key in
                if fails.withLock({ $0 }) { throw CuriousError(object: object()) }
                return key.number
            }
            holder.withLock { $0 = map }
            let settle: @Sendable () async -> Void = {
                executor.settle()
                await map.save()
                executor.settle()
            }

            map.store(1, key: key(1))
            await settle()
            map.store(2, key: key(1))
            await map.clear(key: key(1))
            map.refresh(key: key(2))
            await settle()
            map.clearMemory()
            // Failures: replaced by another failure, by a value, by a refresh of all keys.
            fails.withLock { $0 = true }
            for number in [3, 3, 4, 5] {
                _ = try? await map.request(key: key(number))
                world.clock.advance(by: .seconds(61))
            }
            map.store(3, key: key(3))
            await map.clear(key: key(4))
            map.refresh()
            fails.withLock { $0 = false }
            // Evictions, and values that have been unusable for long.
            for number in 10..<40 { map.store(number, key: key(number)) }
            await settle()
            world.clock.advance(by: .seconds(1_000))
            for number in 40..<45 { _ = try? await map.request(key: key(number)) }
            await settle()
            await map.clear()
            map.store(1, key: key(1))
            await world.repository.clearAll()
            await settle()
            world.clock.advance(by: .seconds(1_000))  // the fetches' deadlines
            executor.settle()
            #expect(made.withLock { $0 } > 40)

            // The last keys are released with tasks that end on the pool's threads.
            await gone.reached(made.withLock { $0 })
            holder.withLock { $0 = nil }
        }
    }

    @Test(.ownThreads)
    func `DS-13 the key of a flight is released outside the lock, whichever flight of the key ends last`() async {
        await #expect(processExitsWith: .success) {
            let executor = OrderedExecutor()
            let world = World(spawn: TaskLauncher(executor: executor))
            let holder = Locked<MultiplexerMap<CallingKey, Int>?>(nil)
            let (made, gone) = (Locked(0), Tally())
            let key: @Sendable () -> CallingKey = {
                _ = made.next()
                return CallingKey(
                    number: 1,
                    last: LastCall {
                        _ = holder.withLock { $0 }?.statistics
                        gone.add()
                    }
                )
            }
            let start: @Sendable (MultiplexerMap<CallingKey, Int>) -> Task<Int, any Error> = { map in
                Task(executorPreference: executor) { try await map.request(key: key()) }
            }
            enum End: CaseIterable { case answered, failed, left, timedOut, cleared, signedOut }
            for end in End.allCases {
                let gate = Gate<Int>()
                var policy = MuxPolicy(timeToLive: .zero, fetchTimeout: .seconds(30), maximumCount: 0)
                policy.whenAbandoned = .cancel(linger: .zero)
                let map = MultiplexerMap<CallingKey, Int>(policy: policy, repository: world.repository) { _ in
                    try await gate.pass(ignoringCancellation: true)
                }
                map.register()
                holder.exchange(for: map)
                // The table of flights has the key of the first flight, which ends before the other flights.
                var callers: [Task<Int, any Error>] = []
                for number in 1...3 {
                    callers.append(start(map))
                    executor.settle()
                    await gate.waitForCall(number)
                    map.refresh(key: CallingKey(number: 1, last: nil))
                }
                gate.open(1, returning: 1)
                _ = try? await callers[0].value
                executor.settle()
                switch end {
                case .answered: for number in 2...3 { gate.open(number, returning: number) }
                case .failed: for number in 2...3 { gate.fail(number, with: FetchFailed()) }
                case .left: for caller in callers { caller.cancel() }
                case .timedOut: world.clock.advance(by: .seconds(31))
                case .cleared: await map.clear(key: CallingKey(number: 1, last: nil), endingRequests: true)
                case .signedOut: await world.repository.clearAll()
                }
                executor.settle()
                for number in 2...3 { gate.open(number, returning: 0) }
                for caller in callers { _ = try? await caller.value }
                map.unregister()
                executor.settle()
            }
            world.clock.advance(by: .seconds(1_000))
            executor.settle()
            await gone.reached(made.withLock { $0 })
            holder.exchange(for: nil)
        }
    }

    @Test func `DS-13 the key of a subscription is released outside the lock`() async {
        await #expect(processExitsWith: .success) {
            let broadcast = Broadcast<CallingKey, Void>()
            let gone = Tally()
            var first: CallingKey? = CallingKey(
                number: 1,
                last: LastCall {
                    #expect(broadcast.count == 0)
                    gone.add()
                }
            )
            var removals: [@Sendable () -> Void] = []
            if let first { removals.append(broadcast.add(to: first) {}) }
            first = nil
            removals.append(broadcast.add(to: CallingKey(number: 1, last: nil)) {})

            while !removals.isEmpty { removals.removeFirst()() }

            #expect(gone.value == 1 && broadcast.count == 0)
        }
    }

    @Test(.ownThreads) func `DS-13 values are released outside the locks of a map, a multiplexer and a runner`() async {
        await #expect(processExitsWith: .success) {
            let executor = OrderedExecutor()
            let world = World(spawn: TaskLauncher(executor: executor))
            let key = CallingKey(number: 1, last: nil)
            let made = Locked(0)
            let make: @Sendable () -> CallingValue = { CallingValue(number: made.next()) }
            var policy = MuxPolicy(timeToLive: .seconds(10), staleIfError: .zero, maximumCount: 4)
            policy.whenAbandoned = .cancel(linger: .zero)
            let map = MultiplexerMap<CallingKey, CallingValue>(
                cacheKey: "Map",
                policy: policy,
                repository: world.repository
            ) {
                _ in make()
            }
            let one = Multiplexer<CallingValue>(policy: policy, repository: world.repository) { make() }
            let runner = DependentRunner<CallingValue>(policy: .init(maximumUpdatesPerWindow: nil)) { _ in
                .updatedDependency(make())
            }
            one.register()
            CallingValue.call.exchange {
                _ = (
                    map.statistics, map.cachedEntry(key: key)?.age, map.occupancy, one.statistics, one.cachedEntry?.age
                )
                _ = (runner.occupancy, runner.epoch)
            }
            let settle: @Sendable () async -> Void = {
                executor.settle()
                await map.save()
                executor.settle()
            }

            for round in 0..<3 {
                // Stored, replaced, fetched, refreshed, expired, evicted saved and unsaved.
                for number in 0..<20 { map.store(make(), key: CallingKey(number: number % 7, last: nil)) }
                if round == 1 { await settle() }
                for number in 0..<20 { _ = try? await map.request(key: CallingKey(number: number % 7, last: nil)) }
                map.refresh()
                _ = try? await map.request(keys: (0..<7).map { CallingKey(number: $0, last: nil) })
                if let entry = map.cachedEntry(key: key) { map.store(make(), key: key, ifUnchangedSince: entry) }
                await settle()
                world.clock.advance(by: .seconds(100))
                for number in 0..<9 {
                    _ = try? await map.request(key: CallingKey(number: number, last: nil), .maxAge(.seconds(1)))
                }
                map.clearMemory()
                await map.clear(key: key)
                if round == 2 { await map.clear() }

                one.store(make())
                one.store(make())
                _ = try? await one.refresh().request()
                await one.clear()
                _ = try? await one.request()
                world.clock.advance(by: .seconds(20))
                _ = try? await one.request()

                runner.set(make())
                _ = try? await runner.renew()
                var refusals = 0
                try? await runner.run { _ -> RunResult<Void> in
                    refusals += 1
                    return refusals < 3 ? .badDependency : .output(())
                }
                runner.reset()
                if round == 1 { await world.repository.clearAll() }
            }
            // Loaded for one caller, while memory has no room.
            map.store(make(), key: key)
            await settle()
            let next = world.relaunched(after: .seconds(20), spawn: TaskLauncher(executor: executor))
            var small = policy
            small.maximumCount = 0
            let gate = Gate<Void>()
            let other = MultiplexerMap<CallingKey, CallingValue>(
                cacheKey: "Map",
                policy: small,
                repository: next.repository
            ) { _ in
                try await gate.pass()
                return make()
            }
            CallingValue.call.exchange { _ = (other.statistics, other.occupancy, other.cachedEntry(key: key)?.age) }
            for (number, options) in [(1, RequestOptions.maxAge(.seconds(5))), (2, .maxAge(.seconds(6)))] {
                let caller = Task(executorPreference: executor) { _ = try await other.request(key: key, options) }
                await gate.waitForCall(number)
                gate.open(number)
                _ = try? await caller.value
                executor.settle()
                next.clock.advance(by: .seconds(20))
            }
            let gone = CallingValue.gone
            #expect(gone.value > 50)
        }
    }
}
#endif
