import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A store that calls its repository during the repository's call of the store.
@Suite(.standard)
struct CallingStoreTests {
    enum Member: CaseIterable, Sendable {
        case sessionEpoch
        case raiseSessionEpoch
        case load
        case save
        case remove
        case removeAll
        case removeEverything
        case statistics
    }

    enum Call: CaseIterable, Sendable {
        case saveAll
        case saveWithLimit
        case signOut
        case clear
        case clearMap
        case request
        case load
        case refresh
    }

    enum Use: CaseIterable, Sendable {
        case request
        case save
        case clear
        case clearMap
        case signOut
    }

    private struct Objects: Sendable {
        let repository: MuxRepository
        let number: Multiplexer<Int>
        let map: MultiplexerMap<Int, Int>

        func make(_ call: Call) async {
            switch call {
            case .saveAll: await self.repository.saveAll()
            case .saveWithLimit: await self.repository.saveAll(within: .seconds(1))
            case .signOut: await self.repository.clearAll()
            case .clear: await self.number.clear()
            case .clearMap: await self.map.clear()
            case .request: _ = try? await self.map.request(key: 1)
            case .load: _ = await self.number.loadCachedValue()
            case .refresh: _ = try? await self.number.refresh().request()
            }
        }
    }

    /// Each call from each member during each use.
    @Test(arguments: Member.allCases, Call.allCases)
    func `CO-18 a store that calls its repository gets an error or success and blocks no operation`(
        member: Member,
        call: Call
    ) async throws {
        for use in Use.allCases {
            let store = CallingStore()
            let world = World(store: store)
            let objects = Objects(
                repository: world.repository,
                number: Multiplexer(cacheKey: "Number", repository: world.repository) { 1 },
                map: MultiplexerMap(cacheKey: "Map", repository: world.repository) { $0 }
            )
            objects.number.store(1)
            objects.map.store(1, key: 1)
            await world.repository.saveAll()
            objects.number.store(2)
            objects.map.clearMemory()
            store.call(during: member) { await objects.make(call) }

            switch use {
            case .request:
                // A simultaneous sign-out fails the request. In all other cases the request returns a value.
                let value = try? await objects.map.request(key: 1)
                #expect(value == 1 || value == nil && call == .signOut, "\(use)")
                _ = try? await objects.number.request()
            case .save: await world.repository.saveAll()
            case .clear: await objects.number.clear()
            case .clearMap: await objects.map.clear()
            case .signOut: await world.repository.clearAll()
            }

            // No operation is blocked, and the next save completes the refused operations.
            store.call(during: nil) {}
            await world.repository.saveAll()
            #expect(await world.repository.saveAll().isComplete, "\(use)")
            if use == .signOut || use == .clear {
                let fresh = Multiplexer<Int>(cacheKey: "Number", repository: world.relaunched().repository) { 3 }
                let found = await fresh.loadCachedValue()
                #expect(found == nil || found == objects.number.cachedValue, "\(use)")
            }
        }
    }

    @Test func `CO-18 a sign-out from within a save signs out`() async throws {
        let store = CallingStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        number.store(1)
        let reports = Locked<[MuxRepository.ClearReport]>([])
        store.call(during: .save) {
            let report = await world.repository.clearAll()
            reports.withLock { $0.append(report) }
        }

        let save = await world.repository.saveAll()

        #expect(save.saved == 0)
        #expect(reports.withLock { $0.map(\.isComplete) } == [true])
        #expect(number.cachedValue == nil)
        #expect(try await store.load(.init(domain: "Number")) == nil)
        #expect(try await store.sessionEpoch() == 1)
    }

    @Test func `CO-18 a value that is cleared from within its own save does not come back`() async throws {
        let store = CallingStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        number.store(1)
        store.call(during: .save) { await number.clear() }

        await world.repository.saveAll()

        #expect(number.cachedValue == nil)
        #expect(await number.loadCachedValue() == nil, "it is on disk, but was cleared")
        store.call(during: nil) {}
        #expect(await world.repository.saveAll().isComplete)
        #expect(try await store.load(.init(domain: "Number")) == nil)
    }

