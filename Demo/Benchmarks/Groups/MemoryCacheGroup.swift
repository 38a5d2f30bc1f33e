import MuxKit
import MuxTesting

/// `MemoryCache`, compared with a least-recently-used cache that is part of the app's own code.
enum MemoryCacheGroup {
    private typealias Cache = MemoryCache<UInt64, UInt64>

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        var rows = [try await self.hit(group, effort)]
        let requests = effort.isLong ? 2_000_000 : 400_000
        for (name, capacity, keys) in try self.traces(requests) {
            let orders = name.hasPrefix("scrolling") ? [false, true] : [false]
            for isByRecency in orders {
                let row = isByRecency ? "\(name), by recency" : name
                rows.append(try await self.replay(group, effort, row, capacity, keys.map { UInt64($0) }, isByRecency))
            }
        }
        return rows + [self.allocations(group)] + self.scrolling(group)
    }

    private static func hit(_ group: String, _ effort: Effort) async throws -> Row {
        let count: UInt64 = 1_000
        let cache = Cache()
        let old = LockedLRU<UInt64, UInt64>(capacity: 10_000)
        for key in 0..<count {
            cache.insert(key, for: key)
            old.insert(key, for: key)
        }
        var contest = Contest(rounds: effort.rounds(15))
        contest.add(repeating: 1_000) { steps in
            for step in 0..<UInt64(steps) { consume(cache.value(for: step % count)) }
        }
        contest.add(repeating: 1_000) { steps in
            for step in 0..<UInt64(steps) { consume(old.value(for: step % count)) }
        }
        let outcome = try await contest.play()
        let limit = ("least recently used", 1)
        return Row(group, "a hit, UInt64 keys", outcome, figure: 0, limit: limit, goals: [.atMost(30)])
    }

    private static func traces(_ requests: Int) throws -> [(String, Int, [Int])] {
        let zipf = ZipfTrace(keys: 1_000_000)
        var random = SplitMix64(state: 2)
        var scroll = ScrollTrace(thumbnails: 3_000)
        let skewed = (0..<requests).map { _ in zipf.key(&random) }
        let real = try [("cpp", 500), ("sprite", 1_000), ("2_pools", 450), ("multi3", 2_000)].compactMap { name, size in
            try EvictionGroup.trace(name).map { (name, size, $0) }
        }
        return [
            ("Zipf 1.0, 10,000 of 1,000,000", 10_000, skewed),
            ("scrolling, 500 of 3,000", 500, (0..<requests).map { _ in scroll.next() }),
            ("a loop, 1,000 of 1,500", 1_000, (0..<requests).map { $0 % 1_500 }),
        ] + real
    }

    /// Replays a trace; each missing key is inserted.
    private static func replay(
        _ group: String,
        _ effort: Effort,
        _ name: String,
        _ capacity: Int,
        _ keys: [UInt64],
        _ isByRecency: Bool
    ) async throws -> Row {
        let repeats = max(1, 200_000 / keys.count)
        var contest = Contest(rounds: effort.rounds(9))
        contest.add(times: keys.count * repeats) { _ in
            for _ in 0..<repeats {
                let cache = Cache(maximumCount: capacity, evictsLeastRecentlyUsed: isByRecency)
                for key in keys where cache.value(for: key) == nil { cache.insert(key, for: key) }
            }
        }
        contest.add(times: keys.count * repeats) { _ in
            for _ in 0..<repeats {
                let old = LockedLRU<UInt64, UInt64>(capacity: capacity)
                for key in keys where old.value(for: key) == nil { old.insert(key, for: key) }
            }
        }
        let outcome = try await contest.play()
        let limit = ("least recently used", 1)
        return Row(group, "a request of \(name)", outcome, figure: 0, limit: limit, goals: [.timesLimit(1.3)])
    }

    /// The minimum of several tries, because other threads may allocate.
    private static func allocations(_ group: String) -> Row {
        var least: Int?
        for _ in 0..<5 {
            let cache = Cache(maximumCount: 1_000)
            for key in 0..<UInt64(10_000) { cache.insert(key, for: key) }
            let before = Allocations.begin()
            for key in 10_000..<UInt64(11_000) { cache.insert(key, for: key) }
            guard let count = Allocations.end(since: before) else { break }
            least = min(count, least ?? .max)
        }
        return .count(group, "allocations of 1,000 inserts into a full cache", least, expected: 0)
    }

    /// The misses of a grid that is scrolled back and forth, compared with least recently used.
    private static func scrolling(_ group: String) -> [Row] {
        [200, 500, 1_000, 2_000].map { capacity in
            var scroll = ScrollTrace(thumbnails: 3_000)
            let caches = [false, true].map {
                MemoryCache<Int, Int>(maximumCount: capacity, evictsLeastRecentlyUsed: $0)
            }
            var old = LeastRecentlyUsed(capacity: capacity)
            var misses = 0.0
            for _ in 0..<500_000 {
                let key = scroll.next()
                for cache in caches where cache.value(for: key) == nil { cache.insert(key, for: key) }
                if !old.request(key) { misses += 1 }
            }
            let figures = caches.map { Double($0.statistics.misses) }
            return Row(
                group,
                "misses of 500,000 steps of scrolling, \(capacity) of 3,000, by recency",
                unit: .count,
                figure: figures[1],
                limit: Row.Reference(name: "least recently used", value: misses, ratio: figures[1] / misses),
                instead: Row.Reference(name: "by uses", value: figures[0], ratio: figures[0] / figures[1]),
                goals: [.timesLimit(1.1)]
            )
        }
    }
}
