import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The report of a save agrees with the entries that a new process reads.
@Suite(.standard)
struct SavedMeansSavedTests {
    /// The keys of `Map` that a new process reads from disk.
    private func onDisk(_ scratch: Scratch, _ keys: [Int]) async -> Set<Int> {
        let fresh = MuxRepository(store: scratch.store())
        let map = MultiplexerMap<Int, String>(cacheKey: "Map", repository: fresh) { _ in "fetched" }
        var found: Set<Int> = []
        for key in keys where await map.loadCachedValue(key: key) != nil { found.insert(key) }
        return found
    }

    @Test func `CO-13 an entry too large for the folder is reported, stays unsaved and stops no other`() async {
        let scratch = Scratch()
        let repository = MuxRepository(store: scratch.store(byteLimit: 20_000), durability: .relaxed)
        let map = MultiplexerMap<Int, String>(cacheKey: "Map", repository: repository) { "\($0)" }
        for key in 0..<10 { map.store("\(key)", key: key) }
        map.store(String(repeating: "x", count: 50_000), key: 10)

        for round in 1...2 {
            let report = await repository.saveAll()
            #expect(report.saved == (round == 1 ? 10 : 0))
            #expect(report.unchanged == (round == 1 ? 0 : 10))
            #expect(report.failed.map(\.name) == [MuxStoreKey(domain: "Map", key: "10")])
            #expect(!report.isComplete)
        }
        #expect(await self.onDisk(scratch, Array(0...10)) == Set(0..<10))
    }

    @Test(arguments: [Duration?.none, .seconds(60)])
    func `CO-13 of two values with the same cacheKey the newer is saved and the older is reported`(
        limit: Duration?
    ) async throws {
        let clock = VirtualClock()
        let store = MemoryStore()
        let repository = MuxRepository(store: store, clock: clock)
        let one = Multiplexer<Int>(cacheKey: "Same", repository: repository) { 1 }
        let two = Multiplexer<String>(cacheKey: "Same", repository: repository) { "two" }
        one.store(1)
        clock.advance(by: .seconds(1))
        two.store("two")

        let report = await repository.saveAll(within: limit)

        #expect(report.saved == 1)
        #expect(report.superseded == [MuxStoreKey(domain: "Same")])
        #expect(await store.load(.init(domain: "Same"))?.payload == Data(#""two""#.utf8))
        #expect(one.cachedValue == nil)
        #expect(two.cachedValue == "two")
        #expect(await repository.saveAll().unchanged == 1)
    }

    @Test func `CO-13 of two values with the same cacheKey the older stays if the newer fails to save`()
        async throws
    {
        let clock = VirtualClock()
        let store = MemoryStore()
        let repository = MuxRepository(store: store, clock: clock)
        let one = Multiplexer<Double>(cacheKey: "Same", repository: repository) { 1 }
        let two = Multiplexer<Double>(cacheKey: "Same", repository: repository) { 2 }
        one.store(1)
        clock.advance(by: .seconds(1))
        two.store(.nan)  // cannot be encoded

        let report = await repository.saveAll()

        #expect(report.saved == 0 && report.failed.count == 1 && report.leftOver == 1)
        #expect(one.cachedValue == 1)
    }

    @Test(arguments: [0, 12])
    func `CO-13 an entry that the same save evicts is not counted as saved but reported`(before: Int) async {
        let scratch = Scratch()
        let repository = MuxRepository(store: scratch.store(byteLimit: 20_000), durability: .relaxed)
        let map = MultiplexerMap<Int, String>(cacheKey: "Map", repository: repository) { "\($0)" }
        for key in 0..<before { map.store(String(repeating: "x", count: 1_000), key: 1_000 + key) }
        #expect(await repository.saveAll().saved == before)
        let count = before == 0 ? 100 : 9
        for key in 0..<count { map.store(String(repeating: "x", count: 1_000), key: key) }

        let report = await repository.saveAll()

        let found = await self.onDisk(scratch, Array(0..<count))
        #expect(report.saved == found.count)
        #expect(Set(report.failed.map(\.name.key)) == Set((0..<count).filter { !found.contains($0) }.map { "\($0)" }))
        #expect(report.saved + report.failed.count == count)
        #expect(report.saved > 0 && (before > 0 || report.saved < count))
    }

    @Test func `CO-13 an entry that a sibling's sign-out drops during the save is not counted as saved`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        store.beforeSave.withLock { $0 = { try? await store.raiseSessionEpoch(to: 7) } }

