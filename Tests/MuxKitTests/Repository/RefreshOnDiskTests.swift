import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A saved refresh keeps its values stale after a relaunch.
@Suite(.standard)
struct RefreshOnDiskTests {
    private typealias Map = MultiplexerMap<String, Int>

    private enum Kind: CaseIterable { case memory, sealed, files, journal }

    private func store(_ kind: Kind, _ folder: Scratch) -> any MuxStore {
        switch kind {
        case .memory: MemoryStore()
        case .sealed: SealedStore(MemoryStore(), seal: ToySeal(key: 7).seal, open: ToySeal(key: 7).open)
        case .files: FolderOfFilesStore(folder: folder.root)
        case .journal: folder.store()
        }
    }

    /// Fetches and saves three values in a first process, and returns the world of the next process.
    private func saved(_ store: any MuxStore, policy: MuxPolicy = .init()) async throws -> World {
        let world = World(store: store)
        let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { _ in 1 }
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: world.repository) { 1 }
        for key in ["a", "b"] { _ = try await map.request(key: key) }
        _ = try await number.request()
        #expect(await world.repository.saveAll().saved == 3)
        return world.relaunched(after: .seconds(1))
    }

    @Test func `CO-11 a saved refresh of a value that is only on disk survives a relaunch`() async throws {
        for kind in Kind.allCases {
            let folder = Scratch()
            let store = self.store(kind, folder)
            let world = try await self.saved(store)
            let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
            let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
            map.refresh(key: "a")
            number.refresh()
            #expect(await world.repository.saveAll().isComplete)

            let next = world.relaunched(after: .seconds(1))
            let mapAgain = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
            let numberAgain = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 3 }
            #expect(try await mapAgain.request(key: "a") == 3, "\(kind)")
            #expect(try await mapAgain.request(key: "b") == 1, "\(kind): not refreshed")
            #expect(try await numberAgain.request() == 3, "\(kind)")
        }
    }

    @Test func `CO-11 a refreshed value is fetched after a relaunch despite a long staleWhileRevalidate`()
        async throws
    {
        let policy = MuxPolicy(staleWhileRevalidate: .seconds(1_000))
        let world = try await self.saved(MemoryStore(), policy: policy)
        let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { _ in 2 }
        map.refresh(key: "a")
        #expect(await world.repository.saveAll().isComplete)

        let next = world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", policy: policy, repository: next.repository) { _ in 3 }
        #expect(try await again.request(key: "a") == 3)
    }

    @Test func `PT-01 a refresh before a clear does not affect another process's later save`() async throws {
        let world = try await self.saved(MemoryStore())
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        map.refresh()
        #expect(await world.repository.saveAll().isComplete)
        #expect(await map.clear().isComplete)
        let other = world.relaunched(after: .zero)
        let another = Map(cacheKey: "Map", repository: other.repository) { _ in 3 }
        #expect(try await another.request(key: "c") == 3)
        #expect(await other.repository.saveAll().saved == 1)

        #expect(try await map.request(key: "c") == 3)
    }

    @Test func `CO-11 a saved refresh of all keys survives a relaunch`() async throws {
        for kind in Kind.allCases {
            let folder = Scratch()
            let store = self.store(kind, folder)
            let world = try await self.saved(store)
            let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
            map.refresh()
            world.clock.advance(by: .seconds(1))
            #expect(try await map.request(key: "c") == 2)
            #expect(await world.repository.saveAll().isComplete)

            let next = world.relaunched(after: .seconds(1))
            let again = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
            for key in ["a", "b"] { #expect(try await again.request(key: key) == 3, "\(kind)") }
            #expect(try await again.request(key: "c") == 2, "\(kind): fetched after the refresh")
            #expect(await next.repository.saveAll().isComplete)
            let last = Map(cacheKey: "Map", repository: next.relaunched(after: .seconds(1)).repository) { _ in 4 }
            #expect(try await last.request(key: "a") == 3, "\(kind): fetched after the refresh, one process later")
        }
    }

    @Test func `CO-11 a refresh of a value that was read before survives a relaunch, too`() async throws {
        let store = MemoryStore()
        let world = try await self.saved(store)
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        #expect(try await map.request(key: "a") == 1)
        map.refresh()
        #expect(await world.repository.saveAll().isComplete)

        let next = world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
        for key in ["a", "b"] { #expect(try await again.request(key: key) == 3) }
    }

    @Test func `CO-11 a refreshed value is not served at once after a relaunch, but after a failed fetch`()
        async throws
    {
        let policy = MuxPolicy(staleWhileRevalidate: .seconds(1_000), staleIfError: .seconds(10))
        let world = try await self.saved(MemoryStore(), policy: policy)
        let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { _ in 2 }
        map.refresh(key: "a")
        #expect(await world.repository.saveAll().isComplete)
        let other = Map(cacheKey: "Map", policy: policy, repository: world.repository) { _ in 2 }
        other.refresh()
        #expect(await world.repository.saveAll().isComplete)

        let next = world.relaunched(after: .seconds(60))
        let isOffline = Locked(true)
        let again = Map(cacheKey: "Map", policy: policy, repository: next.repository) { _ in
            if isOffline.withLock({ $0 }) { throw offline }
            return 3
        }
        for key in ["a", "b"] {
            let entry = try await again.requestEntry(key: key)
            #expect(entry.value == 1, "the time to live still counts for the safety net")
            #expect(entry.staleReason == .fetchFailed)
        }
        isOffline.withLock { $0 = false }
        next.clock.advance(by: .seconds(2))
        for key in ["a", "b"] { #expect(try await again.request(key: key) == 3) }
    }

    @Test func `CO-11 a refresh that could not be saved is saved the next time`() async throws {
        let store = UnreliableStore()
        let world = try await self.saved(store)
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        map.refresh()
        map.refresh(key: "a")
        store.failsSaves.withLock { $0 = true }
        #expect(await world.repository.saveAll().isComplete == false)
        store.failsSaves.withLock { $0 = false }
        #expect(await world.repository.saveAll().isComplete)

        let next = world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
        for key in ["a", "b"] { #expect(try await again.request(key: key) == 3) }
    }

    @Test func `CO-11 a clear of all keys ends a refresh of all keys`() async throws {
        let world = try await self.saved(MemoryStore())
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        map.refresh()
        await world.repository.saveAll()
        await map.clear()
        #expect(try await map.request(key: "a") == 2)
        #expect(await world.repository.saveAll().saved == 1)

        let next = world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
        #expect(try await again.request(key: "a") == 2)
    }

    @Test func `CO-11 a load that began before a saved refresh returns no fresh value`() async throws {
        let store = UnreliableStore()
        let world = try await self.saved(store)
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        map.refresh(key: "a")
        let gate = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await gate.pass() } }
        let caller = Task { try await map.request(key: "a") }
        await gate.waitForCall(1)
        store.afterLoad.withLock { $0 = {} }
        #expect(await world.repository.saveAll().isComplete)
        gate.openForGood(returning: ())

        #expect(try await caller.value == 2)
    }

    /// Changes of the wall clock, in seconds and in days.
    private static let steps: [Duration] = [
        .seconds(-30 * 86_400), .seconds(-10), .zero, .seconds(10), .seconds(30 * 86_400),
    ]

    @Test func `DS-01 a refresh takes effect once after a clock step`() async throws {
        let year = Duration.seconds(365 * 86_400)
        let policy = MuxPolicy(timeToLive: year, staleWhileRevalidate: year)
        for kind in Kind.allCases {
            for (first, second) in Self.steps.flatMap({ first in Self.steps.map { (first, $0) } }) {
                let what: Comment = "\(kind), clock set by \(first) before the refresh and by \(second) after it"
                let folder = Scratch()
                let world = try await self.saved(self.store(kind, folder), policy: policy)
                world.wallShift.withLock { $0 += first }
                let map = Map(cacheKey: "Map", policy: policy, repository: world.repository) { _ in 2 }
                map.refresh()
                #expect(try await map.request(key: "c") == 2, what)
                #expect(await world.repository.saveAll().isComplete, what)

                let next = world.relaunched(after: .seconds(1) + second)
                let again = Map(cacheKey: "Map", policy: policy, repository: next.repository) { _ in 3 }
                #expect(try await again.request(key: "a") == 3, what)
                // After a step back, the age is unknown, and the value is revalidated in the background.
                #expect(try await again.request(key: "c") == 2, what)
                await again.expectAtRest()
                #expect(await next.repository.saveAll().isComplete, what)

                let later = next.relaunched(after: .seconds(1))
                let last = Map(cacheKey: "Map", policy: policy, repository: later.repository) { _ in 4 }
                #expect(try await last.request(key: "a") == 3, what)
                #expect(try await last.request(key: "b") == 4, what)
            }
        }
    }

    @Test func `DS-01 a refresh by another process affects values that were fetched before its detection`() async throws
    {
        let store = MemoryStore()
        let world = try await self.saved(store)
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        #expect(try await map.request(key: "a") == 1)
        #expect(try await map.request(key: "before") == 2)
        let other = World(store: store)
        let otherMap = Map(cacheKey: "Map", repository: other.repository) { _ in 5 }
        otherMap.refresh()
        #expect(try await otherMap.request(key: "other") == 5)
        #expect(await other.repository.saveAll().isComplete)

        #expect(try await map.request(key: "other") == 5, "fetched after the refresh")
        #expect(try await map.request(key: "b") == 2, "not fetched since the refresh")
        #expect(try await map.request(key: "after") == 2)
        #expect(await world.repository.saveAll().saved == 3)

        let next = world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
        #expect(try await again.request(key: "before") == 3)
        for key in ["b", "after"] { #expect(try await again.request(key: key) == 2) }
    }

    @Test(arguments: [(Duration.zero, false), (.seconds(-10), false), (.zero, true)])
    func `DS-01 a refresh after a clear affects values of a process that knows an earlier refresh`(
        step: Duration,
        isRelaunched: Bool
    ) async throws {
        for round in 0..<20 {
            let store = MemoryStore()
            let world = try await self.saved(store)
            let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
            map.refresh()
            #expect(await world.repository.saveAll().isComplete)
            let other = world.relaunched(after: .seconds(1))
            let otherMap = Map(cacheKey: "Map", repository: other.repository) { _ in 3 }
            #expect(try await otherMap.request(key: "a") == 3, "reads the refresh")
            #expect(await map.clear().isComplete)
            for clock in [world.clock, other.clock] { clock.advance(by: .seconds(2)) }
            world.wallShift.withLock { $0 += step }
            let next = isRelaunched ? world.relaunched(after: .zero) : world
            let nextMap = isRelaunched ? Map(cacheKey: "Map", repository: next.repository) { _ in 2 } : map

            nextMap.refresh()
            #expect(try await nextMap.request(key: "b") == 2)
            #expect(await next.repository.saveAll().isComplete)

            #expect(try await otherMap.request(key: "b") == 2, "round \(round): fetched after the refresh")
        }
    }

    @Test func `DS-01 without refresh numbers in the store, the wall time orders a refresh`() async throws {
        let store = ForgetfulStore()
        let world = try await self.saved(store)
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        map.refresh()
        world.clock.advance(by: .seconds(1))
        #expect(try await map.request(key: "a") == 2)
        #expect(await world.repository.saveAll().isComplete)

        let next = world.relaunched(after: .seconds(1))
        let again = Map(cacheKey: "Map", repository: next.repository) { _ in 3 }
        #expect(try await again.request(key: "a") == 2)
        #expect(try await again.request(key: "b") == 3)
        await next.repository.saveAll()
        again.clearMemory()
        for key in ["a", "b"] { #expect(try await again.request(key: key) == (key == "a" ? 2 : 3)) }
    }

    @Test func `DS-16 a report counts a refresh that was written`() async throws {
        let world = try await self.saved(MemoryStore())
        let map = Map(cacheKey: "Map", repository: world.repository) { _ in 2 }
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        map.refresh()
        number.refresh()

        let report = await world.repository.saveAll()
        #expect(report.refreshed == 2 && report.saved == 0)
        #expect("\(report)" == "2 refreshed")
        #expect("\(await world.repository.saveAll())" == "nothing to save")

        #expect(try await map.request(key: "a") == 2)
        let next = await world.repository.saveAll()
        #expect(next.saved == 1 && next.refreshed == 0, "the mark of the refresh is written again, the refresh is not")
    }
}

/// A store that loses the numbers of refreshes.
private struct ForgetfulStore: MuxStore {
    private let base = MemoryStore()

    func sessionEpoch() async -> UInt64 { await self.base.sessionEpoch() }
    func raiseSessionEpoch(to epoch: UInt64) async { await self.base.raiseSessionEpoch(to: epoch) }
    func load(_ name: MuxStoreKey) async -> MuxStoredEntry? { await self.base.load(name) }
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async {
        await self.base.remove(names, durability: durability)
    }
    func removeAll(domain: String, durability: MuxDurability) async {
        await self.base.removeAll(domain: domain, durability: durability)
    }
    func removeEverything() async { await self.base.removeEverything() }
    func statistics() async -> JournalStore.Statistics { await self.base.statistics() }
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async {
        let entries = entries.map { entry in
            var entry = entry
            entry.refreshNumber = nil
            return entry
        }
        await self.base.save(entries, durability: durability)
    }
}
