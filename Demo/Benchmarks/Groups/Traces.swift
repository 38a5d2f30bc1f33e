import Foundation

/// Numbers that look random and are the same for the same seed.
struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        self.state &+= 0x9e37_79b9_7f4a_7c15
        var word = self.state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}

/// Keys as they are asked for: the first is asked for most.
struct ZipfTrace {
    private var sums: [Double] = []

    init(keys: Int) {
        var sum = 0.0
        self.sums = (1...keys).map { rank in
            sum += 1 / Double(rank)
            return sum
        }
    }

    func key(_ random: inout SplitMix) -> Int {
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

/// The cache that everybody writes first, to compare with: who was not asked for the longest goes.
struct LeastRecentlyUsed {
    let capacity: Int
    private var times: [Int: Int] = [:]
    private var queue: [(key: Int, time: Int)] = []
    private var head = 0
    private var time = 0

    init(capacity: Int) { self.capacity = capacity }

    /// Asks for `key`, which is let in if it is not there; returns whether it was.
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