        let report = await world.repository.saveAll()

        #expect(report.saved == 0)
        #expect(report.failed.map(\.name) == [MuxStoreKey(domain: "Number")])
        #expect(report.failed.first?.error as? MuxError == .sessionEnded)
        #expect(number.cachedValue == nil)
        store.beforeSave.withLock { $0 = {} }
        number.store(2)
        #expect(await world.repository.saveAll().saved == 1)
        #expect(try await store.load(.init(domain: "Number"))?.sessionEpoch == 7)
    }

    // MARK: - One bad entry

    /// A value whose text may make a step of a save fail.
    private struct Picky: Codable, Sendable {
        struct Refused: Error {}

        var text: String

        func encode(to encoder: any Encoder) throws {
            if self.text == "cannot be encoded" { throw Refused() }
            var container = encoder.singleValueContainer()
            try container.encode(self.text)
        }

        init(_ text: String) { self.text = text }

        init(from decoder: any Decoder) throws { self.text = try String(from: decoder) }
    }

    enum FailureRecord: CaseIterable, Sendable {
        case encoding
        case sealing
        case framing
        case framingSealed
        case limit
        case limitSealed
        case custom
    }

    @Test(arguments: FailureRecord.allCases)
    func `CO-14 one bad entry of eleven stops no other entry, in every store`(failureRecord: FailureRecord)
        async throws
    {
        let scratch = Scratch()
        let seal: @Sendable (Data) throws -> Data = { data in
            if data.contains("cannot be sealed".utf8) { throw ToySeal.Refused() }
            return data
        }
        let store: any MuxStore =
            switch failureRecord {
            case .encoding: MemoryStore()
            case .sealing: SealedStore(MemoryStore(), seal: seal, open: { $0 })
            case .framing: scratch.store()
            case .framingSealed: SealedStore(scratch.store(), seal: seal, open: { $0 })
            case .limit: scratch.store(byteLimit: 50_000)
            case .limitSealed: SealedStore(scratch.store(byteLimit: 50_000), seal: seal, open: { $0 })
            case .custom: PickyStore { $0.name.key == "10" }
            }
        let (text, key) =
            switch failureRecord {
            case .encoding: ("cannot be encoded", "10")
            case .sealing: ("cannot be sealed", "10")
            case .framing, .framingSealed: ("good", String(repeating: "k", count: 200_000))
            case .limit, .limitSealed: (String(repeating: "x", count: 60_000), "10")
            case .custom: ("good", "10")
            }
        let repository = MuxRepository(store: store, durability: .relaxed)
        let map = MultiplexerMap<String, Picky>(cacheKey: "Map", repository: repository) { Picky($0) }
        for number in 0..<5 { map.store(Picky("good"), key: "\(number)") }
        map.store(Picky(text), key: key)
        for number in 5..<10 { map.store(Picky("good"), key: "\(number)") }

        for round in 1...2 {
            let report = await repository.saveAll()
            #expect(report.saved == (round == 1 ? 10 : 0))
            #expect(report.unchanged == (round == 1 ? 0 : 10))
            #expect(report.failed.map(\.name) == [MuxStoreKey(domain: "Map", key: key)])
        }
        for number in 0..<10 {
            #expect(try await store.load(.init(domain: "Map", key: "\(number)")) != nil, "\(number)")
        }
    }

    @Test func `CO-14 values that cannot be encoded do not keep a map above its bound`() async throws {
        let executor = OrderedExecutor()
        let world = World(spawn: TaskLauncher(executor: executor))
        let map = MultiplexerMap<Int, Picky>(
            cacheKey: "Map",
            policy: .init(maximumCount: 100),
            repository: world.repository
        ) { Picky($0.isMultiple(of: 2) ? "cannot be encoded" : "good") }
        for key in 0..<2_000 {
            _ = try await map.request(key: key)
            executor.settle()
            await map.clear(key: -1)  // waits for the earlier operations of the lane
            executor.settle()
        }
        #expect((0..<2_000).count { map.cachedValue(key: $0) != nil } <= 100)
        let lost = world.events.count(of: .evictedUnsaved)
        #expect(lost >= 900)
        #expect(await map.save().evictedUnsaved == lost)
    }

    @Test func `CO-14 many bad entries among many good entries cost few calls and stop no good entry`() async throws {
        let store = PickyStore { ($0.name.key.flatMap { Int($0) } ?? 0) % 97 == 5 }
        let world = World(store: store)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 0..<1_000 { map.store(key, key: key) }

        let report = await world.repository.saveAll()

        #expect(report.saved == 989 && report.failed.count == 11)
        #expect(store.calls.withLock { $0 } < 300)
    }

    @Test func `CO-14 a store that refuses all of a thousand entries gets few calls`() async throws {
        let store = PickyStore { _ in true }
        let world = World(store: store)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 0..<1_000 { map.store(key, key: key) }

        let report = await world.repository.saveAll()

        #expect(report.saved == 0 && report.failed.count == 1_000)
        #expect(store.calls.withLock { $0 } < 100)
    }

    @Test func `CO-14 an unreadable entry does not prevent the save of other explicitly stored values`()
        async throws
    {
        let store = UnreliableStore()
        let world = World(store: store)
        let loads = Locked(0)
        store.beforeLoad.withLock { before in
            before = {
                let number = loads.next()
                store.failsLoads.withLock { $0 = number == 1 }
            }
        }
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 0..<10 { map.store(key, key: key) }

        let report = await world.repository.saveAll()

        #expect(report.saved == 9)
        #expect(report.failed.count == 1)
        #expect(report.repairFailures.count == 1)
        #expect(await world.repository.saveAll().saved == 1)
    }

    @Test func `CO-14 a byte limit below zero is zero`() async {
        let repository = MuxRepository(store: JournalStore(directory: Scratch().root, byteLimit: .min))
        let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
        number.store(1)
        #expect(await repository.saveAll().failed.count == 1)
    }

    @Test func `CO-14 a pending removal that can never succeed is abandoned`() async throws {
        let scratch = Scratch()
        let repository = MuxRepository(store: scratch.store(), durability: .relaxed)
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: repository) { $0.utf8.count }
        let long = String(repeating: "k", count: 2_000_000)
        map.store(1, key: long)
        await map.clear(key: long)

        _ = await repository.saveAll()

        #expect(await repository.saveAll().isComplete)
        let unusable = Multiplexer<Int>(cacheKey: .init(long), repository: repository) { 1 }
        await unusable.clear()
        _ = await repository.saveAll()
        #expect(await repository.saveAll().isComplete)
    }

    @Test func `CO-14 a pending removal that always fails stops no other removal and is reported once`()
        async throws
    {
        let store = PickyStore { $0.name.key == "bad" }
        let world = World(store: store)
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: world.repository) { _ in 1 }
        map.store(1, key: "good")
        await map.save()
        store.isDown.withLock { $0 = true }
        #expect(await map.clear(key: "good").failures.count == 1)
        #expect(await map.clear(key: "bad").failures.count == 1)
        store.isDown.withLock { $0 = false }

        let report = await world.repository.saveAll()

        #expect(report.repairFailures.count == 1)
        #expect(await store.load(.init(domain: "Map", key: "good")) == nil)
        #expect(await world.repository.saveAll().isComplete)
    }
}

