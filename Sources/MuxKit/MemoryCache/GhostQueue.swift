/// The hashes of the last evicted elements, first in, first out.
package struct GhostQueue: Sendable {
    package let limit: Int

    private var ring: ContiguousArray<UInt32> = []
    private var next = 0
    private var index = FlatIndex()

    /// Makes an empty queue; the limit is at most 2^24 hashes, which use about 160 MB.
    package init(limit: Int) { self.limit = max(0, min(limit, 1 << 24)) }

    /// Adds a hash, and removes the hash that was added `limit` additions ago, if still present.
    ///
    /// A hash that is present already is then present twice.
    ///
    /// - Parameter hash: A hash of ``FlatIndex/hash(_:)``, below 2^28.
    package mutating func remember(_ hash: UInt32) {
        guard self.limit > 0 else { return }
        if self.ring.count < self.limit {
            if !self.index.hasRoom(for: self.ring.count + 1) { self.grow() }
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

    /// Removes a hash, once; the hash keeps its place in ``ring``.
    ///
    /// - Parameter hash: A hash of ``FlatIndex/hash(_:)``, below 2^28.
    /// - Returns: The number of hashes that were added later; `nil` if absent.
    @discardableResult
    package mutating func take(_ hash: UInt32) -> Int? {
        guard let hit = self.index.find(hash: hash, where: { self.ring[$0] == hash }) else { return nil }
        self.index.remove(at: hit.position) { self.ring[$0] }
        let newest = self.next + self.ring.count - 1
        return (newest - hit.number) % self.ring.count
    }

    /// The number of hashes; O(n).
    package var count: Int { self.index.occupancy }

    /// The number of words of storage in use.
    package var footprint: Int { self.ring.count + self.index.size }

    private mutating func grow() {
        let former = self.index
        // Reserves the limit early, as ``BoundedTable`` does: with doubling alone, the allocator would retain
        // some of the former, large arrays.
        let count = self.ring.count
        let room = count >= self.limit / 8 ? self.limit : max(12, count * 2)
        self.ring.reserveCapacity(room)
        self.index.rebuild(room: room, count: 0) { _ in 0 }
        for (place, hash) in self.ring.enumerated() where former.find(hash: hash, where: { $0 == place }) != nil {
            self.index.insert(place, hash: hash)
        }
    }
}
