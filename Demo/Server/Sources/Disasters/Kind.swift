import Engines
import Foundation
import MuxKit
import MuxValkey
import NIOCore
import Synchronization

/// The kinds of disaster.
enum Kind: String, CaseIterable, Sendable {
    case killed = "engine killed, nothing kept"
    case killedWithDisk = "engine killed, all kept"
    case paused = "engine stopped"
    case emptied = "engine emptied"
    case full = "engine full"
    case evicting = "engine evicts"
    case forbidden = "permissions missing"
    case cut = "connections cut"
    case halfOpen = "connections half open"
    case delayed = "connections delayed"
    case trickle = "one byte at a time"
    case holderCleared = "holder stopped, value cleared"
    case holderStopped = "holder stopped past its claim"
    case lateWrite = "write held back, value cleared"
    case holderKilled = "holder killed"
    case deaf = "cut off for a time to live"
    case primaryKilled = "primary killed, replica promoted"
    case failover = "roles changed, and changed back"
    case slotMoved = "slot moved"
    case slotReturned = "slot moved, and moved back"

    /// The layouts in which the disaster can happen.
    var layouts: [Layout] {
        switch self {
        case .killed: [.memory]
        case .killedWithDisk: [.disk]
        case .primaryKilled, .failover: [.replicas]
        case .slotMoved, .slotReturned: [.cluster]
        case .holderStopped, .holderKilled, .holderCleared: [.memory, .replicas, .cluster]
        case .lateWrite, .paused, .emptied, .full, .evicting, .forbidden: [.memory, .disk]
        case .deaf: [.memory]
        case .cut, .halfOpen, .delayed, .trickle: [.memory, .disk, .replicas]
        }
    }

    /// The relative frequency of the kind.
    var weight: Int {
        switch self {
        case .deaf, .holderStopped, .holderKilled: 1
        case .killed, .killedWithDisk, .primaryKilled, .slotMoved: 4
        default: 2
        }
    }

    /// Whether machines have less work, because the disaster takes long.
    var isSlow: Bool { [.holderStopped, .deaf, .holderKilled].contains(self) }

    /// Whether machines clear more than single entries during the disaster, which would disturb a watched
    /// fetch.
    var permitsAllClears: Bool {
        ![.holderCleared, .holderStopped, .lateWrite, .holderKilled, .deaf].contains(self)
    }

    /// Whether changes take effect in a single order, so that a barrier during the disaster is conclusive.
    ///
    /// Two engines that are primaries at the same time for a moment have no single order.
    var hasOneOrder: Bool { ![.primaryKilled, .failover, .slotMoved, .slotReturned].contains(self) }

