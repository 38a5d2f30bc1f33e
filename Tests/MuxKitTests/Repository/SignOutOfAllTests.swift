import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A sign-out reaches every multiplexer of its repository, regardless of the initialiser.
@Suite(.standard)
struct SignOutOfAllTests {
    private let user = Locked("alice")

    /// A multiplexer, reduced to the two members that the tests use.
    private struct Probe: Sendable {
        let name: String
        let request: @Sendable () async throws -> String
        let cached: @Sendable () -> String?

        init(_ name: String, _ one: Multiplexer<String>) {
            self.name = name
            self.request = { try await one.request() }
            self.cached = { one.cachedValue }
        }

        init(_ name: String, _ map: MultiplexerMap<Int, String>) {
            self.name = name
            self.request = { try await map.request(key: 1) }
            self.cached = { map.cachedValue(key: 1) }
        }
    }

    /// Unregistered multiplexers of every initialiser without a `cacheKey`.
    private func probes(_ repository: MuxRepository) -> [Probe] {
        let user = self.user
        let runner = DependentRunner<String> { _ in .updatedDependency("token") }
        return [
            Probe("value", Multiplexer(repository: repository) { user.withLock { $0 } }),
            Probe("fetched", Multiplexer(repository: repository) { _ in Fetched(user.withLock { $0 }) }),
            Probe(
                "dependency",
                Multiplexer(dependency: runner, repository: repository) { _ in user.withLock { $0 } }
            ),
            Probe("map", MultiplexerMap(repository: repository) { (_: Int) in user.withLock { $0 } }),
            Probe(
                "fetched map",
                MultiplexerMap(repository: repository) { (_: Int, _) in Fetched(user.withLock { $0 }) }
            ),
            Probe(
                "dependency map",
                MultiplexerMap(dependency: runner, repository: repository) { (_: Int, _) in user.withLock { $0 } }
            ),
            Probe(
                "batches",
                MultiplexerMap(batching: .init(window: .zero), repository: repository) { (keys: [Int]) in
                    Dictionary(uniqueKeysWithValues: keys.map { ($0, user.withLock { $0 }) })
                }
            ),
        ]
    }

    @Test func `AC-01 a sign-out reaches multiplexers of every initialiser`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let probes = self.probes(repository)
        for probe in probes { #expect(try await probe.request() == "alice") }

        #expect(await repository.clearAll().isComplete)
        self.user.withLock { $0 = "bob" }

        for probe in probes {
            #expect(probe.cached() == nil, "\(probe.name)")
            #expect(try await probe.request() == "bob", "\(probe.name)")
        }
    }

    @Test func `AC-01 a sign-out ends requests of a multiplexer without a key, and drops fetched values`() async throws
    {
        let world = World()
        let gate = Gate<String>()
        let name = Multiplexer<String>(policy: .init(whenAbandoned: .finish), repository: world.repository) {
            try await gate.pass(ignoringCancellation: true)
        }
        let caller = Task { try await name.request() }
        await gate.waitForCall(1)

        await world.repository.clearAll()
        await #expect(throws: MuxError.sessionEnded) { try await caller.value }
        let next = Task { try await name.request() }
        await gate.waitForCall(2)
        gate.open(1, returning: "alice")
        gate.open(2, returning: "bob")

        #expect(try await next.value == "bob")
        #expect(name.cachedValue == "bob")
    }

    @Test func `AC-01 watchers of a multiplexer without a key see the end of the session`() async throws {
        let world = World()
        let name = Multiplexer<String>(repository: world.repository) { "alice" }
        _ = try await name.request()
        var values = name.values.makeAsyncIterator()
        #expect(await values.next()??.value == "alice")

        await world.repository.clearAll()

        let after = await values.next()
        #expect(after != nil && after??.value == nil)
    }

    @Test func `AC-01 a repository's sign-out does not affect the multiplexers of another repository`() async throws {
        let (mine, others) = (MuxRepository(store: MemoryStore()), MuxRepository(store: MemoryStore()))
        let (first, second) = (self.probes(mine), self.probes(others))
        for probe in first + second { _ = try await probe.request() }

        await mine.clearAll()

        #expect(first.allSatisfy { $0.cached() == nil })
        #expect(second.allSatisfy { $0.cached() == "alice" })
    }

    @Test func `AC-01 a sign-out reaches a multiplexer after its unregistration`() async throws {
        let world = World()
        let name = Multiplexer<String>(repository: world.repository) { "alice" }
        _ = try await name.register().request()
        name.unregister()

        await world.repository.clearAll()

        #expect(name.cachedValue == nil)
    }

