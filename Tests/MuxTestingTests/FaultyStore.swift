import Foundation
import MuxKit

/// A store with one fault.
actor FaultyStore: MuxStore {
    enum Fault: String, CaseIterable, Sendable {
        case foldsCase, normalisesUnicode, joinsNamesWithSlash, joinsNamesWithNothing, mixesNoKeyWithEmpty,
            cutsLongNames
        case roundsDates, losesLifetimeFraction, cutsPayload, dropsExpired, stampsSession, writesBehind, savesFirstOnly
        case keepsLaterDate, remembersMisses, remembersLoads, keepsFirst, lateSaveErases
        case loadTakesAway, throwsOnMiss, hangsOnMiss
        case skipsMisses, sortsNames, dropsRepeatedNames
        case ignoresRelaxedSave, ignoresRelaxedRemoval, ignoresRelaxedDomainRemoval
        case removesFirstOnly, removesDomainOfName, removesDomainByPrefix, removesKeyEverywhere
        case removingNothingRemovesAll, savingNothingRemovesAll
        case checkRefusesAll, checkRefusesWithoutKey
        case everythingStays, removingEverythingStartsOver
        case sessionFalls, revivesSession, hidesNextSession, keepsEndedSession, acceptsEndedSession
        case mixesCalls, evictsAtTen
    }

    private struct Refused: Error {}

    private let fault: Fault?
    private var entries: [MuxStoreKey: MuxStoredEntry] = [:]
    private var order: [MuxStoreKey] = []
    private var pending: [MuxStoredEntry] = []
    private var misses: Set<MuxStoreKey> = []
    private var loads: [MuxStoreKey: MuxStoredEntry] = [:]
    private var epoch: UInt64 = 0
    /// Entries of earlier sessions do not exist.
    private var floor: UInt64 = 0

    init(_ fault: Fault?) { self.fault = fault }

    /// The name of the entry in the dictionary.
    private func slot(_ name: MuxStoreKey) -> MuxStoreKey {
        switch self.fault {
        case .foldsCase: MuxStoreKey(domain: name.domain.lowercased(), key: name.key?.lowercased())
        case .normalisesUnicode:
            MuxStoreKey(
                domain: name.domain.precomposedStringWithCanonicalMapping,
                key: name.key?.precomposedStringWithCanonicalMapping
            )
        case .joinsNamesWithSlash: MuxStoreKey(domain: name.domain + (name.key.map { "/" + $0 } ?? ""))
        case .joinsNamesWithNothing: MuxStoreKey(domain: name.domain + (name.key ?? "\u{1}"))
        case .mixesNoKeyWithEmpty: MuxStoreKey(domain: name.domain, key: name.key ?? "")
        case .cutsLongNames:
            MuxStoreKey(domain: String(name.domain.prefix(250)), key: name.key.map { String($0.prefix(250)) })
        default: name
        }
    }

    func sessionEpoch() -> UInt64 { self.epoch }

    func raiseSessionEpoch(to epoch: UInt64) {
        self.epoch = self.fault == .sessionFalls ? epoch : max(self.epoch, epoch)
        switch self.fault {
        case .keepsEndedSession: break
        case .revivesSession: self.floor = epoch
        case .hidesNextSession:
            self.floor = self.epoch
            self.entries = [:]
        default: self.floor = max(self.floor, epoch)
        }
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        let slot = self.slot(name)
        // Saved entries are written with the next call.
        defer {
            for entry in self.pending { self.entries[self.slot(entry.name)] = entry }
            self.pending = []
        }
        if self.fault == .remembersMisses, self.misses.contains(slot) { return nil }
        if self.fault == .remembersLoads, let entry = self.loads[slot] { return entry }
        guard var entry = self.entries[slot], entry.sessionEpoch >= self.floor else {
            if self.fault == .throwsOnMiss { throw Refused() }
            if self.fault == .hangsOnMiss { await Self.forever() }
            self.misses.insert(slot)
            return nil
        }
        entry.name = name
        switch self.fault {
        case .dropsExpired:
            let end = entry.fetchedAt.addingTimeInterval(Double(entry.timeToLive.components.seconds))
            if end < Date(timeIntervalSinceReferenceDate: 800_000_000) { return nil }
        case .loadTakesAway: self.entries[slot] = nil
        default: break
        }
        self.loads[slot] = entry
        return entry
    }

    func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        var asked = names
        if self.fault == .sortsNames { asked.sort { ($0.key ?? "") < ($1.key ?? "") } }
        var (entries, seen): ([MuxStoredEntry?], Set<MuxStoreKey>) = ([], [])
        for name in asked {
            let isRepeated = !seen.insert(name).inserted
            entries.append(self.fault == .dropsRepeatedNames && isRepeated ? nil : try await self.load(name))
        }
        return self.fault == .skipsMisses ? entries.filter { $0 != nil } : entries
    }

    private static func forever() async {
        await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    }

    nonisolated func check(_ entry: MuxStoredEntry) throws {
        if self.fault == .checkRefusesAll { throw Refused() }
        if self.fault == .checkRefusesWithoutKey, entry.name.key == nil { throw Refused() }
    }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        if self.fault == .ignoresRelaxedSave, durability == .relaxed { return }
        if self.fault == .savingNothingRemovesAll, entries.isEmpty { self.entries = [:] }
        if self.fault == .mixesCalls {
            // Rewrites all entries: a load in the meantime finds an empty store.
            let before = self.entries
            self.entries = [:]
            for _ in 0..<20 { await Task.yield() }
            self.entries = before
        }
        for entry in self.fault == .savesFirstOnly ? Array(entries.prefix(1)) : entries { self.keep(entry) }
    }

    private func keep(_ new: MuxStoredEntry) {
        var entry = new
        let slot = self.slot(entry.name)
        guard entry.sessionEpoch >= self.epoch || self.fault == .keepsEndedSession || self.fault == .acceptsEndedSession
        else {
            if self.fault == .lateSaveErases { self.entries[slot] = nil }
            return
        }
        if self.fault == .acceptsEndedSession { entry.sessionEpoch = max(entry.sessionEpoch, self.epoch) }
        let present = self.entries[slot]
        switch self.fault {
        case .keepsFirst where present != nil: return
        case .keepsLaterDate where (present?.fetchedAt ?? .distantPast) > entry.fetchedAt: return
        case .roundsDates:
            entry.fetchedAt = Date(
                timeIntervalSinceReferenceDate: entry.fetchedAt.timeIntervalSinceReferenceDate.rounded()
            )
        case .losesLifetimeFraction: entry.timeToLive = .seconds(entry.timeToLive.components.seconds)
        case .cutsPayload: entry.payload = entry.payload.prefix(65_535)
        case .stampsSession: entry.sessionEpoch = self.epoch
        case .writesBehind: return self.pending.append(entry)
        case .evictsAtTen:
            self.order.append(slot)
            if self.order.count > 10 { self.entries[self.order.removeFirst()] = nil }
        default: break
        }
        self.entries[slot] = entry
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) {
        switch self.fault {
        case .ignoresRelaxedRemoval where durability == .relaxed: return
        case .removingNothingRemovesAll where names.isEmpty: self.entries = [:]
        case .removesFirstOnly: for name in names.prefix(1) { self.entries[self.slot(name)] = nil }
        case .removesDomainOfName: for name in names { self.forget { $0.domain == name.domain } }
        case .removesKeyEverywhere: for name in names { self.forget { $0.key == name.key } }
        default:
            for name in names {
                self.entries[self.slot(name)] = nil
                self.loads[self.slot(name)] = nil
            }
        }
    }

    func removeAll(domain: String, durability: MuxDurability) {
        if self.fault == .ignoresRelaxedDomainRemoval, durability == .relaxed { return }
        switch self.fault {
        case .removesDomainByPrefix: self.forget { $0.domain.utf8.starts(with: domain.utf8) }
        case .joinsNamesWithSlash, .joinsNamesWithNothing: self.forget { $0.domain.hasPrefix(domain) }
        default: self.forget { self.slot(MuxStoreKey(domain: domain)).domain.utf8.elementsEqual($0.domain.utf8) }
        }
    }

    func removeEverything() {
        if self.fault == .everythingStays { return }
        self.forget { _ in true }
        if self.fault == .removingEverythingStartsOver { (self.epoch, self.floor) = (0, 0) }
    }

    private func forget(_ isMeant: (MuxStoreKey) -> Bool) {
        self.entries = self.entries.filter { !isMeant($0.key) }
        self.loads = self.loads.filter { !isMeant($0.key) }
    }

    func statistics() -> JournalStore.Statistics { JournalStore.Statistics() }
}
