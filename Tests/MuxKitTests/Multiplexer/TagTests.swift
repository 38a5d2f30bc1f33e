import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Refreshes and clears of all values with a tag.
@Suite(.standard)
struct TagTests {
    private typealias Map = MultiplexerMap<Int, Int>

    private let world = World()

    /// The tags of the values of these tests: even and odd keys, and each key.
    private static func tags(_ key: Int) -> [String] { [key.isMultiple(of: 2) ? "even" : "odd", "key:\(key)"] }

    /// How values get their tags, and where they are.
    private enum Kind: CaseIterable { case fetched, byKey, sealed, files, journal }

    private func store(_ kind: Kind, _ folder: Scratch) -> any MuxStore {
        switch kind {
        case .fetched, .byKey: MemoryStore()
        case .sealed: SealedStore(MemoryStore(), seal: ToySeal(key: 7).seal, open: ToySeal(key: 7).open)
        case .files: FolderOfFilesStore(folder: folder.root)
        case .journal: folder.store()
        }
    }

    private func map(_ kind: Kind, in world: World, _ value: Int, policy: MuxPolicy = .init()) -> Map {
        guard kind != .byKey else {
            let name = Map.CacheKey("Map", tags: Self.tags)
            return Map(cacheKey: name, policy: policy, repository: world.repository) { _ in value }
        }
        return Map(cacheKey: "Map", policy: policy, repository: world.repository) { key, _ in
            Fetched(value, tags: Self.tags(key))
        }
    }

    // MARK: - Memory

    @Test func `PF-16 a requested value may be stale, but is not cleared by a tag and has a lifetime`() async {
        let policy = MuxPolicy(timeToLive: .seconds(10), maximumCount: 2, evictsLeastRecentlyUsed: true)
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: self.world.repository) { key, _ in
            Fetched(key, timeToLive: key == 3 ? .zero : nil, tags: key == 1 ? ["odd"] : [])
        }
        for key in 1...2 { _ = try? await map.request(key: key) }
        self.world.clock.advance(by: .seconds(11))
        #expect([2, 1].map { map.requestedValue(key: $0) } == [2, 1])

