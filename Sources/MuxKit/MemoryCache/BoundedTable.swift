/// A table of elements by key, in flat arrays, with bounds of count and cost.
///
/// A lookup computes one hash and compares about one key; there is no object for each key. ``EvictionOrder``
/// chooses the element to evict; the owner may protect elements from eviction. A protected element stays even
/// beyond the bound. The table is fast for up to 2^28 elements; the capacity must stay below
/// 2^31 elements.
@usableFromInline
package struct BoundedTable<Key: Hashable & Sendable, Element: Sendable>: Sendable {
    /// The position of a key; valid until the next change.
    @usableFromInline package typealias Place = (hash: UInt32, hit: FlatIndex.Hit?)

    /// `nil` for no bound.
    @usableFromInline package let maximumCount: Int?
    /// `nil` for no bound; costs are not stored then.
    @usableFromInline package let maximumCost: Int?

    /// A key with its element.
    @usableFromInline
    struct Entry: Sendable {
        @usableFromInline var key: Key
        @usableFromInline var element: Element

        @inlinable
        init(key: Key, element: Element) {
            self.key = key
            self.element = element
        }
    }

    /// One array, so that a lookup reads one place in memory, apart from the index and the order.
    @usableFromInline var entries: ContiguousArray<Entry> = []
    @usableFromInline var cost: UInt128 = 0
    @usableFromInline var index = FlatIndex()
    @usableFromInline package var order: EvictionOrder

    /// Makes an empty table; a negative limit counts as zero.
    package init(maximumCount: Int?, maximumCost: Int? = nil, evictsLeastRecentlyUsed: Bool = false) {
        self.maximumCount = maximumCount.map { max(0, $0) }
        self.maximumCost = maximumCost.map { max(0, $0) }
        self.order = EvictionOrder(
            maximumCount: self.maximumCount,
            maximumCost: self.maximumCost,
            isByRecency: evictsLeastRecentlyUsed
        )
    }

    /// An empty table with the same bounds and the same order of eviction.
    package var emptied: BoundedTable {
        BoundedTable(
            maximumCount: self.maximumCount,
            maximumCost: self.maximumCost,
            evictsLeastRecentlyUsed: self.order.isByRecency
        )
    }

    @inlinable
    package var count: Int { self.entries.count }

    /// The keys, in no particular order.
    package var keys: [Key] { self.entries.map(\.key) }

    /// The cost of all elements; saturates; zero if costs are not stored.
    package var totalCost: Int { Int(clamping: self.cost) }

    /// Whether a bound is exceeded, because elements may not be evicted.
    @inlinable
    package var isOverBound: Bool { !self.fits(0, 0) }

    /// Whether the count exceeds four times its bound plus 1,024, or the cost exceeds four times its bound.
    @usableFromInline
    package var isFarOverBound: Bool {
        let (count, overflow) = (self.maximumCount ?? .max).multipliedReportingOverflow(by: 4)
        if !overflow, self.count - 1_024 > count { return true }
        return self.maximumCost.map { self.cost > UInt128($0) * 4 } ?? false
    }

    /// The number of elements for which ``order`` has room.
    @inlinable
    package var capacity: Int { self.order.capacity }

    // MARK: - Looking

    @inlinable
    @inline(__always)
    package func place(of key: Key) -> Place {
        let hash = FlatIndex.hash(key)
        return (hash, self.index.find(hash: hash) { self.entries[$0].key == key })
    }

    @inlinable
    @inline(__always)
    package func element(at place: Place) -> Element? { place.hit.map { self.entries[$0.number].element } }

    /// Counts a use of the element at `place`.
    @inlinable
    @inline(__always)
    package mutating func touch(_ place: Place) {
        if let hit = place.hit { self.order.touch(hit.number) }
    }

    /// Returns the element of `key`; counts as a use.
    @inlinable
    package mutating func lookup(_ key: Key) -> Element? {
        let place = self.place(of: key)
        self.touch(place)
        return self.element(at: place)
    }

    /// Returns the element of `key`; does not count as a use.
    @usableFromInline
    package func peek(_ key: Key) -> Element? { self.element(at: self.place(of: key)) }

    // MARK: - Changing

    /// Inserts an element, or replaces the element of the same key.
    ///
    /// - Parameters:
    ///   - element: The element.
    ///   - key: The element's key.
    ///   - place: The key's place.
    ///   - cost: The element's cost; a negative cost counts as zero.
    ///   - mayGo: Whether an element may be evicted.
    ///   - evicted: Receives evicted elements, including `element` if `element` alone exceeds a bound; a
    ///     replaced element is not reported.
    @inlinable
    package mutating func put(
        _ element: Element,
        of key: Key,
        at place: Place,
        cost: Int = 0,
        mayGo: (Element) -> Bool,
        evicted: (Key, Element) -> Void
    ) {
        let cost = max(0, cost)
        let isBeyondBound = self.maximumCount == 0 || cost > self.maximumCost ?? .max
        if isBeyondBound, mayGo(element) {
            return evicted(self.remove(at: place)?.key ?? key, element)
        }
        if let number = place.hit?.number {
            self.entries[number].element = element
            self.setCost(cost, of: number)
            self.enforceBounds(afterChangeOf: number, mayGo: mayGo, evicted: evicted)
            return
        }
        while !self.fits(1, cost), let number = self.chooseVictim(for: cost, mayGo) {
            evicted(self.entries[number].key, self.entries[number].element)
            guard !self.fits(cost, insteadOf: number) else {
                return self.replace(number, by: element, key, place.hash, cost)
            }
            self.remove(number)
        }
        self.append(element, key, place.hash, cost)
    }

    /// See ``put(_:of:at:cost:mayGo:evicted:)``.
    @inlinable
    package mutating func insert(
        _ element: Element,
        of key: Key,
        cost: Int = 0,
        mayGo: (Element) -> Bool = { _ in true },
        evicted: (Key, Element) -> Void = { _, _ in }
    ) {
        self.put(element, of: key, at: self.place(of: key), cost: cost, mayGo: mayGo, evicted: evicted)
    }

    /// Removes the element at `place`.
    ///
    /// - Returns: The element, and the table's copy of the key, to be released outside the caller's lock.
    @discardableResult
    @inlinable
    package mutating func remove(at place: Place) -> (key: Key, element: Element)? {
        guard let hit = place.hit else { return nil }
        let entry = (self.entries[hit.number].key, self.entries[hit.number].element)
        self.remove(hit)
        return entry
    }

    /// Examines at most `count` elements, and removes the elements for which `isUnwanted` returns `true`.
    ///
    /// Examines from the end, because a removal moves the last element, examined before, into the vacated
    /// place.
    ///
    /// - Returns: The `place` for the next call; `nil` at the end. Elements that are added between calls may
    ///   be skipped.
    @inlinable
    package mutating func removeAll(
        before place: Int?,
        atMost count: Int,
        where isUnwanted: (Key, Element) -> Bool
    ) -> Int? {
        let end = min(place ?? self.count, self.count)
        let start = max(0, end - count)
        for number in (start..<end).reversed() where isUnwanted(self.entries[number].key, self.entries[number].element)
        {
            self.remove(number)
        }
        return start > 0 ? start : nil
    }

    /// Returns at most `count` keys.
    ///
    /// Reads from the end: a removal between calls moves the last element to an earlier place, so no key is
    /// omitted, but a key may be returned twice.
    ///
    /// - Returns: The keys, and the `place` for the next call; `nil` at the end. Keys that are added between
    ///   calls may be omitted.
    package func keys(before place: Int?, atMost count: Int) -> (keys: [Key], next: Int?) {
        let end = min(place ?? self.count, self.count)
        let start = max(0, end - count)
        return (self.entries[start..<end].map(\.key), start > 0 ? start : nil)
    }

    // MARK: - Storage

    /// Whether `count` further elements with the total cost `cost` exceed no bound.
    @inlinable
    func fits(_ count: Int, _ cost: Int) -> Bool {
        if let maximumCount, self.count > maximumCount - count { return false }
        if let maximumCost, self.cost + UInt128(cost) > UInt128(maximumCost) { return false }
        return true
    }

    /// Whether the bound of cost holds if an element of `cost` replaces the element `number`.
    ///
    /// The count is not examined, because a replacement does not change the count. If the count exceeds its
    /// bound, all other elements are protected from eviction.
    @inlinable
    func fits(_ cost: Int, insteadOf number: Int) -> Bool {
        guard let maximumCost else { return true }
        return self.cost - UInt128(self.order.costs[number]) + UInt128(cost) <= UInt128(maximumCost)
    }

    @inlinable
    mutating func chooseVictim(for cost: Int = 1, _ mayGo: (Element) -> Bool) -> Int? {
        self.order.chooseVictim(cost: cost, mayGo: { mayGo(self.entries[$0].element) })
    }

    /// Evicts elements after a change of an element, while a bound is exceeded.
    ///
    /// The changed element may have become evictable, such as by a save: then the element returns from the
    /// queue `aside`.
    @inlinable
    mutating func enforceBounds(afterChangeOf number: Int, mayGo: (Element) -> Bool, evicted: (Key, Element) -> Void) {
        if self.order.queue(of: number) == .aside, mayGo(self.entries[number].element) { self.order.readmit(number) }
        while self.isOverBound, let number = self.chooseVictim(mayGo) {
            evicted(self.entries[number].key, self.entries[number].element)
            self.remove(number)
        }
    }

    /// Replaces an evicted element, without a move of another element.
    @inlinable
    mutating func replace(_ number: Int, by element: Element, _ key: Key, _ hash: UInt32, _ cost: Int) {
        if let hit = self.hit(of: number) { self.index.remove(at: hit.position) { self.order.hash(of: $0) } }
        self.index.insert(number, hash: hash)
        self.entries[number] = Entry(key: key, element: element)
        self.setCost(cost, of: number)
        self.order.replace(number, hash: hash)
    }

    @inlinable
    mutating func append(_ element: Element, _ key: Key, _ hash: UInt32, _ cost: Int) {
        let number = self.count
        if !self.index.hasRoom(for: number + 1) { self.grow() }
        self.index.insert(number, hash: hash)
        self.entries.append(Entry(key: key, element: element))
        self.order.append(hash: hash, cost: cost)
        if self.maximumCost != nil { self.cost += UInt128(cost) }
    }

    /// Doubles the capacity, or reserves the maximum at once if an eighth of the maximum is used.
    ///
    /// With doubling alone, the allocator would retain some of the former, large arrays: a tenth of the
    /// memory (glibc 2.41).
    @usableFromInline
    mutating func grow() {
        let most = self.maximumCount ?? .max
        let reservesAll = self.count < most && self.count >= most / 8
        let room = reservesAll ? most : max(12, self.count * 2)
        self.entries.reserveCapacity(room)
        self.order.reserve(room)
        self.index.rebuild(room: room, count: self.count) { self.order.hash(of: $0) }
    }

    @inlinable
    mutating func setCost(_ cost: Int, of number: Int) {
        guard self.maximumCost != nil else { return }
        self.cost = self.cost - UInt128(self.order.costs[number]) + UInt128(cost)
        self.order.setCost(cost, of: number)
    }

    /// The position of `number` in the index.
    @inlinable
    func hit(of number: Int) -> FlatIndex.Hit? {
        self.index.find(hash: self.order.hash(of: number)) { $0 == number }
    }

    @inlinable
    mutating func remove(_ number: Int) {
        if let hit = self.hit(of: number) { self.remove(hit) }
    }

    /// Removes an element; the last element moves into the vacated place.
    @inlinable
    mutating func remove(_ hit: FlatIndex.Hit) {
        if self.maximumCost != nil { self.cost -= UInt128(self.order.costs[hit.number]) }
        self.index.remove(at: hit.position) { self.order.hash(of: $0) }
        let last = self.count - 1
        if hit.number != last {
            if let place = self.hit(of: last) { self.index.renumber(at: place.position, to: hit.number) }
            self.entries.swapAt(hit.number, last)
        }
        self.entries.removeLast()
        self.order.remove(hit.number)
        if self.count < self.capacity / 4, self.capacity > 64 { self.shrink() }
    }

    @usableFromInline
    mutating func shrink() {
        let room = self.count * 2
        self.entries = self.entries.copy(room: room)
        self.order.reallocate(room: room)
        self.index.rebuild(room: room, count: self.count) { self.order.hash(of: $0) }
    }
}

