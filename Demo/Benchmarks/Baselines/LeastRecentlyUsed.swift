import Foundation
import MuxTesting

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

/// The requests of a grid of thumbnails that is scrolled by flings with turns: each step requests the
/// thumbnail that becomes visible.
struct ScrollTrace: Sendable {
    let thumbnails: Int
    private var random = SplitMix64(state: 7)
    private var top = 0
    private var direction = 1
    /// The remaining steps of the fling.
    private var rest = 0

    private static let visible = 24
    /// The mean length of a fling, in steps.
    private static let meanFling = 120.0

    init(thumbnails: Int) { self.thumbnails = thumbnails }

    /// The next thumbnail.
    mutating func next() -> Int {
        while self.rest == 0 {
            if Bool.random(using: &self.random) { self.direction = -self.direction }
            self.rest = Int(-log(Double.random(in: 0.0001..<1, using: &self.random)) * Self.meanFling)
        }
        let isAtEnd = self.top + self.direction < 0 || self.top + self.direction > self.thumbnails - Self.visible
        if isAtEnd { self.direction = -self.direction }
        self.rest -= 1
        self.top += self.direction
        return self.direction > 0 ? self.top + Self.visible - 1 : self.top
    }
}

/// A least-recently-used cache as an app would write it: a class with a lock, a dictionary of places, and a
/// linked list in an array.
final class LockedLRU<Key: Hashable, Value>: @unchecked Sendable {
    private struct Node {
        var key: Key
        var value: Value
        var newer: Int
        var older: Int
    }

    private let lock = NSLock()
    private let capacity: Int
    private var places: [Key: Int] = [:]
    private var nodes: [Node] = []
    private var newest = -1
    private var oldest = -1

    init(capacity: Int) { self.capacity = capacity }

    func value(for key: Key) -> Value? {
        self.lock.withLock {
            guard let place = self.places[key] else { return nil }
            self.makeNewest(place)
            return self.nodes[place].value
        }
    }

    func insert(_ value: Value, for key: Key) {
        self.lock.withLock {
            if let place = self.places[key] {
                self.nodes[place].value = value
                return self.makeNewest(place)
            }
            var place = self.nodes.count
            if place < self.capacity {
                self.nodes.append(Node(key: key, value: value, newer: -1, older: -1))
            } else {
                place = self.oldest
                self.places[self.nodes[place].key] = nil
                self.unlink(place)
                self.nodes[place].key = key
                self.nodes[place].value = value
            }
            self.places[key] = place
            self.link(place)
        }
    }

    private func makeNewest(_ place: Int) {
        guard place != self.newest else { return }
        self.unlink(place)
        self.link(place)
    }

    private func link(_ place: Int) {
        self.nodes[place].newer = -1
        self.nodes[place].older = self.newest
        if self.newest >= 0 { self.nodes[self.newest].newer = place } else { self.oldest = place }
        self.newest = place
    }

    private func unlink(_ place: Int) {
        let (newer, older) = (self.nodes[place].newer, self.nodes[place].older)
        if newer >= 0 { self.nodes[newer].older = older } else { self.newest = older }
        if older >= 0 { self.nodes[older].newer = newer } else { self.oldest = newer }
    }
}
