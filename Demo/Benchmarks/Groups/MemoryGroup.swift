import MuxKit

/// Resident memory; unknown without `/proc`.
enum MemoryGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let count = 1_000_000
        let map = self.map(count)
        let filled = self.growth { for key in 0..<count { map.store(key, key: key) } }
        let ghosts = self.growth { for key in count..<2 * count { map.store(key, key: key) } }
        var dictionary: [Int: Int] = [:]
        let plain = self.growth { for key in 0..<count { dictionary[key] = key } }
        consume(dictionary)
        let instead = plain.map { Double($0) / Double(count) }
        func row(_ name: String, _ bytes: Int?) -> Row {
            let figure = bytes.map { Double($0) / Double(count) }
            return Row(
                group,
                name,
                unit: .bytes,
                figure: figure,
                limit: instead.map {
                    Row.Reference(name: "dictionary without ages or bounds", value: $0, ratio: (figure ?? .nan) / $0)
                },
                goals: [.atMost(70)]
            )
        }
        return [
            row("1,000,000 Int keys and values, per entry", filled),
            row("the same after 1,000,000 more keys", filled.flatMap { filled in ghosts.map { filled + $0 } }),
            self.churn(group, effort.isLong ? 10_000_000 : 600_000),
        ]
    }

    /// The growth of a bounded map's memory while many keys pass through the map.
    private static func churn(_ group: String, _ keys: Int) -> Row {
        let map = self.map(10_000)
        for key in 0..<100_000 { map.store(key, key: key) }
        let growth = self.growth { for key in 100_000..<keys { map.store(key, key: key) } }
        return Row(
            group,
            "growth by \(keys / 1_000),000 keys, bound 10,000",
            unit: .bytes,
            figure: growth.map(Double.init),
            goals: [.atMost(500_000)]
        )
    }

    static func map(_ bound: Int) -> MultiplexerMap<Int, Int> {
        let policy = MuxPolicy(maximumCount: bound)
        return MultiplexerMap<Int, Int>(policy: policy, repository: MuxRepository(store: MemoryStore())) { $0 }
    }

    /// The growth of resident memory during `body`.
    static func growth(_ body: () -> Void) -> Int? {
        Allocations.trim()
        let before = Allocations.residentBytes
        body()
        Allocations.trim()
        return before.flatMap { before in Allocations.residentBytes.map { $0 - before } }
    }
}
