import Engines
import Foundation
import MuxKit
import MuxValkey
import Synchronization

/// Disasters during a fetch whose response the origin holds back.
extension Kind {
    /// A fetch in progress.
    private struct Watched {
        let key: Int
        let holder: Int
        let other: Int
        let call: Origin.HeldCall
        let answer: Task<Place?, any Error>
    }

    /// Has a machine fetch a key that is not in the memory of any machine.
    private func begin(_ fleet: Fleet, _ random: inout SeededRandom) async throws -> Watched {
        let key = Int.random(in: Keys.watched, using: &random)
        let machines = Array(fleet.machines.map(\.number).shuffled(using: &random).prefix(2))
        let (holder, other) = (machines[0], machines[1])
        try await fleet.change(.entry(key), by: other)
        try await fleet.onEachMachine { try await fleet.sync($0, within: .seconds(10)) }
        let answer = Shared<Task<Place?, any Error>?>(nil)
        let call = try await fleet.origin.hold(holder, key) {
            answer.value = Task { try await fleet.get(holder, key) }
        }
        guard let answer = answer.value else { throw Trouble("a fetch was not asked for") }
        fleet.history.note("machine \(holder) fetches key \(key) with call \(call.place.call), which is held back")
        return Watched(key: key, holder: holder, other: other, call: call, answer: answer)
    }

    /// A holder is stopped; its key is cleared; the holder receives the value, and must not put the value.
    func holderCleared(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        let watched = try await self.begin(fleet, &random)
        let machine = fleet.machines[watched.holder]
        machine.stop(true)
        do {
            let isAcknowledged = try await fleet.change(.entry(watched.key), by: watched.other)
            if isAcknowledged { fleet.history.forbid(watched.call.place.call, besides: watched.holder) }
            let fetchesAgain = random.chance(0.5)
            if fetchesAgain { try await fleet.get(watched.other, watched.key) }
            watched.call.release()
            try await Task.sleep(for: random.milliseconds(0...100))
        } catch {
            machine.stop(false)
            throw error
        }
        machine.stop(false)
        _ = try await watched.answer.value
        for reader in fleet.machines { try await fleet.get(reader.number, watched.key) }
    }

    /// A holder is stopped for longer than its claim; another machine fetches and puts; the first must not
    /// overwrite.
    func holderStopped(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        let watched = try await self.begin(fleet, &random)
        let machine = fleet.machines[watched.holder]
        machine.stop(true)
        do {
            try await Self.claimEnds(fleet, watched.key)
            // From now on, a put by the holder is late.
            fleet.history.forbid(watched.call.place.call, besides: watched.holder)
            try await fleet.get(watched.other, watched.key)
        } catch {
            machine.stop(false)
            throw error
        }
        if random.chance(0.5) {
            watched.call.release()
            machine.stop(false)
        } else {
            machine.stop(false)
            watched.call.release()
        }
        _ = try await watched.answer.value
        for reader in fleet.machines where reader.number != watched.holder {
            try await fleet.get(reader.number, watched.key)
        }
    }

    /// Waits until the claim of a key ends, by attempts to claim the key.
    private static func claimEnds(_ fleet: Fleet, _ key: Int) async throws {
        let number =
            if let cluster = fleet.cluster {
                try await cluster.owner(of: Fleet.prefix)
            } else {
                fleet.primary.withLock { $0 }
            }
        let store = MuxValkey(.init(addresses: [fleet.engines[number].address], prefix: Fleet.prefix))
        defer { store.close() }
        let name = MuxShared.Name(MuxStoreKey(domain: Keys.domain, key: "\(key)"), tags: Keys.tags(key))
        while true {
            switch try await store.claim(name, maximumAge: nil, digest: nil, for: .seconds(1)) {
            case .taken(let rest, _): try await Task.sleep(for: rest)
            case .granted(let ticket, _): return try await store.giveUp(ticket)
            case .entry: return
            }
        }
    }

    /// The put of a fetched value is delayed until another machine has cleared the value.
    func lateWrite(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        let watched = try await self.begin(fleet, &random)
        let proxy = fleet.proxies[0][watched.holder]
        await proxy.set(.hold)
        watched.call.release()
        try await Task.sleep(for: random.milliseconds(0...400))
        if try await fleet.change(.entry(watched.key), by: watched.other) {
            fleet.history.forbid(watched.call.place.call, besides: watched.holder)
        }
        if random.chance(0.5) { try await fleet.get(watched.other, watched.key) }
        await proxy.set(.pass)
        try await proxy.drained()
        _ = try await watched.answer.value
        for reader in fleet.machines where reader.number != watched.holder {
            try await fleet.get(reader.number, watched.key)
        }
    }

    /// A machine ends during a fetch, and another machine takes its place.
    func holderKilled(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        let watched = try await self.begin(fleet, &random)
        fleet.machines[watched.holder].stop(true)
        fleet.machines[watched.holder].kill()
        _ = try? await watched.answer.value
        try await fleet.replaceMachine(watched.holder)
        for reader in fleet.machines { try await fleet.get(reader.number, watched.key) }
    }

    /// A machine receives no changes for longer than the time to live: the machine returns an old value for
    /// at most a time to live.
    ///
    /// A value that was fetched before the change arrives within the fetch's limit; its time to live begins
    /// on arrival.
    func deaf(_ fleet: Fleet, _ random: inout SeededRandom) async throws {
        let key = Int.random(in: Keys.brief, using: &random)
        let machines = Array(fleet.machines.map(\.number).shuffled(using: &random).prefix(2))
        let (deaf, other) = (machines[0], machines[1])
        try await fleet.get(deaf, key)
        let proxy = fleet.proxies[0][deaf]
        await proxy.set(.hold)
        proxy.cut()
        try await fleet.change(.entry(key), by: other)
        let version = fleet.origin.version(key)
        let end = ContinuousClock.now + Times.briefTimeToLive + Times.fetchTimeout
        while true {
            let asked = ContinuousClock.now
            if let place = try await fleet.get(deaf, key), place.version >= version { break }
            guard asked < end else {
                fleet.history.violation("machine \(deaf) reads an older version of key \(key) after its time to live")
                break
            }
            try await Task.sleep(for: .milliseconds(20))
        }
        await proxy.set(.pass)
    }
}
