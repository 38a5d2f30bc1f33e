/// A cache that evicts the least recently used key: the baseline of the map's eviction order.
///
/// The tests of `BoundedTable` include this file by a symbolic link.
struct LeastRecentlyUsed: Sendable {
    let capacity: Int
    private var times: [Int: Int] = [:]
    private var queue: [(key: Int, time: Int)] = []
    private var head = 0
    private var time = 0

    init(capacity: Int) { self.capacity = capacity }

    /// Looks up `key` and inserts a missing key; returns whether the key was present.
    mutating func request(_ key: Int) -> Bool {
        self.time += 1
        let isHit = self.times.updateValue(self.time, forKey: key) != nil
        self.queue.append((key, self.time))
        while self.times.count > self.capacity {
            let (key, time) = self.queue[self.head]
            self.head += 1
            if self.times[key] == time { self.times[key] = nil }
        }
        if self.head > 100_000 {
            self.queue.removeFirst(self.head)
            self.head = 0
        }
        return isHit
    }
}

/// Keys with the frequencies of Zipf's law, exponent 1: key 0 is the most frequent.
struct ZipfTrace: Sendable {
    private var sums: [Double] = []

    init(keys: Int) {
        var sum = 0.0
        self.sums = (1...keys).map { rank in
            sum += 1 / Double(rank)
            return sum
        }
    }

    /// The next key.
    func key(_ random: inout some RandomNumberGenerator) -> Int {
        let point = Double.random(in: 0..<(self.sums.last ?? 1), using: &random)
        var low = 0
        var high = self.sums.count
        while low < high {
            let middle = (low + high) / 2
            if self.sums[middle] <= point { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
