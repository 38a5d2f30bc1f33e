import MuxKit

/// A plain model of a ``BoundedTable``: arrays with linear search.
struct ReferenceTable {
    struct Entry: Equatable {
        var key: Int
        var value: Int
        var uses = 0
    }

    let capacity: Int?
    var small: [Entry] = []
    var main: [Entry] = []
    var aside: [Entry] = []
    /// The hashes of the last evictions from the small queue, oldest first; `nil` for a removed hash.
    var smallGhosts: [UInt32?] = []
    /// The hashes of the last evictions from the main queue.
    var mainGhosts: [UInt32?] = []
    var share = 0.01
    var owed = 0.0
    var isFull = false
    var idle = 0

    var values: [Int: Int] {
        Dictionary(uniqueKeysWithValues: (self.small + self.main + self.aside).map { ($0.key, $0.value) })
    }

    mutating func lookup(_ key: Int) -> Int? {
        self.change(key) { entry in
            entry.uses = min(3, entry.uses + 1)
            return entry.value
        }
    }

    /// Returns the evicted keys.
    mutating func insert(_ value: Int, of key: Int, mayGo: (Int) -> Bool) -> [Int] {
        if self.capacity == 0, mayGo(value) {
            _ = self.remove(key)
            return [key]
        }
        var evicted: [Int] = []
        if self.change(key, { $0.value = value }) != nil {
            if mayGo(value), let index = self.aside.firstIndex(where: { $0.key == key }) {
                let entry = self.aside.remove(at: index)
                if entry.uses < 2 { self.small.append(entry) } else { self.main.append(entry) }
            }
            while let capacity, self.values.count > capacity, let key = self.evict(mayGo) { evicted.append(key) }
            return evicted
        }
        while let capacity, self.values.count + 1 > capacity, let key = self.evict(mayGo) { evicted.append(key) }
        self.admit(Entry(key: key, value: value))
        return evicted
    }

    private mutating func admit(_ newcomer: Entry) {
        var entry = newcomer
        let hash = FlatIndex.hash(entry.key)
        let age = Self.take(hash, from: &self.smallGhosts)
        if let age, age < self.near {
            self.share = min(0.9, self.share + 1 / self.active)
            self.owed = max(0, self.owed - 1 / self.active * self.room)
        }
        if let age = Self.take(hash, from: &self.mainGhosts), age < self.near { self.lower(1) }
        if let age, age < self.places - self.places / 10 {
            if self.main.isEmpty || self.main.prefix(8).contains(where: { $0.uses == 0 }) {
                self.idle = 0
                return self.main.append(entry)
            }
            entry.uses = 1
        }
        self.small.append(entry)
        if self.small.count > 1, Double(self.small.count) >= self.smallRoom + 1 {
            if !self.isFull {
                self.main.append(self.small.removeFirst())
            } else if self.owed >= 1 {
                self.owed -= 1
                self.main.append(self.small.removeFirst())
            }
        } else {
            self.owed = 0
        }
    }

    private var active: Double { Double(max(1, self.small.count + self.main.count)) }
    private var places: Int { max(1, (self.capacity ?? .max) - self.aside.count) }
    private var room: Double { Double(self.places) }
    private var smallRoom: Double { max(1, self.share * self.room) }
    private var near: Int { max(1, self.places / 10) }

    private mutating func lower(_ count: Double) {
        let former = self.share
        self.share = min(former, max(1 / self.active, former - count * (1 / self.active)))
        self.owed += (former - self.share) * self.room
    }

    private static func take(_ hash: UInt32, from ghosts: inout [UInt32?]) -> Int? {
        guard let place = ghosts.lastIndex(of: hash) else { return nil }
        ghosts[place] = nil
        return ghosts.count - 1 - place
    }

    mutating func remove(_ key: Int) -> Int? {
        let value = self.values[key]
        self.small.removeAll { $0.key == key }
        self.main.removeAll { $0.key == key }
        self.aside.removeAll { $0.key == key }
        return value
    }

    private mutating func change<R>(_ key: Int, _ body: (inout Entry) -> R) -> R? {
        if let index = self.small.firstIndex(where: { $0.key == key }) { return body(&self.small[index]) }
        if let index = self.main.firstIndex(where: { $0.key == key }) { return body(&self.main[index]) }
        if let index = self.aside.firstIndex(where: { $0.key == key }) { return body(&self.aside[index]) }
        return nil
    }

    private mutating func evict(_ mayGo: (Int) -> Bool) -> Int? {
        self.isFull = true
        while !self.small.isEmpty || !self.main.isEmpty {
            let isSmallsTurn = Double(self.small.count + 1) > self.smallRoom || self.main.isEmpty
            guard isSmallsTurn, var entry = self.small.first else {
                var entry = self.main.removeFirst()
                if !mayGo(entry.value) {
                    self.aside.append(entry)
                } else if entry.uses > 0 {
                    entry.uses -= 1
                    self.main.append(entry)
                    self.lower(1 / 64)
                } else {
                    self.remember(entry.key, in: &self.mainGhosts, (self.capacity ?? 0) / 10)
                    return entry.key
                }
                continue
            }
            if !mayGo(entry.value) {
                self.aside.append(self.small.removeFirst())
                continue
            }
            if entry.uses > 1 {
                entry.uses = 0
                self.small.removeFirst()
                self.main.append(entry)
                continue
            }
            if var probed = self.main.first {
                if !mayGo(probed.value) {
                    self.aside.append(self.main.removeFirst())
                    continue
                }
                if probed.uses > 0 {
                    probed.uses -= 1
                    self.main.removeFirst()
                    self.main.append(probed)
                    self.lower(1 / 64)
                } else {
                    self.idle += 1
                    if self.idle == 64 {
                        self.idle = 0
                        entry.uses = 0
                        self.small.removeFirst()
                        self.main.append(entry)
                        self.main.removeFirst()
                        self.remember(probed.key, in: &self.mainGhosts, (self.capacity ?? 0) / 10)
                        return probed.key
                    }
                }
            }
            self.small.removeFirst()
            self.remember(entry.key, in: &self.smallGhosts, (self.capacity ?? 0) - (self.capacity ?? 0) / 10)
            return entry.key
        }
        return nil
    }

    private func remember(_ key: Int, in ghosts: inout [UInt32?], _ limit: Int) {
        let hash = FlatIndex.hash(key)
        if let former = ghosts.lastIndex(of: hash) { ghosts[former] = nil }
        ghosts.append(hash)
        if ghosts.count > max(1, limit) { ghosts.removeFirst() }
    }
}
