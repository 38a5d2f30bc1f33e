import Dispatch
import Foundation
import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
struct ReviewATests {
    // 1
    @Test func `RA01 one entry with a negative time to live must not fail the whole save`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let repository = MuxRepository(directory: folder.url)
        let good = Multiplexer<Int>(cacheKey: "Good", repository: repository) { 1 }
        let bad = Multiplexer<Int>(cacheKey: "Bad", repository: repository) { Fetched(2, timeToLive: .seconds(-1)) }
        _ = try await good.request()
        _ = try await bad.request()
        let report = await repository.saveAll()
        #expect(report.saved >= 1, "\(report)")
    }

    // 1b
    @Test func `RA02 one long key must not fail the whole save`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let repository = MuxRepository(directory: folder.url)
        let map = MultiplexerMap<String, Int>(cacheKey: "Good", repository: repository) { _ in 1 }
        _ = try await map.request(key: "a")
        _ = try await map.request(key: String(repeating: "x", count: 2_000_000))
        let report = await repository.saveAll()
        #expect(report.saved >= 1, "\(report.saved) saved, \(report.failed.map { "\($0.error)" })")
    }

    // 2
    @Test func `RA03 a repaired domain removal must not erase what was reported saved`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: world.repository) { _ in 1 }
        _ = try await map.request(key: "a")
        await map.save()
        store.failsRemovals.withLock { $0 = true }
        #expect(await map.clear().isComplete == false)
        _ = try await map.request(key: "a")
        let first = await map.save()
        #expect(first.saved == 1)
        store.failsRemovals.withLock { $0 = false }
        let second = await map.save()
        #expect(second.isComplete)
        #expect(second.saved == 1, "it went with the removal, so it is saved again")
        #expect(try await store.load(.init(domain: "Map", key: "a")) != nil)
    }

    // 3
    @Test func `RA04 the next save finishes a failed signout though nothing is dirty`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        store.failsEpochs.withLock { $0 = true }
        store.failsRemovals.withLock { $0 = true }
        #expect(await world.repository.clearAll().isComplete == false)
        store.failsEpochs.withLock { $0 = false }
        store.failsRemovals.withLock { $0 = false }
        await world.repository.saveAll()

        let next = world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }
        #expect(await again.loadCachedValue() == nil)
    }

    @Test func `RA05 the next save reports that a failed signout is still owed`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        store.failsRemovals.withLock { $0 = true }
        await number.clear()
        let report = await number.save()
        #expect(!report.isComplete, "the removal failed again, and nobody says so")
    }

    // 4
    @Test func `RA06 saved after a sibling signed out means saved`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let app = MuxRepository(directory: folder.url)
        let widget = MuxRepository(directory: folder.url)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: app) { 1 }
        _ = try await number.request()
        await app.saveAll()
        await widget.clearAll()
        number.store(2)
        let report = await app.saveAll()
        let fresh = MuxRepository(directory: folder.url)
        let again = Multiplexer<Int>(cacheKey: "Number", repository: fresh) { 3 }
        #expect(await again.loadCachedValue() == (report.saved == 1 ? 2 : nil))
    }

    @Test func `RA07 a value of the session that a sibling ended is not written into the next one`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let app = MuxRepository(directory: folder.url)
        let widget = MuxRepository(directory: folder.url)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: app) { 1 }
        _ = try await number.request()
        await widget.clearAll()
        await app.saveAll()
        let fresh = MuxRepository(directory: folder.url)
        let again = Multiplexer<Int>(cacheKey: "Number", repository: fresh) { 3 }
        #expect(await again.loadCachedValue() == nil)
    }

    // 5
    @Test func `RA08 of two multiplexers with one cacheKey the newer value ends on disk`() async throws {
        let world = World()
        let a = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        let b = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        a.store(1)
        world.clock.advance(by: .seconds(10))
        b.store(2)
        let report = await world.repository.saveAll()
        #expect(report.saved == 2)
        let next = world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 3 }
        #expect(await again.loadCachedValue() == 2)
    }

    @Test func `RA09 clear of one multiplexer holds against another of the same cacheKey`() async throws {
        let world = World()
        let a = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 3 }
        let b = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 2 }
        _ = try await b.request()
        await a.clear()
        await world.repository.saveAll()
        #expect(try await a.request() == 3)
    }

    // 6
    @Test func `RA10 clear of a zero clears that zero on disk`() async throws {
        let world = World()
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let map = MultiplexerMap<Double, Int>(cacheKey: "Map", repository: world.repository) { _ in try await fetch() }
        _ = try await map.request(key: 0.0)
        await map.save()
        let report = await map.clear(key: -0.0)
        #expect(report.isComplete)
        #expect(map.cachedValue(key: 0.0) == nil)
        #expect(try await map.request(key: 0.0) == 2)
    }

    @Test func `RA11 characters that differ in Unicode form do not clash`() async throws {
        let world = World()
        let map = MultiplexerMap<Substring, String>(cacheKey: "Map", repository: world.repository) { key in
            key.unicodeScalars.map { String($0.value, radix: 16) }.joined(separator: " ")
        }
        #expect(try await map.request(key: "\u{e9}") == "e9")
        #expect(try await map.request(key: "e\u{301}") == "65 301")
    }

    @Test func `RA13 no fetch begins after a signout for those who asked before`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let inLoad = Gate<Void>()
        let loaded = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await inLoad.pass(ignoringCancellation: true) } }
        let fetch = ScriptedFetch<Int>(
            thereafter: .computed { call in
                loaded.open()
                return call
            }
        )
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { try await fetch() }
        let caller = Task { try await number.request() }
        await inLoad.waitForCall(1)
        await world.repository.clearAll()
        await #expect(throws: MuxError.sessionEnded) { try await caller.value }
        inLoad.open(1)
        while number.occupancy.tasks > 0 { await Task.yield() }
        #expect(fetch.callCount == 0)
    }

    @Test func `RA14 between two fences at most one fetch runs`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let inLoad = Gate<Void>()
        store.afterLoad.withLock { $0 = { try? await inLoad.pass(ignoringCancellation: true) } }
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { try await fetch() }
        let before = Task { try await number.request() }
        await inLoad.waitForCall(1)
        number.refresh()
        let after = Task { try await number.request() }
        await inLoad.waitForCall(2)
        inLoad.open(2)
        await gate.waitForCall(1)
        inLoad.open(1)
        gate.open(returning: 9)
        #expect(try await after.value == 9)
        gate.openForGood(returning: 9)
        #expect(try await before.value == 9)
        #expect(fetch.maximumConcurrency == 1, "both callers came before the fetch began")
    }

    // 8
    @Test func `RA15 a value that looks at its cache while it goes does not end the process`() async {
        await #expect(processExitsWith: .success) {
            let repository = MuxRepository(store: MemoryStore())
            let holder = Guarded<Multiplexer<Nosy>?>(nil)
            let mux = Multiplexer<Nosy>(repository: repository) { Nosy(holder) }
            holder.withLock { $0 = mux }
            _ = try await mux.request()
            mux.store(Nosy(holder))
        }
    }

    // 9
    @Test func `RA16 the linger of the last leaver counts`() async throws {
        let clock = VirtualClock()
        let hold = HoldingExecutor()
        let repository = MuxRepository(
            store: MemoryStore(),
            durability: .relaxed,
            observer: nil,
            time: TimeSource(clock),
            wallTime: { World.start },
            random: { 0.5 },
            spawn: Spawn(executor: hold)
        )
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: repository) { try await gate.pass() }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)

        // The first leaver is held up where it starts the timer of its linger.
        let held = hold.holdNext()
        DispatchQueue.global().async { first.cancel() }
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                held.entered.wait()
                continuation.resume()
            }
        }
        // Meanwhile another caller adopts the flight and leaves.
        let second = Task { try await number.request() }
        while number.occupancy.waiters < 1 { await Task.yield() }
        second.cancel()
        _ = await second.result
        await clock.waitForSleepers(1)
        // Now the first leaver goes on.
        held.goOn.signal()
        _ = await first.result
        #expect(number.occupancy.waiters == 0)
        await clock.waitForSleepers(1)
        try await Task.sleep(for: .milliseconds(200))
        clock.advance(by: .seconds(5))
        try await Task.sleep(for: .milliseconds(300))
        #expect(number.occupancy.tasks == 0, "nobody waits for five seconds, and the fetch still runs")
        gate.openForGood(returning: 1)
    }

    // 10
    @Test func `RA17 refresh of all holds though the wall clock was set back meanwhile`() async throws {
        let world = World()
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: world.repository) { _ in 1 }
        _ = try await map.request(key: "a")
        await map.save()

        let next = world.relaunched(after: .seconds(10))
        let fetch = ScriptedFetch<Int>(thereafter: .value(2))
        let again = MultiplexerMap<String, Int>(cacheKey: "Map", repository: next.repository) { _ in try await fetch() }
        let right = next.wallShift.withLock { $0 }
        next.wallShift.withLock { $0 = right - .seconds(3600) }
        again.refresh()
        next.wallShift.withLock { $0 = right }
        #expect(try await again.request(key: "a") == 2)
    }

    // 11
    @Test func `RA18 a refreshed value is not fresh again after a relaunch`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        number.refresh()
        #expect(number.cachedEntry?.isStale == true)
        await number.save()
        let next = world.relaunched()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: next.repository) { 2 }
        #expect(try await again.request() == 2)
    }

    // 12
    @Test func `RA19 the budget of a save includes waiting for its turn`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let a = Multiplexer<Int>(cacheKey: "A", repository: world.repository) { 1 }
        let b = Multiplexer<Int>(cacheKey: "B", repository: world.repository) { 1 }
        let gate = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        a.store(1)
        let slow = Task { await a.save() }
        await gate.waitForCall(1)
        b.store(1)
        let quick = Task { await world.repository.saveAll(within: .seconds(1)) }
        try await Task.sleep(for: .milliseconds(100))
        world.clock.advance(by: .seconds(100))
        gate.openForGood(returning: ())
        _ = await slow.value
        #expect(await quick.value.leftOver == 1)
    }

    // 13
    @Test func `RA20 a signout in a cancelled task is finished`() async throws {
        let store = PoliteStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return await world.repository.clearAll()
        }
        #expect(await task.value.isComplete)
    }

    // 14
    @Test func `RA21 stale served counts only what was served`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.value(1), .gated(gate)])
        let policy = MuxPolicy(isSilenceable: { _ in true }, whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(policy: policy, repository: world.repository) { try await fetch() }
        _ = try await number.request()
        number.refresh()
        let caller = Task { try await number.request() }
        await gate.waitForCall(1)
        caller.cancel()
        _ = await caller.result
        await world.events.wait(for: .fetchFailed)
        try await Task.sleep(for: .milliseconds(50))
        #expect(number.statistics.staleServed == 0)
    }

    @Test func `RA22 a newer value is not a stale one`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let number = Multiplexer<Int>(repository: world.repository) { try await gate.pass() }
        let caller = Task { try await number.requestEntry() }
        await gate.waitForCall(1)
        number.store(5)
        gate.fail(1, with: offline)
        #expect(try await caller.value.isStale == false)
        #expect(number.statistics.staleServed == 0)
    }

    // 15
    @Test func `RA23 a store with the last epoch does not end the process`() async {
        await #expect(processExitsWith: .success) {
            let repository = MuxRepository(store: LastEpochStore())
            await repository.clearAll()
        }
    }

    // 16
    @Test func `RA24 a linger without end lets the fetch finish`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let gate = Gate<Int>()
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .seconds(Int64.max)))
        let number = Multiplexer<Int>(policy: policy, repository: repository) { try await gate.pass() }
        let caller = Task { try await number.request() }
        await gate.waitForCall(1)
        caller.cancel()
        _ = await caller.result
        try await Task.sleep(for: .milliseconds(300))
        #expect(gate.heldCount == 1)
        gate.openForGood(returning: 1)
        try await Task.sleep(for: .milliseconds(100))
        #expect(number.cachedValue == 1)
    }

    // 17
    @Test @MainActor func `RA25 reading the disk decodes off the main thread`() async throws {
        let world = World()
        let number = Multiplexer<Watcher>(cacheKey: "W", repository: world.repository) { Watcher() }
        _ = try await number.request()
        await number.save()
        let next = world.relaunched()
        let again = Multiplexer<Watcher>(cacheKey: "W", repository: next.repository) { Watcher() }
        let here = UInt(bitPattern: Int(truncatingIfNeeded: pthread_self()))
        let there = await again.loadCachedValue()?.decodedOn
        #expect(there != here, "decoded on the thread of the main actor")
    }

    // 19
    @Test func `RA27 a value read before a signout is not handed out after it`() async throws {
        let world = World()
        let number = Multiplexer<SlowDecoded>(cacheKey: "S", repository: world.repository) { SlowDecoded() }
        _ = try await number.request()
        await number.save()
        let next = world.relaunched()
        let again = Multiplexer<SlowDecoded>(cacheKey: "S", repository: next.repository) { SlowDecoded() }
        let reader = Task { await again.loadCachedValue() }
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                SlowDecoded.entered.wait()
                continuation.resume()
            }
        }
        await next.repository.clearAll()
        SlowDecoded.goOn.signal()
        #expect(await reader.value == nil)
    }
}

