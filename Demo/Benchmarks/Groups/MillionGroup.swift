import Foundation
import MuxKit

/// Operations on a map of a million entries, and the longest concurrent hit, which shows how long the lock is
/// held.
enum MillionGroup {
    private static let count = 1_000_000
    /// The goal for the time under the lock.
    private static let goal = Goal.atMost(100_000)

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let map = MultiplexerMap<Int, Int>(
            cacheKey: "Million",
            policy: MuxPolicy(timeToLive: .seconds(1_000_000), maximumCount: self.count),
            repository: MuxRepository(store: ForgetfulStore())
        ) { $0 }
        // In parts, so that not all entries are due for a save at once.
        for start in stride(from: 0, to: self.count, by: 50_000) {
            for key in start..<start + 50_000 { map.store(key, key: key) }
            guard await map.save().saved == 50_000 else { throw BenchmarkError.wrongResult("not saved") }
        }
        let hits = try await self.hits(group, map, effort)
        let rounds = effort.rounds(9)
        let saving = try await self.beside(map, rounds) {
            map.store(1, key: 500_000)
            let time = try await Contest.nanoseconds {
                let report = await map.save()
                guard report.saved == 1 else { throw BenchmarkError.wrongResult("saved \(report.saved)") }
            }
            return time
        }
        let refreshing = try await self.beside(map, rounds) { await Contest.nanoseconds { map.refresh() } }
        let clearing = try await self.beside(map, 1) { await Contest.nanoseconds { map.clearMemory() } }
        return hits + [
            Row(group, "saving one that changed, in all", saving, figure: 0),
            Row(group, "longest hit meanwhile", saving, figure: 1, goals: [self.goal]),
            Row(group, "refresh() of all, in all", refreshing, figure: 0, goals: [self.goal]),
            Row(group, "longest hit beside it", refreshing, figure: 1, goals: [self.goal]),
            Row(group, "clearMemory(), in all", clearing, figure: 0),
            Row(group, "longest hit beside it", clearing, figure: 1, goals: [self.goal]),
        ] + (try await self.tags(group, rounds))
    }

    /// Changes of a tag that every tenth entry has.
    private static func tags(_ group: String, _ rounds: Int) async throws -> [Row] {
        let repository = MuxRepository(store: ForgetfulStore())
        let policy = MuxPolicy(timeToLive: .seconds(1_000_000), maximumCount: self.count)
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: repository) { key, _ in
            Fetched(key, tags: key % 10 == 0 ? ["tenth"] : [])
        }
        for start in stride(from: 0, to: self.count, by: 50_000) {
            _ = try await map.request(keys: start..<start + 50_000)
        }
        let refreshing = try await self.beside(map, rounds) {
            await Contest.nanoseconds { repository.refresh(tags: ["tenth"]) }
        }
        guard map.cachedEntry(key: 10)?.isStale == true, map.cachedEntry(key: 11)?.isStale == false else {
            throw BenchmarkError.wrongResult("the wrong entries are stale")
        }
        let clearing = try await self.beside(map, rounds) {
            await Contest.nanoseconds { await repository.clear(tags: ["tenth"]) }
        }
        guard map.cachedValue(key: 10) == nil, map.cachedValue(key: 11) == 11 else {
            throw BenchmarkError.wrongResult("the wrong entries are cleared")
        }
        return [
            Row(group, "refresh(tags:) of 100,000, in all", refreshing, figure: 0, goals: [self.goal]),
            Row(group, "longest hit beside it", refreshing, figure: 1, goals: [self.goal]),
            Row(group, "clear(tags:) of 100,000, in all", clearing, figure: 0, goals: [self.goal]),
            Row(group, "longest hit beside it", clearing, figure: 1, goals: [self.goal]),
        ]
    }

    /// Hits in an order that a processor cannot predict.
    private static func hits(
        _ group: String,
        _ map: MultiplexerMap<Int, Int>,
        _ effort: Effort
    ) async throws -> [Row] {
        var values: [Int: Int] = [:]
        for key in 0..<self.count { values[key] = key }
        let dictionary = values
        var contest = Contest(rounds: effort.rounds(9))
        contest.add(repeating: 100_000) { count in
            for step in 0..<count { consume(dictionary[step &* 7_919_317 % self.count]) }
        }
        contest.add(repeating: 100_000) { count in
            for step in 0..<count { consume(try await map.request(key: step &* 7_919_317 % self.count)) }
        }
        // The smallest program that shows the cost of a lock: a processor cannot start the next access to
        // memory before the lock is taken.
        let locked = LockedDictionary<Int, Int>()
        for key in 0..<self.count { locked.set(key, for: key) }
        contest.add(repeating: 100_000) { count in
            for step in 0..<count { consume(locked.fresh(step &* 7_919_317 % self.count)) }
        }
        // The smallest programs with a bounded table: with an index, so that entries lie densely, and with the
        // entries in the table itself.
        let indexed = Locked(IndexedTable(count: self.count))
        contest.add(repeating: 100_000) { count in
            for step in 0..<count {
                let key = step &* 7_919_317 % self.count
                consume(indexed.withLock { $0.hit(key, at: 1) })
            }
        }
        let open = Locked(OpenTable(count: self.count))
        contest.add(repeating: 100_000) { count in
            for step in 0..<count {
                let key = step &* 7_919_317 % self.count
                consume(open.withLock { $0.hit(key, at: 1) })
            }
        }
        let outcome = try await contest.play()
        let limit = ("a dictionary without a lock", 0)
        return [
            Row(group, "a hit, keys in no order", outcome, figure: 1, limit: limit, goals: [.timesLimit(1.5)]),
            Row(group, "the same from a dictionary with a lock", outcome, figure: 2, limit: limit),
            Row(group, "the same from an index and dense entries with a lock", outcome, figure: 3, limit: limit),
            Row(group, "the same from a table of entries with a lock, 86 bytes each", outcome, figure: 4, limit: limit),
        ]
    }

    /// Repeats an operation beside a task that looks up an entry continuously.
    ///
    /// - Returns: The time of each operation, and the longest lookup during it.
    private static func beside(
        _ map: MultiplexerMap<Int, Int>,
        _ rounds: Int,
        _ body: () async throws -> Double
    ) async throws -> Outcome {
        let (longest, isOver) = (Locked(0.0), Locked(false))
        var figures: [[Double]] = [[], []]
        try await withThrowingTaskGroup { group in
            group.addTask {
                let clock = ContinuousClock()
                while !isOver.withLock({ $0 }) {
                    let start = clock.now
                    consume(map.cachedValue(key: 7))
                    let time = start.duration(to: clock.now).inNanoseconds
                    longest.withLock { $0 = max($0, time) }
                }
            }
            for _ in 0..<rounds {
                longest.withLock { $0 = 0 }
                figures[0].append(try await body())
                figures[1].append(longest.withLock { $0 })
            }
            isOver.withLock { $0 = true }
            try await group.waitForAll()
        }
        return Outcome(figures: figures)
    }
}

