import Engines
import Foundation
import MuxKit
import MuxValkey
import Synchronization

/// The engines behind the machines of a fleet.
enum Layout: String, CaseIterable, Sendable {
    /// One engine without persistence.
    case memory
    /// One engine that writes each change to disk before the confirmation.
    case disk
    /// A primary and its replica.
    case replicas
    /// A cluster of three engines.
    ///
    /// Machines find the engines without help, so no proxies are in between.
    case cluster

    /// The relative frequency of the layout.
    var weight: Int {
        switch self {
        case .memory: 6
        case .disk, .cluster: 3
        case .replicas: 2
        }
    }
}

/// Machines with their proxies and engines, and the commands of the coordinator to the machines.
final class Fleet: Sendable {
    static let prefix = "disasters"

    let layout: Layout
    let engines: [Engine]
    let cluster: Cluster?
    /// For each engine, the proxies of all machines.
    let proxies: [[FaultyProxy]]
    let origin: Origin
    let history: History
    private let guardian: Guardian
    private let server: LineServer
    private let directory: Directory
    /// The ids of the engines' processes.
    private let engineIDs = Mutex<[Int: Int32]>([:])
    /// The number of the primary engine.
    let primary = Mutex(0)

    /// The machines by their numbers.
    private final class Directory: Sendable {
        let machines = Mutex<[Int: RemoteMachine]>([:])
        let origin: Origin
        let history: History

        init(_ origin: Origin, _ history: History) {
            self.origin = origin
            self.history = history
        }

        /// Receives the lines of one connection.
        func receiver(_ connection: LineConnection) -> @Sendable (String) -> Void {
            let owner = Mutex<RemoteMachine?>(nil)
            return { line in
                let words = line.split(separator: " ").map { String($0) }
                guard words.count > 1 else { return }
                if words[0] == "machine", let number = Int(words[1]) {
                    let machine = self.machines.withLock { $0[number] }
                    owner.withLock { $0 = machine }
                    machine?.connected(connection)
                } else if let machine = owner.withLock({ $0 }) {
                    self.received(words, line, from: machine)
                }
            }
        }

        private func received(_ words: [String], _ line: String, from machine: RemoteMachine) {
            let numbers = words.dropFirst().prefix(4).map { Int($0) ?? -1 }
            switch (words[0], words.count) {
            case ("=", 3...): machine.answered(numbers[0], Array(words.dropFirst(2)))
            case ("fetch", 3):
                let place = self.origin.call(from: machine.number, for: numbers[1]) { place in
                    machine.send("value \(numbers[0]) \(place.version) \(place.call)")
                }
                self.history.count { $0.calls += 1 }
                self.history.note(
                    "machine \(machine.number) calls for key \(numbers[1]): \(place.version), call \(place.call)"
                )
            case ("put", 6):
                self.history.note("machine \(machine.number) \(line)")
                let place = Place(version: numbers[1], call: numbers[2])
                self.history.put(machine.number, numbers[0], place, since: UInt64(max(numbers[3], 0)), words[5])
            case ("violation", _): self.history.violation("machine \(machine.number): \(line.dropFirst(10))")
            default: self.history.note("machine \(machine.number) \(line)")
            }
        }
    }

    // MARK: - Beginning and end

