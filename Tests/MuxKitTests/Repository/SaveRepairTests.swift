import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SaveRepairTests {
    @Test func `RP-03 a negative time to live does not affect other entries`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let repository = MuxRepository(directory: folder.url, durability: .relaxed)
        let good = Multiplexer<Int>(cacheKey: "Good", repository: repository) { 1 }
        let odd = Multiplexer<Int>(cacheKey: "Odd", repository: repository) { _ in Fetched(2, timeToLive: .seconds(-1))
        }
        _ = try await good.request()
        _ = try await odd.request()

        let report = await repository.saveAll()

        #expect(report.saved == 2)
        #expect(report.isComplete)
    }

    @Test func `RP-03 a key that the store cannot keep is reported and does not affect other entries`() async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        let repository = MuxRepository(directory: folder.url, durability: .relaxed)
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: repository) { $0.utf8.count }
        let long = String(repeating: "x", count: 200_000)
        _ = try await map.request(key: "a")
        _ = try await map.request(key: long)

        let report = await repository.saveAll()

        #expect(report.saved == 1)
        #expect(report.failed.map(\.name) == [MuxStoreKey(domain: "Map", key: long)])
    }

    @Test func `RP-03 an entry that a late removal deletes is saved again`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let map = MultiplexerMap<String, Int>(cacheKey: "Map", repository: world.repository) { _ in 1 }
        _ = try await map.request(key: "a")
        await map.save()
        store.failsRemovals.withLock { $0 = true }
        #expect(await map.clear().isComplete == false)
        _ = try await map.request(key: "a")
        #expect(await map.save().saved == 1)

        store.failsRemovals.withLock { $0 = false }
        let report = await map.save()

        #expect(report.isComplete)
        #expect(report.saved == 1)
        #expect(try await store.load(.init(domain: "Map", key: "a")) != nil)
    }

    @Test func `RP-03 a removal that fails again is reported`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        store.failsRemovals.withLock { $0 = true }
        await number.clear()

        let report = await number.save()

        #expect(report.repairFailures.count == 1)
        #expect(!report.isComplete)
    }

    @Test func `RP-03 the time that a save waits for its turn is part of its budget`() async throws {
        let executor = OrderedExecutor()
        let store = UnreliableStore()
        let world = World(store: store)
        let one = Multiplexer<Int>(cacheKey: "One", repository: world.repository) { 1 }
        let other = Multiplexer<Int>(cacheKey: "Other", repository: world.repository) { 1 }
        let gate = Gate<Void>()
        store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        one.store(1)
        let slow = Task { await one.save() }
        await gate.waitForCall(1)
        other.store(1)

        let quick = Task(executorPreference: executor) { await world.repository.saveAll(within: .seconds(1)) }
        executor.settle()
        world.clock.advance(by: .seconds(100))
        gate.openForGood(returning: ())

        #expect(await slow.value.saved == 1)
        #expect(await quick.value.leftOverNames.contains(MuxStoreKey(domain: "Other")))
    }

    @Test func `RP-03 the retry of a failed removal does not delete an entry that was saved later`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        number.store(1)
        await number.save()
        store.failsRemovals.withLock { $0 = true }
        #expect(await number.clear().failures.count == 1)
        number.store(5)
        let report = await number.save()
        #expect(report.saved == 1)
        #expect(report.repairFailures.count == 1)

        store.failsRemovals.withLock { $0 = false }
        #expect(await number.save().unchanged == 1)

        #expect(try await store.load(.init(domain: "Number"))?.payload == Data("5".utf8))
    }

    @Test func `RP-03 a value that a fetch renewed during its write is written again`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let gate = Gate<Void>()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { before in
            before?.notModified() ?? Fetched(1)
        }
        _ = try await number.request()
        store.beforeSave.withLock { $0 = { try? await gate.pass() } }
        let save = Task { await number.save() }
        await gate.waitForCall(1)
        world.clock.advance(by: .seconds(60))
        _ = try await number.refresh().request()
        gate.openForGood(returning: ())
        #expect(await save.value.saved == 1)

        #expect(await number.save().saved == 1)
    }

    @Test func `RP-03 a value that was saved and left memory during a failed fetch is not saved again`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let map = MultiplexerMap<Int, Int>(
            cacheKey: "Map",
            policy: .init(timeToLive: .seconds(10)),
            repository: world.repository
        ) { _ in
            try await gate.pass()
        }
        map.store(1, key: 1)
        world.clock.advance(by: .seconds(10))
        let caller = Task { try await map.request(key: 1) }
        await gate.waitForCall(1)
        #expect(await map.save().saved == 1)
        map.clearMemory()
        #expect(map.cachedValue(key: 1) == nil)
        gate.fail(1, with: offline)
        #expect(try await caller.value == 1)
        #expect(await map.save().unchanged == 1)
    }
}
