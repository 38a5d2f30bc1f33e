import Foundation
import MuxKit
import MuxTesting

/// Hit ratios on a stationary trace, on drifting traces, and on real traces if `MUX_TRACES` is the folder of
/// their files.
///
/// The real traces are the traces of the authors of LIRS: a number per line, compressed with gzip.
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
        ] + (try self.realRows(group)) + (try self.weighedRows(group)) + [try await self.miss(group, effort)]
    }

    /// Requests to a full table that inserts every missing key.
    private static func miss(_ group: String, _ effort: Effort) async throws -> Row {
        let table = Locked(BoundedTable<Int, Int>(maximumCount: self.capacity))
        let old = Locked(LeastRecentlyUsed(capacity: self.capacity))
        let trace = ZipfTrace(keys: self.keys)
        var random = SplitMix64(state: 2)
        let keys = Locked((0..<400_000).map { _ in trace.key(&random) })
        var contest = Contest(rounds: effort.rounds(9))
        contest.add(times: 400_000) { _ in
            let keys = keys.withLock { $0 }
            table.withLock { table in for key in keys where table.lookup(key) == nil { table.insert(key, of: key) } }
        }
        contest.add(times: 400_000) { _ in
            let keys = keys.withLock { $0 }
            old.withLock { old in for key in keys { _ = old.request(key) } }
        }
        let outcome = try await contest.play()
        let name = "a request, of which a third is let in"
        return Row(group, name, outcome, figure: 0, instead: ("least recently used", 1))
    }

    /// A trace, a capacity, and hit ratios in percent: of a prototype of the eviction order, and of the best
    /// of eight other orders.
    private typealias Real = (name: String, capacity: Int, prototype: Double, best: Double)

    private static let real: [Real] = [
        ("gli", 1_000, 49.96, 50.72), ("gli", 2_000, 57.96, 57.96), ("cpp", 100, 76.85, 77.68),
        ("cpp", 500, 85.90, 85.91), ("sprite", 400, 71.58, 71.28), ("sprite", 1_000, 89.76, 90.64),
        ("multi1", 500, 56.13, 55.91), ("multi1", 1_500, 80.21, 80.92), ("multi2", 700, 54.01, 54.17),
        ("multi2", 2_000, 70.33, 71.10), ("multi3", 1_000, 51.57, 52.01), ("multi3", 2_000, 61.76, 62.02),
        ("2_pools", 100, 48.51, 47.89), ("2_pools", 450, 51.71, 51.67), ("loop", 512, 50.34, 50.05),
        ("loop", 1_000, 97.44, 97.73),
    ]

    /// The keys of a real trace; `nil` without `MUX_TRACES` or gzip.
    static func trace(_ name: String) throws -> [Int]? {
        guard let folder = ProcessInfo.processInfo.environment["MUX_TRACES"], let gzip = ExternalProgram("gzip") else {
            return nil
        }
        let text = try gzip.output(["-dc", "\(folder)/\(name).trace.gz"])
        return text.split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
    }

    /// Hit ratios by objects and by bytes: the mean over the traces, at capacities of a hundredth, a
    /// twentieth and a fifth of all bytes.
    ///
    /// The logarithms of the sizes of the keys have a standard deviation of 1.5.
    private static func weighedRows(_ group: String) throws -> [Row] {
        var ratios: [(objects: Double, bytes: Double)] = []
        for name in ["cpp", "gli", "sprite", "multi1", "multi2", "multi3", "2_pools"] {
            guard let keys = try self.trace(name) else { return [] }
            let total = Set(keys).reduce(0) { $0 + self.size(of: $1) }
            for part in [100, 20, 5] {
                var table = BoundedTable<Int, Int>(maximumCount: nil, maximumCost: total / part)
                var (hits, served, asked) = (0, 0, 0)
                for key in keys {
                    let size = self.size(of: key)
                    asked += size
                    guard table.lookup(key) != nil else {
                        table.insert(key, of: key, cost: size)
                        continue
                    }
                    hits += 1
                    served += size
                }
                ratios.append((Double(hits) * 100 / Double(keys.count), Double(served) * 100 / Double(asked)))
            }
        }
        let count = Double(ratios.count)
        return [
            Row(group, "by sizes, objects", unit: .percent, figure: ratios.reduce(0) { $0 + $1.objects } / count),
            Row(group, "by sizes, bytes", unit: .percent, figure: ratios.reduce(0) { $0 + $1.bytes } / count),
        ]
    }

    private static func size(of key: Int) -> Int {
        var random = SplitMix64(state: UInt64(truncatingIfNeeded: key) &* 977)
        let spread = (0..<12).reduce(-6.0) { sum, _ in sum + .random(in: 0..<1, using: &random) }
        return max(1, Int(1_000 * exp(1.5 * spread)))
    }

    private static func realRows(_ group: String) throws -> [Row] {
        try self.real.compactMap { real in
            guard let keys = try self.trace(real.name) else { return nil }
            var table = BoundedTable<Int, Int>(maximumCount: real.capacity)
            var hits = 0
            for key in keys {
                if table.lookup(key) != nil { hits += 1 } else { table.insert(key, of: key) }
            }
            let ratio = Double(hits) * 100 / Double(max(1, keys.count))
            return Row(
                group,
                "\(real.name), \(real.capacity) of it",
                unit: .percent,
                figure: ratio,
                instead: Row.Reference(name: "the best of eight", value: real.best, ratio: real.best / ratio),
                goals: [.atLeast(real.prototype - 0.3)]
            )
        }
    }

    /// The hit ratio of a trace without the first fifth, during which the caches fill.
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
            // As for real traces: the order loses some tenths of a point on one trace, and gains more on
            // others.
            goals: [.atLeast(ratios[1] - 0.3)]
        )
    }
}