struct SlowDecoded: Codable, Sendable, Equatable {
    static let entered = DispatchSemaphore(value: 0)
    static let goOn = DispatchSemaphore(value: 0)
    var x = 0
    init() {}
    init(from decoder: any Decoder) throws {
        Self.entered.signal()
        Self.goOn.wait()
    }
}

func residentKilobytes() -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = text.split(separator: "\n").first { $0.hasPrefix("VmRSS") } ?? ""
    return line.split(separator: " ").compactMap { Int($0) }.first ?? 0
}

struct Watcher: Codable, Sendable {
    var decodedOn: UInt = 0
    init() {}
    init(from decoder: any Decoder) throws {
        self.decodedOn = UInt(bitPattern: Int(truncatingIfNeeded: pthread_self()))
    }
}

final class Nosy: Sendable {
    let holder: Guarded<Multiplexer<Nosy>?>
    init(_ holder: Guarded<Multiplexer<Nosy>?>) { self.holder = holder }
    deinit { _ = self.holder.withLock { $0 }?.statistics }
}

final class HoldingExecutor: TaskExecutor {
    struct Hold: @unchecked Sendable {
        let entered = DispatchSemaphore(value: 0)
        let goOn = DispatchSemaphore(value: 0)
    }
    private let next = Guarded<Hold?>(nil)