/// A key, a value, the facts of a hit and the places of two neighbours in the order of eviction: 64 bytes.
private struct FullEntry: Sendable {
    var key = -1
    var value = 0
    var fetchedAt: Int64 = 0
    var hitAge: Int64 = .max
    var revision: UInt64 = 0
    var cold: UInt64 = 0
    var neighbours: UInt64 = 0
    var uses: UInt64 = 0

    mutating func hit(at now: Int64) -> Int? {
        guard now - self.fetchedAt < self.hitAge else { return nil }
        if self.uses < 3 { self.uses += 1 }
        return self.value
    }
}

/// Entries in an array, and an index from hashes to places: a look-up has two dependent accesses to memory.
private struct IndexedTable: Sendable {
    var index = FlatIndex()
    var entries: ContiguousArray<FullEntry> = []

    init(count: Int) {
        for key in 0..<count { self.entries.append(FullEntry(key: key, value: key)) }
        self.index.rebuild(room: count, count: count) { FlatIndex.hash($0) }
    }

    mutating func hit(_ key: Int, at now: Int64) -> Int? {
        guard let hit = self.index.find(hash: FlatIndex.hash(key), where: { self.entries[$0].key == key }) else {
            return nil
        }
        return self.entries[hit.number].hit(at: now)
    }
}

/// Entries in the table itself: a look-up has one access to memory, but a quarter of the places is empty.
private struct OpenTable: Sendable {
    var entries: ContiguousArray<FullEntry>

    init(count: Int) {
        self.entries = ContiguousArray(repeating: FullEntry(), count: count / 3 * 4 + 4)
        for key in 0..<count {
            var place = self.home(of: key)
            while self.entries[place].key >= 0 { place = (place + 1) % self.entries.count }
            (self.entries[place].key, self.entries[place].value) = (key, key)
        }
    }

    private func home(of key: Int) -> Int {
        Int((UInt64(FlatIndex.hash(key)) &* UInt64(self.entries.count)) &>> FlatIndex.hashBits)
    }

    mutating func hit(_ key: Int, at now: Int64) -> Int? {
        var place = self.home(of: key)
        while self.entries[place].key != key {
            guard self.entries[place].key >= 0 else { return nil }
            place = place + 1 == self.entries.count ? 0 : place + 1
        }
        return self.entries[place].hit(at: now)
    }
}

/// A store that discards every entry.
private struct ForgetfulStore: MuxStore {
    func sessionEpoch() -> UInt64 { 0 }
    func raiseSessionEpoch(to epoch: UInt64) {}
    func load(_ name: MuxStoreKey) -> MuxStoredEntry? { nil }
    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) {}
    func remove(_ names: [MuxStoreKey], durability: MuxDurability) {}
    func removeAll(domain: String, durability: MuxDurability) {}
    func removeEverything() {}
    func statistics() -> JournalStore.Statistics { JournalStore.Statistics() }
}
