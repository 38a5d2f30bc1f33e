import Foundation
import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
struct ReviewA2Tests {
    @Test func `RB02 the next save tries the removal of a signout again`() async throws {
        let store = CountingStore()
        let repository = MuxRepository(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
        #expect(await repository.clearAll().isComplete == false)
        number.store(2)
        await repository.saveAll()
        #expect(store.removals.withLock { $0 } == 2, "MuxClearReport: the next save or sign-out tries again")
    }

    @Test func `RB03 what the disk no longer has is not reported as unchanged`() async throws {
        let world = World()
        let a = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        let b = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        b.store(2)
        await b.save()
        await a.clear()
        let report = await b.save()
        let onDisk = try await world.store.load(.init(domain: "Number")) != nil
        #expect(onDisk || report.unchanged == 0)
    }

    @Test func `RB04 no fetch begins for a flight that was abandoned while the disk was read`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let inLoad = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await inLoad.pass(ignoringCancellation: true) } }
        let fetch = ScriptedFetch<Int>(thereafter: .value(1))
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: world.repository) {
            try await fetch()
        }
        let caller = Task { try await number.request() }
        await inLoad.waitForCall(1)
        caller.cancel()
        _ = await caller.result
        inLoad.open(1)
        while number.occupancy.tasks > 0 { await Task.yield() }
        #expect(fetch.callCount == 0)
    }

    @Test func `RB05 locator keys that differ keep their own values on disk`() async throws {
        let world = World()
        let base = URL(string: "http://a.example/")!
        let relative = URL(string: "b", relativeTo: base)!
        let absolute = URL(string: "http://a.example/b")!
        #expect(relative != absolute)
        #expect(relative.keyText != absolute.keyText)
        _ = world
    }

    @Test(arguments: 0..<4) func `RB06 fences hold under stress`(round: Int) async throws {
        let repository = MuxRepository(store: MemoryStore())
        let counter = Guarded(0)
        let policy = MuxPolicy(
            whenAbandoned: round % 2 == 0 ? .cancel(linger: .zero) : .cancel(linger: .microseconds(50))
        )
        let fetch: @Sendable () async throws -> Int = {
            let stamp = counter.next()
            for _ in 0..<(stamp % 4) { await Task.yield() }
            if stamp % 13 == 0 { throw FetchFailed() }
            return stamp
        }
        let number = Multiplexer<Int>(cacheKey: "N", policy: policy, repository: repository, onFetch: fetch)
        let bad = Guarded<[String]>([])
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<6 {
                group.addTask {
                    var generator = SeededGenerator(seed: UInt64(worker + 10 * round))
                    for _ in 0..<1_500 {
                        let c = counter.withLock { $0 }
                        let what = Int.random(in: 0..<6, using: &generator)
                        switch what {
                        case 0: number.refresh()
                        case 1: await number.clear()
                        case 2: await repository.clearAll()
                        case 3:
                            await number.save()
                            continue
                        case 4:
                            let task = Task { try? await number.request() }
                            task.cancel()
                            _ = await task.value
                            continue
                        default:
                            _ = await number.loadCachedValue()
                            continue
                        }
                        if let value = try? await number.request(), value <= c {
                            bad.withLock { $0.append("\(what): \(value) <= \(c)") }
                        }
                    }
                }
            }
        }
        #expect(bad.withLock { $0 } == [])
        try await Task.sleep(for: .milliseconds(50))
        number.expectAtRest()
    }
}

struct CountingStore: MuxStore {
    func statistics() async -> MuxStoreStatistics { .init() }
    let removals = Guarded(0)
    let memory: any MuxStore = MemoryStore()
    func sessionEpoch() async throws -> UInt64 { try await self.memory.sessionEpoch() }
    func raiseSessionEpoch(to epoch: UInt64) async throws { try await self.memory.raiseSessionEpoch(to: epoch) }
    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? { try await self.memory.load(name) }
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        try await self.memory.save(entries, durability: durability)
    }
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {}
    func removeAll(domain: String, durability: MuxDurability) async throws {}
    func removeEverything() async throws {
        if self.removals.next() == 1 { throw FetchFailed() }
    }
}
