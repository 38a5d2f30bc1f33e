import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The real types under real parallelism: the results are linearizable with a plain variable as the model.
///
/// `MUX_HISTORIES=100` records a hundred times as many histories, `MUX_SEED=7` begins with seed 7.
///
/// Excluded by the specification: results of fenced flights (marked as fenced and not cached), failed calls
/// (cancelled, dismissed by a sign-out or a reset, or with a failed fetch: a failed call changes nothing),
/// stale values served in place of an error, and evictions.
@Suite(.standard(minutes: 60))
struct LinearizabilityTests {
    private typealias Action = Linearizability.Action
    private static let keys = [0, 1]

    /// An actor to hop to, so that concurrent calls interleave.
    private actor Elsewhere {
        func visit() {}
    }

    private let elsewhere = Elsewhere()

    private func histories(_ count: Int, _ what: String, _ record: (UInt64) async -> [String]) async {
        let first = ProofEnvironment.number("MUX_SEED") ?? 0
        let count = ProofEnvironment.count(count, "MUX_HISTORIES")
        for seed in first..<first + count {
            let violations = await record(UInt64(seed))
            #expect(violations == [], "MUX_SEED=\(seed)")
        }
        print("Q-03: \(count) histories of \(what)")
    }

    private func work(
        _ seed: UInt64,
        _ body: @escaping @Sendable (inout SplitMix64, Int) async -> Void
    ) async {
        await withTaskGroup { group in
            for worker in 0..<4 {
                group.addTask {
                    var random = SplitMix64(state: seed &* 31 &+ UInt64(worker))
                    for _ in 0..<6 {
                        await body(&random, Self.keys.randomElement(using: &random) ?? 0)
                        if Bool.random(using: &random) { await self.elsewhere.visit() }
                    }
                }
            }
        }
    }

