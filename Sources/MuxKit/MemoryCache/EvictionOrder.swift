/// The order of eviction: S3-FIFO over numbered elements, with an adaptive size of the small queue.
///
/// A new element enters the small queue. The oldest element of the small queue moves to the main queue if the
/// element was used at least twice. Otherwise the element is evicted, and its hash is remembered as a ghost:
/// if the element returns soon, the element enters the main queue. The oldest element of the main queue is
/// evicted if its count of uses is zero. Otherwise the count is decremented, and the element becomes the
/// newest. A use increments the count, up to three, and moves no element. If the oldest element of a queue
/// may not be evicted, the element is set aside until eviction is permitted.
///
/// In S3-FIFO, the small queue has a tenth of all elements. This implementation differs:
///
/// - The **share** of the small queue begins at a hundredth and adapts to the requests. The share rises when
///   an element returns that was evicted from the small queue shortly before. The share falls when an element
///   returns that was evicted from the main queue shortly before, and when the oldest element of the main
///   queue is kept because of its uses.
/// - Until the first eviction, the elements of the small queue beyond its share **overflow** into the main
///   queue, so both queues are full at the first eviction. Afterwards, elements overflow only if the share
///   was lowered.
/// - If the oldest elements of the main queue, at most eight, all have uses, a returning element is
///   **refused** by the main queue, and enters the small queue with one use. An example is a repeated
///   sequence of requests for a few more keys than the table can hold.
/// - Each eviction from the small queue **probes** the main queue's oldest element: an element with uses
///   loses a use, and becomes the newest.
/// - After 64 probes of elements without uses, and without a return in the meantime, the main queue is
///   **renewed** by one element: the probed element is evicted, and the small queue's oldest element moves to
///   the main queue. Then the count of probes begins again.
///
/// With a bound of cost, queues are measured by cost. An eviction, except a renewal of the main queue, then
/// examines the eight oldest elements of the queue, or the oldest eighth of a queue with less than 64
/// elements. Of the elements whose uses permit the eviction, the most costly element is evicted. With equal
/// costs, and at most 9,102 elements, the order is the same as without costs.
///
/// An order **by recency** evicts the least recently used element: all elements that are not set aside are in
/// the main queue, and a use moves the element to the newest place.
///
/// Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1.
@usableFromInline
package struct EvictionOrder: Sendable {
    @usableFromInline
    package enum Queue: UInt32, Sendable {
        /// New elements, on probation.
        case small
        /// Elements that were used at least twice, returned soon, overflowed, or renewed the queue.
        case main
        /// Elements that were set aside, because eviction was not permitted.
        case aside
    }

    /// A node of a queue; the word holds the hash (28 bits), the queue (2 bits) and the count of uses (2
    /// bits).
    @usableFromInline
    struct Node: Sendable {
        @usableFromInline var word: UInt32
        var newer: UInt32
        var older: UInt32

        @inlinable var hash: UInt32 { self.word >> 4 }
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
        /// The sum of `max(1, cost)` of all elements; 0 without a bound of cost.
        var weight: UInt128 = 0
    }

    private static let none = UInt32.max

    @usableFromInline var nodes: ContiguousArray<Node> = []
    private var small = List()
    private var main = List()
    private var aside = List()
    /// The costs of the elements; empty without a bound of cost.
    @usableFromInline package private(set) var costs: ContiguousArray<Int> = []
    /// The maximum total cost; `nil` for no bound, and then costs are not stored.
    private let maximumCost: Int?
    /// The maximum number of elements; infinite for no bound.
    private let maximumCount: Double
    /// The ghosts of the elements that were evicted from the small queue.
    package private(set) var smallGhosts: GhostQueue
    /// The ghosts of the elements that were evicted from the main queue.
    package private(set) var mainGhosts: GhostQueue
    private var steering = Steering()
    /// Whether the least recently used element is evicted.
    @usableFromInline package let isByRecency: Bool

    /// The state that adapts to the requests.
    private struct Steering: Sendable {
        /// The share of the small queue in ``EvictionOrder/room``.
        var share = 0.01
        /// The size, in elements or cost, by which the small queue must still shrink after reductions of its
        /// share.
        var owed = 0.0
        /// Whether an eviction was requested.
        var hasEvicted = false
        /// Probes that found the main queue's oldest element unused, since the last return of an element into
        /// the main queue or the last renewal of the main queue.
        var idle = 0

        /// The number of idle probes after which the main queue is renewed by one element.
        static let idleLimit = 64
        /// The maximum share of the small queue.
        static let greatestShare = 0.9
        /// The maximum number of oldest elements that are searched for the highest cost.
        static let candidates = 8
    }

    /// Makes the order of a table with bounds.
    ///
    /// - Parameters:
    ///   - maximumCount: The maximum number of elements; `nil` for no bound.
    ///   - maximumCost: The maximum total cost; `nil` for no bound.
    ///   - isByRecency: Whether the least recently used element is evicted.
    package init(maximumCount: Int?, maximumCost: Int?, isByRecency: Bool) {
        self.isByRecency = isByRecency
        self.maximumCost = maximumCost
        self.maximumCount = maximumCount.map(Double.init) ?? .infinity
        let hasGhosts = !isByRecency && (maximumCost != nil || maximumCount != nil)
        // With a bound of cost, the count is not known in advance: the limit is at most 8,192 ghosts of the
        // small queue, of ten bytes each.
        let count = min(maximumCount ?? .max, maximumCost != nil ? 9_102 : .max)
        self.smallGhosts = GhostQueue(limit: hasGhosts ? count - count / 10 : 0)
        self.mainGhosts = GhostQueue(limit: hasGhosts ? max(1, count / 10) : 0)
    }

    package var count: Int { self.nodes.count }
    @inlinable package var capacity: Int { self.nodes.capacity }
    @inlinable package func hash(of number: Int) -> UInt32 { self.nodes[number].hash }
    @usableFromInline
    package func queue(of number: Int) -> Queue { self.nodes[number].queue }

    // MARK: - Events

    /// Adds an element; its number is the previous count.
    @usableFromInline
    package mutating func append(hash: UInt32, cost: Int) {
        if self.maximumCost != nil { self.costs.append(cost) }
        self.nodes.append(Node(word: hash << 4, newer: Self.none, older: Self.none))
        self.enter(self.nodes.count - 1, hash: hash)
    }

    /// Adds an element with the number of an evicted element.
    @usableFromInline
    package mutating func replace(_ number: Int, hash: UInt32) {
        self.unlink(number)
        self.nodes[number].word = hash << 4
        self.enter(number, hash: hash)
    }

    /// Adds an element, whose node exists, to a queue.
    private mutating func enter(_ number: Int, hash: UInt32) {
        guard !self.isByRecency else { return self.push(number, onto: .main) }
        let isReturned = self.steer(by: hash)
        if isReturned, !self.refusesReturns {
            self.steering.idle = 0
            return self.push(number, onto: .main)
        }
        self.nodes[number].uses = isReturned ? 1 : 0
        self.push(number, onto: .small)
        self.overflow()
    }

    /// Adapts the share if a new element was evicted shortly before.
    ///
    /// Shortly before: since then, the queue that evicted the element has evicted fewer elements than a tenth
    /// of ``places``.
    ///
    /// - Returns: Whether the element was evicted from the small queue recently, and so may enter the main
    ///   queue.
    private mutating func steer(by hash: UInt32) -> Bool {
        let places = self.places
        let near = max(1, places / 10)
        let age = self.smallGhosts.take(hash)
        if let age, age < near {
            let step = 1 / Double(self.activeCount)
            self.steering.share = min(Steering.greatestShare, self.steering.share + step)
            self.steering.owed = max(0, self.steering.owed - step * self.room)
        }
        if let age = self.mainGhosts.take(hash), age < near { self.lowerShare(by: 1) }
        return age.map { $0 < places - places / 10 } ?? false
    }

    private mutating func lowerShare(by elements: Double) {
        let step = 1 / Double(self.activeCount)
        let former = self.steering.share
        // With few elements, a step may be greater than the share: then the share is kept.
        self.steering.share = min(former, max(step, former - elements * step))
        self.steering.owed += (former - self.steering.share) * self.room
    }

    /// Whether the oldest elements of the main queue, at most eight, all have uses; `false` without elements.
    private var refusesReturns: Bool {
        var link = self.main.oldest
        var count = 0
        while link != Self.none, count < 8 {
            let node = self.nodes[Int(link)]
            if node.uses == 0 { return false }
            link = node.newer
            count += 1
        }
        return count > 0
    }

    /// Moves the oldest elements beyond the small queue's share to the main queue.
    ///
    /// Before the first eviction, moves all such elements. Afterwards moves at most one element, and only if
    /// the share was lowered (`owed`).
    private mutating func overflow() {
        while self.small.count > 1 {
            let oldest = Int(self.small.oldest)
            let weight = self.weight(of: oldest)
            guard self.size(of: self.small) >= self.smallRoom(for: weight) + weight else { break }
            if self.steering.hasEvicted {
                guard self.steering.owed >= weight else { return }
                self.steering.owed -= weight
            }
            self.move(oldest, to: .main)
            // The next added elements move the rest.
            if self.steering.hasEvicted { return }
        }
        self.steering.owed = 0
    }

    /// The number of elements in the small and the main queue, at least one.
    private var activeCount: Int { max(1, self.small.count + self.main.count) }

    /// The weight of an element in the size of its queue: one, or the cost, at least one.
    private func weight(of number: Int) -> Double {
        self.maximumCost == nil ? 1 : Double(max(1, self.costs[number]))
    }

    /// The sum of the weights of a queue's elements.
    private func size(of list: List) -> Double {
        self.maximumCost == nil ? Double(list.count) : Double(list.weight)
    }

    /// The mean weight of the elements in the queues.
    private var meanWeight: Double {
        let count = self.small.count + self.main.count + self.aside.count
        guard self.maximumCost != nil, count > 0 else { return 1 }
        return Double(self.small.weight + self.main.weight + self.aside.weight) / Double(count)
    }

    /// The maximum size of the small and the main queue together, up to the bound that is reached first.
    private var room: Double {
        guard let maximumCost else { return max(1, self.maximumCount - Double(self.aside.count)) }
        let most = min(Double(maximumCost), self.maximumCount * self.meanWeight) - Double(self.aside.weight)
        // An element without cost has the weight one, so the sum of the weights may exceed the bound.
        return max(1, most, Double(self.small.weight + self.main.weight))
    }

    /// The estimated maximum number of elements in the small and the main queue.
    private var places: Int { max(1, Int(min(self.room / self.meanWeight, Double(Int32.max)))) }

    /// The maximum size of the small queue, at least the given weight of one element.
    private func smallRoom(for weight: Double) -> Double { max(weight, self.steering.share * self.room) }

    /// Counts a use of an element.
    @inlinable
    @inline(__always)
    package mutating func touch(_ number: Int) {
        guard !self.isByRecency else { return self.makeNewest(number) }
        let uses = self.nodes[number].uses
        if uses < 3 { self.nodes[number].uses = uses + 1 }
    }

    /// Moves an element to the newest place of its queue.
    @usableFromInline
    mutating func makeNewest(_ number: Int) {
        let queue = self.nodes[number].queue
        if self[queue].newest != UInt32(truncatingIfNeeded: number) { self.move(number, to: queue) }
    }

    /// Changes the cost of an element; only with a bound of cost.
    @usableFromInline
    package mutating func setCost(_ cost: Int, of number: Int) {
        let queue = self.nodes[number].queue
        self[queue].weight = self[queue].weight - UInt128(max(1, self.costs[number])) + UInt128(max(1, cost))
        self.costs[number] = cost
    }

    /// Moves an element from the queue `aside` back to the small or the main queue: the element may be
    /// evicted now.
    @usableFromInline
    package mutating func readmit(_ number: Int) {
        self.move(number, to: self.nodes[number].uses < 2 && !self.isByRecency ? .small : .main)
    }

    /// Removes an element; the last element takes its number.
    @usableFromInline
    package mutating func remove(_ number: Int) {
        self.unlink(number)
        if self.maximumCost != nil {
            self.costs.swapAt(number, self.costs.count - 1)
            self.costs.removeLast()
        }
        let last = self.nodes.removeLast()
        guard number < self.nodes.count else { return }
        self.nodes[number] = last
        let link = UInt32(truncatingIfNeeded: number)
        if last.newer == Self.none { self[last.queue].newest = link } else { self.nodes[Int(last.newer)].older = link }
        if last.older == Self.none { self[last.queue].oldest = link } else { self.nodes[Int(last.older)].newer = link }
    }

    package mutating func reserve(_ room: Int) {
        self.nodes.reserveCapacity(room)
        if self.maximumCost != nil { self.costs.reserveCapacity(room) }
    }

    /// Shrinks the storage to `room` elements.
    package mutating func reallocate(room: Int) {
        self.nodes = self.nodes.copy(room: room)
        if self.maximumCost != nil { self.costs = self.costs.copy(room: room) }
    }

    // MARK: - Choosing

    /// Chooses the element to evict, without removing the element.
    ///
    /// - Parameters:
    ///   - cost: The cost of the element that needs room; not used without a bound of cost.
    ///   - mayGo: Whether an element may be evicted; other elements are set aside.
    /// - Returns: The number of the element; `nil` if no element may be evicted.
    /// - Complexity: Amortised O(1).
    @usableFromInline
    package mutating func chooseVictim(cost: Int, mayGo: (Int) -> Bool) -> Int? {
        if self.isByRecency {
            while self.main.count > 0 { if let oldest = self.oldest(of: .main, mayGo) { return oldest } }
            return nil
        }
        self.steering.hasEvicted = true
        let weight = self.maximumCost == nil ? 1 : Double(max(1, cost))
        while true {
            let isSmallsTurn = self.size(of: self.small) + weight > self.smallRoom(for: weight) || self.main.count == 0
            let queue: Queue = self.small.count > 0 && isSmallsTurn ? .small : .main
            guard let number = self.oldest(of: queue, mayGo) else {
                if self.small.count + self.main.count == 0 { return nil }
                continue
            }
            guard queue == .small else {
                guard self.nodes[number].uses > 0 else {
                    let victim = self.costliest(from: number, uses: 0, mayGo)
                    self.mainGhosts.remember(self.nodes[victim].hash)
                    return victim
                }
                self.reprieve(number)
                continue
            }
            guard self.nodes[number].uses < 2 else {
                self.nodes[number].uses = 0
                self.move(number, to: .main)
                continue
            }
            if self.main.count > 0 {
                guard let probed = self.oldest(of: .main, mayGo) else { continue }
                if self.nodes[probed].uses > 0 {
                    self.reprieve(probed)
                } else {
                    self.steering.idle += 1
                    if self.steering.idle == Steering.idleLimit {
                        self.steering.idle = 0
                        self.nodes[number].uses = 0
                        self.move(number, to: .main)
                        self.mainGhosts.remember(self.nodes[probed].hash)
                        return probed
                    }
                }
            }
            let victim = self.costliest(from: number, uses: 1, mayGo)
            self.smallGhosts.remember(self.nodes[victim].hash)
            return victim
        }
    }

    /// The most costly of a queue's oldest elements, from `oldest` on, with at most `uses` uses and
    /// permission to evict.
    ///
    /// Of elements with equal costs, the oldest is chosen.
    private func costliest(from oldest: Int, uses: UInt32, _ mayGo: (Int) -> Bool) -> Int {
        guard self.maximumCost != nil else { return oldest }
        var victim = oldest
        var number = oldest
        // At most the oldest eighth of the queue is searched: newer elements have not had time for uses.
        let count = min(Steering.candidates, self[self.nodes[oldest].queue].count / 8)
        for _ in 1..<max(1, count) {
            let next = self.nodes[number].newer
            guard next != Self.none else { break }
            number = Int(next)
            guard self.costs[number] > self.costs[victim], self.nodes[number].uses <= uses else { continue }
            if mayGo(number) { victim = number }
        }
        return victim
    }

    /// The oldest element of a queue; `nil` for an empty queue, and after a protected element was set aside.
    private mutating func oldest(of queue: Queue, _ mayGo: (Int) -> Bool) -> Int? {
        let oldest = self[queue].oldest
        guard oldest != Self.none else { return nil }
        guard mayGo(Int(oldest)) else {
            self.move(Int(oldest), to: .aside)
            return nil
        }
        return Int(oldest)
    }

    /// Removes a use from the oldest element of the main queue, makes the element the newest, and lowers the
    /// share.
    private mutating func reprieve(_ number: Int) {
        self.nodes[number].uses -= 1
        self.move(number, to: .main)
        self.lowerShare(by: 1 / 64)
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
        let link = UInt32(truncatingIfNeeded: number)
        self.nodes[number].queue = queue
        self.nodes[number].newer = Self.none
        self.nodes[number].older = list.newest
        if list.newest == Self.none { list.oldest = link } else { self.nodes[Int(list.newest)].newer = link }
        list.newest = link
        list.count += 1
        if self.maximumCost != nil { list.weight += UInt128(max(1, self.costs[number])) }
        self[queue] = list
    }

    private mutating func unlink(_ number: Int) {
        let node = self.nodes[number]
        var list = self[node.queue]
        if node.newer == Self.none { list.newest = node.older } else { self.nodes[Int(node.newer)].older = node.older }
        if node.older == Self.none { list.oldest = node.newer } else { self.nodes[Int(node.older)].newer = node.newer }
        list.count -= 1
        if self.maximumCost != nil { list.weight -= UInt128(max(1, self.costs[number])) }
        self[node.queue] = list
    }

    // MARK: - Checking

    /// The numbers in a queue with their uses, oldest first.
    package func content(of queue: Queue) -> [(number: Int, uses: Int)] {
        var content: [(number: Int, uses: Int)] = []
        var link = self[queue].oldest
        while link != Self.none, content.count <= self.nodes.count {
            content.append((Int(link), Int(self.nodes[Int(link)].uses)))
            link = self.nodes[Int(link)].newer
        }
        return content
    }

    /// A broken invariant; `nil` for a valid order.
    package func violation() -> String? {
        var total = 0
        for queue in [Queue.small, .main, .aside] {
            let content = self.content(of: queue)
            total += content.count
            if content.count != self[queue].count {
                return "\(queue) counts \(self[queue].count), has \(content.count)"
            }
            if content.contains(where: { self.nodes[$0.number].queue != queue }) { return "\(queue) has a stray node" }
            var older = Self.none
            for (number, _) in content {
                if self.nodes[number].older != older { return "\(queue) has a wrong link to an older node" }
                older = UInt32(truncatingIfNeeded: number)
            }
            if self[queue].newest != older { return "\(queue) has a wrong newest node" }
            let costs = self.costs.isEmpty ? [] : content.map { max(1, self.costs[$0.number]) }
            let weight = costs.reduce(UInt128(0)) { $0 + UInt128($1) }
            if self[queue].weight != weight { return "\(queue) weighs \(self[queue].weight), not \(weight)" }
        }
        if self.costs.count != (self.maximumCost == nil ? 0 : self.nodes.count) { return "costs do not match elements" }
        if total != self.nodes.count { return "\(self.nodes.count) elements, \(total) in queues" }
        for ghosts in [self.smallGhosts, self.mainGhosts] where ghosts.count > ghosts.limit { return "too many ghosts" }
        let steering = self.steering
        if !(0...Steering.greatestShare).contains(steering.share) || !(0...).contains(steering.owed) {
            return "the share is \(steering)"
        }
        if !(0..<Steering.idleLimit).contains(steering.idle) { return "idle probes: \(steering.idle)" }
        return nil
    }

    /// The small queue's size minus its maximum, `owed` and one; zero before the first eviction.
    package var smallExcess: Double {
        guard self.steering.hasEvicted else { return 0 }
        return self.size(of: self.small) - self.smallRoom(for: 1) - 1 - self.steering.owed
    }
}
