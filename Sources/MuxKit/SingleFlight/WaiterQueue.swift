/// Waiters in the order of their tickets, each of which can leave before its turn.
///
/// Leaving costs O(log n): places are sorted by ticket, and a vacated place stays until vacated places outnumber occupied ones.
/// Draining walks an array, which is why this is not a dictionary.
///
/// Tickets are drawn before arrival, so a waiter may arrive after one with a later ticket; it is placed before that one.
package struct WaiterQueue: Sendable, Hashable {
    private enum Place: Sendable, Hashable {
        case occupied(FlightWaiter)
        case vacated(Ticket)

        var waiter: FlightWaiter? {
            guard case .occupied(let waiter) = self else { return nil }
            return waiter
        }

        var ticket: Ticket {
            switch self {
            case .occupied(let waiter): waiter.ticket
            case .vacated(let ticket): ticket
            }
        }
    }

    private var places: [Place] = []

    package private(set) var count = 0

    package init() {}

    package var isEmpty: Bool { self.count == 0 }

    /// Adds a waiter, whose ticket is unique.
    package mutating func park(_ waiter: FlightWaiter) {
        let isLast = self.places.last.map { $0.ticket < waiter.ticket } ?? true
        self.places.insert(.occupied(waiter), at: isLast ? self.places.endIndex : self.index(of: waiter.ticket))
        self.count += 1
    }

    /// The index of the first place that is not before `ticket`.
    private func index(of ticket: Ticket) -> Int {
        var low = 0
        var high = self.places.count
        while low < high {
            let middle = (low + high) / 2
            if self.places[middle].ticket < ticket { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Removes and returns the waiter with `ticket`; `nil` if it is not in the queue.
    package mutating func leave(_ ticket: Ticket) -> FlightWaiter? {
        let index = self.index(of: ticket)
        guard index < self.places.count, let waiter = self.places[index].waiter, waiter.ticket == ticket else {
            return nil
        }
        self.places[index] = .vacated(ticket)
        self.count -= 1
        if self.count < self.places.count / 2 { self.places.removeAll { $0.waiter == nil } }
        return waiter
    }

    /// The tickets of all waiters, ascending.
    package var tickets: [Ticket] { self.places.compactMap(\.waiter?.ticket) }

    /// Adds the waiters of another queue.
    package mutating func merge(_ others: WaiterQueue) {
        self.places = (others.places + self.places).filter { $0.waiter != nil }.sorted { $0.ticket < $1.ticket }
        self.count = self.places.count
    }

    /// Removes and returns all waiters, by ascending ticket.
    package mutating func drain() -> [FlightWaiter] {
        let waiters = self.places.compactMap(\.waiter)
        self = WaiterQueue()
        return waiters
    }

    /// The number of places, vacated ones included.
    package var placeCount: Int { self.places.count }

    /// A broken invariant; `nil` if there is none.
    package func violation() -> String? {
        guard self.places.count(where: { $0.waiter != nil }) == self.count else { return "the count is wrong" }
        guard zip(self.places, self.places.dropFirst()).allSatisfy({ $0.ticket < $1.ticket }) else {
            return "tickets are out of order"
        }
        return nil
    }
}