    @Test(arguments: [false, true])
    func `Q-03 the results of a map's callers are linearizable`(isPersistent: Bool) async {
        await self.histories(340, isPersistent ? "a map with a store" : "a map") { seed in
            let world = World()
            let recorder = HistoryRecorder()
            let fetch: @Sendable (Int) async throws -> Int = { key in
                let number = recorder.number()
                for _ in 0..<number % 3 { await self.elsewhere.visit() }
                if number % 11 == 0 { throw FetchFailed(call: number) }
                return number
            }
            let map =
                isPersistent
                ? MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository, onFetch: fetch)
                : MultiplexerMap<Int, Int>(repository: world.repository, onFetch: fetch).register()
            await self.work(seed) { random, key in
                switch Int.random(in: 0..<12, using: &random) {
                case 0:
                    let value = recorder.number()
                    await recorder.record([key]) {
                        map.store(value, key: key)
                        return .store(value)
                    }
                case 1:
                    await recorder.record([key]) {
                        map.refresh(key: key)
                        return .refresh
                    }
                case 2:
                    await recorder.record([key]) {
                        await map.clear(key: key)
                        return .clear
                    }
                case 3:
                    // A sign-out clears at the end of the session, and again when the sign-out is complete.
                    await recorder.record(Self.keys, times: 2) {
                        await world.repository.clearAll()
                        return .clear
                    }
                case 4: await world.repository.saveAll()
                case 5...6: await recorder.record([key]) { .look(map.cachedValue(key: key)) }
                default:
                    await recorder.record([key]) {
                        guard let entry = try? await map.requestEntry(key: key), entry.staleReason == nil else {
                            return nil
                        }
                        return .request(entry.value)
                    }
                }
            }
            map.unregister()
            return await recorder.violations()
        }
    }

    @Test(arguments: [false, true])
    func `SC-07 the results of a map's callers are linearizable with changes of tags`(isPersistent: Bool) async {
        await self.histories(340, isPersistent ? "a map with tags and a store" : "a map with tags") { seed in
            let (world, recorder) = (World(), HistoryRecorder())
            let fetch: @Sendable (Int, FetchedBefore<Int>?) async throws -> Fetched<Int> = { key, _ in
                let number = recorder.number()
                for _ in 0..<number % 3 { await self.elsewhere.visit() }
                if number % 11 == 0 { throw FetchFailed(call: number) }
                return Fetched(number, tags: ["all", "key \(key)"])
            }
            let map = MultiplexerMap<Int, Int>(
                cacheKey: isPersistent ? "Map" : nil,
                repository: world.repository,
                onFetch: fetch
            ).register()
            await self.work(seed) { random, key in
                switch Int.random(in: 0..<14, using: &random) {
                case 0...2:
                    await recorder.record([key]) {
                        world.repository.refresh(tags: ["key \(key)"])
                        return .refresh
                    }
                case 3...4:
                    await recorder.record([key]) {
                        await world.repository.clear(tags: ["key \(key)"])
                        return .clear
                    }
                case 5:
                    await recorder.record(Self.keys) {
                        world.repository.refresh(tags: ["all", "none"])
                        return .refresh
                    }
                case 6: await world.repository.saveAll()
                case 7...8: world.repository.refresh(tags: ["none"])
                case 9: await recorder.record([key]) { .look(map.cachedValue(key: key)) }
                default:
                    await recorder.record([key]) {
                        guard let entry = try? await map.requestEntry(key: key), entry.staleReason == nil else {
                            return nil
                        }
                        return .request(entry.value)
                    }
                }
            }
            map.unregister()
            return await recorder.violations()
        }
    }

    @Test func `Q-03 the results of a runner's callers are linearizable`() async {
        await self.histories(340, "a runner") { seed in
            let recorder = HistoryRecorder()
            let runner = DependentRunner<Int> { _ in
                let number = recorder.number()
                for _ in 0..<number % 3 { await self.elsewhere.visit() }
                if number % 11 == 0 { throw FetchFailed(call: number) }
                return .updatedDependency(number)
            }
            await self.work(seed) { random, _ in
                switch Int.random(in: 0..<8, using: &random) {
                case 0:
                    let value = recorder.number()
                    await recorder.record([0]) {
                        runner.set(value)
                        return .store(value)
                    }
                case 1:
                    await recorder.record([0]) {
                        runner.reset()
                        return .clear
                    }
                case 2...3: await recorder.record([0]) { .look(runner.value) }
                default:
                    await recorder.record([0]) { (try? await runner.run { .output($0) }).map { .request($0) } }
                }
            }
            return await recorder.violations()
        }
    }

    // MARK: - The checker

    private func holds(_ operations: (Action, Int, Int)...) -> Bool {
        let history = operations.map { Linearizability.Operation(action: $0.0, called: $0.1, returned: $0.2) }
        return Linearizability.holds(history, from: Linearizability.Variable())
    }

    @Test func `Q-03 the checker rejects a history that no order explains`() {
        #expect(self.holds((.store(1), 1, 2), (.look(1), 3, 4)))
        #expect(!self.holds((.store(1), 1, 2), (.look(nil), 3, 4)), "a lost store")
        #expect(self.holds((.store(1), 1, 4), (.look(nil), 2, 3)), "not yet")
        #expect(!self.holds((.store(1), 1, 6), (.look(1), 2, 3), (.look(nil), 4, 5)), "there and gone again")
        #expect(!self.holds((.request(5), 1, 2), (.clear, 3, 4), (.request(5), 6, 7)), "a value from before a fence")
        #expect(
            !self.holds((.request(5), 1, 2), (.refresh, 3, 4), (.request(5), 6, 7)),
            "a refresh that nobody notices"
        )
        #expect(self.holds((.request(5), 1, 4), (.request(5), 2, 3)), "one flight for two callers")
        #expect(!self.holds((.request(5), 1, 2), (.request(6), 3, 4)), "a fetch for nothing")
        #expect(
            !self.holds((.request(6), 1, 10), (.request(5), 2, 9), (.look(6), 11, 12), (.look(5), 13, 14)),
            "back again"
        )
        #expect(!self.holds((.store(1), 1, 2), (.store(2), 3, 4), (.look(1), 5, 6)), "an overwritten store")
    }
}
