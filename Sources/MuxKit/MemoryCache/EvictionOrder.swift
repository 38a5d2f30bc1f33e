/// The order of eviction: S3-FIFO over numbered elements.
///
/// A new element enters the small queue, a tenth of all. If it is used twice before it gets to the end, it moves to the main
/// queue; otherwise it is evicted and its hash remembered as a ghost: if it returns soon it enters the main queue. There, the
/// oldest element is evicted unless it was used since its last turn. A use increments a counter up to three and moves nothing.
/// An element that may not be evicted is set aside until it may.
///
/// Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1.
@usableFromInline
package struct EvictionOrder: Sendable {
    @usableFromInline
    package enum Queue: UInt32, Sendable {
        /// New elements, on probation.
        case small
        /// Elements that were used.
        case main
        /// Elements that may not be evicted.
        case aside
    }

    /// A node of a queue; the word holds the hash (28 bits), the queue (2) and the number of uses (2).
    @usableFromInline
    struct Node: Sendable {
        @usableFromInline var word: UInt32
        var newer: UInt32
        var older: UInt32

        var hash: UInt32 { self.word >> 4 }
        @inlinable var uses: UInt32 {
            get { self.word & 3 }
            set { self.word = self.word & ~3 | newValue }
        }
        var queue: Queue {
            get { Queue(rawValue: self.word >> 2 & 3) ?? .main }
            set { self.word = self.word & ~12 | newValue.rawValue << 2 }
        }
    }

    private struct List: Sendable {
        var newest = EvictionOrder.none
        var oldest = EvictionOrder.none
        var count = 0
    }

    private static let none = UInt32.max

    @usableFromInline var nodes: ContiguousArray<Node> = []
    private var small = List()
    private var main = List()
    private var aside = List()
    package private(set) var ghosts: GhostQueue

    package init(ghosts: Int) { self.ghosts = GhostQueue(limit: ghosts) }

    package var count: Int { self.nodes.count }
    package var capacity: Int { self.nodes.capacity }
    package func hash(of number: Int) -> UInt32 { self.nodes[number].hash }
    @usableFromInline
    package func queue(of number: Int) -> Queue { self.nodes[number].queue }

    package func count(in queue: Queue) -> Int { self[queue].count }

    // MARK: - Events

    /// An element was added; its number is the former count.
    @usableFromInline
    package mutating func appended(hash: UInt32) {
        let queue: Queue = self.ghosts.take(hash) ? .main : .small
        self.nodes.append(Node(word: hash << 4, newer: Self.none, older: Self.none))
        self.push(self.nodes.count - 1, onto: queue)
    }

    /// An element was used.
    @inlinable
    @inline(__always)
    package mutating func touched(_ number: Int) {
        let uses = self.nodes[number].uses
        if uses < 3 { self.nodes[number].uses = uses + 1 }
    }

    /// An element that was set aside may be evicted now.
    @usableFromInline
    package mutating func released(_ number: Int) {
        guard self.nodes[number].queue == .aside else { return }
        self.unlink(number)
        self.push(number, onto: .main)
    }

    /// An element was removed; the last one takes its number.
    package mutating func removed(_ number: Int) {
        self.unlink(number)
        let last = self.nodes.removeLast()
        guard number < self.nodes.count else { return }
        self.nodes[number] = last
        let name = UInt32(truncatingIfNeeded: number)
        if last.newer == Self.none { self[last.queue].newest = name } else { self.nodes[Int(last.newer)].older = name }
        if last.older == Self.none { self[last.queue].oldest = name } else { self.nodes[Int(last.older)].newer = name }
    }

    /// All elements were removed; also removes the ghosts.
    package mutating func removedAll(keepingCapacity: Bool) {
        self.nodes.removeAll(keepingCapacity: keepingCapacity)
        self.small = List()
        self.main = List()
        self.aside = List()
        self.ghosts = GhostQueue(limit: self.ghosts.limit)
    }

    package mutating func reserve(_ room: Int) { self.nodes.reserveCapacity(room) }

    /// Shrinks the storage to `room` elements.
    package mutating func reallocate(room: Int) {
        var nodes: ContiguousArray<Node> = []
        nodes.reserveCapacity(room)
        nodes.append(contentsOf: self.nodes)
        self.nodes = nodes
    }

    // MARK: - Choosing

    /// Chooses the element to evict, which is not removed yet.
    ///
    /// - Parameter mayGo: Whether an element may be evicted; one that may not is set aside.
    /// - Returns: Its number; `nil` if no element may be evicted.
    /// - Complexity: O(1), on average over many.
    @usableFromInline
    package mutating func victim(mayGo: (Int) -> Bool) -> Int? {
        while true {
            let isSmallsTurn = self.small.count >= max(1, (self.small.count + self.main.count) / 10)
            let queue: Queue = self.small.count > 0 && (isSmallsTurn || self.main.count == 0) ? .small : .main
            let oldest = self[queue].oldest
            guard oldest != Self.none else { return nil }
            let number = Int(oldest)
            guard mayGo(number) else {
                self.move(number, to: .aside)
                continue
            }
            let uses = self.nodes[number].uses
            switch queue {
            case .small where uses > 1:
                self.move(number, to: .main)
            case .main where uses > 0:
                self.nodes[number].uses = uses - 1
                self.move(number, to: .main)
            case .small:
                self.ghosts.remember(self.nodes[number].hash)
                return number
            case .main, .aside:
                return number
            }
        }
    }

    // MARK: - Lists

    private subscript(queue: Queue) -> List {
        get {
            switch queue {
            case .small: self.small
            case .main: self.main
            case .aside: self.aside
            }
        }
        set {
            switch queue {
            case .small: self.small = newValue
            case .main: self.main = newValue
            case .aside: self.aside = newValue
            }
        }
    }

    private mutating func move(_ number: Int, to queue: Queue) {
        self.unlink(number)
        self.push(number, onto: queue)
    }

    private mutating func push(_ number: Int, onto queue: Queue) {
        var list = self[queue]
        let name = UInt32(truncatingIfNeeded: number)
        self.nodes[number].queue = queue
        self.nodes[number].newer = Self.none
        self.nodes[number].older = list.newest
        if list.newest == Self.none { list.oldest = name } else { self.nodes[Int(list.newest)].newer = name }
        list.newest = name
        list.count += 1
        self[queue] = list
    }

    private mutating func unlink(_ number: Int) {
        let node = self.nodes[number]
        var list = self[node.queue]
        if node.newer == Self.none { list.newest = node.older } else { self.nodes[Int(node.newer)].older = node.older }
        if node.older == Self.none { list.oldest = node.newer } else { self.nodes[Int(node.older)].newer = node.newer }
        list.count -= 1
        self[node.queue] = list
    }

    // MARK: - Checking

    /// The numbers in a queue with their uses, oldest first.
    package func content(of queue: Queue) -> [(number: Int, uses: Int)] {
        var content: [(number: Int, uses: Int)] = []
        var name = self[queue].oldest
        while name != Self.none, content.count <= self.nodes.count {
            content.append((Int(name), Int(self.nodes[Int(name)].uses)))
            name = self.nodes[Int(name)].newer
        }
        return content
    }

    /// A broken invariant; `nil` if there is none.
    package func violation() -> String? {
        var total = 0
        for queue in [Queue.small, .main, .aside] {
            let content = self.content(of: queue)
            total += content.count
            if content.count != self[queue].count {
                return "\(queue) counts \(self[queue].count), has \(content.count)"
            }
            if content.contains(where: { self.nodes[$0.number].queue != queue }) { return "\(queue) has a stranger" }
            var older = Self.none
            for (number, _) in content {
                if self.nodes[number].older != older { return "\(queue) is not linked back" }
                older = UInt32(truncatingIfNeeded: number)
            }
            if self[queue].newest != older { return "\(queue) ends elsewhere" }
        }
        if total != self.nodes.count { return "\(self.nodes.count) elements, \(total) in queues" }
        if self.ghosts.count > self.ghosts.limit { return "too many ghosts" }
        return nil
    }
}

/// The hashes of the last evicted elements, first in, first out.
package struct GhostQueue: Sendable {
    package let limit: Int

    private var ring: ContiguousArray<UInt32> = []
    private var next = 0
    private var index = FlatIndex()

    package init(limit: Int) { self.limit = max(0, min(limit, 1 << 24)) }

    /// Adds a hash, and removes the oldest one beyond the limit.
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

    /// Removes a hash; returns whether it was present.
    package mutating func take(_ hash: UInt32) -> Bool {
        guard let hit = self.index.find(hash: hash, where: { self.ring[$0] == hash }) else { return false }
        self.index.remove(at: hit.position) { self.ring[$0] }
        return true
    }

    /// The number of hashes; O(n).
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
