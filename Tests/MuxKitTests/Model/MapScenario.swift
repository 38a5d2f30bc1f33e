import MuxKit
import MuxTesting

/// Several workers with random actions on one map and one multiplexer, with checks during and after the run.
struct MapScenario: Sendable {
    private static let keys = 0..<2
    /// The multiplexer's key in the backend.
    private static let sole = 2

    private let schedule: SeededExecutor
    private let world: World
    private let backend: ScheduledBackend
    private let map: MultiplexerMap<Int, Int>
    private let single: Multiplexer<Int>
    private let isPersistent: Bool
    /// Whether values have tags, which the backend returns, and whose changes replace some of the fences.
    private let hasTags: Bool
    private let policy: MuxPolicy
    private let requests = Locked(0)

    init(_ schedule: SeededExecutor, hasTags: Bool = false, observer: (any MuxObserver)? = nil) {
        self.schedule = schedule
        let world = World(clock: schedule.clock, observer: observer)
        let policy = MuxPolicy(
            timeToLive: .seconds(schedule.draw(1..<30)),
            staleWhileRevalidate: .seconds(schedule.draw(0..<2) * 10),
            whenAbandoned: [.finish, .cancel(linger: .zero), .cancel(linger: .seconds(2))][schedule.draw(0..<3)],
            fetchTimeout: .seconds([5, 600][schedule.draw(0..<2)]),
            maximumCount: [1, 100][schedule.draw(0..<2)]
        )
        let backend = ScheduledBackend(schedule, timeout: policy.fetchTimeout)
        self.world = world
        self.policy = policy
        self.backend = backend
        self.hasTags = hasTags
        let tags: @Sendable (Int) -> [String] = { hasTags ? ["all", "key \($0)"] : [] }
        self.isPersistent = schedule.draw(0..<3) > 0
        if self.isPersistent {
            let isByKey = hasTags && schedule.draw(0..<2) == 0
            let name: MultiplexerMap<Int, Int>.CacheKey = isByKey ? .init("Map", tags: tags) : "Map"
            self.map = MultiplexerMap(cacheKey: name, policy: policy, repository: world.repository) { key, _ in
                Fetched(try await backend.fetch(key), tags: isByKey ? [] : tags(key))
            }
            self.single = Multiplexer(cacheKey: "Single", policy: policy, repository: world.repository) { _ in
                Fetched(try await backend.fetch(Self.sole), tags: tags(Self.sole))
            }
        } else {
            self.map = MultiplexerMap(policy: policy, repository: world.repository) { key, _ in
                Fetched(try await backend.fetch(key), tags: tags(key))
            }.register()
            self.single = Multiplexer(policy: policy, repository: world.repository) { _ in
                Fetched(try await backend.fetch(Self.sole), tags: tags(Self.sole))
            }.register()
        }
    }

    /// Runs the actions and the checks.
    func play() async throws {
        defer {
            self.map.unregister()
            self.single.unregister()
        }
        try await withThrowingTaskGroup { group in
            for _ in 0..<self.schedule.draw(2..<5) {
                group.addTask {
                    for _ in 0..<self.schedule.draw(1..<5) { try await self.act() }
                }
            }
            try await group.waitForAll()
        }
        // Work without callers ends within this time.
        try await self.schedule.clock.sleep(for: .seconds(1_000))
        try self.backend.check()
        try self.checkRest(self.map.occupancy, self.map.statistics)
        try self.checkRest(self.single.occupancy, self.single.statistics)
        let statistics = self.map.statistics + self.single.statistics
        try expect(statistics.requests == self.requests.withLock { $0 }, "requests are not counted: \(statistics)")
        try expect(statistics.fetches == self.backend.fetches, "fetches are not counted: \(statistics)")
        if self.isPersistent { try await self.checkRelaunch() }
    }

    private func checkRest(_ occupancy: (waiters: Int, tasks: Int, keys: Int), _ statistics: MuxRepository.Statistics)
        throws
    {
        try expect(occupancy == (0, 0, 0), "not at rest: \(occupancy)")
    }

