import Foundation
import MuxKit
import MuxTesting

/// The journal on disk, with an index of the payload sizes of the entries that this process saved.
final class WatchedStore: MuxStore {
    private struct Contents: Sendable {
        var sizes: [MuxStoreKey: Int] = [:]
        var epoch: UInt64 = 0
    }

    private let journal: JournalStore
    private let changes: Tally
    private let contents = Locked(Contents())

    init(directory: URL, changes: Tally) {
        self.journal = JournalStore(directory: directory)
        self.changes = changes
    }

    /// The size of an entry's payload in bytes; `nil` for a missing entry.
    func size(_ name: MuxStoreKey) -> Int? { self.contents.withLock { $0.sizes[name] } }

    /// The number of entries and the sum of the payload sizes in bytes.
    var totals: (entries: Int, bytes: Int) {
        self.contents.withLock { ($0.sizes.count, $0.sizes.values.reduce(0, +)) }
    }

    /// The session epoch.
    var epoch: UInt64 { self.contents.withLock { $0.epoch } }

    private func note(_ change: (inout Contents) -> Void) {
        self.contents.withLock { change(&$0) }
        self.changes.add()
    }

    func sessionEpoch() async throws -> UInt64 {
        let epoch = try await self.journal.sessionEpoch()
        self.note { $0.epoch = epoch }
        return epoch
    }

    func raiseSessionEpoch(to epoch: UInt64) async throws {
        try await self.journal.raiseSessionEpoch(to: epoch)
        self.note { contents in
            contents.epoch = max(epoch, contents.epoch)
            contents.sizes = [:]
        }
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? { try await self.journal.load(name) }

    func check(_ entry: MuxStoredEntry) throws { try self.journal.check(entry) }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        var unkept: MuxStoreError.PartialSave?
        do {
            try await self.journal.save(entries, durability: durability)
        } catch let partial as MuxStoreError.PartialSave {
            unkept = partial
        }
        let names = Set(unkept?.failures.map(\.name) ?? [])
        self.note { contents in
            for entry in entries where !names.contains(entry.name) { contents.sizes[entry.name] = entry.payload.count }
        }
        if let unkept { throw unkept }
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try await self.journal.remove(names, durability: durability)
        self.note { contents in
            for name in names { contents.sizes[name] = nil }
        }
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.journal.removeAll(domain: domain, durability: durability)
        self.note { contents in contents.sizes = contents.sizes.filter { $0.key.domain != domain } }
    }

    func removeEverything() async throws {
        try await self.journal.removeEverything()
        self.note { $0.sizes = [:] }
    }

    func statistics() async -> JournalStore.Statistics { await self.journal.statistics() }
}