    @Test func `AC-01 clearMemory and statistics include every multiplexer`() async throws {
        let world = World()
        let probes = self.probes(world.repository)
        for probe in probes { _ = try await probe.request() }
        #expect(world.repository.statistics.fetches == probes.count)

        world.repository.clearMemory()

        #expect(probes.allSatisfy { $0.cached() == nil })
    }

    @Test
    func `AC-01 another process's sign-out reaches a multiplexer that was filled before any load`()
        async throws
    {
        let store = MemoryStore()
        let (mine, other) = (MuxRepository(store: store), MuxRepository(store: store))
        let name = Multiplexer<String>(repository: mine) { "alice" }
        _ = try await name.request()

        await other.clearAll()
        let kept = Multiplexer<String>(cacheKey: "Kept", repository: mine) { "bob" }
        // The request detects the end of the session.
        _ = try? await kept.request()

        #expect(name.cachedValue == nil)
    }

    // MARK: - Random orders of events

    @Test func `AC-01 no order of events serves a value from before a completed sign-out`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
            // The numbers of begun and of ended sign-outs.
            let (begun, ended) = (Locked(0), Locked(0))
            @Sendable func pause() async throws {
                try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<4)))
            }
            let base = Multiplexer<Int>(repository: repository) {
                let session = begun.withLock { $0 }
                try await pause()
                return session
            }
            /// A multiplexer without a key that fetches directly or through `base`.
            @Sendable func made() -> Multiplexer<Int> {
                Multiplexer<Int>(policy: .init(whenAbandoned: .finish), repository: repository) {
                    let session = begun.withLock { $0 }
                    let inner = schedule.draw(0..<2) == 0 ? try await base.request() : session
                    try await pause()
                    return min(session, inner)
                }
            }
            let old = [made(), made()]
            let late = Locked<[Multiplexer<Int>]>([])
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        for _ in 0..<4 {
                            try await pause()
                            let since = ended.withLock { $0 }
                            let draw = schedule.draw(0..<4)
                            let one = draw < 2 ? old[draw] : made()
                            if draw >= 2 { late.withLock { $0.append(one) } }
                            guard let session = try? await one.request() else { continue }
                            try expect(session >= since, "a value of session \(session) after \(since) sign-outs")
                        }
                    }
                }
                group.addTask {
                    for _ in 0..<3 {
                        try await pause()
                        _ = begun.next()
                        await repository.clearAll()
                        _ = ended.next()
                    }
                }
                try await group.waitForAll()
            }
            for one in old + [base] + late.withLock({ $0 }) {
                if let session = one.cachedValue { try expect(session == 3, "a value of session \(session) is kept") }
            }
            try await schedule.clock.sleep(for: .seconds(10))
        }
    }

    // MARK: - Many multiplexers

    @Test func `AC-01 making, requesting and releasing many multiplexers leaks no participants`() async throws {
        let repository = MuxRepository(store: .none)
        let count = repetitions(20_000)
        for number in 0..<count {
            let one = Multiplexer<Int>(repository: repository) { number }
            if number % 100 == 0 { #expect(try await one.request() == number) } else { one.store(number) }
        }
        #expect(repository.participantPlaces <= 64)

        var all = (0..<count).map { number in Multiplexer<Int>(cacheKey: "Same", repository: repository) { number } }
        all += (0..<count).map { number in Multiplexer<Int>(repository: repository) { number } }
        #expect((2 * count...2 * count + 64).contains(repository.participantPlaces))
        for one in all { one.store(1) }
        await repository.clearAll()
        #expect(all.allSatisfy { $0.cachedValue == nil })

        // The order of release is neither the order of creation nor its reverse.
        all.shuffle()
        while !all.isEmpty { all.removeLast(min(all.count, 1_000)) }
        #expect(repository.participantPlaces <= 64)
    }

    @Test func `AC-01 multiplexers that are made and released during sign-outs leak no participants`()
        async throws
    {
        let repository = MuxRepository(store: .none)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    var kept: [Multiplexer<Int>] = []
                    for number in 0..<4_000 {
                        let one = Multiplexer<Int>(repository: repository) { number }
                        one.store(number)
                        if number % 3 == 0 { kept.append(one) }
                        if kept.count > 50 { kept.removeFirst(25) }
                    }
                }
            }
            group.addTask { for _ in 0..<100 { await repository.clearAll() } }
        }
        #expect(repository.participantPlaces <= 64)
    }

    // MARK: - The method signOut

    @Test func `AC-08 signOut is clearAll`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let name = Multiplexer<String>(cacheKey: "Name", repository: world.repository) { "alice" }
        _ = try await name.request()
        await name.save()

        #expect(await world.repository.signOut().isComplete)

        #expect(name.cachedValue == nil)
        #expect(await name.loadCachedValue() == nil)
        #expect(try await world.store.sessionEpoch() == 1)
        #expect(world.events.count(of: .sessionEnded) >= 1)
    }
}