    /// A relaunch finds the saved values and no value from before a fence.
    private func checkRelaunch() async throws {
        let report = await self.world.repository.saveAll()
        try expect(report.isComplete, "the save is not complete: \(report)")
        let next = World(store: self.world.store, clock: self.schedule.clock)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: next.repository) { _ -> Int in
            throw FetchFailed()
        }
        for key in Self.keys {
            guard let found = await map.loadCachedValue(key: key) else { continue }
            try expect(found > self.backend.floors(key).any, "the disk has \(found) of key \(key)")
            if let held = self.map.cachedValue(key: key) {
                try expect(found == held, "the disk has \(found) of key \(key), memory \(held)")
            }
        }
    }

    private func act() async throws {
        let key = self.schedule.draw(0..<3)
        switch self.schedule.draw(0..<14) {
        case 0: await self.refresh(key)
        // A stored value has only the tags of its key and of the value that it replaces.
        case 1: if self.hasTags { await self.refresh(key) } else { await self.store(key) }
        case 2: await self.clear(key)
        case 3: await self.fenceAll()
        case 4: await self.world.repository.saveAll()
        case 5: self.world.repository.clearMemory()
        case 6: try await self.schedule.clock.sleep(for: .seconds(self.schedule.draw(1..<20)))
        case 7...9: try await self.requestAndLeave(key)
        default: try await self.request(key)
        }
    }

    private func refresh(_ key: Int) async {
        await self.backend.fence(key..<key + 1, keepsStale: true) { _ in
            guard !self.usesTags else { return self.world.repository.refresh(tags: ["key \(key)"]) }
            if key == Self.sole { self.single.refresh() } else { self.map.refresh(key: key) }
        }
    }

    private func store(_ key: Int) async {
        await self.backend.fence(key..<key + 1) { value in
            if key == Self.sole { self.single.store(value) } else { self.map.store(value, key: key) }
        }
    }

    private func clear(_ key: Int) async {
        await self.backend.fence(key..<key + 1) { _ in
            if self.usesTags {
                await self.world.repository.clear(tags: ["key \(key)"])
            } else if key == Self.sole {
                await self.single.clear()
            } else {
                await self.map.clear(key: key)
            }
        }
    }

    /// Whether a change of tags replaces the next fence.
    private var usesTags: Bool { self.hasTags && self.schedule.draw(0..<3) > 0 }

    private func fenceAll() async {
        guard !self.usesTags else {
            guard self.schedule.draw(0..<2) == 0 else {
                return await self.backend.fence(0..<3) { _ in await self.world.repository.clear(tags: ["all"]) }
            }
            let repository = self.world.repository
            return await self.backend.fence(0..<3, keepsStale: true) { _ in repository.refresh(tags: ["all", "none"]) }
        }
        switch self.schedule.draw(0..<3) {
        case 0: await self.backend.fence(Self.keys, keepsStale: true) { _ in self.map.refresh() }
        case 1: await self.backend.fence(Self.keys) { _ in await self.map.clear() }
        default: await self.backend.fence(0..<3) { _ in await self.world.repository.clearAll() }
        }
    }

    private func request(_ key: Int) async throws {
        let floors = self.backend.floors(key)
        let options: RequestOptions =
            switch self.schedule.draw(0..<5) {
            case 0: .reload
            case 1: .maxAge(.seconds(self.schedule.draw(0..<10)))
            case 2: .within(.seconds(self.schedule.draw(0..<3)))
            default: .init()
            }
        self.requests.withLock { $0 += 1 }
        do {
            let entry =
                key == Self.sole
                ? try await self.single.requestEntry(options) : try await self.map.requestEntry(key: key, options)
            let floor = entry.isStale ? floors.any : floors.fresh
            try expect(entry.value > floor, "key \(key): \(entry.value) is older than a fence at \(floor)")
        } catch is CancellationError {
            try expect(Task.isCancelled, "key \(key): a caller that was not cancelled is told that it was")
        } catch MuxError.sessionEnded, MuxError.timedOut, is FetchFailed, is SilenceableError {
        }
    }

    private func requestAndLeave(_ key: Int) async throws {
        try await withThrowingTaskGroup { group in
            group.addTask { try await self.request(key) }
            for _ in 0..<self.schedule.draw(0..<6) { await self.schedule.pause() }
            group.cancelAll()
            try await group.waitForAll()
        }
    }
}
