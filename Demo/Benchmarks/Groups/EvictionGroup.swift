import MuxKit
import MuxTesting

/// Hit ratios on a stationary trace and on drifting ones.
enum EvictionGroup {
    private static let keys = 1_000_000
    private static let capacity = 10_000

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let trace = ZipfTrace(keys: self.keys)
        let requests = effort.isLong ? 5_000_000 : 2_000_000
        return [
            self.row(group, "Zipf 1.0", requests) { random, _ in trace.key(&random) },
            self.row(group, "Zipf 1.0, drifting by a key in 1,000 requests", requests) { random, step in
                (trace.key(&random) + step / 1_000) % self.keys
            },
            self.row(group, "Zipf 1.0, drifting by a key in 40 requests", requests) { random, step in
                (trace.key(&random) + step / 40) % self.keys
            },
        ]
    }

    /// The hit ratio of a trace without its first fifth, in which the caches fill.
    private static func row(
        _ group: String,
        _ name: String,
        _ requests: Int,
        _ next: (inout SplitMix64, Int) -> Int
    ) -> Row {
        var random = SplitMix64(state: 1)
        var table = BoundedTable<Int, Int>(maximumCount: self.capacity)
        var simple = SimpleS3FIFO(capacity: self.capacity)
        var old = LeastRecentlyUsed(capacity: self.capacity)
        var hits = [0, 0, 0]
        for step in 0..<requests {
            let key = next(&random, step)
            let isHit = table.lookup(key) != nil
            if !isHit { table.insert(key, of: key) }
            let others = [simple.request(key), old.request(key)]
            guard step >= requests / 5 else { continue }
            for (index, isHit) in ([isHit] + others).enumerated() where isHit { hits[index] += 1 }
        }
        let ratios = hits.map { Double($0) / (Double(requests) * 0.8) * 100 }
        return Row(
            group,
            name,
            unit: .percent,
            figure: ratios[0],
            limit: Row.Reference(name: "S3-FIFO as published", value: ratios[1], ratio: ratios[0] / ratios[1]),
            instead: Row.Reference(name: "least recently used", value: ratios[2], ratio: ratios[2] / ratios[0]),
            // The order in which ghosts are forgotten differs, by up to a twentieth of a point.
            goals: [.atLeast(ratios[1] - 0.05)]
        )
    }
}
