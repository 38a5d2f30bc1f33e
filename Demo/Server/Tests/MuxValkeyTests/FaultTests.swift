import Engines
import Foundation
import MuxKit
import MuxTesting
import MuxValkey
import Synchronization
import Testing
import Valkey

/// Many invalidations, refused entries, evictions and outages on real engines.
@Suite(.timeLimit(.minutes(5)), .serialized, .enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
struct FaultTests {
    private struct Machine: Sendable {
        let store: MuxValkey
        let repository: MuxRepository
        let values: MultiplexerMap<String, String>
        let events = EventTally()

        init(_ store: MuxValkey, bytes: Int = 0, budget: Duration = .seconds(30), patience: Duration = .seconds(5)) {
            let box = Fetches()
            self.box = box
            self.store = store
            self.repository = MuxRepository(
                sharedStore: store,
                policy: .init(budget: budget, patience: patience),
                observer: self.events
            )
            self.values = MultiplexerMap(
                cacheKey: .init("Values") { ["of \($0)"] },
                policy: MuxPolicy(timeToLive: .seconds(600)),
                repository: self.repository
            ) { key in
                box.count.withLock { $0 += 1 }
                let isLarge = key.hasPrefix("large")
                return String(repeating: "x", count: isLarge ? 10_000 : bytes) + key
            }
        }

        final class Fetches: Sendable { let count = Mutex(0) }
        let box: Fetches

        var fetchCount: Int { self.box.count.withLock { $0 } }

        func reasons(_ kind: MuxEvent.Kind) -> [MuxEvent.Reason?] {
            self.events.events.filter { $0.kind == kind }.map(\.reason)
        }
    }

    @Test(arguments: Engine.programs)
    func `FT-01 10,001 tags and 12,000 sign-outs clear nothing else`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let machines = [Machine(await engine.store("many")), Machine(await engine.store("many"))]
        let sessions = machines.map { machine in
            MuxSessions<Int, Int>(repository: machine.repository) { _, _ in .updatedDependency(1) }
        }
        for machine in machines { for key in ["7", "other"] { _ = try await machine.values.request(key: key) } }
        for users in sessions { for user in [1, 11_999, -1] { users.set(1, for: user) } }

        let report = await machines[0].repository.clear(tags: (0..<10_001).map { "of \($0)" })
        #expect(report.isComplete, "\(report.failures)")
        let complete = await withTaskGroup(of: Bool.self) { group in
            for user in 0..<12_000 { group.addTask { await sessions[0].signOut(user).isComplete } }
            return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(complete == 12_000)
        // Changes are reported in order: this change is the last change.
        _ = await machines[0].values.clear(key: "last")
        try await self.wait { sessions[1].token(of: 1) == nil && sessions[1].token(of: 11_999) == nil }
        for (machine, users) in zip(machines, sessions) {
            #expect(machine.values.cachedValue(key: "7") == nil)
            #expect(machine.values.cachedValue(key: "other") == "other")
            #expect(users.token(of: 1) == nil && users.token(of: -1) == 1)
        }
    }

    @Test(arguments: Engine.programs)
    func `FT-02 a value above the limit or a key without permission affects no other key`(program: Engine.Program)
        async throws
    {
        let engine = try await Engine(program)
        let prefix = "{mux:refused}:"
        let keys = ["tenure", "probe", "c:*", "e:*", "v:*=good*", "v:*=large*"].map { "~\(prefix)\($0)" }
        let set = ["ACL", "SETUSER", "app", "on", ">secret word", "+@all", "&*", "resetkeys"] + keys
        #expect(try await engine.ask(set).text == "OK")
        let store = await engine.store("refused") { configuration in
            configuration.username = "app"
            configuration.password = "secret word"
            configuration.maximumPayloadBytes = 1_000
        }
        let machine = Machine(store)
        let other = Machine(await engine.store("refused"))
        for _ in 0..<2 {
            for key in ["large", "bad", "good"] { _ = try await machine.values.request(key: key) }
        }
        #expect(machine.fetchCount == 3)
        #expect(machine.reasons(.notShared) == [.other("too large"), .other("NOPERM")])
        #expect(machine.events.events.allSatisfy { !"\($0)".contains("secret") })
        #expect(machine.reasons(.sharedStoreUnavailable).isEmpty)
        #expect(try await other.values.requestEntry(key: "good").source == .sharedStore)
        // The same holds for invalidations.
        let report = await machine.values.clear(key: "bad")
        #expect(!report.isComplete)
        #expect(await machine.values.clear(key: "good").isComplete)
        #expect(await machine.repository.gauges().sharedStoreOutage == nil)
    }

    @Test(arguments: Engine.programs)
    func `FT-03 a full engine refuses claims and puts, and accepts calls that need no memory`(program: Engine.Program)
        async throws
    {
        let engine = try await Engine(program, ["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"])
        let (store, other) = (await engine.store("full"), await engine.store("full"))
        func name(_ key: Int) -> MuxShared.Name { MuxShared.Name(MuxStoreKey(domain: "Places", key: "\(key)")) }
        func isFull(_ error: any Error) -> Bool {
            guard case .refused(let failure) = error as? ValkeyError else { return false }
            return failure.code == "OOM" && (error as? ValkeyError)?.isConnectivityFailure == false
        }
        let held = try await store.ticket(name(-1))
        let entry = MuxShared.Entry(payload: Data(count: 100_000), digest: "zeros", timeToLive: .seconds(600))
        var (count, refusal) = (0, (any Error)?.none)
        while refusal == nil, count < 1_000 {
            do {
                let ticket = try await store.ticket(name(count))
                #expect(try await store.put(entry, with: ticket))
                count += 1
            } catch {
                refusal = error
            }
        }
        #expect(count > 10 && refusal.map(isFull) ?? false, "\(count) \(refusal.map { "\($0)" } ?? "")")
        try await engine.ask("CONFIG", "SET", "maxmemory", "1mb")
        await #expect { try await store.put(entry, with: held) } throws: { isFull($0) }
        await #expect { _ = try await other.ticket(name(2_000)) } throws: { isFull($0) }
        let used = try await engine.ask("INFO", "memory").text?.firstMatch(of: /used_memory:(\d+)/)?.output.1
        #expect(used.flatMap { Int($0) } ?? .max < 9 << 20)

        // Existing entries are read, and claims end.
        #expect(try await other.load([name(0)]).first??.payload == entry.payload)
        let claim = try await other.claim(name(0), maximumAge: nil, digest: "zeros", for: .seconds(60))
        guard case .entry = claim else { return #expect(Bool(false), "\(claim)") }
        guard case .taken = try await other.claim(name(-1), maximumAge: nil, digest: nil, for: .seconds(60)) else {
            return #expect(Bool(false), "a refused put has ended its claim")
        }
        try await store.giveUp(held)
        try await store.invalidate((0..<count).map { .entry(name($0).key) })
        #expect(try await other.load([name(0)]) == [nil])
        try await engine.ask("CONFIG", "SET", "maxmemory", "8mb")
        let last = try await other.ticket(name(-1))
        #expect(try await other.put(entry, with: last))
    }

    @Test(arguments: Engine.programs)
    func `FT-03 a full engine refuses the sample over the official client, too`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let store = ValkeyClientStore(ValkeyClient(engine.configuration("client")), prefix: "full")
        let names = ["a", "b"].map { MuxShared.Name(MuxStoreKey(domain: "Places", key: $0), tags: ["Rome"]) }
        let claim = try await store.claim(names[0], maximumAge: nil, digest: nil, for: .seconds(60))
        guard case .granted(let ticket, _) = claim else { return #expect(Bool(false), "\(claim)") }
        try await engine.ask("CONFIG", "SET", "maxmemory", "1")
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "one", timeToLive: .seconds(60))
        await #expect { try await store.put(entry, with: ticket) } throws: { "\($0)".contains("OOM") }
        await #expect {
            try await store.claim(names[1], maximumAge: nil, digest: nil, for: .seconds(60))
        } throws: { "\($0)".contains("OOM") }
        try await store.giveUp(ticket)
        try await store.invalidate([.tag("Rome")])
    }

    @Test(arguments: Engine.programs)
    func `FT-03 machines continue without a full engine, and share again with memory`(program: Engine.Program)
        async throws
    {
        let engine = try await Engine(program, ["--maxmemory-policy", "noeviction"])
        let machine = Machine(await engine.store("full"))
        _ = try await machine.values.request(key: "before")
        try await engine.ask("CONFIG", "SET", "maxmemory", "1")
        for _ in 0..<3 { #expect(try await machine.values.request(key: "a") == "a") }
        #expect(machine.fetchCount == 2)
        #expect(machine.reasons(.notShared) == [.other("OOM")])
        #expect(machine.reasons(.sharedStoreUnavailable).isEmpty)
        // An invalidation needs no memory.
        #expect(await machine.values.clear(key: "before").isComplete)
        try await engine.ask("CONFIG", "SET", "maxmemory", "0")
        _ = try await machine.values.request(key: "b")
        let other = Machine(await engine.store("full"))
        #expect(try await other.values.requestEntry(key: "b").source == .sharedStore)
    }

    @Test(arguments: Engine.programs)
    func `FT-06 a claim ends with the connection of its machine`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        // A waiting machine claims again after its budget.
        let budget = Duration.seconds(2)
        let machines = [
            Machine(await engine.store("killed")),
            Machine(await engine.store("killed"), budget: budget, patience: .seconds(25)),
        ]
        let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "a"), tags: ["of a"])
        let ticket = try await machines[0].store.ticket(name)
        let claim = try await machines[1].store.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
        guard case .taken = claim else { return #expect(Bool(false), "\(claim)") }
        let request = Task { try await machines[1].values.requestEntry(key: "a") }
        machines[0].store.close()
        #expect(try await request.value.source == .fetch)
        // After its patience, the machine would have fetched without the store.
        let third = Machine(await engine.store("killed"))
        #expect(try await third.values.requestEntry(key: "a").source == .sharedStore)
        // The earlier claim is void.
        let entry = MuxShared.Entry(payload: Data("old".utf8), digest: "old", timeToLive: .seconds(60))
        #expect(try await !third.store.put(entry, with: ticket))
    }

    @Test(arguments: Engine.programs)
    func `FT-06 a reconnected machine keeps its claim unless another machine takes the key`(
        program: Engine.Program
    ) async throws {
        let engine = try await Engine(program)
        let (store, other) = (await engine.store("again"), await engine.store("again"))
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "one", timeToLive: .seconds(60))
        for isTaken in [false, true] {
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "\(isTaken)"))
            let ticket = try await store.ticket(name)
            let streams = [store.changes(), other.changes()]
            try await engine.ask("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
            for changes in streams { _ = await changes.first { $0 == .unknown } }
            if isTaken { _ = try await other.ticket(name) }
            #expect(try await store.put(entry, with: ticket) == !isTaken)
        }
    }

    @Test(arguments: Engine.programs)
    func `FT-08 the key of a tag lives as long as its entries`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let store = await engine.store("tags") { $0.retention = .seconds(600) }
        let tag = Names(prefix: "tags").prefix + "e:tRome"
        for seconds in [60, 86_400] {
            let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "\(seconds)"), tags: ["Rome"])
            let ticket = try await store.ticket(name)
            let entry = MuxShared.Entry(payload: Data("1".utf8), digest: "1", timeToLive: .seconds(seconds))
            #expect(try await store.put(entry, with: ticket))
            // The entry with its retention, and at most an hour more.
            let rest = try #require(try await engine.ask("PTTL", tag).integer)
            let life = Int64(seconds + 600)
            #expect(rest > 1_000 * (life - 60) && rest <= 1_000 * (life + 3_600), "\(rest)")
        }
    }

    @Test(arguments: Engine.programs)
    func `FT-02 an entry above the limit of a machine is a miss on this machine`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let large = Machine(await engine.store("limits"))
        let small = Machine(await engine.store("limits") { $0.maximumPayloadBytes = 1_000 })
        _ = try await large.values.request(key: "large")
        #expect(try await small.values.requestEntry(key: "large").source == .fetch)
        #expect(small.reasons(.sharedStoreUnavailable).isEmpty)
        #expect(small.reasons(.notShared) == [.other("too large")])
    }

    /// The programs, each with an eviction policy.
    private static let policies = Engine.programs.enumerated().map { index, program in
        (program, ["allkeys-random", "allkeys-lfu", "volatile-ttl", "volatile-lru"][index % 4])
    }

    @Test(arguments: Self.policies)
    func `FT-05 constant evictions by an engine cause no additional fetch`(program: Engine.Program, policy: String)
        async throws
    {
        let engine = try await Engine(program, ["--maxmemory", "3mb", "--maxmemory-policy", policy])
        var machines: [Machine] = []
        for _ in 0..<4 { machines.append(Machine(await engine.store("evicting"), bytes: 20_000)) }
        for _ in 0..<3 {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for machine in machines {
                    group.addTask {
                        for key in 0..<400 { _ = try await machine.values.request(key: "\(key)") }
                    }
                }
                try await group.waitForAll()
            }
        }
        let evicted = try await engine.ask("INFO", "stats").text?.firstMatch(of: /evicted_keys:(\d+)/)?.output.1
        #expect((evicted.flatMap { Int($0) } ?? 0) > 100, "the engine did not evict")
        for machine in machines { #expect(machine.fetchCount <= 400) }
    }

    @Test(arguments: Engine.programs)
    func `FT-04 an engine that refuses the store is reported with its reason`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        try await engine.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-evalsha")
        try await engine.ask("ACL", "SETUSER", "default", "on", "resetpass", ">secret")
        for (user, password, reason) in [
            ("default", "wrong secret", "WRONGPASS"), ("reader", "secret", "NOPERM"), ("default", nil, "NOAUTH"),
        ] {
            var configuration = engine.configuration("refused")
            (configuration.username, configuration.password) = (user, password)
            let machine = Machine(MuxValkey(configuration))
            await machine.events.wait(for: .sharedStoreUnavailable)
            #expect(machine.reasons(.sharedStoreUnavailable).first == .other(reason))
            #expect(await machine.repository.gauges().sharedStoreOutage == .other(reason))
            #expect(machine.events.events.allSatisfy { !"\($0)".contains("secret") })
            #expect(try await machine.values.request(key: "1") == "1")
            #expect(await !machine.values.clear(key: "1").isComplete)
            machine.store.close()
        }
    }

    @Test func `FT-04 a missing listener is reported, and so is an engine that starts later`() async throws {
        let engine = try await Engine(try #require(Engine.programs.first))
        engine.kill()
        let machine = Machine(MuxValkey(engine.configuration("missing")))
        await machine.events.wait(for: .sharedStoreUnavailable)
        #expect(machine.reasons(.sharedStoreUnavailable).first == .other("connection refused"))
        #expect(await machine.repository.gauges().sharedStoreOutage != nil)
        try await engine.start()
        await machine.events.wait(for: .sharedStoreAvailable)
        #expect(await machine.repository.gauges().sharedStoreOutage == nil)
        machine.store.close()
    }

    @Test(arguments: Engine.programs)
    func `FT-04 the permissions of the article suffice for a store`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let article = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../../../Sources/MuxKit/MuxKit.docc/SeveralMachines.md").standardized
        let lines = try String(contentsOf: article, encoding: .utf8).split(separator: "\n")
        let line = try #require(lines.first { $0.hasPrefix("ACL SETUSER places ") })
        #expect(try await engine.ask(line.split(separator: " ").map(String.init)).text == "OK")
        func store() async -> MuxValkey {
            await engine.store("places") { configuration in
                configuration.username = "places"
                configuration.password = "PASSWORD"
            }
        }
        let (alice, bob) = (await store(), await store())
        var changes = bob.changes().makeAsyncIterator()
        let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"), tags: ["Rome"])
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "of one", timeToLive: .seconds(600))
        let first = try await alice.ticket(name)
        #expect(try await alice.put(entry, with: first))
        #expect(try await bob.load([name]).first??.payload == entry.payload)
        // The same entry with a renewed age, and the end of a claim.
        var renewal = entry
        renewal.payload = nil
        #expect(try await alice.put(renewal, with: try await alice.ticket(name)))
        try await alice.giveUp(try await alice.ticket(name))
        try await alice.invalidate([.entry(name.key), .tag("Rome"), .domain("Places"), .everything])
        #expect(try await bob.load([name]) == [nil])
        var heard: Set<MuxShared.Change> = []
        while let change = await changes.next() {
            heard.insert(change)
            if change == .invalidated(.everything) { break }
        }
        #expect(heard.isSuperset(of: [.stored(name.key), .released(name.key), .invalidated(.tag("Rome"))]))
        // The claim of a machine ends with its connection.
        _ = try await alice.ticket(name, for: .seconds(3_600))
        alice.close()
        while (try? await bob.ticket(name)) == nil { try await Task.sleep(for: .milliseconds(5)) }
        // The user may query the memory limit.
        try await engine.ask("CONFIG", "SET", "maxmemory", "1")
        await #expect(throws: ValkeyError.self) { try await bob.ticket(.init(MuxStoreKey(domain: "Places", key: "2"))) }
        try await engine.ask("CONFIG", "SET", "maxmemory", "0")
        bob.close()
        // The permissions permit no other keys.
        let other = MuxValkey.Configuration.patient([engine.address], prefix: "others")
        var foreign = other
        (foreign.username, foreign.password) = ("places", "PASSWORD")
        let machine = Machine(MuxValkey(foreign))
        await machine.events.wait(for: .sharedStoreUnavailable)
        #expect(machine.reasons(.sharedStoreUnavailable).first == .other("NOPERM"))
        machine.store.close()
    }

    private func wait(until isReached: () -> Bool) async throws {
        while !isReached() { try await Task.sleep(for: .milliseconds(5)) }
    }
}

extension MuxValkey {
    /// A claim of an entry, even if the current entry is fresh.
    fileprivate func ticket(
        _ name: MuxShared.Name,
        for duration: Duration = .seconds(60)
    ) async throws -> MuxShared.Ticket {
        let claim = try await self.claim(name, maximumAge: .zero, digest: nil, for: duration)
        guard case .granted(let ticket, _) = claim else { throw ValkeyError.closed }
        return ticket
    }
}