    /// Starts engines, proxies and machines.
    ///
    /// - Throws: The reason of a failed start.
    init(
        _ layout: Layout,
        _ program: Engine.Program,
        machines count: Int,
        _ guardian: Guardian,
        _ random: inout SeededRandom
    ) async throws {
        let (origin, history) = (Origin(random.split()), History(machines: count))
        let directory = Directory(origin, history)
        (self.layout, self.guardian, self.origin, self.history) = (layout, guardian, origin, history)
        self.directory = directory
        self.server = try await LineServer { directory.receiver($0) }
        self.cluster = layout == .cluster ? try await Cluster(program) : nil
        if let cluster {
            self.engines = cluster.engines
        } else {
            let first = try await Engine(
                program,
                layout == .disk ? ["--appendonly", "yes", "--appendfsync", "always"] : []
            )
            let options = ["--replicaof", "127.0.0.1", "\(first.port)", "--repl-diskless-sync-delay", "0"]
            self.engines = layout == .replicas ? [first, try await Engine(program, options)] : [first]
        }
        var proxies: [[FaultyProxy]] = []
        for engine in layout == .cluster ? [] : self.engines {
            var row: [FaultyProxy] = []
            for _ in 0..<count { row.append(try await FaultyProxy(to: engine.address)) }
            proxies.append(row)
        }
        self.proxies = proxies
        for number in self.engines.indices { try await self.registerEngine(number) }
        if layout == .replicas { try await self.awaitReplica() }
        for number in 0..<count { try self.startMachine(number) }
        for machine in self.machines { try await machine.waitUntilConnected() }
    }

    /// Ends machines, proxies, engines and pending waits.
    func end() {
        self.origin.abandonHolds()
        for machine in self.machines { machine.kill() }
        for proxy in self.proxies.joined() { proxy.close() }
        for number in self.engines.indices { self.killEngine(number) }
        self.server.close()
    }

    var machines: [RemoteMachine] {
        self.directory.machines.withLock { machines in machines.keys.sorted().compactMap { machines[$0] } }
    }

    private func startMachine(_ number: Int) throws {
        let ports =
            self.layout == .cluster ? self.engines.map(\.port) : self.proxies.map { $0[number].address.port }
        try self.directory.machines.withLock { machines in
            machines[number] = try RemoteMachine(
                number,
                control: self.server.port,
                engines: ports,
                prefix: Self.prefix,
                self.guardian
            )
        }
    }

    /// Ends a machine at once, and starts another machine in its place.
    func replaceMachine(_ number: Int) async throws {
        self.machines[number].kill()
        self.history.restarted(number)
        try self.startMachine(number)
        try await self.machines[number].waitUntilConnected()
    }

    // MARK: - Engines

    func killEngine(_ number: Int) {
        self.history.note("engine \(number) is killed")
        self.engines[number].kill()
        if let id = self.engineIDs.withLock({ $0.removeValue(forKey: number) }) { self.guardian.ended(id) }
    }

    func startEngine(_ number: Int) async throws {
        try await self.engines[number].start()
        try await self.registerEngine(number)
        self.history.note("engine \(number) is started")
    }

