/// The waits of flights for flights, as a value: finds the wait that would close a cycle of certain waits.
///
/// ``WaitForGraph`` defines certain and possible waits.
///
/// The recorded certain waits form no cycle. So every flight has a *level*, and no flight certainly waits for
/// a flight of a lower level. A certain wait for another flight of a higher level, or for another flight
/// without certain waits, closes no cycle. This decision takes O(1), and covers every certain wait for a new
/// flight.
///
/// Any other certain wait for another flight requires a backward search through at most max(32, √*m*) waits.
/// *m* is the highest number of simultaneous waits since the table was last reset (``end(_:)``). If
/// necessary, a forward search follows, which raises the levels of the reached flights. *m* new waits take
/// O(*m* √*m*); see Bender, Fineman, Gilbert and Tarjan, "A New Approach to Incremental Topological Ordering
/// and Cycle Detection" (2016). The end of a wait changes no level of a flight with other waits.
package struct WaitTable: Sendable {
    private struct Flight: Sendable {
        var node: WaitForNode
        var level = 0
        /// The number of the last search through the flight.
        var mark: UInt64 = 0
        /// The certain waits of the flight.
        var certainOut: [Int] = []
        /// The certain waits for the flight.
        var certainIn: [Int] = []
        /// The possible waits for the flight.
        var possibleIn: [Int] = []
        var possibleOutCount = 0

        var isUnused: Bool {
            self.certainOut.isEmpty && self.certainIn.isEmpty && self.possibleIn.isEmpty && self.possibleOutCount == 0
        }
    }

    private struct Wait: Sendable {
        let id: WaitForGraph.WaitID
        let isCertain: Bool
        let waiting: Int
        let awaited: Int
        /// The index in ``Flight/certainOut`` of the waiting flight; unused for a possible wait.
        var outIndex = 0
        /// The index in ``Flight/certainIn`` or ``Flight/possibleIn`` of the awaited flight.
        var inIndex = 0
    }

    /// The maximum number of flights of one key that are nested through possible waits.
    private static let greatestDepth = 16

    private var flights: [Flight] = []
    private var waits: [Wait] = []
    private var vacantFlights: [Int] = []
    private var vacantWaits: [Int] = []
    private var flightPlaces: [WaitForNode: Int] = [:]
    private var waitPlaces: [WaitForGraph.WaitID: Int] = [:]
    private var possibleCount = 0
    private var lastMark: UInt64 = 0

    /// The number of examined waits in all searches.
    package private(set) var stepCount = 0

    package init() {}

    /// The number of waits.
    package var count: Int { self.waitPlaces.count }

    /// Adds a wait of the flight `waiting` for the flight `awaited`.
    ///
    /// - Parameters:
    ///   - id: Identifies the wait.
    ///   - waiting: The waiting flight.
    ///   - awaited: The other flight.
    ///   - isCertain: Whether the wait is certain.
    ///   - sameKey: If the other flight is new, the fenced flights of its key that have callers.
    /// - Returns: `false`, without a new wait, if the wait would never end, or if too many flights of the key
    ///   are nested.
    package mutating func begin(
        _ id: WaitForGraph.WaitID,
        of waiting: WaitForNode,
        for awaited: WaitForNode,
        isCertain: Bool,
        sameKey: [WaitForNode] = []
    ) -> Bool {
        let (place, awaitedPlace) = (self.place(of: waiting), self.place(of: awaited))
        defer {
            self.removeIfUnused(awaitedPlace)
            self.removeIfUnused(place)
        }
        // If the work of a flight starts a new flight of the same key, the new flight does the same work, so
        // the nesting could continue without end.
        let isNestedTooDeep =
            isCertain
            ? sameKey.contains { self.certainlyWaits($0, forFlightAt: place) }
            : sameKey.count >= Self.greatestDepth && self.possibleDepth(of: sameKey, at: place) >= Self.greatestDepth
        guard !isNestedTooDeep, !isCertain || self.order(place, before: awaitedPlace) else { return false }
        self.insert(Wait(id: id, isCertain: isCertain, waiting: place, awaited: awaitedPlace))
        return true
    }

    /// Removes a wait, if present.
    package mutating func end(_ id: WaitForGraph.WaitID) {
        if let place = self.waitPlaces[id] { self.removeWait(at: place) }
        // Releases the memory after many simultaneous waits.
        if self.waitPlaces.isEmpty, self.flights.count > 1_024 {
            self = WaitTable(stepCount: self.stepCount, self.lastMark)
        }
    }

    /// Moves the waits for `former` with the given tickets to `next`.
    ///
    /// - Returns: The tickets of the waits that would never end, ascending; these waits are removed.
    package mutating func move(_ tickets: Set<Ticket>, from former: WaitForNode, to next: WaitForNode) -> [Ticket] {
        guard former != next, let place = self.flightPlaces[former] else { return [] }
        let moving = (self.flights[place].certainIn + self.flights[place].possibleIn)
            .map { (wait: self.waits[$0], of: self.flights[self.waits[$0].waiting].node) }
            .filter { tickets.contains($0.wait.id.ticket) }
            .sorted { $0.wait.id.ticket < $1.wait.id.ticket }
        var closing: [Ticket] = []
        for (wait, waiting) in moving {
            self.end(wait.id)
            if !self.begin(wait.id, of: waiting, for: next, isCertain: wait.isCertain) {
                closing.append(wait.id.ticket)
            }
        }
        return closing
    }

    /// For each flight of `nodes`, the tickets of those waits for the flight that are part of a cycle of
    /// waits.
    ///
    /// - Complexity: O(1) without possible waits, otherwise O(*m* log *m*) for *m* waits.
    package mutating func ticketsInCycles(with nodes: [WaitForNode]) -> [WaitForNode: [Ticket]] {
        guard self.possibleCount > 0 else { return [:] }  // certain waits alone form no cycle
        let places = nodes.compactMap { self.flightPlaces[$0] }
        let cycles = self.components(from: places)
        var tickets: [WaitForNode: [Ticket]] = [:]
        for place in places {
            let flight = self.flights[place]
            tickets[flight.node] = (flight.certainIn + flight.possibleIn)
                .filter { cycles[self.waits[$0].waiting] == cycles[place] }
                .map { self.waits[$0].id.ticket }.sorted()
        }
        return tickets
    }

    // MARK: - Order

    /// Sets levels for a certain wait of the flight at `place` for the flight at `awaited`.
    ///
    /// - Returns: `false`, with no change of levels, if the wait closes a cycle.
    private mutating func order(_ place: Int, before awaited: Int) -> Bool {
        guard place != awaited else { return false }
        let level = self.flights[place].level
        if self.flights[awaited].level > level { return true }
        if self.flights[awaited].certainOut.isEmpty {
            self.flights[awaited].level = level
            return true
        }
        // Backwards, through flights of the same level.
        self.lastMark += 1
        let before = self.lastMark
        var limit = max(32, Int(Double(self.waits.count).squareRoot()))
        var open = [place]
        var isComplete = true
        self.flights[place].mark = before
        search: while let next = open.popLast() {
            for wait in self.flights[next].certainIn {
                guard limit > 0 else {
                    isComplete = false
                    break search
                }
                limit -= 1
                self.stepCount += 1
                let waiting = self.waits[wait].waiting
                if waiting == awaited { return false }
                guard self.flights[waiting].level == level, self.flights[waiting].mark != before else { continue }
                self.flights[waiting].mark = before
                open.append(waiting)
            }
        }
        if isComplete, self.flights[awaited].level == level { return true }
        return self.raise(awaited, to: isComplete ? level : level + 1, unlessReaching: place, or: before)
    }

    /// Raises to `level` the flight at `awaited`, and all flights of lower levels for which the flight
    /// certainly waits, directly or indirectly.
    ///
    /// - Returns: `false`, with no change of levels, if the flight certainly waits for the flight at `place`,
    ///   or for a flight with the mark `mark`, directly or indirectly.
    private mutating func raise(_ awaited: Int, to level: Int, unlessReaching place: Int, or mark: UInt64) -> Bool {
        self.lastMark += 1
        let after = self.lastMark
        var reached = [awaited]
        self.flights[awaited].mark = after
        var index = 0
        while index < reached.count {
            for wait in self.flights[reached[index]].certainOut {
                self.stepCount += 1
                let next = self.waits[wait].awaited
                if next == place || self.flights[next].mark == mark { return false }
                guard self.flights[next].level < level, self.flights[next].mark != after else { continue }
                self.flights[next].mark = after
                reached.append(next)
            }
            index += 1
        }
        for place in reached { self.flights[place].level = level }
        return true
    }

    /// Whether the flight `node` certainly waits for the flight at `place`, directly or indirectly, or is the
    /// same flight.
    private mutating func certainlyWaits(_ node: WaitForNode, forFlightAt place: Int) -> Bool {
        guard let other = self.flightPlaces[node] else { return false }
        // ``order(_:before:)`` may raise levels, although no wait is added; the levels stay valid.
        return !self.order(place, before: other)
    }

    /// The number of `nodes` that wait for the flight at `place`, directly or indirectly, or are the same
    /// flight.
    private mutating func possibleDepth(of nodes: [WaitForNode], at place: Int) -> Int {
        self.lastMark += 1
        var open = [place]
        self.flights[place].mark = self.lastMark
        while let next = open.popLast() {
            for wait in self.flights[next].certainIn + self.flights[next].possibleIn {
                self.stepCount += 1
                let waiting = self.waits[wait].waiting
                guard self.flights[waiting].mark != self.lastMark else { continue }
                self.flights[waiting].mark = self.lastMark
                open.append(waiting)
            }
        }
        return nodes.count { self.flightPlaces[$0].map { self.flights[$0].mark == self.lastMark } ?? false }
    }

    /// Numbers the strongly connected components, so that all flights of a cycle have the same number (Tarjan
    /// 1972, without recursion).
    private mutating func components(from roots: [Int]) -> [Int: Int] {
        var order: [Int: (index: Int, low: Int)] = [:]
        var components: [Int: Int] = [:]
        var (stack, path): ([Int], [(place: Int, waits: [Int])]) = ([], [])
        func visit(_ place: Int) {
            order[place] = (order.count, order.count)
            stack.append(place)
            path.append((place, self.flights[place].certainIn + self.flights[place].possibleIn))
        }
        func lower(_ place: Int, to low: Int?) {
            if let low, let former = order[place], low < former.low { order[place] = (former.index, low) }
        }
        for root in roots where order[root] == nil {
            visit(root)
            while let place = path.last?.place {
                if let wait = path[path.count - 1].waits.popLast() {
                    self.stepCount += 1
                    let waiting = self.waits[wait].waiting
                    if order[waiting] == nil {
                        visit(waiting)
                    } else if components[waiting] == nil {
                        lower(place, to: order[waiting]?.index)
                    }
                    continue
                }
                path.removeLast()
                let (index, low) = order[place] ?? (0, 0)
                if let caller = path.last?.place { lower(caller, to: low) }
                guard index == low else { continue }
                while let member = stack.popLast() {
                    components[member] = index
                    if member == place { break }
                }
            }
        }
        return components
    }

    // MARK: - Storage

    private init(stepCount: Int, _ lastMark: UInt64) {
        self.stepCount = stepCount
        self.lastMark = lastMark
    }

    /// The place of a flight; adds an absent flight.
    private mutating func place(of node: WaitForNode) -> Int {
        if let place = self.flightPlaces[node] { return place }
        let place = self.vacantFlights.popLast() ?? self.flights.count
        if place == self.flights.count {
            self.flights.append(Flight(node: node))
        } else {
            self.flights[place].node = node
        }
        self.flightPlaces[node] = place
        return place
    }

    private mutating func removeIfUnused(_ place: Int) {
        guard self.flights[place].isUnused, self.flightPlaces.removeValue(forKey: self.flights[place].node) != nil
        else {
            return
        }
        self.flights[place].level = 0
        self.vacantFlights.append(place)
    }

    private mutating func insert(_ wait: Wait) {
        var wait = wait
        let place = self.vacantWaits.popLast() ?? self.waits.count
        if wait.isCertain {
            wait.outIndex = self.flights[wait.waiting].certainOut.count
            wait.inIndex = self.flights[wait.awaited].certainIn.count
            self.flights[wait.waiting].certainOut.append(place)
            self.flights[wait.awaited].certainIn.append(place)
        } else {
            wait.inIndex = self.flights[wait.awaited].possibleIn.count
            self.flights[wait.waiting].possibleOutCount += 1
            self.flights[wait.awaited].possibleIn.append(place)
            self.possibleCount += 1
        }
        if place == self.waits.count { self.waits.append(wait) } else { self.waits[place] = wait }
        self.waitPlaces[wait.id] = place
    }

    private mutating func removeWait(at place: Int) {
        let wait = self.waits[place]
        self.waitPlaces[wait.id] = nil
        self.vacantWaits.append(place)
        if wait.isCertain {
            let out = self.flights[wait.waiting].certainOut.removeBySwapping(at: wait.outIndex)
            if let out { self.waits[out].outIndex = wait.outIndex }
            let next = self.flights[wait.awaited].certainIn.removeBySwapping(at: wait.inIndex)
            if let next { self.waits[next].inIndex = wait.inIndex }
        } else {
            self.flights[wait.waiting].possibleOutCount -= 1
            self.possibleCount -= 1
            let next = self.flights[wait.awaited].possibleIn.removeBySwapping(at: wait.inIndex)
            if let next { self.waits[next].inIndex = wait.inIndex }
        }
        self.removeIfUnused(wait.awaited)
        self.removeIfUnused(wait.waiting)
    }

    /// A broken invariant; `nil` for a valid table.
    package func violation() -> String? {
        for wait in self.waitPlaces.values.map({ self.waits[$0] }) where wait.isCertain {
            if self.flights[wait.waiting].level > self.flights[wait.awaited].level {
                return "a flight waits for a lower level"
            }
        }
        if self.flightPlaces.values.contains(where: { self.flights[$0].isUnused }) {
            return "a flight without waits is kept"
        }
        return nil
    }
}

extension [Int] {
    /// Removes the element at `index`; the last element moves to `index`.
    ///
    /// - Returns: The moved element; `nil` if the removed element was the last.
    fileprivate mutating func removeBySwapping(at index: Int) -> Int? {
        let last = self.removeLast()
        guard index < self.count else { return nil }
        self[index] = last
        return last
    }
}