    func holdNext() -> Hold {
        let hold = Hold()
        self.next.withLock { $0 = hold }
        return hold
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let hold = self.next.withLock { next in
            defer { next = nil }
            return next
        }
        DispatchQueue.global().async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        if let hold {
            hold.entered.signal()
            hold.goOn.wait()
        }
    }
}

/// A store that, as most asynchronous code does, stops when its task is cancelled.
struct PoliteStore: MuxStore {
    func statistics() async -> MuxStoreStatistics { .init() }
    let memory: any MuxStore = MemoryStore()
    func sessionEpoch() async throws -> UInt64 {
        try Task.checkCancellation()
        return try await self.memory.sessionEpoch()
    }
    func raiseSessionEpoch(to epoch: UInt64) async throws {
        try Task.checkCancellation()
        try await self.memory.raiseSessionEpoch(to: epoch)
    }
    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? { try await self.memory.load(name) }
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        try Task.checkCancellation()
        try await self.memory.save(entries, durability: durability)
    }
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try await self.memory.remove(names, durability: durability)
    }
    func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.memory.removeAll(domain: domain, durability: durability)
    }
    func removeEverything() async throws { try await self.memory.removeEverything() }
}

struct LastEpochStore: MuxStore {
    func statistics() async -> MuxStoreStatistics { .init() }
    func sessionEpoch() async throws -> UInt64 { .max }
    func raiseSessionEpoch(to epoch: UInt64) async throws {}
    func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? { nil }
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {}
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {}
    func removeAll(domain: String, durability: MuxDurability) async throws {}
    func removeEverything() async throws {}
}