extension ContiguousArray {
    /// A copy with the capacity for `room` elements.
    func copy(room: Int) -> ContiguousArray {
        var copy: ContiguousArray = []
        copy.reserveCapacity(room)
        copy.append(contentsOf: self)
        return copy
    }
}

extension BoundedTable {
    /// A measure of the storage of all arrays, in elements.
    package var footprint: Int {
        self.entries.capacity + self.index.size + self.order.capacity + self.order.costs.capacity
            + self.order.smallGhosts.footprint + self.order.mainGhosts.footprint
    }

    /// A broken invariant; `nil` for a valid table.
    package func violation() -> String? {
        if let violation = self.order.violation() { return violation }
        if self.entries.count != self.order.count { return "arrays differ" }
        if self.index.occupancy != self.count { return "index has \(self.index.occupancy) of \(self.count)" }
        if !self.index.hasRoom(for: self.count) { return "index is too full" }
        for (number, key) in self.keys.enumerated() {
            if FlatIndex.hash(key) != self.order.hash(of: number) { return "hash of \(number) is wrong" }
            if self.place(of: key).hit?.number != number { return "\(number) is not found" }
        }
        let cost = self.order.costs.reduce(into: UInt128(0)) { $0 += UInt128($1) }
        if cost != self.cost { return "costs add up to \(cost), not \(self.cost)" }
        // The limit permits the capacity of a doubled array, of an array that has just grown to its bound or
        // beyond, and of a small array.
        if self.capacity > max(64, 8 * self.count + 8) { return "room for \(self.capacity), \(self.count) there" }
        return nil
    }
}
