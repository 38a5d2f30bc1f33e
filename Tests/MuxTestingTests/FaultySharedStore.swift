import Foundation
import MuxKit
import MuxTesting

/// A shared store with one fault, as one machine sees it.
struct FaultySharedStore: MuxSharedStore {
    enum Fault: String, CaseIterable, Sendable {
        case answersMisses, grantsAll, claimsForEver, losesValidator, losesLimits, cutsPayload, sortsNames, foldsCase
        case forgetsAge, freezesAge, ignoresMaximumAge, withholdsStale, servesExpired
        case storesLate, keepsClaims, givesUpAll, neverGivesUp, storesTwice
        case ignoresTags, ignoresDomains, ignoresEverything, leavesClaims, invalidatesAll, prefixDomains, putsVoided,
            voidsAll
        case sendsKnown, withholdsAll, refusesRenewal, renewsAnything
        case tellsNothing, tellsOneMachine, tellsNoRelease, tellsOwn, grantsTwo, readsOtherTags
    }

    /// State that two machines share in addition to the store.
    final class Memory: Sendable {
        let claims = Locked<[MuxStoreKey: Int]>([:])
        let tickets = Locked<[MuxStoreKey: MuxShared.Ticket]>([:])
        /// The nonces of used tickets.
        let used = Locked<Set<String>>([])
        /// Claims that continue after an invalidation, by their nonce before the invalidation.
        let revived = Locked<[String: MuxShared.Ticket]>([:])
    }

    private let fault: Fault?
    private let base: MemorySharedStore.Connection
    private let memory: Memory
    /// Receives the changes of both machines.
    private let third: MemorySharedStore.Connection
    private let isFirst: Bool

    static func pair(_ fault: Fault?, _ clock: VirtualClock) -> (any MuxSharedStore, any MuxSharedStore) {
        let (store, memory) = (MemorySharedStore(clock: clock), Memory())
        return (
            FaultySharedStore(fault, store, memory, isFirst: true),
            FaultySharedStore(fault, store, memory, isFirst: false)
        )
    }

    private init(_ fault: Fault?, _ store: MemorySharedStore, _ memory: Memory, isFirst: Bool) {
        self.fault = fault
        self.base = store.connection()
        self.memory = memory
        self.third = store.connection()
        self.isFirst = isFirst
    }

    private func name(_ name: MuxShared.Name) -> MuxShared.Name {
        switch self.fault {
        case .foldsCase:
            MuxShared.Name(
                MuxStoreKey(domain: name.key.domain.lowercased(), key: name.key.key?.lowercased()),
                tags: name.tags
            )
        case .ignoresTags: MuxShared.Name(name.key)
        default: name
        }
    }

