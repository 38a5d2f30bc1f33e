import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The failure paths of a machine's shared store.
@Suite(.standard)
struct SharedStoreFailureTests {
    /// A machine whose store fails, and a connection of another machine.
    private struct Shop: Sendable {
        let schedule: SeededExecutor
        let memory: MemorySharedStore
        let store: FailingSharedStore
        let other: MemorySharedStore.Connection
        let origin: MachineFleet.Origin
        let repository: MuxRepository
        let values: MultiplexerMap<String, String>

        init(
            _ schedule: SeededExecutor,
            policy: MuxPolicy = MuxPolicy(timeToLive: .seconds(600)),
            sharing: MuxShared.Policy = .init()
        ) {
            let (memory, origin) = (MemorySharedStore(clock: schedule.clock), MachineFleet.Origin(schedule.clock))
            let store = FailingSharedStore(memory.connection(), schedule.clock)
            self.schedule = schedule
            self.memory = memory
            self.store = store
            self.other = memory.connection()
            self.origin = origin
            self.repository = SharedStoreFailureTests.repository(schedule, store, sharing)
            self.values = MultiplexerMap(cacheKey: "Values", policy: policy, repository: self.repository) { key in
                try await origin.fetch(key)
            }
        }

        /// The entry of a key in the store.
        func stored(_ key: String) async throws -> MuxShared.Entry? { try await self.other.load([Self.name(key)])[0] }

        /// Puts an entry as another machine.
        func put(_ entry: MuxShared.Entry, _ name: MuxShared.Name) async throws {
            let claim = try await self.other.claim(name, maximumAge: .zero, digest: nil, for: .seconds(60))
            guard case .granted(let ticket, _) = claim else { throw Violation("\(claim)") }
            try expect(try await self.other.put(entry, with: ticket), "the entry is refused")
        }

        /// Waits until no other job can run.
        func settle() async throws { try await self.schedule.clock.sleep(for: .nanoseconds(1)) }

        static func name(_ key: String) -> MuxShared.Name { MuxShared.Name(MuxStoreKey(domain: "Values", key: key)) }
    }

    private static func repository(
        _ schedule: SeededExecutor,
        _ store: any MuxSharedStore,
        _ sharing: MuxShared.Policy
    ) -> MuxRepository {
        .machine(schedule, sharing: store, sharing, random: { Double(schedule.draw(0..<1_000)) / 1_000 })
    }

    private static func entry(_ text: String, timeToLive: Duration = .seconds(600), version: Int = 1) -> MuxShared.Entry
    {
        MuxShared.Entry(
            payload: Data("\"\(text)\"".utf8),
            digest: "digest of \(text)",
            timeToLive: timeToLive,
            schemaVersion: version
        )
    }

    // MARK: - Ages and versions

