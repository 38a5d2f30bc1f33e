import MuxKit

/// What a ``BoundedTable`` has to do, written as plainly as can be: arrays that are searched.
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
    /// The hashes of the last evictions from the small queue, oldest first; `nil` for one that was taken back.
    var ghosts: [UInt32?] = []

    var values: [Int: Int] {
        Dictionary(uniqueKeysWithValues: (self.small + self.main + self.aside).map { ($0.key, $0.value) })
    }

    mutating func lookup(_ key: Int) -> Int? {
        self.change(key) { entry in
            entry.uses = min(3, entry.uses + 1)
            return entry.value
        }
    }

    /// Returns the keys of what was evicted.
    mutating func insert(_ value: Int, of key: Int, mayGo: (Int) -> Bool) -> [Int] {
        if self.capacity == 0, mayGo(value) {
            _ = self.remove(key)
            return [key]
        }
        var evicted: [Int] = []
        if self.change(key, { $0.value = value }) != nil {
            if mayGo(value), let index = self.aside.firstIndex(where: { $0.key == key }) {
                self.main.append(self.aside.remove(at: index))
            }
            while let capacity, self.values.count > capacity, let key = self.evict(mayGo) { evicted.append(key) }
            return evicted
        }
        while let capacity, self.values.count + 1 > capacity, let key = self.evict(mayGo) { evicted.append(key) }
        let hash = FlatIndex.hash(key)
        if let ghost = self.ghosts.lastIndex(of: hash) {
            self.ghosts[ghost] = nil
            self.main.append(Entry(key: key, value: value))
        } else {
            self.small.append(Entry(key: key, value: value))
        }
        return evicted
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
        while !self.small.isEmpty || !self.main.isEmpty {
            let target = max(1, (self.small.count + self.main.count) / 10)
            if !self.small.isEmpty, self.small.count >= target || self.main.isEmpty {
                let entry = self.small.removeFirst()
                if !mayGo(entry.value) {
                    self.aside.append(entry)
                } else if entry.uses > 1 {
                    self.main.append(entry)
                } else {
                    self.remember(FlatIndex.hash(entry.key))
                    return entry.key
                }
            } else {
                var entry = self.main.removeFirst()
                if !mayGo(entry.value) {
                    self.aside.append(entry)
                } else if entry.uses > 0 {
                    entry.uses -= 1
                    self.main.append(entry)
                } else {
                    return entry.key
                }
            }
        }
        return nil
    }

    private mutating func remember(_ hash: UInt32) {
        let limit = self.capacity.map { $0 - $0 / 10 } ?? 0
        guard limit > 0 else { return }
        if let former = self.ghosts.lastIndex(of: hash) { self.ghosts[former] = nil }
        self.ghosts.append(hash)
        if self.ghosts.count > limit { self.ghosts.removeFirst() }
    }
}
