import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// `change(_:)`: changes that the server does not have yet.
@Suite(.standard(minutes: 60))
struct ChangeTests {
    private struct NoRoom: Error {}

    private let world = World()
    private let policy = MuxPolicy(timeToLive: .seconds(3600), fetchTimeout: .longest)

    private func list(_ fetch: @escaping @Sendable () async throws -> [Int]) -> Multiplexer<[Int]> {
        Multiplexer(policy: self.policy, repository: self.world.repository) { try await fetch() }
    }

    @Test func `SC-08 no change is shown twice, none is hidden, and the last value is the server's`() async throws {
        let steps = Locked(0)
        let count = try await SeededExecutor.explore(1_000) { schedule in
            let scenario = ChangeScenario(schedule)
            try await scenario.play()
            steps.withLock { $0 += scenario.stepCount }
        }
        print("SC-08: \(count) schedules, \(steps.withLock { $0 }) steps of changes")
    }

    // MARK: - One change

    @Test func `SC-08 a change is visible at once, in memory, in requests and in states`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        var values = list.values.makeAsyncIterator()
        var states = list.states.makeAsyncIterator()
        _ = (await values.next(), await states.next())
        let change = list.change { $0.append(2) }
        #expect(list.cachedValue == [1, 2])
        #expect(try await list.request() == [1, 2])
        #expect(await values.next()??.value == [1, 2] && list.statistics.fetches == 1)
        let state = await states.next()
        #expect(state?.entry?.value == [1, 2] && state?.isStale == false && state?.isLoading == false)
        change.undo()
    }

    @Test func `SC-08 an undo shows the value below with its age, and the next request fetches`() async throws {
        let list = self.list { [1] }
        let before = try await list.requestEntry()
        self.world.clock.advance(by: .seconds(10))
        let change = list.change { $0.append(2) }
        #expect(list.cachedEntry?.age == .seconds(10), "a change does not make the value younger")
        #expect(list.cachedEntry?.timeToLive == .seconds(3600))
        change.undo()
        let after = try #require(list.cachedEntry)
        #expect(after.value == [1] && after.age == .seconds(10) && after.isStale)
        #expect(list.store([5], ifUnchangedSince: before), "the server's value is unchanged")
        #expect(list.cachedValue == [5] && list.statistics.fetches == 1)
    }

    @Test func `SC-08 a committed change is shown until the server's next value`() async throws {
        let fetch = ScriptedFetch<[Int]>([.value([1]), .failure(FetchFailed()), .value([1, 2, 3])])
        let list = self.list { try await fetch() }
        _ = try await list.request()
        let change = list.change { $0.append(2) }
        change.commit()
        change.undo()
        #expect(list.cachedValue == [1, 2] && list.cachedEntry?.isStale == true)
        await #expect(throws: FetchFailed.self) { try await list.request() }
        #expect(list.cachedValue == [1, 2])
        #expect(try await list.request() == [1, 2, 3])
        #expect(try await list.request() == [1, 2, 3] && fetch.callCount == 3)
    }

    @Test func `SC-08 a forgotten change is undone`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        _ = list.change { $0.append(2) }
        #expect(list.cachedValue == [1] && list.cachedEntry?.isStale == true)
    }

    @Test func `SC-08 a change that throws leaves the value unchanged`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        #expect(throws: NoRoom.self) {
            _ = try list.change { value throws(NoRoom) in
                value.append(2)
                throw NoRoom()
            }
        }
        #expect(list.cachedValue == [1] && list.cachedEntry?.isStale == false)
    }

    @Test func `SC-08 a change without a value in memory is not visible, and fences the fetch`() async throws {
        let gate = Gate<[Int]>()
        let list = self.list { try await gate.pass() }
        let early = Task { try await list.request() }
        await gate.waitForCall(1)
        let change = list.change { $0.append(2) }
        #expect(list.cachedValue == nil)
        gate.open(1, returning: [1])
        #expect(try await early.value == [1])
        #expect(list.cachedValue == nil)
        change.commit()
        let late = Task { try await list.request() }
        await gate.waitForCall(2)
        gate.open(2, returning: [1, 2])
        #expect(try await late.value == [1, 2])
        #expect(list.cachedValue == [1, 2])
    }

    @Test func `SC-08 a change of a key concerns only this key, and a key that no request finds is ignored`()
        async throws
    {
        let map = MultiplexerMap<Double, [Int]>(policy: self.policy, repository: self.world.repository) { [Int($0)] }
        _ = try await map.request(keys: [1, 2])
        let (change, none) = (map.change(key: 1) { $0.append(7) }, map.change(key: .nan) { $0.append(8) })
        #expect(map.cachedValue(key: 1) == [1, 7] && map.cachedValue(key: 2) == [2])
        none.commit()
        change.commit()
        #expect(map.cachedEntry(key: 2)?.isStale == false)
    }

    // MARK: - Several changes

    @Test func `SC-08 changes overlap, and end in any order`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        let changes = (2...5).map { number in list.change { $0.append(number) } }
        #expect(list.cachedValue == [1, 2, 3, 4, 5])
        changes[1].undo()
        #expect(list.cachedValue == [1, 2, 4, 5])
        changes[3].commit()
        changes[0].undo()
        #expect(list.cachedValue == [1, 4, 5] && list.cachedEntry?.isStale == false)
        changes[2].commit()
        #expect(list.cachedValue == [1, 4, 5] && list.cachedEntry?.isStale == true)
    }

    @Test func `SC-08 a change that throws for the value below does not apply to it`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        let first = list.change { $0 = [] }
        let second = try list.change { value in
            if !value.isEmpty { throw NoRoom() }
            value = [9]
        }
        #expect(list.cachedValue == [9])
        first.undo()
        #expect(list.cachedValue == [1])
        second.commit()
        #expect(list.cachedValue == [1])
    }

    @Test func `SC-08 a stored value is below the uncommitted changes, and replaces the committed changes`()
        async throws
    {
        let list = self.list { [1] }
        _ = try await list.request()
        let (first, second) = (list.change { $0.append(2) }, list.change { $0.append(3) })
        first.commit()
        list.store([1, 2, 10])
        #expect(list.cachedValue == [1, 2, 10, 3])
        second.undo()
        #expect(list.cachedValue == [1, 2, 10])
    }

    @Test func `SC-08 a value and a change that end during a change are not lost`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        let isFirst = Locked(true)
        let late = list.change { value in
            if isFirst.withLock({ first in first.toggledOff() }) { list.store([9]) }
            value.append(2)
        }
        #expect(list.cachedValue == [9, 2])
        let other = list.change { $0.append(8) }
        isFirst.withLock { $0 = true }
        let last = list.change { value in
            if isFirst.withLock({ first in first.toggledOff() }) { late.commit() }
            value.append(3)
        }
        #expect(list.cachedValue == [9, 2, 8, 3] && list.cachedEntry?.isStale == false)
        other.undo()
        last.undo()
        #expect(list.cachedValue == [9, 2] && list.cachedEntry?.isStale == true)
    }

    @Test func `SC-08 a commit during the undo of another change is not lost`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        let (later, isArmed) = (Locked<MuxRepository.Change?>(nil), Locked(false))
        let first = list.change { $0.append(2) }
        let second = list.change {
            $0.append(3)
            // The undo of the first change applies this change again.
            if isArmed.withLock({ $0 }) { later.withLock { $0 }?.commit() }
        }
        later.withLock { $0 = second }
        isArmed.withLock { $0 = true }

        first.undo()

        #expect(list.cachedValue == [1, 3])
        // Both changes have ended, so the response is kept.
        #expect(try await list.request() == [1])
        #expect(list.cachedValue == [1])
        later.withLock { $0 = nil }
    }

    @Test func `SC-08 a value that is replaced during a change is below the change`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        let isFirst = Locked(true)
        let change = list.change {
            $0.append(2)
            guard isFirst.withLock({ first in first.toggledOff() }), let entry = list.serverEntry else { return }
            #expect(list.replaceValue(by: [5], ifRevision: entry.revision))
        }
        #expect(list.cachedValue == [5, 2])
        change.undo()
        #expect(list.cachedValue == [5])
    }

    @Test func `SC-08 ended changes leave nothing, and a stored value below a change is fresh and saved once`()
        async throws
    {
        let map = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: self.world.repository)
        {
            [$0]
        }
        _ = try await map.request(key: 1)
        map.change(key: 1) { $0.append(2) }.undo()
        #expect(map.changeCount == 0)
        map.change(key: 1) { $0.append(2) }.commit()
        #expect(map.changeCount == 1)
        #expect(try await map.request(key: 1) == [1])
        #expect(map.changeCount == 0)

        map.refresh()
        let changes = (3...4).map { number in map.change(key: 1) { $0.append(number) } }
        map.store([1], key: 1)
        #expect(map.cachedValue(key: 1) == [1, 3, 4] && map.cachedEntry(key: 1)?.isStale == false)
        #expect(await self.world.repository.saveAll().saved == 1)
        changes[0].undo()
        #expect(map.cachedValue(key: 1) == [1, 4])
        #expect(await self.world.repository.saveAll().saved == 0)
        changes[1].undo()
        #expect(map.changeCount == 0)
    }

    @Test func `SC-08 a change may use the multiplexer`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        let change = list.change { value in value.append(list.cachedValue?.count ?? 0) }
        #expect(list.cachedValue == [1, 1])
        change.undo()
    }

    // MARK: - Fetches

    @Test func `SC-08 a response to a fetch during a change is not kept, and its callers see the change`() async throws
    {
        let gate = Gate<[Int]>()
        let list = self.list { try await gate.pass() }
        list.store([1])
        let early = Task { try await list.request(.reload) }
        await gate.waitForCall(1)
        let change = list.change { $0.append(2) }
        let during = Task { try await list.request(.reload) }
        await gate.waitForCall(2)
        gate.open(1, returning: [5])
        #expect(try await early.value == [1, 2])
        gate.open(2, returning: [5, 2])
        #expect(try await during.value == [1, 2])
        let last = Task { try await list.request(.reload) }
        await gate.waitForCall(3)
        change.commit()
        gate.open(3, returning: [5, 2])
        #expect(try await last.value == [1, 2], "the fetch began before the end of the change")
        let next = Task { try await list.request() }
        await gate.waitForCall(4)
        gate.open(4, returning: [5, 2])
        #expect(try await next.value == [5, 2])
        #expect(list.cachedValue == [5, 2] && list.statistics.fetches == 4)
    }

    @Test func `SC-08 a revalidation confirms the server's value, not the change`() async throws {
        let seen = Locked<[[Int]?]>([])
        let list = Multiplexer<[Int]>(policy: self.policy, repository: self.world.repository) { before in
            seen.withLock { $0.append(before?.value) }
            return before?.notModified() ?? Fetched([1], validator: "a")
        }
        _ = try await list.request()
        let change = list.change { $0.append(2) }
        #expect(try await list.request(.reload) == [1, 2])
        change.undo()
        #expect(try await list.request() == [1])
        let other = list.change { $0.append(3) }
        other.commit()
        #expect(try await list.request() == [1], "the server does not have the change")
        #expect(seen.withLock { $0 } == [nil, [1], [1], [1]])
    }

    @Test func `SC-08 a change survives the eviction of its value`() async throws {
        let policy = MuxPolicy(timeToLive: .seconds(3600), fetchTimeout: .longest)
        let map = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: policy, repository: self.world.repository) {
            [$0]
        }
        _ = try await map.request(key: 1)
        _ = await self.world.repository.saveAll()
        let change = map.change(key: 1) { $0.append(7) }
        map.clearMemory()
        #expect(map.cachedValue(key: 1) == nil)
        #expect(try await map.request(key: 1) == [1, 7])
        map.clearMemory()
        #expect(try await map.request(key: 1, .reload) == [1, 7])
        map.clearMemory()
        #expect(await map.loadCachedValue(key: 1) == [1, 7])
        change.undo()
        #expect(map.cachedValue(key: 1) == [1])
    }

    @Test func `SC-08 a change of a value on disk is visible when the value is read`() async throws {
        let map = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: self.world.repository)
        {
            [$0]
        }
        _ = try await map.request(keys: [1, 2])
        _ = await self.world.repository.saveAll()
        map.clearMemory()
        let changes = [map.change(key: 1) { $0.append(7) }, map.change(key: 2) { $0.append(8) }]
        #expect(try await map.request(key: 1) == [1, 7])
        #expect(await map.loadCachedValue(key: 2) == [2, 8])
        for change in changes { change.undo() }
        #expect(map.cachedValue(key: 1) == [1] && map.cachedValue(key: 2) == [2] && map.statistics.fetches == 2)
    }

    @Test func `SC-08 an evicted change keeps its refresh, its commit and its undo`() async throws {
        let isOffline = Locked(false)
        let map = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: self.world.repository)
        {
            if isOffline.withLock({ $0 }) { throw URLError(.notConnectedToInternet) }
            return [$0]
        }
        _ = try await map.request(keys: 1...3)
        _ = await self.world.repository.saveAll()
        let evicted = map.change(key: 1) { $0.append(7) }
        map.clearMemory()
        let unread = map.change(key: 2) { $0.append(8) }
        evicted.commit()
        unread.commit()
        isOffline.withLock { $0 = true }
        #expect(try await map.request(key: 1) == [1, 7])
        #expect(try await map.request(key: 2) == [2, 8], "the change of a value that was only on disk")
        _ = await self.world.repository.saveAll()
        let next = self.world.relaunched()
        let reader = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: next.repository) {
            [$0]
        }
        for key in 1...2 { #expect(try await reader.requestEntry(key: key, .cacheOnly).isStale, "\(key)") }

        let memory = self.list { [1] }
        _ = try await memory.request()
        var states = memory.states.makeAsyncIterator()
        let change = memory.change { $0.append(2) }
        #expect(await states.next()?.entry?.value == [1, 2])
        memory.clearMemory()
        change.undo()
        #expect(memory.cachedValue == [1] && memory.cachedEntry?.isStale == true)
        #expect(await states.next()?.entry?.value == [1])
    }

    @Test func `SC-08 the end of a change of a cleared value fetches nothing`() async throws {
        let list = self.list { [1] }
        _ = try await list.request()
        var states = list.states.makeAsyncIterator()
        _ = await states.next()
        let change = list.change { $0.append(2) }
        await list.clear()
        #expect(await states.next()?.entry == nil)
        change.commit()
        #expect(list.cachedEntry == nil && list.statistics.fetches == 1)
    }

    @Test func `SC-08 the committed changes of evicted values are bounded`() async throws {
        let map = MultiplexerMap<Int, [Int]>(policy: self.policy, repository: self.world.repository) { [$0] }
        _ = try await map.request(keys: 0..<3_000)
        for key in 0..<3_000 { map.change(key: key) { $0.append(7) }.commit() }
        map.clearMemory()
        #expect(map.changeCount <= 1_000)
        #expect(try await map.request(key: 2_999) == [2_999])
    }

    // MARK: - Ends

    private func reader(_ world: World) async throws -> MuxEntry<[Int]> {
        let next = world.relaunched()
        let list = Multiplexer<[Int]>(cacheKey: "List", policy: self.policy, repository: next.repository) { [9] }
        return try await list.requestEntry(.cacheOnly)
    }

    @Test func `SC-08 a save during a change saves the server's value, and not the change`() async throws {
        let list = Multiplexer<[Int]>(cacheKey: "List", policy: self.policy, repository: self.world.repository) { [1] }
        _ = try await list.request()
        let change = list.change { $0.append(2) }
        #expect(await self.world.repository.saveAll().saved == 1)
        #expect(try await self.reader(self.world).value == [1])
        #expect(try await !self.reader(self.world).isStale)
        change.commit()
        #expect(await self.world.repository.saveAll().saved == 1)
        let entry = try await self.reader(self.world)
        #expect(entry.value == [1] && entry.isStale, "after a relaunch, the server is asked for the change")
        #expect(list.cachedValue == [1, 2])
    }

    @Test func `SC-08 an unsaved value below an undone change is saved`() async throws {
        let list = Multiplexer<[Int]>(cacheKey: "List", policy: self.policy, repository: self.world.repository) { [1] }
        list.store([4])
        let change = list.change { $0.append(5) }
        change.undo()
        #expect(await self.world.repository.saveAll().saved == 1)
        #expect(try await self.reader(self.world).value == [4])
    }

    @Test func `SC-08 a committed change that is evicted leads to a fetch, not to the old value on disk`() async throws
    {
        let fetch = ScriptedFetch<[Int]>([.value([1]), .failure(FetchFailed()), .value([1, 7])])
        let map = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: self.world.repository)
        {
            _ in try await fetch()
        }
        _ = try await map.request(key: 1)
        _ = await self.world.repository.saveAll()
        let change = map.change(key: 1) { $0.append(7) }
        change.commit()
        _ = await self.world.repository.saveAll()
        map.clearMemory()
        await #expect(throws: FetchFailed.self) { try await map.request(key: 1) }
        #expect(try await map.request(key: 1) == [1, 7])

        let memory = ScriptedFetch<[Int]>([.value([1]), .failure(FetchFailed()), .value([1, 7])])
        let list = self.list { try await memory() }
        _ = try await list.request()
        list.change { $0.append(7) }.commit()
        list.clearMemory()
        await #expect(throws: FetchFailed.self) { try await list.request() }
        #expect(try await list.request() == [1, 7])
    }

    @Test func `SC-08 a stored value must be based on the server's value`() async throws {
        let list = self.list { [1] }
        let server = try await list.requestEntry()
        let change = list.change { $0.append(2) }
        let shown = try #require(list.cachedEntry)
        #expect(!list.store(shown.value + [9], ifUnchangedSince: shown))
        #expect(list.store(server.value + [9], ifUnchangedSince: server))
        #expect(list.cachedValue == [1, 9, 2])
        change.undo()
        #expect(list.cachedValue == [1, 9])
    }

    @Test func `SC-08 a fetched value with unsent changes does not count as the server's value`() async throws {
        let list = self.list { [1] }
        let change = list.overlay(isUnsent: true) { $0.append(2) }
        let fetched = try await list.requestEntry()
        #expect(fetched.value == [1, 2])
        #expect(!list.store(fetched.value + [9], ifUnchangedSince: fetched))
        #expect(list.cachedValue == [1, 2])
        change.undo()
        #expect(list.cachedValue == [1])
    }

    @Test(arguments: [false, true])
    func `SC-08 a refresh on another machine keeps the uncommitted changes`(isOfAll: Bool) async throws {
        let store = MemorySharedStore()
        let (here, elsewhere) = (self.map(on: store), self.map(on: store))
        _ = try await here.request(key: 1)
        var values = here.values(key: 1).makeAsyncIterator()
        let (first, second) = (here.change(key: 1) { $0.append(2) }, here.change(key: 1) { $0.append(3) })
        first.commit()
        if isOfAll { elsewhere.refresh() } else { elsewhere.refresh(key: 1) }
        while let entry = await values.next(), entry != nil {}
        _ = try await here.request(key: 1)
        #expect(here.cachedValue(key: 1) == nil, "a response during a change may lack the change")
        second.commit()
        _ = try await here.request(key: 1)
        #expect(here.cachedValue(key: 1) == [1] && here.statistics.fetches == 3)
    }

    private func map(on store: MemorySharedStore) -> MultiplexerMap<Int, [Int]> {
        MultiplexerMap(
            cacheKey: "Lists",
            policy: self.policy,
            repository: MuxRepository(sharedStore: store.connection())
        ) {
            [$0]
        }
    }

    @Test func `SC-08 a clear of another object removes changes of evicted values, too`() async throws {
        let store = MemoryStore()
        let first = MuxRepository(store: store)
        let second = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: first) { [$0] }
        let map = MultiplexerMap<Int, [Int]>(cacheKey: "Lists", policy: self.policy, repository: first) { [$0] }
        _ = try await map.request(key: 1)
        _ = await first.saveAll()
        let change = map.change(key: 1) { $0.append(7) }
        map.clearMemory()
        await second.clear(key: 1)
        change.undo()
        #expect(map.cachedValue(key: 1) == nil)
    }

    @Test func `SC-08 a clear and a sign-out remove a change, whose end then has no effect`() async throws {
        let list = self.list { [1] }
        for isSignOut in [false, true] {
            _ = try await list.request()
            let changes = (2...3).map { number in list.change { $0.append(number) } }
            if isSignOut { await self.world.repository.clearAll() } else { await list.clear() }
            #expect(list.cachedValue == nil)
            #expect(try await list.request() == [1])
            changes[0].commit()
            changes[1].undo()
            // After a clear, the fetch may have begun before the server applied the change.
            #expect(list.cachedValue == [1] && list.cachedEntry?.isStale == !isSignOut)
        }
    }

    @Test func `SC-08 a change does not retain its multiplexer, and its end is then without effect`() async throws {
        weak var former: Multiplexer<[Int]>?
        let change: MuxRepository.Change
        do {
            let list = self.list { [1] }
            _ = try await list.request()
            change = list.change { $0.append(2) }
            former = list
        }
        #expect(former == nil)
        change.commit()
    }
}