    @Test func `CO-18 a task that a store starts and does not await has its turn like any other task`() async throws {
        let store = CallingStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        number.store(1)
        let tasks = Locked<[Task<Void, Never>]>([])
        store.call(during: .save) {
            store.call(during: nil) {}
            let task = Task { _ = await world.repository.saveAll() }
            tasks.withLock { $0.append(task) }
        }

        await world.repository.saveAll()

        for task in tasks.withLock({ $0 }) { await task.value }
        let report = await world.repository.saveAll()
        #expect(report.isComplete && report.unchanged == 1)
    }

    @Test func `CO-18 a sign-out that a store starts and does not await ends before the next operation`()
        async throws
    {
        let store = CallingStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        number.store(1)
        let gate = Gate<Void>()
        let tasks = Locked<[Task<Void, Never>]>([])
        store.call(during: .save) {
            // The sign-out raises the session epoch during the save, and then waits at the gate.
            store.call(during: .raiseSessionEpoch) {
                store.call(during: nil) {}
                try? await gate.pass()
            }
            let task = Task { _ = await world.repository.clearAll() }
            tasks.withLock { $0.append(task) }
            await gate.waitForCall(1)
        }
        let first = Task { await world.repository.saveAll() }
        await gate.waitForCall(1)
        let second = Task { await world.repository.saveAll() }
        gate.open()

        _ = await first.value
        _ = await second.value
        for task in tasks.withLock({ $0 }) { await task.value }
        #expect(number.cachedValue == nil)
        #expect(try await store.load(.init(domain: "Number")) == nil)
    }

    @Test func `CO-18 a save that an observer starts during a save has its turn like any other save`() async throws {
        struct Starter: MuxObserver {
            let start: @Sendable () -> Void
            func observe(_ event: MuxEvent) { if event.kind == .evictedUnsaved { self.start() } }
        }
        let store = UnreliableStore()
        let repository = Locked<MuxRepository?>(nil)
        let tasks = Locked<[Task<MuxRepository.SaveReport?, Never>]>([])
        let world = World(
            store: store,
            observer: Starter {
                let task = Task { await repository.withLock { $0 }?.saveAll() }
                tasks.withLock { $0.append(task) }
            }
        )
        repository.withLock { $0 = world.repository }
        defer { repository.withLock { $0 = nil } }
        store.failsSaves.withLock { $0 = true }
        let map = MultiplexerMap<Int, Int>(
            cacheKey: "Map",
            policy: .init(maximumCount: 2),
            repository: world.repository
        ) { $0 }
        for key in 0..<6 { map.store(key, key: key) }
        await map.save()
        store.failsSaves.withLock { $0 = false }

        let started = tasks.withLock { $0 }
        #expect(!started.isEmpty)
        for task in started {
            let refusals = await task.value?.repairFailures.compactMap { $0 as? MuxError }
            #expect(refusals == [])
        }
    }
}

/// An in-memory store that runs a closure of the test in a single member.
private struct CallingStore: MuxStore {
    private struct Callback: Sendable {
        var member: CallingStoreTests.Member?
        var body: @Sendable () async -> Void = {}
    }

    private let memory = MemoryStore()
    private let callback = Locked(Callback())

    func call(during member: CallingStoreTests.Member?, _ body: @escaping @Sendable () async -> Void) {
        self.callback.withLock { $0 = Callback(member: member, body: body) }
    }

    private func pass(_ member: CallingStoreTests.Member) async {
        let callback = self.callback.withLock { $0 }
        if callback.member == member { await callback.body() }
    }

    func sessionEpoch() async throws -> UInt64 {
        await self.pass(.sessionEpoch)
        return await self.memory.sessionEpoch()
    }

    func raiseSessionEpoch(to epoch: UInt64) async throws {
        await self.pass(.raiseSessionEpoch)
        await self.memory.raiseSessionEpoch(to: epoch)
    }

    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        await self.pass(.load)
        return await self.memory.load(name)
    }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        await self.pass(.save)
        await self.memory.save(entries, durability: durability)
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        await self.pass(.remove)
        await self.memory.remove(names, durability: durability)
    }

    func removeAll(domain: String, durability: MuxDurability) async throws {
        await self.pass(.removeAll)
        await self.memory.removeAll(domain: domain, durability: durability)
    }

    func removeEverything() async throws {
        await self.pass(.removeEverything)
        await self.memory.removeEverything()
    }

    func statistics() async -> JournalStore.Statistics {
        await self.pass(.statistics)
        return await self.memory.statistics()
    }
}
