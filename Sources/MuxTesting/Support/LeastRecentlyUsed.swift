/// The cache that everybody writes first, to compare with: who was not asked for the longest goes.
package struct LeastRecentlyUsed: Sendable {
    package let capacity: Int
    private var times: [Int: Int] = [:]
    private var queue: [(key: Int, time: Int)] = []
    private var head = 0
    private var time = 0

    package init(capacity: Int) { self.capacity = capacity }

    /// Asks for `key`, which is let in if it is not there; returns whether it was.
    package mutating func request(_ key: Int) -> Bool {
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
