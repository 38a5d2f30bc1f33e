/// The hashes of what was evicted lately, first in, first out: who comes back soon has been missed.
package struct GhostQueue: Sendable {
    /// How many evictions are remembered.
    package let limit: Int

    private var ring: ContiguousArray<UInt32> = []
    private var next = 0
    private var index = FlatIndex()

    package init(limit: Int) { self.limit = max(0, min(limit, 1 << 24)) }

    /// Notes an eviction, and forgets the oldest one beyond the limit.
    package mutating func remember(_ hash: UInt32) {
        guard self.limit > 0 else { return }
        _ = self.take(hash)
        if self.ring.count < self.limit {
            if !self.index.hasRoom(for: self.ring.count + 1) {
                self.grow()
            }
            self.ring.append(hash)
            self.index.insert(self.ring.count - 1, hash: hash)
            return
        }
        let place = self.next
        self.next = place + 1 == self.limit ? 0 : place + 1
        if let oldest = self.index.find(hash: self.ring[place], where: { $0 == place }) {
            self.index.remove(at: oldest.position) { self.ring[$0] }
        }
        self.ring[place] = hash
        self.index.insert(place, hash: hash)
    }

    /// Forgets an eviction.
    ///
    /// - Returns: Whether it was remembered.
    package mutating func take(_ hash: UInt32) -> Bool {
        guard let hit = self.index.find(hash: hash, where: { self.ring[$0] == hash }) else { return false }
        self.index.remove(at: hit.position) { self.ring[$0] }
        return true
    }

    /// How many evictions are remembered; counts them.
    package var count: Int { self.index.occupancy }

    /// Words of storage in use.
    package var footprint: Int { self.ring.count + self.index.size }

    private mutating func grow() {
        var places: [Int] = []
        for place in self.ring.indices {
            let isKnown = self.index.find(hash: self.ring[place]) { $0 == place } != nil
            if isKnown { places.append(place) }
        }
        self.index.rebuild(room: min(self.limit, max(12, self.ring.count * 2)), count: 0) { _ in 0 }
        for place in places { self.index.insert(place, hash: self.ring[place]) }
    }
}