    private func told(_ entry: MuxShared.Entry) -> MuxShared.Entry {
        var entry = entry
        switch self.fault {
        case .losesValidator: entry.validator = nil
        case .losesLimits: entry.staleIfError = nil
        case .cutsPayload: entry.payload = entry.payload?.prefix(2)
        case .freezesAge: entry.age = .zero
        case .withholdsAll: entry.payload = nil
        default: break
        }
        return entry
    }

    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
        var names = names
        if self.fault == .sortsNames { names.sort { ($0.key.key ?? "") < ($1.key.key ?? "") } }
        var found = try await self.base.load(names.map(self.name)).map { $0.map(self.told) }
        if self.fault == .readsOtherTags {
            for (place, name) in names.enumerated() where found[place] == nil {
                found[place] = try await self.base.load([MuxShared.Name(name.key, tags: ["Rome"])])[0]
            }
        }
        if self.fault == .answersMisses {
            found = found.map { $0 ?? MuxShared.Entry(payload: Data(), digest: "", timeToLive: .seconds(1)) }
        }
        return found
    }

    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim {
        if self.fault == .putsVoided {
            for ticket in self.memory.revived.withLock({ $0.values }) where ticket.name == name {
                try await self.base.giveUp(ticket)
            }
        }
        let limit = self.fault == .ignoresMaximumAge ? nil : maximumAge
        let claim = try await self.base.claim(
            self.name(name),
            maximumAge: limit,
            digest: self.fault == .sendsKnown ? nil : digest,
            for: self.fault == .claimsForEver ? .longest : duration
        )
        switch claim {
        case .entry(let entry): return .entry(self.told(entry))
        case .granted(let ticket, let entry):
            if self.fault == .servesExpired, let entry, maximumAge.map({ entry.age < $0 }) ?? true {
                try await self.base.giveUp(ticket)
                return .entry(entry)
            }
            self.memory.tickets.withLock { $0[name.key] = ticket }
            let own = MuxShared.Ticket(name, nonce: ticket.nonce)
            return .granted(own, self.fault == .withholdsStale ? nil : entry.map(self.told))
        case .taken(let time, let entry):
            let asked = self.memory.claims.withLock { claims in
                claims[name.key, default: 0] += 1
                return claims[name.key] ?? 0
            }
            let grants = self.fault == .grantsAll || self.fault == .grantsTwo && name.key.domain == "Many" && asked == 1
            if grants, let ticket = self.memory.tickets.withLock({ $0[name.key] }) { return .granted(ticket, entry) }
            return .taken(for: time, self.fault == .withholdsStale ? nil : entry.map(self.told))
        }
    }

    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
        var entry = entry
        if self.fault == .forgetsAge { entry.age = .zero }
        if self.fault == .refusesRenewal, entry.payload == nil { return false }
        if self.fault == .renewsAnything, entry.payload == nil {
            let held = try await self.base.load([self.name(ticket.name)])[0]
            entry.payload = held?.payload
        }
        var own = MuxShared.Ticket(self.name(ticket.name), nonce: ticket.nonce)
        // A claim from before an invalidation continues.
        if let other = self.memory.revived.withLock({ $0[ticket.nonce] }) { own = other }
        let isStored = try await self.base.put(entry, with: own)
        if isStored {
            _ = self.memory.used.withLock { $0.insert(ticket.nonce) }
            if self.fault == .keepsClaims {
                _ = try await self.base.claim(own.name, maximumAge: .zero, digest: nil, for: .longest)
            }
            return true
        }
        let isTold =
            self.fault == .storesLate
            || self.fault == .storesTwice && self.memory.used.withLock { $0.contains(ticket.nonce) }
        guard isTold else { return false }
        // The present holder loses the claim.
        if self.fault == .storesLate { try await self.base.invalidate([.entry(own.name.key)]) }
        let claim = try await self.base.claim(own.name, maximumAge: .zero, digest: nil, for: .seconds(1))
        guard case .granted(let other, _) = claim else { return false }
        return try await self.base.put(entry, with: other)
    }

    /// The tickets of valid claims.
    private func standing() async throws -> [MuxShared.Ticket] {
        var standing: [MuxShared.Ticket] = []
        for ticket in self.memory.tickets.withLock({ $0.values }) {
            switch try await self.base.claim(ticket.name, maximumAge: .zero, digest: nil, for: .seconds(50)) {
            case .taken: standing.append(ticket)
            case .granted(let other, _): try await self.base.giveUp(other)
            case .entry: break
            }
        }
        return standing
    }

    func giveUp(_ ticket: MuxShared.Ticket) async throws {
        if self.fault == .neverGivesUp { return }
        if self.fault == .tellsNoRelease {
            try await self.base.invalidate([.entry(self.name(ticket.name).key)])
            return
        }
        let present = self.memory.tickets.withLock { $0[ticket.name.key] }
        try await self.base.giveUp(
            self.fault == .givesUpAll
                ? present ?? ticket : MuxShared.Ticket(self.name(ticket.name), nonce: ticket.nonce)
        )
    }

    func invalidate(_ scopes: [MuxShared.Scope]) async throws {
        var scopes = scopes
        switch self.fault {
        case .ignoresDomains: scopes.removeAll { if case .domain = $0 { true } else { false } }
        case .ignoresEverything: scopes.removeAll { $0 == .everything }
        case .invalidatesAll: scopes = [.everything]
        case .prefixDomains where scopes.contains(.domain("Pl")): scopes += [.domain("Places"), .domain("Place")]
        case .foldsCase:
            scopes = scopes.map { scope in
                guard case .entry(let key) = scope else { return scope }
                return .entry(MuxStoreKey(domain: key.domain.lowercased(), key: key.key?.lowercased()))
            }
        default: break
        }
        let revives = self.fault == .leavesClaims || self.fault == .putsVoided
        let standing = revives || self.fault == .voidsAll ? try await self.standing() : []
        try await self.base.invalidate(scopes)
        guard revives else {
            for ticket in standing { try await self.base.giveUp(ticket) }
            return
        }
        for ticket in standing {
            let claim = try await self.base.claim(ticket.name, maximumAge: .zero, digest: nil, for: .seconds(50))
            if case .granted(let other, _) = claim { self.memory.revived.withLock { $0[ticket.nonce] = other } }
        }
    }

    func changes() -> AsyncStream<MuxShared.Change> {
        switch self.fault {
        case .tellsNothing: AsyncStream { $0.finish() }
        case .tellsOneMachine where self.isFirst: AsyncStream { $0.finish() }
        case .tellsOwn: self.third.changes()
        default: self.base.changes()
        }
    }
}
