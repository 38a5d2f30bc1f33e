import MuxKit
import MuxTesting

/// A model of machines that share a store, with their memory, their flights and their pending changes.
///
/// The store is the real ledger. Replies and changes arrive with an event.
struct FleetBoard: Hashable, Sendable {
    /// Bugs that distort the actions of the machines and the store, without a copy of the ledger's code.
    enum Bug: String, CaseIterable, Sendable {
        case none = "no bug"
        case putsWithoutCompare = "a put does not look at the claim"
        case claimOutlivesInvalidation = "an invalidation leaves claims alone"
        case trustsMemory = "memory is trusted after unknown"
        case grantsTwice = "a claim is granted to two"
        case keepsRefused = "a value whose put was refused is kept"
        case keepsFenced = "an entry is kept whose invalidation came before it"
        case missesWakeUp = "a change between question and answer wakes nobody"
        case keepsFencedPut = "a value is kept whose invalidation came before the reply to its put"
        case grantsAlways = "a claim is granted though another stands"
        case tellsNobody = "an invalidation is not told"
    }

    enum Event: Hashable, Sendable, CustomStringConvertible {
        case ask(Int, Int)
        /// The store's reply to a claim or a put arrives.
        case reply(Int, Int)
        case fetched(Int, Int)
        case failed(Int, Int)
        case deliver(Int)
        case cut(Int)
        case back(Int)
        case invalidate(Int)
        case invalidateTag
        case claimsEnd

        var description: String {
            switch self {
            case .ask(_, let key): "a machine asks for key \(key)"
            case .reply(_, let key): "a machine has the reply for key \(key)"
            case .fetched(_, let key): "a machine has fetched key \(key)"
            case .failed(_, let key): "a machine could not fetch key \(key)"
            case .deliver: "a machine is told of a change"
            case .cut: "a machine is cut off"
            case .back: "a machine is connected again"
            case .invalidate(let key): "key \(key) is invalidated"
            case .invalidateTag: "the tag is invalidated"
            case .claimsEnd: "the time of claims is over"
            }
        }
    }

    private enum Reply: Hashable {
        case entry(Int)
        case granted(UInt64)
        case taken
    }

    private enum Flight: Hashable {
        case idle
        /// The store has replied, and the reply is in transit.
        case asked(Reply, isFenced: Bool, isTold: Bool)
        case fetching(UInt64, version: Int)
        /// The put was accepted or refused, and the reply is in transit.
        case putting(isStored: Bool, version: Int, isFenced: Bool)
        case waiting
    }

    private struct Memory: Hashable {
        var version: Int
        var isVerified = true
    }

    private struct Machine: Hashable {
        var isConnected = true
        var memory: [Memory?]
        var flights: [Flight]
        var changes: [MuxShared.Change] = []
    }

    private let bug: Bug
    private var ledger = SharedLedger<Int>()
    private var now = 0
    /// The origin's version of each key, and the version at the last acknowledged invalidation.
    private var origin: [Int]
    private var acknowledged: [Int]
    private var machines: [Machine]
    private var invalidations = 0
    /// The claims that stand, derived from the events and not from the ledger.
    private var granted: [UInt64?]
    private var flawOfGrants: String?

    init(_ bug: Bug, machines: Int, keys: Int) {
        self.bug = bug
        self.origin = Array(repeating: 0, count: keys)
        self.acknowledged = self.origin
        self.granted = Array(repeating: nil, count: keys)
        let machine = Machine(memory: Array(repeating: nil, count: keys), flights: Array(repeating: .idle, count: keys))
        self.machines = Array(repeating: machine, count: machines)
    }

    private static let duration = Duration.seconds(1)
    private var moment: Moment { Moment(nanoseconds: Int64(self.now) * 1_000_000_000) }

    private func key(_ key: Int) -> MuxStoreKey { MuxStoreKey(domain: "d", key: "\(key)") }
    private func name(_ key: Int) -> MuxShared.Name { MuxShared.Name(self.key(key), tags: ["t"]) }

    // MARK: - Possible events

    var events: [Event] {
        var events: [Event] = []
        for (index, machine) in self.machines.enumerated() {
            for key in self.origin.indices {
                switch machine.flights[key] {
                case .idle:
                    // A verified value in memory needs no claim.
                    let isKnown = machine.memory[key]?.isVerified ?? false
                    if machine.isConnected, !isKnown { events.append(.ask(index, key)) }
                case .asked, .putting: events.append(.reply(index, key))
                case .fetching: events += [.fetched(index, key), .failed(index, key)]
                case .waiting: break
                }
            }
            if !machine.changes.isEmpty { events.append(.deliver(index)) }
            events.append(machine.isConnected ? .cut(index) : .back(index))
        }
        if self.invalidations < 2 {
            events += self.origin.indices.map { .invalidate($0) }
            if self.origin.count > 1 { events.append(.invalidateTag) }
        }
        if self.origin.indices.contains(where: { self.ledger.isClaimed(self.name($0), at: self.moment) }) {
            events.append(.claimsEnd)
        }
        return events
    }

