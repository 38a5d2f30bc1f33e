/// Waiters in the order of their tickets, each of which can leave before its turn.
///
/// Leaving costs O(log n): places are sorted by ticket, and a left one stays empty until the empty ones outnumber the
/// taken ones. Waking all of them in order is a walk over an array, which is why this is not a dictionary.
///
/// Tickets are drawn before arriving. Of two who come at the same time, the one with the later ticket may get here first; the
/// other one overtakes it then.
package struct WaiterQueue<Waiter: Sendable>: Sendable {
    /// One place: whose it is, and who waits in it until the waiter has left.
    fileprivate struct Place: Sendable {
        let ticket: UInt64
        var waiter: Waiter?
    }

    private var places: [Place] = []

    /// How many wait.
    package private(set) var count = 0

    package init() {}

    package var isEmpty: Bool { self.count == 0 }

    /// Lets `waiter` wait under `ticket`, which nobody else has.
    package mutating func park(_ waiter: Waiter, ticket: UInt64) {
        let isLast = self.places.last.map { $0.ticket < ticket } ?? true
        let index = isLast ? self.places.endIndex : self.index(of: ticket)
        self.places.insert(Place(ticket: ticket, waiter: waiter), at: index)
        self.count += 1
    }

    /// Where the first place is that is not before `ticket`.
    private func index(of ticket: UInt64) -> Int {
        var low = 0
        var high = self.places.count
        while low < high {
            let middle = (low + high) / 2
            if self.places[middle].ticket < ticket { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Removes and returns the waiter of `ticket`; `nil` if it never came or is gone already.
    package mutating func leave(_ ticket: UInt64) -> Waiter? {
        let index = self.index(of: ticket)
        guard index < self.places.count, self.places[index].ticket == ticket, let waiter = self.places[index].waiter
        else { return nil }
        self.places[index].waiter = nil
        self.count -= 1
        if self.count < self.places.count / 2 { self.places.removeAll { $0.waiter == nil } }
        return waiter
    }

    /// The tickets of those who wait, in their order.
    package var tickets: [UInt64] { self.places.lazy.filter { $0.waiter != nil }.map(\.ticket) }

    /// Lets those of `others` wait here, too, each under the ticket that it has.
    package mutating func merge(_ others: WaiterQueue) {
        self.places = (others.places + self.places).filter { $0.waiter != nil }.sorted { $0.ticket < $1.ticket }
        self.count = self.places.count
    }

    /// Removes and returns all who still wait, in the order of their tickets.
    package mutating func drain() -> [Waiter] {
        let waiters = self.places.compactMap(\.waiter)
        self.places = []
        self.count = 0
        return waiters
    }

    /// How many places there are, empty ones included.
    package var placeCount: Int { self.places.count }

    /// What is wrong with the order or the count; `nil` if nothing is.
    package func violation() -> String? {
        guard self.places.count(where: { $0.waiter != nil }) == self.count else { return "the count is wrong" }
        guard zip(self.places, self.places.dropFirst()).allSatisfy({ $0.ticket < $1.ticket }) else {
            return "tickets are out of order"
        }
        return nil
    }
}

extension WaiterQueue: Equatable, Hashable where Waiter: Hashable {}
extension WaiterQueue.Place: Equatable, Hashable where Waiter: Hashable {}