extension Bool {
    /// Sets the value to `false`, and returns the former value.
    fileprivate mutating func toggledOff() -> Bool {
        defer { self = false }
        return self
    }
}

/// Changes of a list at a server, which overlap with each other and with fetches.
private final class ChangeScenario: Sendable {
    private struct State {
        /// The server's list of applied changes.
        var server: [Int] = []
        /// The changes that must be shown exactly once.
        var shown: Set<Int> = []
        /// The refused changes, which must not be shown.
        var refused: Set<Int> = []
        var last = 0
        var steps = 0
    }

    private let schedule: SeededExecutor
    private let world: World
    private let list: Multiplexer<[Int]>
    private let state = Locked(State())

    var stepCount: Int { self.state.withLock { $0.steps } }

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        self.world = World(clock: schedule.clock)
        let policy = MuxPolicy(
            timeToLive: .seconds(schedule.draw(1..<20)),
            whenAbandoned: [.finish, .cancel(linger: .zero)][schedule.draw(0..<2)]
        )
        let state = self.state
        @Sendable func fetch() async throws -> [Int] {
            try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<2_000)))
            let response = state.withLock { $0.server }
            try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<2_000)))
            if schedule.draw(0..<8) == 0 { throw FetchFailed() }
            return response
        }
        self.list =
            schedule.draw(0..<2) == 0
            ? Multiplexer(cacheKey: "List", policy: policy, repository: self.world.repository) { try await fetch() }
            : Multiplexer(policy: policy, repository: self.world.repository) { try await fetch() }
    }

    func play() async throws {
        self.list.store([])
        try await withThrowingTaskGroup { group in
            for _ in 0..<self.schedule.draw(1..<4) { group.addTask { try await self.send() } }
            for _ in 0..<self.schedule.draw(1..<3) { group.addTask { try await self.read() } }
            try await group.waitForAll()
        }
        // A request without options: the end of the last change must have made the value stale.
        var value = try? await self.list.request()
        while value == nil { value = try? await self.list.request() }
        try expect(value == self.state.withLock { $0.server }, "the last value is \(value ?? [])")
    }

    /// Sends changes, one after another.
    private func send() async throws {
        for _ in 0..<self.schedule.draw(1..<6) {
            // Without a value in memory, the change is not visible at once.
            let isVisible = self.list.cachedValue != nil
            let id = self.state.withLock { state in
                state.last += 1
                if isVisible { state.shown.insert(state.last) }
                return state.last
            }
            let change = self.list.change { $0.append(id) }
            try self.check("a change began")
            try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<2_000)))
            let (isApplied, isAnswered) = (self.schedule.draw(0..<4) > 0, self.schedule.draw(0..<4) > 0)
            if isApplied { self.state.withLock { $0.server.append(id) } }
            try self.check("the server has decided")
            try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<2_000)))
            if isApplied, isAnswered {
                change.commit()
            } else {
                self.state.withLock { state in
                    state.shown.remove(id)
                    if !isApplied { state.refused.insert(id) }
                }
                change.undo()
            }
            try self.check("a change ended")
            if self.schedule.draw(0..<2) == 0 {
                try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<3_000)))
            }
        }
    }

    private func read() async throws {
        for _ in 0..<self.schedule.draw(1..<8) {
            let (before, refused) = self.state.withLock { ($0.shown, $0.refused) }
            switch self.schedule.draw(0..<8) {
            case 0: self.list.refresh()
            case 1: self.list.clearMemory()
            case 2: _ = await self.world.repository.saveAll()
            default:
                if let value = try? await self.list.request(
                    [.init(), .reload, .maxAge(.seconds(1))][self.schedule.draw(0..<3)]
                ) {
                    let still = self.state.withLock { $0.shown }
                    try self.check(value, shown: before.intersection(still), refused: refused, "a request")
                }
            }
            try self.check("a reader")
            try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<1_500)))
            try self.check("a reader, later")
        }
    }

    private func check(_ what: String) throws {
        guard let value = self.list.cachedValue else { return }
        let (shown, refused) = self.state.withLock { ($0.shown, $0.refused) }
        try self.check(value, shown: shown, refused: refused, what)
    }

    private func check(_ value: [Int], shown: Set<Int>, refused: Set<Int>, _ what: String) throws {
        self.state.withLock { $0.steps += 1 }
        try expect(Set(value).count == value.count, "\(what): shown twice: \(value)")
        try expect(shown.isSubset(of: value), "\(what): hidden: \(shown.subtracting(value).sorted()) in \(value)")
        try expect(
            refused.isDisjoint(with: value),
            "\(what): refused, and shown: \(refused.intersection(value).sorted())"
        )
    }
}
