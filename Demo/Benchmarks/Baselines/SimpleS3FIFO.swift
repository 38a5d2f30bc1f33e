/// S3-FIFO as published, without optimizations: the reference of the map's eviction order.
///
/// Yang, Zhang, Qiu, Yue, Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1.
struct SimpleS3FIFO {
    private struct Queue {
        private var keys: [Int] = []
        private var head = 0

        var count: Int { self.keys.count - self.head }

        mutating func push(_ key: Int) { self.keys.append(key) }

        mutating func pop() -> Int? {
            guard self.head < self.keys.count else { return nil }
            defer {
                self.head += 1
                if self.head > 100_000 {
                    self.keys.removeFirst(self.head)
                    self.head = 0
                }
            }
            return self.keys[self.head]
        }
    }

    private let capacity: Int
    private var small = Queue()
    private var main = Queue()
    private var ghosts = Queue()
    private var isGhost: Set<Int> = []
    /// The frequency counter of each present key, from 0 to 3.
    private var uses: [Int: Int] = [:]

    init(capacity: Int) { self.capacity = capacity }

    /// Looks up `key` and inserts a missing key; returns whether the key was present.
    mutating func request(_ key: Int) -> Bool {
        if let uses = self.uses[key] {
            self.uses[key] = min(uses + 1, 3)
            return true
        }
        while self.uses.count >= self.capacity { self.evict() }
        if self.isGhost.remove(key) != nil { self.main.push(key) } else { self.small.push(key) }
        self.uses[key] = 0
        return false
    }

    private mutating func evict() {
        if self.small.count >= self.capacity / 10 { self.evictSmall() } else { self.evictMain() }
    }

    private mutating func evictSmall() {
        while let key = self.small.pop() {
            if self.uses[key, default: 0] > 1 {
                self.uses[key] = 0
                self.main.push(key)
                if self.main.count > self.capacity * 9 / 10 { return self.evictMain() }
                continue
            }
            self.uses[key] = nil
            self.ghosts.push(key)
            self.isGhost.insert(key)
            while self.ghosts.count > self.capacity * 9 / 10, let old = self.ghosts.pop() { self.isGhost.remove(old) }
            return
        }
    }

    private mutating func evictMain() {
        while let key = self.main.pop() {
            let uses = self.uses[key, default: 0]
            guard uses > 0 else {
                self.uses[key] = nil
                return
            }
            self.uses[key] = uses - 1
            self.main.push(key)
        }
    }
}
