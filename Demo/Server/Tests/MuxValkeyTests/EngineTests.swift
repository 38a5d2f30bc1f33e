import Engines
import Foundation
import MuxKit
import NIOCore
import Synchronization
import Testing
import Valkey

@testable import MuxValkey

/// The store on real engines.
@Suite(.timeLimit(.minutes(5)), .enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
struct EngineTests {
    @Test(arguments: Engine.programs) func `FL-09 the store passes the conformance tests`(program: Engine.Program)
        async throws
    {
        let engine = try await Engine(program)
        try await checkConformance { prefix in
            (await engine.store(prefix), await engine.store(prefix))
        }
    }

    @Test(arguments: Engine.programs)
    func `FL-09 the sample over the official client passes the conformance tests`(program: Engine.Program) async throws
    {
        let engine = try await Engine(program)
        let client = ValkeyClient(engine.configuration("client"))
        try await checkConformance { prefix in
            (
                await Subscribed(ValkeyClientStore(client, prefix: prefix)),
                await Subscribed(ValkeyClientStore(client, prefix: prefix))
            )
        }
    }

    @Test(arguments: Engine.programs)
    func `FL-10 a miss is one round trip, and no command scans keys`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let store = await engine.store("trips")
        let repository = MuxRepository(sharedStore: store, policy: .init(budget: .seconds(30)))
        let places = MultiplexerMap<String, String>(
            cacheKey: .init("Places") { ["city \($0)"] },
            repository: repository
        ) { "place \($0)" }
        _ = try await engine.ask("CONFIG", "RESETSTAT")

        for key in 0..<10 { _ = try await places.request(key: "\(key)") }
        #expect(try await self.calls(engine)["evalsha"] == 20, "a claim and a put for each")
        for key in 0..<10 { _ = try await places.request(key: "\(key)") }
        #expect(try await self.calls(engine)["evalsha"] == 20, "a hit asked the engine")
        await repository.clear(tags: ["city 7"])
        await repository.clearAll()
        let calls = try await self.calls(engine)
        #expect(calls["evalsha"] == 22)
        #expect(calls["eval"] == nil)
        for command in calls.keys {
            let scanning = ["keys", "scan", "hscan", "sscan", "zscan", "flushall", "flushdb"]
            #expect(!scanning.contains(command), "it used \(command)")
        }
    }

    /// The number of calls of each command.
    private func calls(_ engine: Engine) async throws -> [String: Int] {
        let text = try await engine.ask("INFO", "commandstats").text ?? ""
        var calls: [String: Int] = [:]
        for line in text.split(whereSeparator: \.isNewline) where line.hasPrefix("cmdstat_") {
            let parts = line.dropFirst("cmdstat_".count).split(separator: ":")
            guard parts.count == 2, let count = parts[1].split(separator: ",").first?.dropFirst("calls=".count) else {
                continue
            }
            calls[String(parts[0])] = Int(count)
        }
        return calls
    }

    @Test(arguments: Engine.programs)
    func `FL-09 machines fetch each value once, and receive each other's clears`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let fetches = Mutex([String: Int]())
        var machines: [(MuxValkey, MuxRepository, MultiplexerMap<String, String>)] = []
        for _ in 0..<4 {
            let store = await engine.store("fleet")
            // On a busy machine a call may take longer than usual, and machines would fetch without the
            // store.
            let repository = MuxRepository(sharedStore: store, policy: .init(budget: .seconds(30)))
            let map = MultiplexerMap<String, String>(
                cacheKey: .init("Places") { ["city \($0.prefix(1))"] },
                policy: MuxPolicy(timeToLive: .seconds(600)),
                repository: repository
            ) { key in
                fetches.withLock { $0[key, default: 0] += 1 }
                try await Task.sleep(for: .milliseconds(20))
                return "\(key) \(fetches.withLock { $0[key] ?? 0 })"
            }
            machines.append((store, repository, map))
        }
        let maps = machines.map(\.2)
        let keys = (0..<50).map { "\($0)" }
        func requestAll() async throws {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for map in maps { for key in keys { group.addTask { _ = try await map.request(key: key) } } }
                try await group.waitForAll()
            }
        }
        try await requestAll()
        #expect(fetches.withLock { $0.values.allSatisfy { $0 == 1 } && $0.count == 50 })

        let watched = maps[3].values(key: "7")
        await machines[0].1.clear(tags: ["city 7"])
        for await entry in watched where entry == nil { break }
        #expect(maps[3].cachedValue(key: "7") == nil && maps[3].cachedValue(key: "8") != nil)
        try await requestAll()
        #expect(fetches.withLock { $0["7"] } == 2 && fetches.withLock { $0["8"] } == 1)
    }

    @Test(arguments: Engine.programs, [false, true])
    func `FL-11 an entry that an engine may have lost is not read after a restart`(
        program: Engine.Program,
        hasDisk: Bool
    ) async throws {
        let engine = try await Engine(program, hasDisk ? ["--appendonly", "yes", "--appendfsync", "always"] : [])
        let (alice, bob) = (await engine.store("restart"), await engine.store("restart"))
        let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"))
        guard
            case .granted(let ticket, _) = try await alice.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
        else { return #expect(Bool(false), "not granted") }
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "1", timeToLive: .seconds(600))
        #expect(try await alice.put(entry, with: ticket))
        #expect(try await bob.load([name])[0]?.payload == Data("one".utf8))

        let changes = [alice.changes(), bob.changes()]
        engine.kill()
        try await engine.start()
        for stream in changes {
            // The message of the put may arrive first.
            #expect(await stream.first { $0 == .unknown } != nil)
        }
        #expect(try await bob.load([name]) == [nil])
        #expect(try await !alice.put(entry, with: ticket), "a put with a claim of before is stored")
    }

    @Test(arguments: Engine.programs)
    func `FL-09 foreign keys under the prefix are misses, and forgotten scripts are sent again`(
        program: Engine.Program
    ) async throws {
        let engine = try await Engine(program)
        let store = await engine.store("foreign")
        let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"), tags: ["Rome"])
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "1", timeToLive: .seconds(600))
        func put() async throws -> Bool {
            let claim = try await store.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
            guard case .granted(let ticket, nil) = claim else { return false }
            return try await store.put(entry, with: ticket)
        }
        #expect(try await put())
        guard case .list(let keys) = try await engine.ask("KEYS", "*") else { return #expect(Bool(false)) }
        #expect(keys.count == 5, "\(keys.map(\.text))")
        for foreign in [["SADD"], ["SET"], ["HSET", "payload"]] {
            for key in keys.compactMap(\.text) {
                _ = try await engine.ask("DEL", key)
                switch foreign[0] {
                case "SADD": _ = try await engine.ask("SADD", key, "garbage")
                case "SET": _ = try await engine.ask("SET", key, "garbage")
                default: _ = try await engine.ask("HSET", key, "payload", "garbage")
                }
            }
            #expect(try await store.load([name]) == [nil], "\(foreign)")
            #expect(try await put(), "\(foreign)")
            #expect(try await store.load([name])[0]?.payload == entry.payload)
        }
        _ = try await engine.ask("SCRIPT", "FLUSH")
        #expect(try await store.load([name])[0]?.payload == entry.payload)
        _ = try await engine.ask("SCRIPT", "FLUSH")
        try await store.invalidate([.tag("Rome")])
        #expect(try await put())
        // The engine loses all keys at once.
        _ = try await engine.ask("FLUSHALL")
        #expect(try await store.load([name]) == [nil])
        #expect(try await put())
        // A machine that connects later finds the new entry.
        let other = await engine.store("foreign")
        #expect(try await other.load([name])[0]?.payload == entry.payload)
    }

    @Test(arguments: Engine.programs)
    func `FL-11 an engine that has become a replica returns no entry and no claim`(program: Engine.Program) async throws
    {
        let engine = try await Engine(program)
        let store = await engine.store("demoted")
        let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"))
        guard
            case .granted(let ticket, _) = try await store.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
        else { return #expect(Bool(false), "not granted") }
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "1", timeToLive: .seconds(600))
        #expect(try await store.put(entry, with: ticket))

        // The primary is unreachable, so that the replica keeps its data.
        try await engine.ask("REPLICAOF", "127.0.0.1", "1")
        await #expect(throws: ValkeyError.self) {
            try await store.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
        }
        let other = MuxValkey(engine.configuration("demoted"))
        await #expect(throws: ValkeyError.self) { try await other.load([name]) }
    }

    @Test(arguments: Engine.programs)
    func `FL-11 epochs live longer than their entries`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let store = await engine.store("epochs")
        let names = (0..<2).map { MuxShared.Name(MuxStoreKey(domain: "Places", key: "\($0)"), tags: ["Rome"]) }
        func epochs() async throws -> [String] {
            guard case .list(let keys) = try await engine.ask("KEYS", "*:e:*") else { return [] }
            return keys.compactMap(\.text)
        }
        _ = try await store.claim(names[0], maximumAge: nil, digest: nil, for: .seconds(60))
        #expect(try await epochs().count == 3)
        // As if slightly more than a week had passed.
        for epoch in try await epochs() { try await engine.ask("PEXPIRE", epoch, "1000000") }
        guard
            case .granted(let ticket, _) = try await store.claim(
                names[1],
                maximumAge: nil,
                digest: nil,
                for: .seconds(60)
            )
        else { return #expect(Bool(false), "not granted") }
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "1", timeToLive: .seconds(7 * 86_400))
        #expect(try await store.put(entry, with: ticket))
        for epoch in try await epochs() {
            let rest = try await engine.ask("PTTL", epoch).integer ?? 0
            #expect(rest > 7 * 86_400_000, "\(epoch) ends in \(rest) ms")
        }
        #expect(try await engine.ask("PTTL", Names(prefix: "epochs").prefix + "tenure").integer == -1)
    }

    @Test(arguments: Engine.programs)
    func `FL-09 many entries are invalidated at once, and a value above the limit is not put`(program: Engine.Program)
        async throws
    {
        let engine = try await Engine(program)
        let (store, other) = (await engine.store("many") { $0.maximumPayloadBytes = 1_000 }, await engine.store("many"))
        let names = (0..<1_200).map { MuxShared.Name(MuxStoreKey(domain: "Places", key: "\($0)")) }
        let changes = other.changes()
        try await store.invalidate(names.map { .entry($0.key) })
        var told: [MuxShared.Change] = []
        for await change in changes where change != .unknown {
            told.append(change)
            if told.count == names.count { break }
        }
        #expect(told == names.map { .invalidated(.entry($0.key)) })

        guard
            case .granted(let ticket, _) = try await store.claim(
                names[0],
                maximumAge: nil,
                digest: nil,
                for: .seconds(60)
            )
        else { return #expect(Bool(false), "not granted") }
        let entry = MuxShared.Entry(payload: Data(count: 1_001), digest: "1", timeToLive: .seconds(60))
        await #expect(throws: ValkeyError.tooLarge(limit: 1_000)) { try await store.put(entry, with: ticket) }
    }

    @Test(arguments: Engine.programs)
    func `FL-09 a put without its epochs wakes waiting machines`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let (store, other) = (await engine.store("gone"), await engine.store("gone"))
        let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"))
        guard
            case .granted(let ticket, _) = try await store.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
        else { return #expect(Bool(false), "not granted") }
        guard case .list(let epochs) = try await engine.ask("KEYS", "*:e:*") else { return #expect(Bool(false)) }
        for epoch in epochs.compactMap(\.text) { try await engine.ask("DEL", epoch) }
        let changes = other.changes()
        let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "1", timeToLive: .seconds(60))
        #expect(try await !store.put(entry, with: ticket))
        for await change in changes where change != .unknown {
            #expect(change == .released(name.key))
            break
        }
    }

    @Test(arguments: Engine.programs)
    func `FL-09 a password is sent, and a wrong password is a clear error`(program: Engine.Program) async throws {
        let engine = try await Engine(program, ["--requirepass", "open sesame"])
        let store = await engine.store("secret") { $0.password = "open sesame" }
        #expect(try await store.load([MuxShared.Name(MuxStoreKey(domain: "Places"))]) == [nil])
        for password in [nil, "sesame"] {
            var configuration = engine.configuration("secret")
            configuration.password = password
            let store = MuxValkey(configuration)
            do {
                _ = try await store.load([MuxShared.Name(MuxStoreKey(domain: "Places"))])
                #expect(Bool(false), "it got in with \(password ?? "nothing")")
            } catch ValkeyError.refused(let failure) {
                #expect(["NOAUTH", "WRONGPASS"].contains(failure.code), "\(failure.text)")
            }
            store.close()
        }
    }

    @Test(arguments: Engine.programs)
    func `FL-09 a silent engine is abandoned, and calls end`(program: Engine.Program) async throws {
        let engine = try await Engine(program)
        let store = await engine.store("silent") { $0.heartbeat = .seconds(3) }
        let name = MuxShared.Name(MuxStoreKey(domain: "Places"))
        #expect(try await store.load([name]) == [nil])
        var changes = store.changes().makeAsyncIterator()
        engine.pause(true)
        await #expect(throws: ValkeyError.self) { try await store.load([name]) }
        engine.pause(false)
        #expect(await changes.next() == .unknown)
        #expect(try await store.load([name]) == [nil])
    }
}

/// The sample with a subscription to changes: each conformance rule begins with connected machines.
private struct Subscribed: MuxSharedStore {
    let base: ValkeyClientStore
    let stream: AsyncStream<MuxShared.Change>

    init(_ base: ValkeyClientStore) async {
        self.base = base
        self.stream = base.changes()
        _ = await self.stream.first { $0 == .unknown }
    }

    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] { try await self.base.load(names) }

    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim {
        try await self.base.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
    }

    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
        try await self.base.put(entry, with: ticket)
    }

    func giveUp(_ ticket: MuxShared.Ticket) async throws { try await self.base.giveUp(ticket) }
    func invalidate(_ scopes: [MuxShared.Scope]) async throws { try await self.base.invalidate(scopes) }
    func changes() -> AsyncStream<MuxShared.Change> { self.stream }
}
