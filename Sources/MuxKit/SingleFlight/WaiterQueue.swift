/// Waiters in the order of tickets; each waiter can leave early.
///
/// A waiter leaves in amortized O(log *n*): places are sorted by ticket, and vacated places stay until the
/// number of waiters is less than half of the number of places, rounded down. An array, unlike a dictionary,
/// returns the waiters in order without a sort.
///
/// Tickets are drawn before arrival, so a waiter may arrive after a waiter with a later ticket. The insertion
/// of such a waiter takes O(*n*), any other arrival amortized O(1).
package struct WaiterQueue: Sendable, Hashable {
    /// By ascending ticket, including waiters that have left.
    private var places = Few<FlightWaiter>()

    package private(set) var count = 0

    package init() {}

    package var isEmpty: Bool { self.count == 0 }

    /// Adds a waiter with a unique ticket.
    package mutating func add(_ waiter: FlightWaiter) {
        self.count += 1
        guard let last = self.places.last, last.ticket > waiter.ticket else { return self.places.append(waiter) }
        self.places.insert(waiter, at: self.index(of: waiter.ticket))
    }

    /// The index of the first place with this or a later ticket.
    private func index(of ticket: Ticket) -> Int {
        var low = 0
        var high = self.places.count
        while low < high {
            let middle = (low + high) / 2
            if self.places[middle].ticket < ticket { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Removes and returns the waiter with `ticket`; `nil` if absent.
    package mutating func remove(_ ticket: Ticket) -> FlightWaiter? {
        guard let index = self.occupiedIndex(of: ticket) else { return nil }
        let waiter = self.places[index]
        self.places[index] = FlightWaiter(leftWith: ticket)
        self.count -= 1
        if self.count < self.places.count / 2 { self.places.removeAll(where: \.hasLeft) }
        return waiter
    }

    /// Whether the waiter with `ticket` is in the queue.
    func contains(_ ticket: Ticket) -> Bool { self.occupiedIndex(of: ticket) != nil }

    private func occupiedIndex(of ticket: Ticket) -> Int? {
        let index = self.index(of: ticket)
        guard index < self.places.count, self.places[index].ticket == ticket else { return nil }
        return !self.places[index].hasLeft ? index : nil
    }

    /// The tickets of all waiters, ascending.
    package var tickets: [Ticket] { self.places.lazy.filter { !$0.hasLeft }.map(\.ticket) }

    /// Adds the waiters of another queue, which have other tickets.
    package mutating func merge(_ others: WaiterQueue) {
        self.places = Few((others.places + self.places).filter { !$0.hasLeft }.sorted { $0.ticket < $1.ticket })
        self.count = self.places.count
    }

    /// Removes and returns all waiters, by ascending ticket.
    package mutating func drain() -> Few<FlightWaiter> {
        defer { self = WaiterQueue() }
        // Usually no waiter has left, and the list is not copied.
        return self.count == self.places.count ? self.places : self.places.filter { !$0.hasLeft }
    }

    /// Removes the waiters with this and later tickets, and returns them as a queue.
    package mutating func split(from ticket: Ticket) -> WaiterQueue {
        var later = WaiterQueue()
        for waiter in self.places[self.index(of: ticket)...] where !waiter.hasLeft { later.add(waiter) }
        self.places.removeSubrange(self.index(of: ticket)...)
        self.count -= later.count
        return later
    }

    /// The number of places, including vacated places.
    package var placeCount: Int { self.places.count }

    /// A broken invariant; `nil` for a valid value.
    package func violation() -> String? {
        guard self.places.count(where: { !$0.hasLeft }) == self.count else { return "the count is wrong" }
        guard zip(self.places, self.places.dropFirst()).allSatisfy({ $0.ticket < $1.ticket }) else {
            return "tickets are out of order"
        }
        return nil
    }
}