    /// Tells the guardian the process of an engine.
    private func registerEngine(_ number: Int) async throws {
        let engine = self.engines[number]
        let text = try await engine.ask("INFO", "server").text ?? ""
        let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix("process_id:") }
        guard let id = line.flatMap({ Int32($0.dropFirst("process_id:".count)) }) else { return }
        self.engineIDs.withLock { $0[number] = id }
        self.guardian.started(id)
    }

    /// Waits until the replica is in sync with the primary.
    func awaitReplica() async throws {
        let primary = self.primary.withLock { $0 }
        try await self.engines[1 - primary].wait(for: "INFO", "replication") { reply in
            let text = reply.text ?? ""
            return text.contains("role:slave") && text.contains("master_link_status:up")
        }
        try await self.engines[primary].ask("WAIT", "1", "0")
    }

    // MARK: - Commands to machines

    /// Has a machine request a key; returns the value, or `nil` after a failure.
    @discardableResult
    func get(_ machine: Int, _ key: Int) async throws -> Place? {
        let known = self.history.known(machine, key)
        let answer = try await self.machines[machine].ask("get", "\(key)")
        guard answer.count == 6, answer[0] == "ok", let version = Int(answer[1]), let call = Int(answer[2]),
            let disturbances = Int(answer[5])
        else {
            self.history.count { $0.failedGets += 1 }
            self.history.note("machine \(machine) gets no key \(key): \(answer.joined(separator: " "))")
            return nil
        }
        let place = Place(version: version, call: call)
        let details = "\(answer[3]), \(answer[4]) ms old"
        self.history.note("machine \(machine) gets key \(key): \(version), call \(call), \(details)")
        let read = History.Read(
            machine: machine,
            key: key,
            place: place,
            known: known,
            current: self.origin.version(key),
            disturbances: disturbances,
            isKept: !answer[3].contains("-"),
            details: details
        )
        self.history.ended(read)
        return place
    }

    /// The scope of a single clear.
    enum Scope: Sendable {
        case entry(Int)
        case group(Int)
        case domain
        case everything

        var keys: [Int] {
            switch self {
            case .entry(let key): [key]
            case .group(let group): Keys.common.filter { $0 % 3 == group }
            case .domain: Array(Keys.common) + Array(Keys.watched)
            case .everything: Array(Keys.common) + Array(Keys.watched) + Array(Keys.brief)
            }
        }

        fileprivate var words: String {
            switch self {
            case .entry(let key): "entry \(key)"
            case .group(let group): "tag \(group)"
            case .domain: "domain"
            case .everything: "all"
            }
        }
    }

    /// Changes keys at the origin, and has a machine clear the keys.
    ///
    /// - Returns: Whether the clear was acknowledged.
    @discardableResult
    func change(_ scope: Scope, by machine: Int) async throws -> Bool {
        let versions = self.origin.change(scope.keys)
        self.history.changed(versions)
        self.history.note("machine \(machine) clears \(scope)")
        let answer = try await self.machines[machine].ask("clear", scope.words)
        self.history.cleared(machine, versions, isAcknowledged: answer == ["ok"])
        self.history.note("machine \(machine) has cleared \(scope), now \(versions): \(answer)")
        return answer == ["ok"]
    }

    /// Has a machine pass a barrier.
    ///
    /// - Returns: Whether the machine has passed the barrier within the limit.
    @discardableResult
    func sync(_ machine: Int, within limit: Duration) async throws -> Bool {
        let acknowledged = self.history.acknowledged
        let milliseconds = Int(limit / .milliseconds(1))
        let answer = try await self.machines[machine].ask("sync", "\(milliseconds)")
        guard answer.count == 3, let gaps = Int(answer[1]), let disturbances = Int(answer[2]) else { return false }
        self.history.passed(machine, acknowledged, gaps: gaps, disturbances: disturbances)
        self.history.note("machine \(machine) has passed a barrier")
        return true
    }

    /// Runs `body` for all machines concurrently.
    func onEachMachine(_ body: @escaping @Sendable (Int) async throws -> Void) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for machine in self.machines { group.addTask { try await body(machine.number) } }
            try await group.waitForAll()
        }
    }

    /// Waits until all pending clears are confirmed, and each machine uses the store again and has passed a
    /// barrier.
    func recover() async throws {
        for proxy in self.proxies.joined() { await proxy.set(.pass) }
        for proxy in self.proxies.joined() { try await proxy.drained() }
        try await self.onEachMachine { machine in
            let owed = self.history.owed(by: machine)
            let answer = try await self.machines[machine].ask("settle", "15000")
            guard answer == ["ok"] else {
                return self.history.violation(
                    "machine \(machine) has not sent its clears for 15 s: \(answer.joined(separator: " "))"
                )
            }
            self.history.settled(machine, owed)
        }
        try await self.onEachMachine { machine in
            guard try await !self.sync(machine, within: .seconds(15)) else { return }
            self.history.violation("machine \(machine) does not use the store again for 15 s")
        }
    }

    /// The sums over all machines; see ``OriginCalls``.
    func facts() async throws -> OriginCalls.Counts {
        var sums = OriginCalls.Counts()
        for machine in self.machines {
            let numbers = try await machine.ask("facts").map { Int($0) ?? 0 }
            guard numbers.count == 3 else { continue }
            sums.calls += numbers[0]
            sums.alone += numbers[1]
            sums.disturbances += numbers[2]
        }
        return sums
    }
}
