import MuxValkey

/// Three engines with a third of the slots each.
package final class Cluster: Sendable {
    package let engines: [Engine]
    private let ids: [String]

    /// Starts the engines, and waits until all engines know each other.
    ///
    /// - Throws: The reason of a failed start; `CancellationError`.
    package init(_ program: Engine.Program) async throws {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
        var engines: [Engine] = []
        for _ in 0..<3 { engines.append(try await Engine(program, options)) }
        var ids: [String] = []
        for (number, engine) in engines.enumerated() {
            ids.append(try await engine.ask("CLUSTER", "MYID").text ?? "")
            let slots = (0..<16_384).filter { $0 * 3 / 16_384 == number }.map { "\($0)" }
            try await engine.ask(["CLUSTER", "ADDSLOTS"] + slots)
            try await engine.ask("CLUSTER", "SET-CONFIG-EPOCH", "\(number + 1)")
        }
        for engine in engines.dropFirst() { try await engines[0].ask("CLUSTER", "MEET", "127.0.0.1", "\(engine.port)") }
        for engine in engines {
            try await engine.wait(for: "CLUSTER", "INFO") { reply in
                let text = reply.text ?? ""
                return text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:3")
            }
        }
        self.engines = engines
        self.ids = ids
    }

    /// The number of the engine with the keys of a store with a prefix.
    ///
    /// - Throws: ``ValkeyError``.
    package func owner(of prefix: String) async throws -> Int {
        for (number, engine) in self.engines.enumerated() {
            if case .number = try await engine.ask("EXISTS", Names(prefix: prefix).probe) { return number }
        }
        throw ValkeyError.notConnected("no engine has the slot")
    }

    /// Moves the keys of a store with a prefix to another engine, as the tools of the engines do.
    ///
    /// - Throws: ``ValkeyError``.
    package func move(_ prefix: String, to target: Int) async throws {
        let source = try await self.owner(of: prefix)
        guard source != target else { return }
        let key = Names(prefix: prefix).probe
        guard let slot = try await self.engines[source].ask("CLUSTER", "KEYSLOT", key).integer.map({ "\($0)" }) else {
            return
        }
        try await self.engines[target].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        try await self.engines[source].ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
        while case .list(let keys) = try await self.engines[source].ask("CLUSTER", "GETKEYSINSLOT", slot, "100"),
            !keys.isEmpty
        {
            let port = "\(self.engines[target].port)"
            try await self.engines[source].ask(
                ["MIGRATE", "127.0.0.1", port, "", "0", "5000", "REPLACE", "KEYS"] + keys.compactMap(\.text)
            )
        }
        for number in [target, source] + self.engines.indices {
            try await self.engines[number].ask("CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])
        }
    }
}