    /// Causes the disaster, and returns at its end.
    ///
    /// - Throws: ``Trouble``, or the error of an engine.
    func strike(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        try await Task.sleep(for: random.milliseconds(10...60))
        switch self {
        case .killed, .killedWithDisk: try await self.kill(fleet, &random)
        case .paused:
            fleet.engines[0].pause(true)
            fleet.history.note("the engine is stopped")
            try? await Task.sleep(for: random.milliseconds(20...900))
            fleet.engines[0].pause(false)
            fleet.history.note("the engine goes on")
        case .emptied:
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                try await fleet.engines[0].ask("FLUSHALL")
                fleet.history.note("the engine is emptied")
                try await Task.sleep(for: random.milliseconds(0...100))
            }
        case .full: try await self.limitMemory(fleet, "noeviction", &random)
        case .evicting:
            let policies = [
                "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-random", "volatile-ttl",
            ]
            let policy = policies[Int.random(in: policies.indices, using: &random)]
            try await self.limitMemory(fleet, policy, &random)
        case .forbidden:
            let command = ["evalsha", "publish", "hset", "del", "all"][Int.random(in: 0..<5, using: &random)]
            let rules = command == "all" ? ["-@all", "+acl"] : ["-" + command]
            try await fleet.engines[0].ask(["ACL", "SETUSER", "default"] + rules)
            fleet.history.note("the permission for \(command) is missing")
            try? await Task.sleep(for: random.milliseconds(50...600))
            try await fleet.engines[0].ask("ACL", "SETUSER", "default", "+@all")
            fleet.history.note("all commands are permitted")
        case .cut: try await self.cut(fleet, &random)
        case .halfOpen:
            try await self.disturb(fleet, .hold, for: random.milliseconds(50...1_200), &random)
        case .delayed:
            let amount = TimeAmount.milliseconds(Int64.random(in: 5...350, using: &random))
            try await self.disturb(fleet, .delay(amount), for: random.milliseconds(100...600), &random)
        case .trickle: try await self.disturb(fleet, .trickle, for: random.milliseconds(100...500), &random)
        case .holderCleared: try await self.holderCleared(fleet, &random)
        case .holderStopped: try await self.holderStopped(fleet, &random)
        case .lateWrite: try await self.lateWrite(fleet, &random)
        case .holderKilled: try await self.holderKilled(fleet, &random)
        case .deaf: try await self.deaf(fleet, &random)
        case .primaryKilled: try await self.primaryKilled(fleet, &random)
        case .failover: try await self.failover(fleet, &random)
        case .slotMoved: try await self.moveSlot(fleet, &random)
        case .slotReturned:
            guard let home = try await fleet.cluster?.owner(of: Fleet.prefix) else { return }
            try await self.moveSlot(fleet, &random)
            try await Task.sleep(for: random.milliseconds(0...150))
            try await fleet.cluster?.move(Fleet.prefix, to: home)
            fleet.history.note("the slot is back on engine \(home)")
        }
        try await Task.sleep(for: random.milliseconds(10...60))
    }

    // MARK: - Connections

    private func proxies(_ fleet: Fleet, _ random: inout SeededRandom) -> [FaultyProxy] {
        let machines = random.some(fleet.machines.map(\.number))
        fleet.history.note("\(self.rawValue): machines \(machines)")
        return fleet.proxies.flatMap { row in machines.map { row[$0] } }
    }

    private func cut(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            let proxies = self.proxies(fleet, &random)
            let refuses = random.chance(0.5)
            for proxy in proxies {
                if refuses { await proxy.set(.refuse) }
                proxy.cut()
            }
            try await Task.sleep(for: random.milliseconds(0...250))
            for proxy in proxies { await proxy.set(.pass) }
        }
    }

    private func disturb(
        _ fleet: Fleet,
        _ mode: FaultyProxy.Mode,
        for duration: Duration,
        _ random: inout SeededRandom
    ) async throws {
        let proxies = self.proxies(fleet, &random)
        for proxy in proxies { await proxy.set(mode) }
        try await Task.sleep(for: duration)
        let ends = random.chance(0.3)
        for proxy in proxies {
            if ends { proxy.cut() }
            await proxy.set(.pass)
        }
        fleet.history.note("the disturbance ends, and connections \(ends ? "with it" : "go on")")
    }

    // MARK: - Engines

    private func kill(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        fleet.killEngine(0)
        try await Task.sleep(for: random.milliseconds(0...300))
        try await fleet.startEngine(0)
    }

    /// Denies the engine more memory for a moment.
    private func limitMemory(_ fleet: Fleet, _ policy: String, _ random: inout SeededRandom) async throws {
        let engine = fleet.engines[0]
        try await engine.ask("CONFIG", "SET", "maxmemory-policy", policy)
        try await engine.ask("CONFIG", "SET", "maxmemory", "1")
        fleet.history.note("the engine has no memory: \(policy)")
        try? await Task.sleep(for: random.milliseconds(50...600))
        try await engine.ask("CONFIG", "SET", "maxmemory", "0")
        fleet.history.note("the engine has memory")
    }

    private func primaryKilled(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        let former = fleet.primary.withLock { $0 }
        let next = 1 - former
        fleet.killEngine(former)
        try await Task.sleep(for: random.milliseconds(0...100))
        try await fleet.engines[next].ask("REPLICAOF", "NO", "ONE")
        fleet.primary.withLock { $0 = next }
        fleet.history.note("engine \(next) is promoted")
        try await Task.sleep(for: random.milliseconds(0...200))
        // The engine starts as an empty primary, which no machine may find.
        for proxy in fleet.proxies[former] { await proxy.set(.refuse) }
        try await fleet.startEngine(former)
        try await fleet.engines[former].ask("REPLICAOF", "127.0.0.1", "\(fleet.engines[next].port)")
        try await fleet.awaitReplica()
        for proxy in fleet.proxies[former] { await proxy.set(.pass) }
    }

    private func failover(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        for _ in 0..<2 {
            let former = fleet.primary.withLock { $0 }
            let next = 1 - former
            try await fleet.engines[next].ask("REPLICAOF", "NO", "ONE")
            try await fleet.engines[former].ask("REPLICAOF", "127.0.0.1", "\(fleet.engines[next].port)")
            fleet.primary.withLock { $0 = next }
            fleet.history.note("engine \(next) takes the place of \(former)")
            try await Task.sleep(for: random.milliseconds(0...500))
            try await fleet.awaitReplica()
        }
    }

    private func moveSlot(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        guard let cluster = fleet.cluster else { return }
        let owner = try await cluster.owner(of: Fleet.prefix)
        let next = (owner + Int.random(in: 1...2, using: &random)) % 3
        try await cluster.move(Fleet.prefix, to: next)
        fleet.history.note("the slot has moved from engine \(owner) to \(next)")
    }
}