/// A custom store that fails an entire save or removal because of a single refused entry.
private struct PickyStore: MuxStore {
    struct Refused: Error {}

    let calls = Locked(0)
    let isDown = Locked(false)
    private let memory = MemoryStore()
    private let refuses: @Sendable (MuxStoredEntry) -> Bool

    init(refuses: @escaping @Sendable (MuxStoredEntry) -> Bool) { self.refuses = refuses }

    private func pass(_ names: [MuxStoreKey], _ error: any Error) throws {
        if self.isDown.withLock({ $0 }) { throw Refused() }
        _ = self.calls.next()
        if names.contains(where: { self.refuses(sample($0.key, domain: $0.domain)) }) { throw error }
    }

    func sessionEpoch() async -> UInt64 { await self.memory.sessionEpoch() }

    func raiseSessionEpoch(to epoch: UInt64) async { await self.memory.raiseSessionEpoch(to: epoch) }

    func load(_ name: MuxStoreKey) async -> MuxStoredEntry? { await self.memory.load(name) }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        try self.pass(entries.map(\.name), Refused())
        await self.memory.save(entries, durability: durability)
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try self.pass(names, MuxStoreError.entryTooLarge(bytes: 1))
        await self.memory.remove(names, durability: durability)
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        await self.memory.removeAll(domain: domain, durability: durability)
    }

    func removeEverything() async { await self.memory.removeEverything() }

    func statistics() async -> JournalStore.Statistics { await self.memory.statistics() }
}
