import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

#if os(macOS) || os(Linux)
/// A key, or an error, whose last reference calls its map.
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

@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct KeyLifetimeTests {
    @Test(.ownThreads) func `CO-17 keys and remembered errors are let go of outside the lock`() async {
        // A lock that is taken twice ends the process.
        await #expect(processExitsWith: .success) {
            let executor = OrderedExecutor()
            let world = World(spawn: TaskLauncher(executor: executor))
            let holder = Locked<MultiplexerMap<CuriousKey, Int>?>(nil)
            let (made, gone, fails) = (Locked(0), Tally(), Locked(false))
            let object: @Sendable () -> Curious = {
                _ = made.next()
                return Curious(holder, gone)
            }
            // Each use has a key of its own, so that the one in the table is the only reference to its object.
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
            // Failures: replaced by another one, by a value, by a refresh of all.
            fails.withLock { $0 = true }
            for number in [3, 3, 4, 5] {
                _ = try? await map.request(key: key(number))
                world.clock.advance(by: .seconds(61))
            }
            map.store(3, key: key(3))
            await map.clear(key: key(4))
            map.refresh()
            fails.withLock { $0 = false }
            // Evictions, and what has been of no use for long.
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

            // The last ones leave with tasks that end on the pool's threads.
            await gone.reached(made.withLock { $0 })
            holder.withLock { $0 = nil }
        }
    }
}
#endif
