import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Many invalidations, refused entries, lost claims and outages of a shared store.
@Suite(.standard)
struct SharedStoreFaultTests {
    /// An error of an engine.
    private struct EngineFailure: MuxShared.Failure {
        let reason: String
        var isConnectivityFailure = false
    }

    /// A connection with faults, which records invalidations.
    private struct FaultyConnection: MuxSharedStore {
        struct Faults: Sendable {
            /// The error of all calls.
            var outage: EngineFailure?
            /// The clock on which loads wait until their cancellation; `nil` for no wait.
            var silence: VirtualClock?
            /// Keys of entries, and tags, that are refused.
            var refused: Set<String> = []
            /// Keys of entries whose puts are refused.
            var tooLarge: Set<String> = []
            /// Whether claims throw a cancellation.
            var cancelsClaims = false
            /// Whether puts throw a cancellation.
            var cancelsPuts = false
            /// Whether claims are evicted before the put.
            var evictsClaims = false
            /// Stores a newer entry when a claim is evicted.
            var rival: (MemorySharedStore.Connection, VirtualClock)?
            var invalidations: [[MuxShared.Scope]] = []
        }

        let base: MemorySharedStore.Connection
        let faults: Locked<Faults>

        private func check(_ name: MuxStoreKey? = nil) throws {
            if let outage = self.faults.withLock({ $0.outage }) { throw outage }
            guard let key = name?.key, self.faults.withLock({ $0.refused.contains(key) }) else { return }
            throw EngineFailure(reason: "NOPERM")
        }

        func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
            try self.check()
            if let clock = self.faults.withLock({ $0.silence }) { try await clock.sleep(for: .seconds(1_000)) }
            for name in names { try self.check(name.key) }
            return try await self.base.load(names)
        }

        func claim(
            _ name: MuxShared.Name,
            maximumAge: Duration?,
            digest: String?,
            for duration: Duration
        ) async throws -> MuxShared.Claim {
            try self.check(name.key)
            if self.faults.withLock({ $0.cancelsClaims }) { throw CancellationError() }
            return try await self.base.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
        }

