import Engines
import Foundation
import MuxKit
import NIOSSL
import Testing

@testable import MuxValkey

/// Engines that replace each other, and encrypted connections.
@Suite(.timeLimit(.minutes(5)), .enabled(if: !Engine.programs.isEmpty, "\(Engine.missing)"))
struct ClusterTests {
    private let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"), tags: ["Rome"])
    private let entry = MuxShared.Entry(payload: Data("one".utf8), digest: "1", timeToLive: .seconds(600))

    private func put(_ store: MuxValkey) async throws -> Bool {
        let claim = try await store.claim(self.name, maximumAge: nil, digest: nil, for: .seconds(60))
        guard case .granted(let ticket, _) = claim else { return false }
        return try await store.put(self.entry, with: ticket)
    }

    /// The result of a call after the store has found its engine.
    private func eventually<R>(_ call: () async throws -> R) async throws -> R {
        while true {
            do { return try await call() } catch let error as ValkeyError { if error == .closed { throw error } }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    @Test(arguments: Engine.programs)
    func `FL-09 the store passes the conformance tests in a cluster`(program: Engine.Program)
        async throws
    {
        let cluster = try await Cluster(program)
        try await checkConformance { prefix in
            // The second store has the addresses of all three engines.
            let alice = await cluster.engines[0].store(prefix)
            let bob = MuxValkey(.patient(cluster.engines.map(\.address), prefix: prefix))
            await bob.waitUntilConnected()
            return (alice, bob)
        }
    }

    @Test(arguments: Engine.programs)
    func `FL-11 an invalidated entry does not come back with its slot`(program: Engine.Program) async throws {
        let cluster = try await Cluster(program)
        let home = try await cluster.owner(of: "moving")
        let alice = await cluster.engines[0].store("moving")
        let bob = await cluster.engines[1].store("moving")
        #expect(try await self.put(alice))
        #expect(try await bob.load([self.name])[0]?.payload == self.entry.payload)

        // Alice makes no call in the meantime.
        try await cluster.move("moving", to: (home + 1) % 3)
        try await self.eventually { try await bob.invalidate([.tag("Rome")]) }
        #expect(try await self.put(bob))
        try await self.eventually { try await bob.invalidate([.tag("Rome")]) }
        try await cluster.move("moving", to: home)
        #expect(try await self.eventually { try await alice.load([self.name]) } == [nil])
        #expect(try await self.eventually { try await bob.load([self.name]) } == [nil])
        #expect(try await self.put(alice))
        #expect(try await self.eventually { try await bob.load([self.name])[0]?.payload } == self.entry.payload)
    }

    @Test(arguments: Engine.programs)
    func `FL-11 an invalidated entry does not come back with its engine`(program: Engine.Program) async throws {
        let first = try await Engine(program)
        let second = try await Engine(
            program,
            ["--replicaof", "127.0.0.1", "\(first.port)", "--repl-diskless-sync-delay", "0"]
        )
        func waitForReplication() async throws {
            try await second.wait(for: "INFO", "replication") { $0.text?.contains("master_link_status:up") ?? false }
            // The replica has every previous write.
            try await first.ask("WAIT", "1", "0")
        }
        let addresses = [first.address, second.address]
        func store() async -> MuxValkey {
            var configuration = MuxValkey.Configuration.patient(addresses, prefix: "failover")
            configuration.heartbeat = .seconds(3)
            let store = MuxValkey(configuration)
            await store.waitUntilConnected()
            return store
        }
        try await waitForReplication()
        let (alice, bob) = (await store(), await store())
        #expect(try await self.put(alice))
        try await waitForReplication()

        // A planned change of roles: the first engine becomes a replica of the second, and later the primary
        // again.
        try await second.ask("REPLICAOF", "NO", "ONE")
        try await first.ask("REPLICAOF", "127.0.0.1", "\(second.port)")
        let bobAtSecond = await second.store("failover")
        try await bobAtSecond.invalidate([.tag("Rome")])
        // Alice calls the first engine at once, perhaps before that engine has become a replica.
        let claim = try await self.eventually {
            try await alice.claim(self.name, maximumAge: nil, digest: nil, for: .milliseconds(1))
        }
        if case .entry(let entry) = claim { Issue.record("an entry of before the invalidation: \(entry)") }
        try await self.eventually { try await bob.invalidate([.tag("Rome")]) }
        #expect(try await self.eventually { try await alice.load([self.name]) } == [nil])
        try await first.wait(for: "INFO", "replication") { $0.text?.contains("master_link_status:up") ?? false }
        try await second.ask("WAIT", "1", "0")
        try await first.ask("REPLICAOF", "NO", "ONE")
        try await second.ask("REPLICAOF", "127.0.0.1", "\(first.port)")
        #expect(try await self.eventually { try await bob.load([self.name]) } == [nil])
        #expect(try await self.eventually { try await alice.load([self.name]) } == [nil])
        #expect(try await self.eventually { try await self.put(alice) })
    }

    @Test(
        .enabled(if: Engine.programs.contains(where: \.canEncrypt), "No engine was built with TLS."),
        arguments: Engine.programs.filter(\.canEncrypt)
    )
    func `FL-09 a connection can be encrypted, and a foreign certificate is a clear error`(
        program: Engine.Program
    ) async throws {
        let certificates = try Certificates()
        let engine = try await Engine(program, certificates: certificates)
        let trusting = {
            var configuration = TLSConfiguration.makeClientConfiguration()
            configuration.trustRoots = .file(certificates.authority)
            return configuration
        }()
        try await checkConformance { prefix in
            let stores = (
                await engine.store(prefix) { $0.tls = trusting }, await engine.store(prefix) { $0.tls = trusting }
            )
            return stores
        }
        for tls in [TLSConfiguration.makeClientConfiguration(), nil] {
            var configuration = engine.configuration("others")
            configuration.tls = tls
            configuration.heartbeat = .seconds(3)
            let store = MuxValkey(configuration)
            let error = await #expect(throws: ValkeyError.self) { try await store.load([self.name]) }
            let text = error?.localizedDescription ?? ""
            #expect(tls == nil || text.contains("CERTIFICATE_VERIFY_FAILED"), "\(text)")
        }
    }
}
