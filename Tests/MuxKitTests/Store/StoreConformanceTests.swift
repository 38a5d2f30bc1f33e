import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct StoreConformanceTests {
    @Test func `DK-08 the journal keeps the rules of a store`() async throws {
        let folders = Locked<[Scratch]>([])

        try await MuxStoreConformance.run {
            let scratch = Scratch()
            folders.withLock { $0.append(scratch) }
            return scratch.store()
        }
    }

    @Test func `DK-08 the memory store keeps the rules of a store`() async throws {
        try await MuxStoreConformance.run { MemoryStore() }
    }

    @Test func `DK-08 a bounded journal with an index snapshot keeps the rules of a store`() async throws {
        let folders = Locked<[Scratch]>([])

        try await MuxStoreConformance.run {
            let scratch = Scratch()
            folders.withLock { $0.append(scratch) }
            return scratch.store(byteLimit: 1_000_000, indexFloor: 1)
        }
    }

    @Test func `DK-08 a user's store in a folder of files keeps the rules of a store`() async throws {
        let folders = Locked<[Scratch]>([])

        try await MuxStoreConformance.run {
            let scratch = Scratch()
            folders.withLock { $0.append(scratch) }
            return FolderOfFilesStore(folder: scratch.root)
        }
    }

    @Test func `DK-08 a sealed store keeps the rules of a store`() async throws {
        let folders = Locked<[Scratch]>([])
        let seal = ToySeal(key: 7)

        try await MuxStoreConformance.run { SealedStore(MemoryStore(), seal: seal.seal, open: seal.open) }
        try await MuxStoreConformance.run {
            let scratch = Scratch()
            folders.withLock { $0.append(scratch) }
            return SealedStore(scratch.store(), seal: seal.seal, open: seal.open)
        }
    }

    @Test(arguments: BrokenStore.Flaw.allCases)
    func `DK-08 a store with a flaw breaks the rule that forbids the flaw`(flaw: BrokenStore.Flaw) async throws {
        let error = await #expect(throws: ConformanceFailure.self) {
            try await MuxStoreConformance.run { BrokenStore(flaw) }
        }

        let expected =
            switch flaw {
            case .forgetsValidator, .forgetsStaleIfError, .forgetsStaleWhileRevalidate:
                "A saved entry is loaded unchanged"
            case .keepsFirst: "A later save replaces an earlier save"
            case .mixesNoKeyWithEmpty, .foldsCase: "Names that differ in any byte name different entries"
            case .ignoresRemoval, .removesTooMuch: "A removal removes only the named entries"
            case .domainStays: "The removal of a domain keeps other domains"
            case .everythingStays: "The removal of all entries keeps the session"
            case .sessionFalls: "The session number never falls"
            case .sessionLingers: "Entries of an earlier session do not exist"
            }
        #expect(error?.rule == expected)
    }
}