        func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
            try self.check(ticket.name.key)
            if self.faults.withLock({ $0.cancelsPuts }) { throw CancellationError() }
            let key = ticket.name.key.key ?? ""
            if self.faults.withLock({ $0.tooLarge.contains(key) }) { throw EngineFailure(reason: "too large") }
            if self.faults.withLock({ $0.evictsClaims }) { try await self.base.giveUp(ticket) }
            if let (rival, clock) = self.faults.withLock({ $0.rival }) {
                try await clock.sleep(for: .milliseconds(10))
                let claim = try await rival.claim(ticket.name, maximumAge: nil, digest: nil, for: .seconds(60))
                guard case .granted(let other, _) = claim else { throw Violation("\(claim)") }
                let newer = MuxShared.Entry(
                    payload: Data("\"of the rival\"".utf8),
                    digest: "rival",
                    timeToLive: .seconds(600)
                )
                _ = try await rival.put(newer, with: other)
                try await clock.sleep(for: .milliseconds(10))
            }
            return try await self.base.put(entry, with: ticket)
        }

        func giveUp(_ ticket: MuxShared.Ticket) async throws {
            try self.check()
            try await self.base.giveUp(ticket)
        }

        func invalidate(_ scopes: [MuxShared.Scope]) async throws {
            try self.check()
            for scope in scopes {
                switch scope {
                case .entry(let name): try self.check(name)
                case .tag(let tag): try self.check(MuxStoreKey(domain: "", key: tag))
                default: break
                }
            }
            self.faults.withLock { $0.invalidations.append(scopes) }
            try await self.base.invalidate(scopes)
        }

        func changes() -> AsyncStream<MuxShared.Change> { self.base.changes() }
    }

    private struct Machine: Sendable {
        let repository: MuxRepository
        let values: MultiplexerMap<String, String>
        let store: FaultyConnection
        let events = EventTally()
        let fetches = Locked<[String: Int]>([:])

        init(_ schedule: SeededExecutor, _ store: MemorySharedStore, fetchTime: Duration = .milliseconds(100)) {
            let faulty = FaultyConnection(base: store.connection(), faults: Locked(.init()))
            let fetches = self.fetches
            self.store = faulty
            self.repository = .machine(schedule, sharing: faulty, observer: self.events)
            self.values = MultiplexerMap(
                cacheKey: .init("Values") { ["of \($0)"] },
                policy: MuxPolicy(timeToLive: .seconds(600)),
                repository: self.repository
            ) { key in
                let count = fetches.withLock { fetches in
                    fetches[key, default: 0] += 1
                    return fetches[key] ?? 0
                }
                try await schedule.clock.sleep(for: fetchTime)
                return "\(key) \(count)"
            }
        }

        var fetchCount: Int { self.fetches.withLock { $0.values.reduce(0, +) } }
        var invalidations: [[MuxShared.Scope]] { self.store.faults.withLock { $0.invalidations } }

        func events(_ kind: MuxEvent.Kind) -> [MuxEvent] { self.events.events.filter { $0.kind == kind } }
    }

    // MARK: - Invalidations

    @Test func `FT-01 any number of tags is invalidated by name, in batches`() async throws {
        try await SeededExecutor.explore(1) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in Machine(schedule, store) }
            for machine in machines {
                for key in ["7", "other"] { _ = try await machine.values.request(key: key) }
            }
            // More tags than may be pending in an outage.
            let count = PendingInvalidations.limit + 1
            let report = await machines[0].repository.clear(tags: (0..<count).map { "of \($0)" })
            try expect(report.isComplete, "\(report.failures)")
            try await schedule.clock.sleep(for: .seconds(1))

            let calls = machines[0].invalidations
            try expect(calls.map(\.count).reduce(0, +) == count && calls.allSatisfy { $0.count <= 1_000 })
            try expect(!calls.joined().contains(.everything))
            try expect(machines.allSatisfy { $0.values.cachedValue(key: "7") == nil }, "a tag was not cleared")
            try expect(machines.allSatisfy { $0.values.cachedValue(key: "other") == "other 1" }, "all was cleared")
        }
    }

    @Test func `FT-01 many simultaneous sign-outs end only their own sessions`() async throws {
        try await SeededExecutor.explore(1) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in Machine(schedule, store) }
            let sessions = machines.map { machine in
                MuxSessions<Int, Int>(repository: machine.repository) { _, _ in .updatedDependency(1) }
            }
            for users in sessions { for user in [1, -1] { users.set(1, for: user) } }
            store.delay = .milliseconds(1)
            let count = 3_000
            let complete = await withTaskGroup(of: Bool.self) { group in
                for user in 0..<count { group.addTask { await sessions[0].signOut(user).isComplete } }
                return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
            }
            try expect(complete == count, "\(complete) complete sign-outs")
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(!machines[0].invalidations.joined().contains(.everything))
            for users in sessions {
                try expect(users.token(of: 1) == nil && users.token(of: -1) == 1)
            }
        }
    }

    @Test func `FT-01 after an outage pending invalidations keep their names`() async throws {
        try await SeededExecutor.explore(1) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            machine.store.faults.withLock { $0.outage = EngineFailure(reason: "down", isConnectivityFailure: true) }
            let report = await machine.repository.clear(tags: (0..<20_000).map { "of \($0)" })
            try expect(!report.isComplete)
            try expect(await machine.repository.gauges().pendingInvalidations == 20_000)
            machine.store.faults.withLock { $0.outage = nil }
            try await schedule.clock.sleep(for: .seconds(61))
            let sent = Set(machine.invalidations.joined())
            try expect(sent.count == 20_000 && !sent.contains(.everything), "\(sent.count)")
            try expect(await machine.repository.gauges().pendingInvalidations == 0)
        }
    }

    @Test func `FT-01 an outage widens entries to their domain, the largest first, and tags last of all`() {
        let limit = PendingInvalidations.limit
        var pending = PendingInvalidations()
        func entry(_ domain: String, _ number: Int) -> MuxShared.Scope {
            .entry(MuxStoreKey(domain: domain, key: "\(number)"))
        }
        func scopes() -> Set<MuxShared.Scope> { Set(pending.batches().joined().map(\.scope)) }
        pending.add((0..<limit).map { entry("healthy", $0) } + [.tag("t"), .domain("d")], isOutage: false)
        #expect(pending.count == limit + 2)

        pending = PendingInvalidations()
        pending.add([.tag("a"), .tag("b")] + (0..<10).map { entry("small", $0) }, isOutage: true)
        pending.add((0..<limit - 12).map { entry("large", $0) }, isOutage: true)
        #expect(pending.count == limit)
        pending.add([.tag("c")], isOutage: true)
        #expect(
            scopes() == Set([.tag("a"), .tag("b"), .tag("c"), .domain("large")] + (0..<10).map { entry("small", $0) })
        )

        // Tags fill all places. Entries of pending domains need no place.
        pending.add((0..<limit - 14).map { .tag("\($0)") }, isOutage: true)
        #expect(pending.count == limit)
        pending.add([entry("large", 0)], isOutage: true)
        #expect(pending.count == limit && !pending.contains([entry("large", 0), .everything]))
        pending.add([.tag("one more")], isOutage: true)
        #expect(pending.count == limit - 8 && pending.contains([.domain("small")]))
        pending.add((0..<9).map { .tag("more \($0)") }, isOutage: true)
        #expect(scopes() == [.everything])

        // Only the entry with a pending domain makes room. The other entries keep their names.
        let single = (0..<50).map { entry("single \($0)", 0) }
        pending = PendingInvalidations()
        pending.add(single + [entry("b", 0), .domain("b")] + (0..<limit - 52).map { .tag("\($0)") }, isOutage: true)
        pending.add([.tag("one more")], isOutage: true)
        #expect(pending.count == limit && scopes().isSuperset(of: single))
    }

    @Test func `FT-01 a request waits for its own invalidation, and not for all pending invalidations`() {
        var pending = PendingInvalidations()
        pending.add((0..<5_000).map { .tag("\($0)") }, isOutage: false)
        let first = pending.batches(first: [.everything, .tag("4321")])
        #expect(first.count == 1 && first[0].count == PendingInvalidations.batchSize)
        #expect(first[0].first?.scope == .tag("4321"))
        #expect(pending.batches(first: [.tag("none")]).isEmpty)
        #expect(pending.batches().map(\.count) == [1_000, 1_000, 1_000, 1_000, 1_000])
        // A scope that was added again during its transmission is sent again.
        pending.add([.tag("4321")], isOutage: false)
        pending.confirmed(first[0])
        #expect(pending.count == 4_001 && pending.contains([.tag("4321")]))
    }

    // MARK: - Refused entries

    @Test func `FT-02 a refused entry is kept by its machine only, and other entries are shared`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in Machine(schedule, store) }
            let isPut = schedule.draw(0..<2) == 0
            for machine in machines {
                machine.store.faults.withLock { faults in
                    if isPut { faults.tooLarge = ["bad"] } else { faults.refused = ["bad"] }
                }
            }
            for machine in machines {
                for _ in 0..<3 {
                    for key in ["bad", "good"] { _ = try await machine.values.request(key: key) }
                }
            }
            try expect(machines.map(\.fetchCount) == [2, 1], "\(machines.map(\.fetchCount))")
            for machine in machines {
                let told = machine.events(.notShared)
                let reason = MuxEvent.Reason.other(isPut ? "too large" : "NOPERM")
                try expect(told.map(\.reason) == [reason] && told[0].key == "bad", "\(told)")
                try expect(told[0].cacheKey == "Values" && machine.events(.sharedStoreUnavailable).isEmpty)
                try expect(await machine.repository.gauges().sharedStoreOutage == nil)
            }
        }
    }

    @Test(arguments: [false, true])
    func `FT-02 a cancellation by the store is neither a refusal nor an outage`(isPut: Bool) async throws {
        try await SeededExecutor.explore(10) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            machine.store.faults.withLock { ($0.cancelsClaims, $0.cancelsPuts) = (!isPut, isPut) }
            try expect(try await machine.values.request(key: "a") == "a 1")
            try expect(machine.events(.notShared).isEmpty && machine.events(.sharedStoreUnavailable).isEmpty)
        }
    }

    @Test func `FT-02 a refusal ends an outage, because the store has replied`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            machine.store.faults.withLock { $0.outage = EngineFailure(reason: "down", isConnectivityFailure: true) }
            _ = try await machine.values.request(key: "a")
            machine.store.faults.withLock { $0 = .init(refused: ["bad", ""]) }
            try await schedule.clock.sleep(for: .seconds(31))
            try expect(machine.events(.sharedStoreUnavailable).count == 1)
            _ = try await machine.values.request(key: "bad")
            try expect(machine.events(.sharedStoreAvailable).count == 1, "the outage goes on")
            try expect(machine.events(.notShared).count == 1)
        }
    }

    @Test func `FT-02 a refused invalidation is reported and sent again, and other invalidations arrive`() async throws
    {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            machine.store.faults.withLock { $0.refused = ["of 7"] }
            let report = await machine.repository.clear(tags: (0..<3_000).map { "of \($0)" })
            try expect(!report.isComplete, "nothing says that a tag is not cleared")
            let text = report.failures.first?.sentence ?? ""
            try expect(text.contains("refused an invalidation"), text)
            try expect(machine.invalidations.joined().count == 2_999, "\(machine.invalidations.joined().count)")
            try expect(machine.events(.notShared).map(\.reason) == [.other("NOPERM")])
            // A tag may be the name of a person.
            try expect(machine.events(.notShared)[0].key == nil)
            let other = await machine.repository.clear(tags: ["of 8"])
            try expect(other.isComplete && machine.invalidations.last == [.tag("of 8")])
            // The entry may be stored, and must not be read.
            try expect(try await machine.values.request(key: "7") == "7 1")
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "7"), tags: ["of 7"])
            try expect(try await store.connection().load([name]) == [nil], "it is shared")

            machine.store.faults.withLock { $0.refused = [] }
            try await schedule.clock.sleep(for: .seconds(61))
            try expect(machine.invalidations.last == [.tag("of 7")])
            try expect(await machine.repository.gauges().pendingInvalidations == 0)
        }
    }

    @Test func `FT-02 an invalidation does not wait for the repetition of a refused invalidation`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let machine = Machine(schedule, MemorySharedStore(clock: schedule.clock))
            machine.store.faults.withLock { $0.refused = ["of 7"] }
            _ = await machine.repository.clear(tags: ["of 7"])
            try await schedule.clock.sleep(for: .seconds(60))
            _ = try await machine.values.request(key: "a")
            machine.values.refresh(key: "a")
            try await schedule.clock.sleep(for: .seconds(1))
            let name = MuxStoreKey(domain: "Values", key: "a")
            try expect(machine.invalidations.joined().contains(.entry(name)), "\(machine.invalidations)")
        }
    }

    @Test func `FT-02 the number of refused invalidations has a limit`() {
        let limit = PendingInvalidations.limit
        var pending = PendingInvalidations()
        pending.add([.tag("refused")], isOutage: false)
        for request in pending.batches().joined() { _ = pending.refused(request) }
        #expect(pending.hasRefused)
        for number in 0..<limit + 50_000 {
            pending.add([.entry(MuxStoreKey(domain: "Values", key: "\(number)"))], isOutage: false)
        }
        #expect(pending.count <= limit && pending.contains([.domain("Values"), .everything]))
    }

    @Test func `FL-04 a value that must not be kept removes the shared value, also without a claim`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let machine = Machine(schedule, MemorySharedStore(clock: schedule.clock))
            let (isKept, count) = (Locked(true), Locked(0))
            let map = MultiplexerMap<String, Int>(cacheKey: "Passing", repository: machine.repository) { _, _ in
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                return Fetched(number, isKept: isKept.withLock { $0 })
            }
            try expect(try await map.request(key: "a") == 1)
            machine.store.faults.withLock { $0.refused = ["a"] }
            isKept.withLock { $0 = false }
            try expect(try await map.request(key: "a", .reload) == 2)
            machine.store.faults.withLock { $0.refused = [] }
            isKept.withLock { $0 = true }
            try await schedule.clock.sleep(for: .seconds(61))
            let value = try await map.request(key: "a")
            try expect(value == 3, "\(value)")
        }
    }

    @Test func `FT-02 a store that refuses all invalidations is not called for each invalidation`() async throws {
        try await SeededExecutor.explore(2) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            let tags = (0..<1_000).map { "of \($0)" }
            machine.store.faults.withLock { $0.refused = Set(tags) }
            let report = await machine.repository.clear(tags: tags)
            try expect(!report.isComplete)
            try expect(machine.events(.notShared).count <= 32, "\(machine.events(.notShared).count)")
            machine.store.faults.withLock { $0.refused = [] }
            try await schedule.clock.sleep(for: .seconds(61))
            try expect(Set(machine.invalidations.joined()).count == 1_000)
        }
    }

    // MARK: - Lost claims

    @Test func `FT-05 a value whose claim was evicted is kept by the machine that fetched it`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<3).map { _ in Machine(schedule, store) }
            for machine in machines { machine.store.faults.withLock { $0.evictsClaims = true } }
            for _ in 0..<10 {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for machine in machines { group.addTask { _ = try await machine.values.request(key: "a") } }
                    try await group.waitForAll()
                }
            }
            // Each machine fetches at most once, as without a store.
            try expect(machines.allSatisfy { $0.fetchCount <= 1 }, "\(machines.map(\.fetchCount))")
            for machine in machines {
                let entry = try await machine.values.requestEntry(key: "a")
                try expect(!entry.isStale && entry.source == .memory, "\(entry)")
            }
        }
    }

    @Test func `FT-05 a value that an empty store refuses is kept without a fetch`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            _ = try await machine.values.request(key: "a")
            store.loseEverything()
            machine.store.faults.withLock { $0.tooLarge = ["a"] }
            try await schedule.clock.sleep(for: .nanoseconds(1))
            for _ in 0..<3 { _ = try await machine.values.request(key: "a") }
            try expect(machine.fetchCount == 1, "\(machine.fetchCount)")
            try expect(machine.events(.notShared).count == 1)
            // The machine still receives changes.
            try await store.connection().invalidate([.entry(MuxStoreKey(domain: "Values", key: "a"))])
            try await schedule.clock.sleep(for: .nanoseconds(1))
            _ = try await machine.values.request(key: "a")
            try expect(machine.fetchCount == 2, "\(machine.fetchCount)")
        }
    }

    @Test func `FT-05 a value that any machine cleared during its fetch is not kept`() async throws {
        try await SeededExecutor.explore(60) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in Machine(schedule, store) }
            let late = Task(executorPreference: schedule) { try await machines[0].values.request(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(50))
            let clearing = machines[schedule.draw(0..<2)]
            switch schedule.draw(0..<4) {
            case 0: _ = await clearing.values.clear(key: "a")
            case 1: _ = await clearing.repository.clear(tags: ["of a"])
            case 2: _ = await clearing.values.clear()
            default: _ = await clearing.repository.clearAll()
            }
            _ = try? await late.value
            try await schedule.clock.sleep(for: .nanoseconds(1))
            try expect(machines[0].values.cachedValue(key: "a") == nil, "a value from before is kept")
        }
    }

    @Test func `FT-05 a newer value of another machine replaces a value whose claim was evicted`()
        async throws
    {
        try await SeededExecutor.explore(10) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            machine.store.faults.withLock { faults in
                faults.evictsClaims = true
                faults.rival = (store.connection(), schedule.clock)
            }
            let own = try await machine.values.requestEntry(key: "a")
            try expect(own.value == "a 1" && own.staleReason == .fenced, "\(own)")
            for _ in 0..<10 {
                let entry = try await machine.values.requestEntry(key: "a")
                try expect(entry.value == "of the rival" && entry.source == .memory && !entry.isStale, "\(entry)")
            }
            try expect(machine.fetchCount == 1, "\(machine.fetchCount)")
        }
    }

    // MARK: - Outages

    @Test func `FT-04 an outage is reported once with its reason, and its end is reported once`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            _ = try await machine.values.request(key: "before")
            try expect(machine.events(.sharedStoreUnavailable).isEmpty && machine.events(.sharedStoreAvailable).isEmpty)
            machine.store.faults.withLock {
                $0.outage = EngineFailure(reason: "WRONGPASS", isConnectivityFailure: true)
            }
            for key in 0..<20 {
                _ = try await machine.values.request(key: "\(key)")
                try await schedule.clock.sleep(for: .seconds(1))
            }
            let told = machine.events(.sharedStoreUnavailable)
            try expect(told == [MuxEvent(.sharedStoreUnavailable, reason: .other("WRONGPASS"))], "\(told)")
            try expect(await machine.repository.gauges().sharedStoreOutage == .other("WRONGPASS"))
            // Another reason is reported again.
            machine.store.faults.withLock {
                $0.outage = EngineFailure(reason: "LOADING", isConnectivityFailure: true)
            }
            try await schedule.clock.sleep(for: .seconds(31))
            _ = try await machine.values.request(key: "later")
            try expect(
                machine.events(.sharedStoreUnavailable).map(\.reason) == [.other("WRONGPASS"), .other("LOADING")]
            )

            machine.store.faults.withLock { $0.outage = nil }
            try await schedule.clock.sleep(for: .seconds(31))
            _ = try await machine.values.request(key: "last")
            try expect(machine.events(.sharedStoreAvailable).count == 1)
            try expect(await machine.repository.gauges().sharedStoreOutage == nil)
        }
    }

    @Test func `FT-04 an outage, at the start or later, and its end are reported without a request`()
        async throws
    {
        try await SeededExecutor.explore(10) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            store.isDown = true
            let machine = Machine(schedule, store)
            try await schedule.clock.sleep(for: .nanoseconds(1))
            try expect(machine.events(.sharedStoreUnavailable).map(\.reason) == [.connection])
            store.isDown = false
            try await schedule.clock.sleep(for: .nanoseconds(1))
            try expect(await machine.repository.gauges().sharedStoreOutage == nil)

            machine.store.faults.withLock {
                $0.outage = EngineFailure(reason: "WRONGPASS", isConnectivityFailure: true)
            }
            try expect(await machine.repository.gauges().sharedStoreOutage == .other("WRONGPASS"))
            try expect(machine.events(.sharedStoreUnavailable).count == 2)
            machine.store.faults.withLock { $0.outage = nil }
            // The store sends no notification. The gauge asks the store.
            try expect(await machine.repository.gauges().sharedStoreOutage == nil)
            try expect(machine.events(.sharedStoreAvailable).count == 2)
        }
    }

    @Test func `FT-04 a store that does not reply is an outage, even without a request`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let machine = Machine(schedule, MemorySharedStore(clock: schedule.clock))
            machine.store.faults.withLock { $0.silence = schedule.clock }
            try expect(await machine.repository.gauges().sharedStoreOutage == .timeOut)
            try expect(machine.events(.sharedStoreUnavailable).map(\.reason) == [.timeOut])
            machine.store.faults.withLock { $0.silence = nil }
            try expect(await machine.repository.gauges().sharedStoreOutage == nil)
            try expect(machine.events(.sharedStoreAvailable).count == 1)
        }
    }

    @Test func `FT-04 a store that is too slow is an outage`() async throws {
        try await SeededExecutor.explore(10) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = Machine(schedule, store)
            store.delay = .seconds(1)
            _ = try await machine.values.request(key: "a")
            try expect(machine.events(.sharedStoreUnavailable).map(\.reason) == [.timeOut])
            let report = await machine.values.clear(key: "a")
            try expect(!report.isComplete)
            try expect(await machine.repository.gauges().pendingInvalidations == 1)
        }
    }
}
