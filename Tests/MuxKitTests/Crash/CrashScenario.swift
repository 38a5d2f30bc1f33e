import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// An operation of a store, for an interruption at each of its file-system calls.
enum CrashScenario: String, CaseIterable, Sendable, Codable {
    /// The first save into a missing folder.
    case firstSave
    /// A save over an older value.
    case save
    /// A save that makes the dead bytes exceed the live bytes.
    case compactingSave
    /// A save after a damaged record that is dropped when the store opens.
    case openingDamaged
    case remove
    /// The removal of an entry with older versions in the journal.
    case erase
    /// A save that rewrites the index.
    case indexedSave
    /// A save that makes the dead bytes exceed the live bytes, in a folder with an index.
    case indexedCompaction
    /// A save that makes the folder exceed its limit.
    case evictingSave
    /// The session number rises, and then all entries are removed.
    case signOut

    /// A store with the options of the scenario.
    private func store(_ scratch: Scratch, _ fileSystem: any FileSystem = POSIXFileSystem()) -> JournalStore {
        switch self {
        case .indexedSave, .indexedCompaction: scratch.store(fileSystem, indexFloor: 2)
        case .evictingSave: scratch.store(fileSystem, byteLimit: 11_000, indexFloor: 2)
        case .firstSave, .save, .compactingSave, .openingDamaged, .remove, .erase, .signOut:
            scratch.store(fileSystem)
        }
    }

    private func large(_ key: String, _ size: Int) -> MuxStoredEntry {
        var large = sample(key)
        large.payload = Data("\"\(String(repeating: "x", count: size))\"".utf8)
        return large
    }

    /// Prepares the initial state of the folder.
    func prepare(_ scratch: Scratch) async throws {
        guard self != .firstSave else { return }
        let store = self.store(scratch)
        if self == .compactingSave || self == .indexedCompaction {
            try await store.save([self.large("large", 70_000)], durability: .relaxed)
        }
        if self == .evictingSave { try await store.save([self.large("old", 4000)], durability: .relaxed) }
        if self == .erase { try await store.save([sample("a", 31), sample("b", 31)], durability: .full) }
        try await store.save([sample("a", 1), sample("b", 1)], durability: .full)
        if self == .erase { try await store.save([sample("a", 32), sample("a", 3)], durability: .full) }
        if self == .openingDamaged {
            var bytes = try Data(contentsOf: scratch.segment)
            bytes.append(contentsOf: [UInt8]("damage\n".utf8))
            try bytes.write(to: scratch.segment)
        }
    }

    /// Runs the scenario on a prepared folder.
    func run(_ scratch: Scratch, _ fileSystem: any FileSystem) async throws {
        let store = self.store(scratch, fileSystem)
        switch self {
        case .evictingSave:
            let entries = [sample("a", 2), sample("c", 2), self.large("large", 4000)]
            try await store.save(entries, durability: .full)
        case .firstSave, .save, .openingDamaged, .indexedSave:
            try await store.save([sample("a", 2), sample("c", 2)], durability: .full)
        case .compactingSave, .indexedCompaction:
            try await store.save([sample("a", 2), sample("c", 2), sample("large", 2)], durability: .full)
        case .remove, .erase: try await store.remove([name("a"), name("c")], durability: .full)
        case .signOut:
            try await store.raiseSessionEpoch(to: 1)
            try await store.removeEverything()
        }
    }

    /// Checks the folder after an interruption, with a new store.
    func verify(_ scratch: Scratch, isDone: Bool, _ what: Comment) async throws {
        let store = self.store(scratch)
        let epoch = try await store.sessionEpoch()
        let a = try await store.load(name("a"))
        let b = try await store.load(name("b"))
        let c = try await store.load(name("c"))
        switch self {
        case .firstSave:
            #expect([nil, sample("a", 2)].contains(a) && b == nil && epoch == 0, what)
        case .save, .compactingSave, .openingDamaged, .indexedSave, .indexedCompaction, .evictingSave:
            #expect([sample("a", 1), sample("a", 2)].contains(a) && b == sample("b", 1) && epoch == 0, what)
        case .remove: #expect([sample("a", 1), nil].contains(a) && b == sample("b", 1) && epoch == 0, what)
        case .erase:
            #expect([sample("a", 3), nil].contains(a) && b == sample("b", 1) && epoch == 0, what)
            let values = ["{\"number\":32}", "{\"number\":3}"]
            if isDone { #expect(values.allSatisfy { scratch.find($0).isEmpty }, what) }
            try await store.remove([name("a")], durability: .relaxed)
            #expect(values.allSatisfy { scratch.find($0).isEmpty }, what)
            #expect(scratch.find("{\"number\":1}").count == 1, what)
        case .signOut:
            #expect(epoch == 1 ? a == nil && b == nil : a == sample("a", 1) && b == sample("b", 1), what)
        }
        #expect(c == nil || c == sample("c", 2), what)
        if isDone, self == .signOut { #expect(epoch == 1, what) }
        if isDone, self == .remove || self == .erase { #expect(a == nil, what) }
        if isDone, ![.signOut, .remove, .erase].contains(self) {
            #expect(a == sample("a", 2) && c == sample("c", 2), what)
        }
        // The folder contains no other files and stays fully usable.
        let files = scratch.listing.filter { $0 != "journal/00000001.index" }
        #expect(files == ["epoch.json", "journal", "journal/00000001.jsonl", "lock"], what)
        #expect(try await store.brokenInvariants().isEmpty, what)
        if epoch == 1 { #expect(try Data(contentsOf: scratch.segment).isEmpty, what) }
        try await store.save([sample("a", 3, epoch: epoch)], durability: .full)
        #expect(try await self.store(scratch).load(name("a")) == sample("a", 3, epoch: epoch), what)
        #expect(try await store.brokenInvariants().isEmpty, what)
        let statistics = await store.statistics()
        #expect(statistics.damagedRecords == 0 || self == .openingDamaged, what)
    }

    /// The file-system calls of the scenario.
    func calls() async throws -> [FileCall] {
        let scratch = Scratch()
        try await self.prepare(scratch)
        let recorder = RecordingFileSystem()
        try await self.run(scratch, recorder)
        return recorder.calls
    }
}