    // MARK: - Events

    /// Applies `event` and returns a violation, or `nil`.
    mutating func apply(_ event: Event) -> String? {
        switch event {
        case .ask(let machine, let key): self.ask(machine, key)
        case .reply(let machine, let key): self.reply(machine, key)
        case .fetched(let machine, let key): self.fetched(machine, key)
        case .failed(let machine, let key): self.failed(machine, key)
        case .deliver(let machine): self.deliver(machine)
        case .cut(let machine): self.cut(machine)
        case .back(let machine):
            self.machines[machine].isConnected = true
            self.machines[machine].changes = [.unknown]
        case .invalidate(let key): self.invalidate(.entry(self.key(key)), [key])
        case .invalidateTag: self.invalidate(.tag("t"), Array(self.origin.indices))
        case .claimsEnd:
            self.now += 1
            self.granted = self.granted.map { _ in nil }
            // A waiting machine knows the latest end of the claim.
            for machine in self.machines.indices { for key in self.origin.indices { self.told(machine, key) } }
        }
        let flaw = self.flaw()
        // Machines are interchangeable, so sorted machines make states equal that differ only in the order.
        self.machines.sort { $0.hashValue < $1.hashValue }
        return flaw
    }

    private mutating func ask(_ machine: Int, _ key: Int) {
        let reply: Reply =
            switch self.ledger.claim(self.name(key), for: Self.duration, at: self.moment, { _ in true }) {
            case .entry(let held): .entry(held.content)
            case .granted(let nonce, _): .granted(nonce)
            case .taken: self.taken(key)
            }
        if case .granted(let nonce) = reply {
            if self.granted[key] != nil { self.flawOfGrants = "a claim is granted while another stands" }
            self.granted[key] = nonce
        }
        self.machines[machine].flights[key] = .asked(reply, isFenced: false, isTold: false)
    }

    private mutating func taken(_ key: Int) -> Reply {
        switch self.bug {
        case .grantsTwice: return self.standing(key).map { .granted($0) } ?? .taken
        case .grantsAlways:
            self.ledger.invalidate(.entry(self.key(key)))
            let action = self.ledger.claim(self.name(key), for: Self.duration, at: self.moment) { _ in false }
            if case .granted(let nonce, _) = action { return .granted(nonce) }
            return .taken
        default: return .taken
        }
    }

    /// The nonce of the standing claim of `key`, if a machine holds the claim.
    private func standing(_ key: Int) -> UInt64? {
        let nonces = self.machines.compactMap { machine -> UInt64? in
            switch machine.flights[key] {
            case .asked(.granted(let nonce), _, _), .fetching(let nonce, _): nonce
            case .asked, .idle, .putting, .waiting: nil
            }
        }
        return nonces.first { self.ledger.isClaimValid($0, self.name(key), at: self.moment) }
    }

    private mutating func reply(_ machine: Int, _ key: Int) {
        if case .putting(let isStored, let version, let isFenced) = self.machines[machine].flights[key] {
            self.machines[machine].flights[key] = .idle
            let isKept = isStored && (!isFenced || self.bug == .keepsFencedPut) || self.bug == .keepsRefused
            if isKept { self.machines[machine].memory[key] = Memory(version: version) }
        }
        guard case .asked(let reply, let isFenced, let isTold) = self.machines[machine].flights[key] else { return }
        self.machines[machine].flights[key] = .idle
        switch reply {
        case .entry(let version):
            // The callers of the flight asked before the invalidation. Later callers ask the store again.
            if !isFenced || self.bug == .keepsFenced { self.machines[machine].memory[key] = Memory(version: version) }
        case .granted(let nonce):
            self.machines[machine].flights[key] = .fetching(nonce, version: self.origin[key])
        case .taken:
            let asksAgain = (isTold || isFenced) && self.bug != .missesWakeUp
            self.machines[machine].flights[key] = asksAgain ? .idle : .waiting
        }
    }

    private mutating func fetched(_ machine: Int, _ key: Int) {
        guard case .fetching(var nonce, let version) = self.machines[machine].flights[key] else { return }
        self.machines[machine].flights[key] = .idle
        guard self.machines[machine].isConnected else { return }
        if self.bug == .putsWithoutCompare, !self.ledger.isClaimValid(nonce, self.name(key), at: self.moment) {
            self.ledger.invalidate(.entry(self.key(key)))
            guard
                case .granted(let other, _) = self.ledger.claim(
                    self.name(key),
                    for: Self.duration,
                    at: self.moment,
                    { _ in false }
                )
            else { return }
            nonce = other
        }
        let isStored = self.ledger.put(version, fetchedAt: self.moment, nonce, self.name(key), at: self.moment)
        self.machines[machine].flights[key] = .putting(isStored: isStored, version: version, isFenced: false)
        guard isStored else { return }
        self.granted[key] = nil
        self.tell(.stored(self.key(key)))
    }

