import Foundation
import MuxKit

/// What a map takes in memory, what its table costs per hit, and how often it finds what is asked for.
enum MemoryBenchmark {
    private static let count = 1_000_000

    static func run() async throws {
        try await self.measureBytes()
        try await self.playHits()
        self.measureRatios()
    }

    // MARK: - Bytes

    private static func measureBytes() async throws {
        print("Resident memory per entry, 1,000,000 Int keys and values, all told")
        let policy = MuxPolicy(maximumCount: Self.count)
        let repository = MuxRepository(store: MemoryStore())
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: repository) { $0 }
        Self.report("MultiplexerMap, bounded by 1,000,000; goal 70") {
            for key in 0..<Self.count { map.store(key, key: key) }
        }
        Self.report("what 2,000,000 more distinct keys add") {
            for key in Self.count..<3 * Self.count { map.store(key, key: key) }
        }
        var table = BoundedTable<Int, Int>(maximumCount: Self.count)
        Self.report("BoundedTable alone") {
            for key in 0..<Self.count { table.insert(key, of: key) }
        }
        var dictionary: [Int: Int] = [:]
        Self.report("Dictionary") {
            for key in 0..<Self.count { dictionary[key] = key }
        }
        print("  \(map.statistics.evictions) evictions, \(table.count) and \(dictionary.count) entries\n")
    }

    private static func report(_ name: String, _ fill: () -> Void) {
        let before = Self.residentBytes
        fill()
        guard let before, let after = Self.residentBytes else { return print("  \(name): not known here") }
        print(String(format: "  %@ %9.1f bytes", Contest.padded(name), Double(after - before) / Double(Self.count)))
    }

    /// How much memory the process occupies; `nil` where there is no `/proc`.
    private static var residentBytes: Int? {
        guard let text = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8) else { return nil }
        return text.split(separator: " ").dropFirst().first.flatMap { Int($0) }.map { $0 * 4_096 }
    }

    // MARK: - Hits

    private static func playHits() async throws {
        for count in [1_000, 100_000] {
            var dictionary: [Int: Int] = [:]
            var table = BoundedTable<Int, Int>(maximumCount: count)
            for key in 0..<count {
                dictionary[key] = key
                table.insert(key, of: key)
            }
            let cache = MemoryCache<Int, Int>(maximumCount: count)
            for key in 0..<count { cache.insert(key, for: key) }
            var sum = 0
            var contest = Contest("A hit among \(count) Int keys, without ages and flights", repetitions: 200_000)
            contest.add("Dictionary, without a lock") { repetitions in
                for step in 0..<repetitions { sum &+= dictionary[step &* 7_919 % count] ?? 0 }
            }
            contest.add("BoundedTable, touched, without a lock") { repetitions in
                for step in 0..<repetitions { sum &+= table.lookup(step &* 7_919 % count) ?? 0 }
            }
            contest.add("MemoryCache, locked and counted") { repetitions in
                for step in 0..<repetitions { sum &+= cache.value(for: step &* 7_919 % count) ?? 0 }
            }
            try await contest.play()
            if sum == 1 { print("") }
        }
    }

    // MARK: - Ratios

    private static func measureRatios() {
        print("Hit ratio, 10,000 of 1,000,000 keys, the first fifth of 5,000,000 requests not counted")
        let trace = ZipfTrace(keys: Self.count)
        Self.measureRatio("Zipf 1.0; goal 66.0") { random, _ in trace.key(&random) }
        Self.measureRatio("drifting Zipf 1.0; goal 60.3") { random, step in
            (trace.key(&random) + step / 1_000) % Self.count
        }
        print("")
    }

    private static func measureRatio(_ name: String, _ next: (inout SplitMix, Int) -> Int) {
        let requests = 5_000_000
        var random = SplitMix(state: 1)
        var table = BoundedTable<Int, Int>(maximumCount: 10_000)
        var old = LeastRecentlyUsed(capacity: 10_000)
        var hits = 0
        var oldHits = 0
        for step in 0..<requests {
            let key = next(&random, step)
            let isHit = table.lookup(key) != nil
            if !isHit { table.insert(key, of: key) }
            let isOldHit = old.request(key)
            guard step >= requests / 5 else { continue }
            hits += isHit ? 1 : 0
            oldHits += isOldHit ? 1 : 0
        }
        let counted = Double(requests) * 0.8 / 100
        print(
            String(
                format: "  %@ %6.1f %%   least recently used %6.1f %%",
                Contest.padded(name),
                Double(hits) / counted,
                Double(oldHits) / counted
            )
        )
    }
}