        _ = try? await map.request(key: 3)  // evicts the value that was requested first
        #expect((1...3).map { map.requestedValue(key: $0) } == [1, nil, nil])
        await self.world.repository.clear(tags: ["odd"])
        #expect(map.requestedValue(key: 1) == nil)
    }

    @Test func `SC-07 a refresh of tags makes exactly the values with these tags stale`() async throws {
        let map = Map(repository: self.world.repository) { key, before in
            Fetched(key, tags: before == nil ? Self.tags(key) : ["later"])
        }
        let plain = Map(repository: self.world.repository) { key in key }
        let single = Multiplexer<Int>(repository: self.world.repository) { _ in Fetched(7, tags: ["odd"]) }
        for key in 0..<10 {
            _ = try await map.request(key: key)
            _ = try await plain.request(key: key)
        }
        _ = try await single.request()

        self.world.repository.refresh(tags: ["odd", "key:4", "none"])

        for key in 0..<10 {
            let isStale = !key.isMultiple(of: 2) || key == 4
            #expect(map.cachedEntry(key: key)?.isStale == isStale, "\(key)")
            #expect(plain.cachedEntry(key: key)?.isStale == false)
        }
        #expect(single.cachedEntry?.isStale == true)
        #expect(try await map.request(key: 1) == 1)
        #expect(map.cachedEntry(key: 1)?.isStale == false)
        self.world.repository.refresh(tags: ["odd"])
        #expect(map.cachedEntry(key: 1)?.isStale == false, "the second fetch returned other tags")
        self.world.repository.refresh(tags: ["later"])
        #expect(map.cachedEntry(key: 1)?.isStale == true)
        self.world.repository.refresh(tags: [])
        await map.expectAtRest()
    }

    @Test func `SC-07 a clear of tags removes exactly the values with these tags, also as substitutes`() async throws {
        let isOffline = Locked(false)
        let map = Map(policy: .init(staleIfError: .seconds(1_000)), repository: self.world.repository) { key, _ in
            if isOffline.withLock({ $0 }) { throw offline }
            return Fetched(key, tags: Self.tags(key))
        }
        for key in 0..<4 { _ = try await map.request(key: key) }
        isOffline.withLock { $0 = true }

        self.world.repository.refresh(tags: ["odd"])
        #expect(try await map.request(key: 1) == 1, "a stale value replaces a failed fetch")
        #expect(await self.world.repository.clear(tags: ["odd"]).isComplete)

        for key in 0..<4 { #expect(map.cachedValue(key: key) == (key.isMultiple(of: 2) ? key : nil)) }
        await #expect(throws: SilenceableError.self) { try await map.request(key: 1) }
        #expect(await settled({ await self.world.repository.gauges().entries }, when: { $0 == 2 }) == 2, "released")
        #expect(self.world.events.count(of: .evicted) == 0)
    }

    @Test func `SC-07 a clear of tags of an unsaved value does not bring back the saved earlier value`() async throws {
        let calls = Locked(0)
        let map = Map(cacheKey: "Map", repository: self.world.repository) { _, _ in
            let call = calls.next()
            return Fetched(call, tags: call == 2 ? ["a"] : [])
        }
        _ = try await map.request(key: 0)
        await map.save()
        _ = try await map.reload(key: 0)

        await self.world.repository.clear(tags: ["a"])

        #expect(await map.loadCachedValue(key: 0) == nil)
        #expect(try await map.request(key: 0) == 3)
        await map.expectAtRest()
    }

    @Test func `SC-07 tags are compared byte for byte`() async throws {
        let map = Map(repository: self.world.repository) { key, _ in
            Fetched(key, tags: [key == 0 ? "\u{e9}" : "e\u{301}"])
        }
        for key in 0..<2 { _ = try await map.request(key: key) }
        self.world.repository.refresh(tags: ["e\u{301}"])
        #expect(map.cachedEntry(key: 0)?.isStale == false)
        #expect(map.cachedEntry(key: 1)?.isStale == true)
    }

    @Test func `SC-07 a confirmed value and a value from the app keep their tags`() async throws {
        let map = Map(repository: self.world.repository) { key, before in
            before?.notModified() ?? Fetched(key, tags: ["a"])
        }
        _ = try await map.request(key: 0)
        map.refresh(key: 0)
        _ = try await map.request(key: 0)
        self.world.repository.refresh(tags: ["a"])
        #expect(map.cachedEntry(key: 0)?.isStale == true, "confirmed by the server")

        map.store(8, key: 0)
        #expect(map.cachedEntry(key: 0)?.isStale == false)
        self.world.repository.refresh(tags: ["a"])
        #expect(map.cachedEntry(key: 0)?.isStale == true, "stored by the app")
    }

    @Test func `SC-07 a failure after a refresh of tags is remembered, and a failure before is not`() async throws {
        let (calls, isOffline) = (Locked(0), Locked(false))
        let policy = MuxPolicy(staleIfError: .seconds(1_000), errorBackoff: .seconds(100))
        let number = Multiplexer<Int>(policy: policy, repository: self.world.repository) { _ in
            _ = calls.next()
            if isOffline.withLock({ $0 }) { throw offline }
            return Fetched(1, tags: ["a"])
        }
        _ = try await number.request()
        isOffline.withLock { $0 = true }
        for round in 1...2 {
            self.world.repository.refresh(tags: ["a"])
            for _ in 0..<3 { #expect(try await number.request() == 1) }
            #expect(calls.withLock { $0 } == 1 + round, "the failure after the refresh is remembered")
        }
    }

    // MARK: - Running fetches

    @Test(arguments: [false, true])
    func `SC-07 a fetch that learns its tags at its end is outdated by an earlier change`(isClear: Bool) async throws {
        let gate = Gate<Int>()
        let map = Map(repository: self.world.repository) { key, _ in Fetched(try await gate.pass(), tags: ["a"]) }
        let early = Task { try await map.requestEntry(key: 0) }
        await gate.waitForCall(1)
        self.world.repository.refresh(tags: ["b"])
        if isClear {
            await self.world.repository.clear(tags: ["a"])
        } else {
            self.world.repository.refresh(tags: ["a"])
        }
        let late = Task { try await map.requestEntry(key: 0) }
        _ = await settled({ map.occupancy.waiters }, when: { $0 == 2 })
        gate.open(1, returning: 1)
        let first = try await early.value
        #expect(first.value == 1 && first.staleReason == .fenced)
        await gate.waitForCall(2)
        gate.open(2, returning: 2)
        #expect(try await late.value.value == 2, "the caller came after the change")
        #expect(map.cachedValue(key: 0) == 2)
        await map.expectAtRest()
    }

    @Test func `SC-07 a fetch is not outdated by a change of other tags, or before its start`() async throws {
        let gate = Gate<Int>()
        let map = Map(repository: self.world.repository) { key, _ in Fetched(try await gate.pass(), tags: ["a"]) }
        self.world.repository.refresh(tags: ["a"])
        let request = Task { try await map.request(key: 0) }
        await gate.waitForCall(1)
        self.world.repository.refresh(tags: ["b"])
        gate.open(1, returning: 1)
        #expect(try await request.value == 1)
        #expect(map.cachedEntry(key: 0)?.isStale == false)
    }

    @Test func `SC-07 a value that was cleared before the fetch is not restored by the server's confirmation`()
        async throws
    {
        let (gate, isFirst) = (Gate<Void>(), Locked(true))
        let map = Map(repository: self.world.repository) { key, before in
            if isFirst.withLock({ $0 }) { return Fetched(1, tags: ["a"]) }
            try await gate.pass()
            return before?.notModified() ?? Fetched(2, tags: ["a"])
        }
        _ = try await map.request(key: 0)
        isFirst.withLock { $0 = false }
        map.refresh(key: 0)
        let request = Task { try await map.requestEntry(key: 0) }
        await gate.waitForCall(1)
        await self.world.repository.clear(tags: ["a"])
        gate.openForGood(returning: ())
        #expect(try await request.value.staleReason == .fenced)
        #expect(map.cachedValue(key: 0) == nil)
        #expect(try await map.request(key: 0) == 2)
    }

    @Test func `SC-07 an outdated fetch asks a view for another fetch`() async throws {
        let (gate, tags) = (Gate<Int>(), Locked(["b"]))
        let map = Map(repository: self.world.repository) { key, _ in
            Fetched(try await gate.pass(), tags: tags.withLock { $0 })
        }
        let states = map.states(key: 0)
        var iterator = states.makeAsyncIterator()
        _ = await iterator.next()
        let request = Task { try await map.request(key: 0) }
        await gate.waitForCall(1)
        tags.withLock { $0 = ["a"] }
        let before = states.current.counts.refreshes
        self.world.repository.refresh(tags: ["a"])
        gate.open(1, returning: 1)
        #expect(try await request.value == 1)
        #expect(states.current.counts.refreshes > before)
    }

    // MARK: - Consumers

    @Test func `SC-07 consumers of values and states see changes of tags`() async throws {
        let map = Map(repository: self.world.repository) { key, _ in Fetched(key, tags: Self.tags(key)) }
        _ = try await map.request(key: 1)
        _ = try await map.request(key: 2)
        var values = map.values(key: 1).makeAsyncIterator()
        var states = map.states(key: 1).makeAsyncIterator()
        var others = map.states(key: 2).makeAsyncIterator()
        #expect(await values.next()??.value == 1)
        #expect(await states.next()?.isStale == false)
        #expect(await others.next()?.isStale == false)

        self.world.repository.refresh(tags: ["odd"])
        #expect(await states.next()?.isStale == true)
        await self.world.repository.clear(tags: ["odd"])
        #expect(await states.next()?.entry == nil)
        let gone = try #require(await values.next())
        #expect(gone == nil)
        self.world.repository.refresh(tags: ["even"])
        let other = await others.next()
        #expect(other?.isStale == true && other?.entry?.value == 2, "the change of another tag was no element")
    }

    @Test func `SC-07 a clear of tags ends the changes of its values`() async throws {
        let map = Map(repository: self.world.repository) { key, _ in Fetched(key, tags: Self.tags(key)) }
        for key in 1...2 { _ = try await map.request(key: key) }
        let changes = (1...2).map { map.change(key: $0) { $0 += 100 } }
        await self.world.repository.clear(tags: ["odd"])
        #expect(map.cachedValue(key: 1) == nil)
        #expect(map.cachedValue(key: 2) == 102)
        #expect(try await map.request(key: 1) == 1)
        #expect(map.cachedValue(key: 1) == 1, "a response is kept, because the change has ended")
        for change in changes { change.commit() }
        #expect(map.cachedValue(key: 1) == 1)
        #expect(map.cachedValue(key: 2) == 102)
    }

    @Test func `SC-07 a value from the app during a change keeps its tags`() async throws {
        let map = Map(repository: self.world.repository) { key, _ in Fetched(key, tags: ["a"]) }
        _ = try await map.request(key: 1)
        let change = map.change(key: 1) { $0 += 100 }
        map.store(5, key: 1)
        #expect(map.cachedValue(key: 1) == 105)
        self.world.repository.refresh(tags: ["a"])
        #expect(map.cachedEntry(key: 1)?.isStale == true)
        change.undo()
    }

    @Test func `SC-07 a change of other tags does not refresh a followed key without an entry`() async throws {
        let map = Map(policy: .init(maximumCount: 1), repository: self.world.repository) { key, _ in
            Fetched(key, tags: Self.tags(key))
        }
        _ = try await map.request(key: 1)
        let (states, empty) = (map.states(key: 1), map.states(key: 9))
        let iterators = (states.makeAsyncIterator(), empty.makeAsyncIterator())
        for key in 2..<6 { _ = try await map.request(key: key) }
        #expect(map.cachedEntry(key: 1) == nil, "evicted")
        self.world.repository.refresh(tags: ["key:3"])
        #expect(states.current.counts.refreshes == 0 && empty.current.counts.refreshes == 0)
        self.world.repository.refresh(tags: ["key:1"])
        #expect(states.current.counts.refreshes == 1 && empty.current.counts.refreshes == 0)
        withExtendedLifetime(iterators) {}
    }

    @Test(arguments: [false, true])
    func `SC-07 a change of a tag reaches a followed key after its entry was removed from memory`(isClear: Bool)
        async throws
    {
        let map = Map(repository: self.world.repository) { key, _ in Fetched(key, tags: ["a"]) }
        _ = try await map.request(key: 1)
        let states = map.states(key: 1)
        let iterator = states.makeAsyncIterator()
        map.clearMemory()
        let counts = states.current.counts
        if isClear {
            await self.world.repository.clear(tags: ["a"])
            #expect(states.current.counts.replacements == counts.replacements + 1)
        } else {
            self.world.repository.refresh(tags: ["a"])
            #expect(states.current.counts.refreshes == counts.refreshes + 1)
        }
        withExtendedLifetime(iterator) {}
    }

    @Test func `SC-07 a change of a tag reaches a followed key after its entry was too old to be kept`() async throws {
        let gate = Gate<Void>()
        let policy = MuxPolicy(timeToLive: .seconds(10), staleIfError: .zero)
        let map = Map(policy: policy, repository: self.world.repository) { key, _ in
            if key == 2 { try await gate.pass() }
            return Fetched(key, tags: Self.tags(key))
        }
        _ = try await map.request(key: 1)
        let states = map.states(key: 1)
        let iterator = states.makeAsyncIterator()
        self.world.clock.advance(by: .seconds(1_000))
        // The end of each fetch removes old entries. A fenced fetch stores no entry.
        let request = Task { try await map.request(key: 2) }
        await gate.waitForCall(1)
        map.refresh(key: 2)
        gate.openForGood(returning: ())
        #expect(try await request.value == 2)
        #expect(map.cachedEntry(key: 1) == nil, "removed")

        self.world.repository.refresh(tags: ["key:1"])
        #expect(states.current.counts.refreshes == 1)
        withExtendedLifetime(iterator) {}
    }

    // MARK: - Disk

    @Test func `SC-07 the tags of a value do not multiply`() async throws {
        let name = Map.CacheKey("Map", tags: Self.tags)
        let map = Map(cacheKey: name, repository: self.world.repository) { key, before in
            before?.notModified() ?? Fetched(key, tags: ["a", "a", "odd"])
        }
        for _ in 0..<5 {
            _ = try await map.request(key: 1)
            map.refresh(key: 1)
        }
        _ = try await map.request(key: 1)
        await self.world.repository.saveAll()
        let entry = try await self.world.store.load(MuxStoreKey(domain: "Map", key: "1"))
        #expect(entry?.tags.sorted() == ["a", "key:1", "odd"])
    }

    @Test func `SC-07 a value with too many tags fails alone to be saved`() async throws {
        let folder = Scratch()
        let world = World(store: folder.store())
        let long = String(repeating: "x", count: 10 << 20)
        let map = Map(cacheKey: "Map", repository: world.repository) { key, _ in
            switch key {
            case 1: Fetched(key, tags: (0..<100_000).map { "tag \($0)" })
            case 2: Fetched(key, tags: [long])
            default: Fetched(key, tags: ["a"])
            }
        }
        for key in 0..<5 { _ = try await map.request(key: key) }
        let report = await world.repository.saveAll()
        #expect(report.saved == 3)
        #expect(report.failed.compactMap(\.name.key).sorted() == ["1", "2"])
        for failure in report.failed {
            guard case .entryTooLarge? = failure.error as? MuxStoreError else {
                Issue.record("\(failure)")
                continue
            }
        }
        world.repository.refresh(tags: [long])
        #expect((0..<5).map { map.cachedEntry(key: $0)?.isStale } == [false, false, true, false, false])
        #expect(await world.repository.saveAll().repairFailures.isEmpty)
        let again = Map(cacheKey: "Map", repository: world.relaunched(after: .seconds(1)).repository) { -$0 }
        #expect(await again.loadCachedEntry(key: 3)?.isStale == true, "the disk has dropped the long tag")
    }

    @Test func `SC-07 if the disk has lost the changes of tags, its values with tags are stale`() async throws {
        let map = self.map(.fetched, in: self.world, 1)
        let plain = Map(cacheKey: "Plain", repository: self.world.repository) { key in key }
        for key in 0..<2 {
            _ = try await map.request(key: key)
            _ = try await plain.request(key: key)
        }
        await self.world.repository.saveAll()
        try await self.world.store.remove([MuxStoreKey(domain: "MuxKit.tags", key: "changes")], durability: .full)

        let next = self.world.relaunched(after: .seconds(1))
        let again = self.map(.fetched, in: next, 2)
        let plainAgain = Map(cacheKey: "Plain", repository: next.repository) { key in key }
        #expect(await again.loadCachedEntry(key: 0)?.isStale == true)
        #expect(await plainAgain.loadCachedEntry(key: 0)?.isStale == false)
        #expect(try await again.request(key: 0) == 2)
        #expect(await again.loadCachedEntry(key: 1)?.isStale == true)
        #expect(again.cachedEntry(key: 0)?.isStale == false, "the loss counts once")
    }

    @Test func `SC-07 changes of tags apply to values on disk, exactly, and after a relaunch`() async throws {
        for kind in Kind.allCases {
            let folder = Scratch()
            let first = World(store: self.store(kind, folder))
            let map = self.map(kind, in: first, 1)
            for key in 0..<20 { _ = try await map.request(key: key) }
            #expect(await first.repository.saveAll().saved == 20)

            // A process without the values in memory.
            let second = first.relaunched(after: .seconds(1))
            let again = self.map(kind, in: second, 2)
            second.repository.refresh(tags: ["key:2", "key:3"])
            #expect(await second.repository.clear(tags: ["key:4", "key:5"]).isComplete)
            #expect(await again.loadCachedEntry(key: 2)?.isStale == true, "\(kind)")
            #expect(await again.loadCachedEntry(key: 4) == nil, "\(kind)")
            #expect(try await again.request(key: 5) == 2)
            #expect(await second.repository.saveAll().isComplete)

            let third = second.relaunched(after: .seconds(1))
            let last = self.map(kind, in: third, 3)
            for key in 0..<20 {
                let entry = await last.loadCachedEntry(key: key)
                switch key {
                case 2, 3: #expect(entry?.isStale == true && entry?.value == 1, "\(kind) \(key)")
                case 4: #expect(entry == nil, "\(kind)")
                case 5: #expect(entry?.isStale == false && entry?.value == 2, "\(kind): fetched after the change")
                default: #expect(entry?.isStale == false && entry?.value == 1, "\(kind) \(key)")
                }
            }
            #expect(try await last.request(key: 4) == 3)
        }
    }

    @Test func `SC-07 a change of tags whose write fails is written by the next save`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let map = self.map(.fetched, in: world, 1)
        for key in 0..<2 { _ = try await map.request(key: key) }
        await world.repository.saveAll()
        store.failsSaves.withLock { $0 = true }
        #expect(await world.repository.clear(tags: ["odd"]).failures.count == 1)
        #expect(map.cachedValue(key: 1) == nil)
        #expect(await world.repository.saveAll().repairFailures.count == 1)
        store.failsSaves.withLock { $0 = false }
        #expect(await world.repository.saveAll().isComplete)
        let again = self.map(.fetched, in: world.relaunched(after: .seconds(1)), 2)
        #expect(await again.loadCachedValue(key: 0) == 1)
        #expect(await again.loadCachedValue(key: 1) == nil)
    }

    @Test func `SC-07 a sign-out removes the changes of tags, also from disk`() async throws {
        let folder = Scratch()
        let world = World(store: folder.store())
        let map = self.map(.journal, in: world, 1)
        _ = try await map.request(key: 1)
        await world.repository.clear(tags: ["user:secret"])
        #expect(folder.find("user:secret") != [])
        await world.repository.clearAll()
        await world.repository.saveAll()
        #expect(folder.find("user:secret") == [])
        #expect(try await map.request(key: 1) == 1)
        #expect(map.cachedEntry(key: 1)?.isStale == false)
    }

    // MARK: - Other processes

    @Test func `SC-07 a change of tags reaches another process, and changes of two processes are both kept`()
        async throws
    {
        let folder = Scratch()
        let one = World(store: folder.store())
        let two = World(store: folder.store())
        let maps = [self.map(.journal, in: one, 1), self.map(.journal, in: two, 2)]
        for key in 0..<6 { for map in maps { _ = try await map.request(key: key) } }
        for world in [one, two] { await world.repository.saveAll() }
        for world in [one, two] { world.clock.advance(by: .seconds(1)) }

        let states = maps[0].states(key: 1)
        let iterator = states.makeAsyncIterator()
        one.repository.refresh(tags: ["key:0"])
        two.repository.refresh(tags: ["key:1"])
        await one.repository.clear(tags: ["key:2"])
        await two.repository.clear(tags: ["key:3"])
        for world in [one, two, one] { #expect(await world.repository.saveAll().repairFailures.isEmpty) }

        for map in maps {
            #expect((0..<6).map { map.cachedEntry(key: $0)?.isStale } == [true, true, nil, nil, false, false])
        }
        #expect(states.current.counts.refreshes == 1, "the view of the first process is told")
        withExtendedLifetime(iterator) {}
        let next = self.map(.journal, in: two.relaunched(after: .seconds(1)), 3)
        var found: [Bool?] = []
        for key in 0..<6 { found.append(await next.loadCachedEntry(key: key)?.isStale) }
        #expect(found == [true, true, nil, nil, false, false])
    }

    @Test func `SC-07 a value that another process has cleared is not read from disk`() async throws {
        let folder = Scratch()
        let one = World(store: folder.store())
        let two = World(store: folder.store())
        let former = self.map(.journal, in: one, 1)
        _ = try await former.request(keys: 0..<4)
        await one.repository.saveAll()
        let map = self.map(.journal, in: two, 2)
        #expect(try await map.request(key: 0) == 1)
        await one.repository.clear(tags: ["odd"])
        #expect(await map.loadCachedValue(key: 1) == nil)
        #expect(await map.loadCachedValue(key: 2) == 1)
    }

    // MARK: - Several machines

    @Test func `SC-07 changes of tags reach values on all machines, with tags of keys and of fetches`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let fetches = Locked(0)
            let machines = (0..<2).map { _ in
                let repository = MuxRepository.machine(schedule, sharing: store.connection())
                let shared = Map(cacheKey: .init("Shared", tags: Self.tags), repository: repository) { _ in
                    fetches.next()
                }
                let own = Map(cacheKey: "Own", repository: repository) { key, _ in
                    Fetched(fetches.next(), tags: Self.tags(key))
                }
                return (repository: repository, maps: [shared, own])
            }
            func request() async throws -> [[Int]] {
                var found: [[Int]] = []
                for machine in machines {
                    for map in machine.maps {
                        found.append([try await map.request(key: 1), try await map.request(key: 2)])
                    }
                }
                return found
            }
            let first = try await request()
            try expect(first[0] == first[2], "shared by the machines: \(first)")
            try expect(first[1] != first[3], "a value with other tags stays on its machine: \(first)")
            try expect(try await request() == first, "cached")
            for isClear in [false, true] {
                let before = try await request()
                if isClear {
                    let report = await machines[0].repository.clear(tags: ["odd"])
                    try expect(report.isComplete, "\(report)")
                } else {
                    machines[0].repository.refresh(tags: ["odd"])
                }
                try await schedule.clock.sleep(for: .seconds(1))
                let after = try await request()
                for (former, latter) in zip(before, after) {
                    try expect(latter[0] > former[0] && latter[1] == former[1], "\(former), then \(latter)")
                }
                try expect(after[0] == after[2], "\(after)")
            }
        }
    }

    @Test func `SC-07 values with tags are stale after a gap in the reports of the shared store`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let connection = store.connection()
            let repository = MuxRepository.machine(schedule, sharing: connection)
            let map = Map(repository: repository) { key, _ in Fetched(key, tags: ["a"]) }
            let plain = Map(repository: repository) { key in key }
            for map in [map, plain] { _ = try await map.request(key: 0) }
            connection.isCut = true
            connection.isCut = false
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(map.cachedEntry(key: 0)?.isStale == true, "a change may have been missed")
            try expect(plain.cachedEntry(key: 0)?.isStale == false)
        }
    }

    @Test func `SC-07 a value that the shared store has confirmed keeps the tags of its key`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let connection = MemorySharedStore(clock: schedule.clock).connection()
            let repository = MuxRepository.machine(schedule, sharing: connection)
            let fetches = Locked(0)
            let map = Map(cacheKey: .init("Map", tags: Self.tags), repository: repository) { _ in fetches.next() }
            try expect(try await map.request(key: 1) == 1)
            connection.isCut = true
            connection.isCut = false
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(try await map.request(key: 1) == 1, "confirmed after a gap in the reports")
            try expect(map.cachedEntry(key: 1)?.isStale == false)
            repository.refresh(tags: ["odd"])
            try expect(map.cachedEntry(key: 1)?.isStale == true)
            try expect(try await map.request(key: 1) == 2)
        }
    }
}
