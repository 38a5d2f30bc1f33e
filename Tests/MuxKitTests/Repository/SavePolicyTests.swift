import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SavePolicyTests {
    @Test func `RP-08 values are saved together and automatically after the debounce`() async throws {
        let clock = VirtualClock()
        let store = UnreliableStore()
        let saved = Gate<Void>()
        saved.openForGood(returning: ())
        store.beforeSave.withLock { $0 = { try? await saved.pass() } }
        let repository = MuxRepository(store: store, savePolicy: .afterFetch(debounce: .seconds(5)), clock: clock)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { $0 }

        for round in 1...3 {
            map.store(round, key: 2 * round)
            map.store(round, key: 2 * round + 1)
            await clock.waitForSleepers(1)
            #expect(saved.callCount == round - 1)
            clock.advance(by: .seconds(5))
            await saved.waitForCall(round)
            // The automatic save is in the lane. This save runs after the automatic save.
            #expect(await map.save().unchanged == 2 * round)
            #expect(saved.callCount == round, "one save for both")
        }
    }

    @Test func `RP-08 a fetched value is saved automatically`() async throws {
        let store = UnreliableStore()
        let saved = Gate<Void>()
        saved.openForGood(returning: ())
        store.beforeSave.withLock { $0 = { try? await saved.pass() } }
        let repository = MuxRepository(store: store, savePolicy: .afterFetch(debounce: .zero), clock: VirtualClock())
        let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
        _ = try await number.request()
        await saved.waitForCall(1)
        #expect(await number.save().unchanged == 1)
    }

    /// Without a fetch time-out, so that the save's debounce is the only sleeper of the clock.
    private static let untimed = MuxPolicy(fetchTimeout: .longest)

    @Test func `DS-04 values of multiplexers that are released before the save are saved`() async throws {
        let (clock, store) = (VirtualClock(), UnreliableStore())
        let saved = Gate<Void>()
        saved.openForGood(returning: ())
        store.beforeSave.withLock { $0 = { try? await saved.pass() } }
        let objects = Locked<[Weak]>([])
        do {
            let policy = MuxRepository.SavePolicy.afterFetch(debounce: .seconds(5))
            let repository = MuxRepository(store: store, savePolicy: policy, clock: clock)
            for number in 0..<20 {
                let one = Multiplexer<Int>(cacheKey: "\(number)", policy: Self.untimed, repository: repository) {
                    number
                }
                let map = MultiplexerMap<Int, Int>(
                    cacheKey: "Map \(number)",
                    policy: Self.untimed,
                    repository: repository
                ) {
                    $0
                }
                if number % 2 == 0 { #expect(try await one.request() == number) } else { one.store(number) }
                #expect(try await map.request(key: number) == number)
                await one.expectAtRest()
                await map.expectAtRest()
                objects.withLock { $0 += [Weak(one), Weak(map), Weak(repository)] }
            }
        }
        await clock.waitForSleepers(1)
        clock.advance(by: .seconds(5))
        await saved.waitForCall(1)

        // After the save, no multiplexer, map or repository is retained.
        let left = await settledOccupancy { (0, objects.withLock { $0.count { $0.object != nil } }, 0) }
        #expect(left.tasks == 0)
        let next = MuxRepository(store: store)
        for number in 0..<20 {
            let one = Multiplexer<Int>(cacheKey: .init("\(number)"), repository: next) { -1 }
            #expect(try await one.request() == number)
            let map = MultiplexerMap<Int, Int>(cacheKey: .init("Map \(number)"), repository: next) { _ in -1 }
            #expect(try await map.request(key: number) == number)
        }
    }

    @Test func `DS-04 a released multiplexer's value that failed to save is kept for the next save`() async throws {
        let (clock, store) = (VirtualClock(), UnreliableStore())
        let saves = Gate<Void>()
        saves.openForGood(returning: ())
        store.beforeSave.withLock { $0 = { try? await saves.pass() } }
        let policy = MuxRepository.SavePolicy.afterFetch(debounce: .seconds(5))
        let repository = MuxRepository(store: store, savePolicy: policy, clock: clock)
        store.failsSaves.withLock { $0 = true }
        func release() async throws {
            let one = Multiplexer<Int>(cacheKey: "One", policy: Self.untimed, repository: repository) { 1 }
            _ = try await one.request()
        }
        try await release()
        await clock.waitForSleepers(1)
        clock.advance(by: .seconds(5))
        await saves.waitForCall(1)
        // This save runs in the lane behind the failing save.
        #expect(await repository.saveAll().failed.count == 1)
        store.failsSaves.withLock { $0 = false }

        #expect(await repository.saveAll().saved == 1)
    }

    @Test func `DS-04 a save of one multiplexer releases multiplexers that were kept after a failed save`() async throws
    {
        /// An object that only the fetch closure retains.
        final class Captured: Sendable {}
        let (clock, store) = (VirtualClock(), UnreliableStore())
        let saves = Gate<Void>()
        saves.openForGood(returning: ())
        store.beforeSave.withLock { $0 = { try? await saves.pass() } }
        let policy = MuxRepository.SavePolicy.afterFetch(debounce: .seconds(5))
        let repository = MuxRepository(store: store, savePolicy: policy, clock: clock)
        store.failsSaves.withLock { $0 = true }
        let captured: Weak
        do {
            let object = Captured()
            captured = Weak(object)
            let one = Multiplexer<Int>(cacheKey: "One", policy: Self.untimed, repository: repository) {
                withExtendedLifetime(object) { 1 }
            }
            _ = try await one.request()
            await clock.waitForSleepers(1)
            clock.advance(by: .seconds(5))
            await saves.waitForCall(1)
            // This save runs in the lane behind the failing save.
            #expect(await repository.saveAll().failed.count == 1)
            store.failsSaves.withLock { $0 = false }
            #expect(await one.save().saved == 1)
        }

        // The failing save may keep the multiplexer a moment later.
        let other = Multiplexer<Int>(cacheKey: "Other", policy: Self.untimed, repository: repository) { 2 }
        let isReleased = await settled {
            await other.save()
            return captured.object == nil
        } when: {
            $0
        }
        #expect(isReleased)
    }

    @Test func `DS-04 a sign-out before the save leaves no value to write`() async throws {
        let (clock, store) = (VirtualClock(), MemoryStore())
        let policy = MuxRepository.SavePolicy.afterFetch(debounce: .seconds(5))
        let repository = MuxRepository(store: store, savePolicy: policy, clock: clock)
        func release() async throws {
            let one = Multiplexer<String>(cacheKey: "One", policy: Self.untimed, repository: repository) { "alice" }
            _ = try await one.request()
        }
        try await release()
        await clock.waitForSleepers(1)
        await repository.clearAll()

        clock.advance(by: .seconds(5))
        #expect(await repository.saveAll().saved == 0)

        #expect(await store.load(MuxStoreKey(domain: "One")) == nil)
    }

    /// A weak reference.
    private struct Weak: Sendable {
        weak var object: (any AnyObject & Sendable)?

        init(_ object: any AnyObject & Sendable) { self.object = object }
    }

    @Test func `RP-08 by default no value is saved automatically`() async throws {
        let world = World()
        let number = Multiplexer<Int>(cacheKey: "Number", repository: world.repository) { 1 }
        _ = try await number.request()
        world.clock.advance(by: .seconds(1_000))
        #expect(try await world.store.load(.init(domain: "Number")) == nil)
    }

    @Test func `RP-08 a refused conditional store schedules no save`() async throws {
        let executor = OrderedExecutor()
        let clock = VirtualClock()
        let repository = MuxRepository(
            store: MemoryStore(),
            durability: .relaxed,
            savePolicy: .afterFetch(debounce: .seconds(5)),
            observer: nil,
            time: TimeSource(clock),
            wallTime: { World.start },
            random: { 0.5 },
            spawn: TaskLauncher(executor: executor)
        )
        let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
        number.store(1)
        await clock.waitForSleepers(1)
        let former = try #require(number.cachedEntry)
        number.store(2)
        clock.advance(by: .seconds(5))
        executor.settle()
        #expect(clock.sleeperCount == 0)

        #expect(!number.store(3, ifUnchangedSince: former))
        executor.settle()

        #expect(clock.sleeperCount == 0)
        #expect(number.cachedValue == 2)
    }

    @Test(arguments: [MuxRepository.SavePolicy.enteringBackground, .afterFetch(debounce: .seconds(1_000)), .explicit])
    func `RP-08 values are saved when the app enters the background, unless the policy is explicit`(
        policy: MuxRepository.SavePolicy
    ) async throws {
        let background = Notification.Name("MuxKitTests.background.\(UUID())")
        let store = UnreliableStore()
        let saved = Gate<Void>()
        saved.openForGood(returning: ())
        store.beforeSave.withLock { $0 = { try? await saved.pass() } }
        let clock = VirtualClock()
        let repository = MuxRepository(
            store: store,
            durability: .relaxed,
            savePolicy: policy,
            observer: nil,
            time: TimeSource(clock),
            wallTime: { Date() },
            random: { 0.5 },
            spawn: TaskLauncher(),
            backgroundNotifications: [background]
        )
        let isExplicit = policy == .explicit
        #expect(repository.watchesBackground == !isExplicit)
        do {
            let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
            _ = try await number.request()
            NotificationCenter.default.post(name: background, object: nil)
            if !isExplicit { await saved.waitForCall(1) }
            let report = await number.save()
            #expect(isExplicit ? report.saved == 1 : report.unchanged == 1)
        }
        #expect(saved.callCount == 1)
        clock.advance(by: .seconds(1_000))
    }

    @Test func `RP-08 a deallocated observer of background notifications is not called`() {
        let name = Notification.Name("MuxKitTests.background.\(UUID())")
        let calls = Locked(0)
        do {
            let notices = BackgroundNotices([name]) { isLast in
                #expect(!isLast)
                _ = calls.next()
            }
            NotificationCenter.default.post(name: name, object: nil)
            withExtendedLifetime(notices) {}
        }
        NotificationCenter.default.post(name: name, object: nil)
        #expect(calls.withLock { $0 } == 1)
    }
}