    private mutating func failed(_ machine: Int, _ key: Int) {
        guard case .fetching(let nonce, _) = self.machines[machine].flights[key] else { return }
        self.machines[machine].flights[key] = .idle
        guard self.machines[machine].isConnected,
            self.ledger.giveUp(nonce, self.name(key), at: self.moment)
        else { return }
        self.granted[key] = nil
        self.tell(.released(self.key(key)))
    }

    private mutating func invalidate(_ scope: MuxShared.Scope, _ keys: [Int]) {
        self.invalidations += 1
        let claims = keys.map { ($0, self.standing($0)) }
        for key in keys { self.origin[key] += 1 }
        self.ledger.invalidate(scope)
        for key in keys {
            self.acknowledged[key] = self.origin[key]
            self.granted[key] = nil
        }
        if self.bug != .tellsNobody { self.tell(.invalidated(scope)) }
        guard self.bug == .claimOutlivesInvalidation else { return }
        for case (let key, let nonce?) in claims {
            let action = self.ledger.claim(self.name(key), for: Self.duration, at: self.moment) { _ in false }
            guard case .granted(let other, _) = action else { continue }
            for machine in self.machines.indices {
                guard case .fetching(nonce, let version) = self.machines[machine].flights[key] else { continue }
                self.machines[machine].flights[key] = .fetching(other, version: version)
            }
        }
    }

    private mutating func tell(_ change: MuxShared.Change) {
        for machine in self.machines.indices where self.machines[machine].isConnected {
            self.machines[machine].changes.append(change)
        }
    }

    private mutating func deliver(_ machine: Int) {
        switch self.machines[machine].changes.removeFirst() {
        case .stored(let stored), .released(let stored):
            for key in self.origin.indices where self.key(key) == stored { self.told(machine, key) }
        case .invalidated(let scope):
            for key in self.origin.indices
            where scope == .entry(self.key(key)) || self.name(key).scopes.contains(scope) {
                self.machines[machine].memory[key] = nil
                self.fence(machine, key)
            }
        case .unknown, .emptied:
            for key in self.origin.indices {
                if self.bug != .trustsMemory { self.machines[machine].memory[key]?.isVerified = false }
                self.fence(machine, key)
            }
        }
    }

    private mutating func told(_ machine: Int, _ key: Int) {
        if case .asked(let reply, let isFenced, _) = self.machines[machine].flights[key] {
            self.machines[machine].flights[key] = .asked(reply, isFenced: isFenced, isTold: true)
        }
        self.wake(machine, key)
    }

    private mutating func fence(_ machine: Int, _ key: Int) {
        switch self.machines[machine].flights[key] {
        case .asked(let reply, _, let isTold):
            self.machines[machine].flights[key] = .asked(reply, isFenced: true, isTold: isTold)
        case .putting(let isStored, let version, _):
            self.machines[machine].flights[key] = .putting(isStored: isStored, version: version, isFenced: true)
        case .idle, .fetching, .waiting: break
        }
        self.wake(machine, key)
    }

    private mutating func wake(_ machine: Int, _ key: Int) {
        if self.machines[machine].flights[key] == .waiting { self.machines[machine].flights[key] = .idle }
    }

    /// Disconnects a machine: replies and changes in transit are lost, running fetches continue.
    private mutating func cut(_ machine: Int) {
        self.machines[machine].isConnected = false
        self.machines[machine].changes = []
        for key in self.origin.indices {
            if case .fetching = self.machines[machine].flights[key] { continue }
            self.machines[machine].flights[key] = .idle
        }
    }

    // MARK: - Invariants

    private func flaw() -> String? {
        if let flawOfGrants { return flawOfGrants }
        for key in self.origin.indices {
            if let held = self.ledger.entry(self.name(key)), held.content < self.acknowledged[key] {
                return "the store has what was invalidated"
            }
            var holders = 0
            for machine in self.machines {
                if case .fetching(let nonce, _) = machine.flights[key],
                    self.ledger.isClaimValid(nonce, self.name(key), at: self.moment)
                {
                    holders += 1
                }
                // A pending change may still concern the machine.
                guard machine.isConnected, machine.changes.isEmpty else { continue }
                if let memory = machine.memory[key], memory.isVerified, memory.version < self.acknowledged[key] {
                    return "a connected machine answers with what was invalidated"
                }
                if machine.flights[key] == .waiting, self.granted[key] == nil {
                    return "a machine waits though nobody fetches"
                }
            }
            if holders > 1 { return "two fetch the same" }
        }
        return nil
    }
}