    @Test func `PT-01 a value that the store confirms by its digest keeps its age`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let fleet = MachineFleet(schedule, machines: 1)
            let values = fleet.machines[0].values
            _ = try await values.request(key: "a")
            try await schedule.clock.sleep(for: .seconds(50))
            // Changes may have been missed, so the store is asked whether the value is still the same.
            fleet.store.isDown = true
            fleet.store.isDown = false
            try await fleet.settle()
            let confirmed = try await values.requestEntry(key: "a")
            try expect(confirmed.source == .sharedStore && confirmed.age >= .seconds(50), "\(confirmed)")
            try await schedule.clock.sleep(for: .seconds(5))
            let hit = try await values.requestEntry(key: "a")
            try expect(hit.source == .memory && hit.age >= .seconds(55), "\(hit)")
            try await schedule.clock.sleep(for: .seconds(6))
            let entry = try await values.requestEntry(key: "a")
            try expect(entry.source == .fetch, "\(entry)")
        }
    }

    @Test func `PT-01 a confirmation of another digest is ignored`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            _ = try await shop.values.request(key: "a")
            shop.origin.change("a")
            shop.memory.isDown = true
            try await shop.settle()
            shop.memory.isDown = false
            try await shop.settle()
            // The store is faulty: its entry has another digest and no payload.
            shop.store.changeClaims { claim in
                guard case .entry(var entry) = claim else { return claim }
                (entry.payload, entry.digest) = (nil, "another")
                return .entry(entry)
            }
            let value = try await shop.values.request(key: "a")
            try expect(value == "a 1", value)
        }
    }

    @Test func `PT-01 a stale value of a later program version is no fallback and is not replaced`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(60), staleIfError: .seconds(600), isSilenceable: { _ in true })
            let shop = Shop(schedule, policy: policy)
            try await shop.put(Self.entry("later", timeToLive: .seconds(1), version: 9), Shop.name("a"))
            try await schedule.clock.sleep(for: .seconds(10))
            shop.origin.fail(with: FetchFailed())
            let stale = try? await shop.values.request(key: "a")
            try expect(stale == nil, stale ?? "")
            shop.origin.fail(with: nil)
            let value = try await shop.values.request(key: "a", .reload)
            try expect(value == "a 0", value)
            try expect(try await shop.stored("a")?.schemaVersion == 9, "the entry of the later version is replaced")
            // The claim was given up, so the later version does not wait for the claim.
            try await shop.settle()
            let claim = try await shop.other.claim(Shop.name("a"), maximumAge: nil, digest: nil, for: .seconds(1))
            guard case .granted = claim else { throw Violation("\(claim)") }
        }
    }

    @Test func `PT-01 a fresh value of a later program version is not read`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            try await shop.put(Self.entry("later", version: 9), Shop.name("a"))
            let value = await shop.values.loadCachedValue(key: "a")
            try expect(value == nil, value ?? "")
        }
    }

    @Test func `PT-01 the limits of a stale value are the same on all machines`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let policy = MuxPolicy(timeToLive: .seconds(10), isSilenceable: { _ in true }, schemaVersion: 3)
            let maps = fleet.machines.map { machine in
                MultiplexerMap<String, String>(cacheKey: "Limits", policy: policy, repository: machine.repository) {
                    (key: String, _) in
                    Fetched(
                        try await fleet.origin.fetch(key),
                        staleWhileRevalidate: .seconds(5),
                        staleIfError: .seconds(20),
                        validator: "v"
                    )
                }
            }
            _ = try await maps[0].request(key: "a")
            let name = MuxShared.Name(MuxStoreKey(domain: "Limits", key: "a"))
            let stored = try await fleet.store.connection().load([name])[0]
            try expect(stored?.staleWhileRevalidate == .seconds(5) && stored?.staleIfError == .seconds(20))
            try expect(stored?.validator == "v" && stored?.schemaVersion == 3)
            _ = try await maps[1].request(key: "a")
            if schedule.draw(0..<2) == 0 {
                // The second machine has the entry confirmed without its payload.
                fleet.store.isDown = true
                fleet.store.isDown = false
                try await fleet.settle()
                _ = try await maps[1].request(key: "a")
            }
            // Within the limit for failures, and past the limit for renewals.
            try await schedule.clock.sleep(for: .seconds(17))
            fleet.origin.fail(with: FetchFailed())
            let entry = try await maps[1].requestEntry(key: "a")
            try expect(entry.value == "a 0" && entry.staleReason == .fetchFailed, "\(entry)")
        }
    }

    // MARK: - Invalidations

    @Test func `PT-01 a failed invalidation is sent again without another request`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            // The task that sends pending invalidations starts again in each round.
            for round in 0..<3 {
                _ = try await shop.values.request(key: "a")
                try expect(try await shop.stored("a") != nil, "round \(round)")
                shop.store.fail(.invalidate)
                let report = await shop.values.clear(key: "a")
                try expect(!report.isComplete, "\(report)")
                try expect(try await shop.stored("a") != nil, "round \(round)")
                shop.store.fail()
                try await schedule.clock.sleep(for: .seconds(31))
                try expect(try await shop.stored("a") == nil, "round \(round)")
            }
        }
    }

    @Test func `PT-01 a pending invalidation is sent as soon as the store is back`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let sharing = MuxShared.Policy(pause: .seconds(100), maximumPause: .seconds(100))
            let fleet = MachineFleet(schedule, machines: 1, sharing: sharing)
            let machine = fleet.machines[0]
            _ = try await machine.values.request(key: "a")
            machine.connection.isCut = true
            let report = await machine.values.clear(key: "a")
            try expect(!report.isComplete, "\(report)")
            machine.connection.isCut = false
            try await fleet.settle()
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "a"))
            let stored = try await fleet.store.connection().load([name])[0]
            try expect(stored == nil, "the invalidation waits for the pause")
        }
    }

    @Test func `PT-01 an entry that is invalidated again during a running invalidation is sent again`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            _ = try await shop.values.request(key: "a")
            shop.store.delayReplies(of: .invalidate, by: .milliseconds(100))
            let clearing = Task(executorPreference: schedule) { await shop.values.clear(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(50))
            try expect(try await shop.stored("a") == nil, "the first invalidation has no effect")
            try await shop.put(Self.entry("between"), Shop.name("a"))
            shop.values.refresh(key: "a")
            _ = await clearing.value
            try await schedule.clock.sleep(for: .seconds(31))
            try expect(try await shop.stored("a") == nil, "the second invalidation is lost")
        }
    }

    @Test func `PT-01 an invalidation without a reply is reported, after a limited time`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            _ = try await shop.values.request(key: "a")
            shop.store.delayReplies(of: .invalidate, by: .seconds(10))
            let start = schedule.clock.now
            let report = await shop.values.clear(key: "a")
            let time = start.duration(to: schedule.clock.now)
            try expect(!report.isComplete, "\(report)")
            try expect(time <= .milliseconds(501), "\(time)")
            shop.store.delayReplies(of: .invalidate, by: nil)
        }
    }

    @Test func `PT-01 a machine does not read an entry that the machine failed to invalidate`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let sharing = MuxShared.Policy(pause: .milliseconds(20), maximumPause: .milliseconds(20))
            let shop = Shop(schedule, sharing: sharing)
            let scopes = schedule.draw(0..<3)
            _ = try await shop.values.request(key: "a")
            shop.origin.change("a")
            shop.store.fail(.invalidate)
            switch scopes {
            case 0: _ = await shop.values.clear(key: "a")
            case 1: _ = await shop.values.clear()
            default: _ = await shop.repository.clearAll()
            }
            // The reads occur at a random time of a pause.
            try await schedule.clock.sleep(for: .milliseconds(Int64(schedule.draw(500..<540))))
            let loaded = await shop.values.loadCachedValue(key: "a")
            try expect(loaded == nil, loaded ?? "")
            try await schedule.clock.sleep(for: .milliseconds(Int64(schedule.draw(0..<40))))
            let value = try await shop.values.request(key: "a")
            try expect(value == "a 1", value)
            shop.store.fail()
        }
    }

    // MARK: - Claims

    @Test func `PT-01 a failed give-up of a claim is retried for a minute`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule, policy: MuxPolicy(timeToLive: .seconds(600), fetchTimeout: .seconds(500)))
            shop.origin.fail(with: FetchFailed())
            shop.store.fail(.giveUp)
            _ = try? await shop.values.request(key: "a")
            try await schedule.clock.sleep(for: .seconds(10))
            shop.store.fail()
            try await schedule.clock.sleep(for: .seconds(45))
            let claim = try await shop.other.claim(Shop.name("a"), maximumAge: nil, digest: nil, for: .seconds(1))
            guard case .granted = claim else { throw Violation("\(claim)") }
        }
    }

    @Test func `PT-01 a load of a cancelled caller is no failure of the store`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            shop.store.delayReplies(of: .load, by: .milliseconds(100))
            let caller = Task(executorPreference: schedule) { await shop.values.loadCachedValue(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(50))
            caller.cancel()
            _ = await caller.value
            _ = try await shop.values.request(key: "b")
            try expect(shop.store.count(of: .claim) == 1, "the store is not asked")
        }
    }

    @Test func `PT-01 a cancelled trial load does not delay the next load`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            shop.store.fail(.load)
            _ = await shop.values.loadCachedValue(key: "a")
            let failed = shop.store.count(of: .load)
            shop.store.fail()
            // The pause is over, so the next load decides whether the store is back.
            try await schedule.clock.sleep(for: .seconds(1))
            shop.store.delayReplies(of: .load, by: .milliseconds(100))
            let caller = Task(executorPreference: schedule) { await shop.values.loadCachedValue(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(50))
            let before = shop.store.count(of: .load)
            try expect(before > failed, "no load decides")
            caller.cancel()
            _ = await caller.value
            _ = await shop.values.loadCachedValue(key: "a")
            try expect(shop.store.count(of: .load) > before, "the store is not asked")
        }
    }

    @Test func `PT-01 a value that is cleared during its load is not returned`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            try await shop.put(Self.entry("old"), Shop.name("a"))
            shop.store.delayReplies(of: .load, by: .milliseconds(100))
            let value = Task(executorPreference: schedule) { await shop.values.loadCachedValue(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(50))
            if schedule.draw(0..<2) == 0 {
                _ = await shop.values.clear(key: "a")
            } else {
                _ = await shop.repository.clearAll()
            }
            let loaded = await value.value
            try expect(loaded == nil, loaded ?? "")
        }
    }

    @Test func `PT-01 a load without a fetch shows the changes of the app`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            try await shop.put(Self.entry("old"), Shop.name("a"))
            let change = shop.values.change(key: "a") { $0 += "!" }
            let loaded = await shop.values.loadCachedValue(key: "a")
            try expect(loaded == "old!", loaded ?? "")
            change.undo()
        }
    }

    @Test(arguments: [false, true])
    func `PT-01 a report of a clear concerns an entry whose change is undone after its eviction`(
        isChangedAgain: Bool
    ) async throws {
        try await SeededExecutor.explore(10) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(600), maximumCount: 4, evictsLeastRecentlyUsed: true)
            let shop = Shop(schedule, policy: policy)
            _ = try await shop.values.request(key: "a")
            let change = shop.values.change(key: "a") { $0 += "!" }
            for number in 0..<40 { _ = try await shop.values.request(key: "\(number)") }
            try expect(shop.values.cachedValue(key: "a") == nil, "the entry is not evicted")
            let second = isChangedAgain ? shop.values.change(key: "a") { $0 += "?" } : nil
            change.undo()
            second?.undo()
            try await shop.other.invalidate([.entry(Shop.name("a").key)])
            try await shop.settle()
            let value = shop.values.cachedValue(key: "a")
            try expect(value == nil, value ?? "")
        }
    }

    @Test func `PT-01 a machine that waits for another machine again makes a limited number of claims`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let shop = Shop(schedule)
            let (name, third) = (Shop.name("a"), shop.memory.connection())
            let first = try await shop.other.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
            guard case .granted(let ticket, _) = first else { throw Violation("\(first)") }
            let value = Task(executorPreference: schedule) { try await shop.values.request(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(10))
            // A third machine takes over, unless this one does.
            try await shop.other.giveUp(ticket)
            let second = try await third.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(shop.store.count(of: .claim) <= 8, "\(shop.store.count(of: .claim)) claims")
            if case .granted(let ticket, _) = second {
                try expect(try await third.put(Self.entry("third"), with: ticket), "the entry is refused")
            }
            let text = try await value.value
            try expect(["third", "a 0"].contains(text), text)
        }
    }

    // MARK: - Leaks

    @Test func `PT-01 a wait for another machine leaves no listener and no timer`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            // Without a deadline there is no other timer.
            let policy = MuxPolicy(
                timeToLive: .seconds(600),
                whenAbandoned: .cancel(linger: .zero),
                fetchTimeout: .longest
            )
            let shop = Shop(schedule, policy: policy)
            let first = try await shop.other.claim(Shop.name("a"), maximumAge: nil, digest: nil, for: .seconds(60))
            guard case .granted(let ticket, _) = first else { throw Violation("\(first)") }
            let caller = Task(executorPreference: schedule) { try await shop.values.request(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(10))
            try expect(shop.repository.sharedStore?.waitCount == 1, "the flight does not wait")
            if schedule.draw(0..<2) == 0 {
                caller.cancel()
                _ = try? await caller.value
            } else {
                try expect(try await shop.other.put(Self.entry("other"), with: ticket), "the entry is refused")
                let value = try await caller.value
                try expect(value == "other", value)
            }
            try await shop.settle()
            let occupancy = shop.values.occupancy
            try expect(occupancy.tasks == 0 && occupancy.keys == 0, "\(occupancy)")
            try expect(shop.repository.sharedStore?.waitCount == 0, "a listener is left")
            try expect(schedule.clock.sleeperCount == 0, "a timer is left")
        }
    }

    @Test func `PT-01 a released repository no longer listens to its shared store`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let ended = Locked(0)
            let memory = MemorySharedStore(clock: schedule.clock)
            do {
                let store = FailingSharedStore(memory.connection(), schedule.clock) { ended.withLock { $0 += 1 } }
                let repository = Self.repository(schedule, store, .init())
                let values = MultiplexerMap<String, String>(cacheKey: "Values", repository: repository) { $0 }
                _ = try await values.request(key: "a")
                try expect(ended.withLock { $0 } == 0, "the repository does not listen")
            }
            try await schedule.clock.sleep(for: .nanoseconds(1))
            try expect(ended.withLock { $0 } == 1, "the repository still listens")
        }
    }

    @Test func `PT-01 the defaults of a shared store match the documentation`() {
        let policy = MuxShared.Policy()
        #expect(policy.budget == .milliseconds(250))
        #expect(policy.patience == .seconds(5))
        #expect(policy.pause == .seconds(1))
        #expect(policy.maximumPause == .seconds(30))
    }
}
