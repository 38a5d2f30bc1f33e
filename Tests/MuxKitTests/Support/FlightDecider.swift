import MuxKit

/// The decisions about the flights of one key, by the state machine or by the state machine with a planted
/// bug.
protocol FlightDecider: Hashable, Sendable {
    typealias Machine = FlightStateMachine

    mutating func addWaiter(_ waiter: FlightWaiter, mustFinish: Bool) -> Machine.RequestAction
    mutating func keepFlight(without waiter: FlightWaiter) -> Bool
    mutating func startFlight(_ id: FlightID) -> Bool
    mutating func answerWaitersEarly(_ id: FlightID) -> Few<FlightWaiter>
    mutating func answeredEnough(_ id: FlightID, all: Bool) -> EarlyEnd
    mutating func removeWaiter(_ ticket: Ticket, abandonment: Machine.Abandonment) -> Machine.LeaveAction
    mutating func endLinger(since ticket: Ticket) -> FlightID?
    mutating func beginWork(_ id: FlightID) -> Bool
    mutating func endFlight(_ id: FlightID, failed: Bool, next: FlightID, late: Ticket?) -> Machine.EndAction
    mutating func expireFlight(_ id: FlightID) -> Few<FlightWaiter>?
    mutating func fenceFlights(dismissing: Bool) -> Machine.FenceAction
    var waiterCount: Int { get }
    var isIdle: Bool { get }
    func violation() -> String?
}

/// The waiters that got a result before a flight's work began, and whether the flight is over.
struct EarlyEnd: Equatable {
    var waiters: Few<FlightWaiter> = []
    var isOver = false
}

extension FlightWaiter: ExpressibleByIntegerLiteral, CustomStringConvertible {
    private static let gathering = FlightGathering(first: 0, count: 1)

    /// A waiter that is only compared with other waiters.
    init(_ ticket: Ticket) { self.init(ticket, partOf: Self.gathering) }

    init(integerLiteral ticket: Ticket) { self.init(ticket) }

    var description: String { "\(self.ticket)" }
}

extension FlightStateMachine: FlightDecider {
    /// Gives all waiters a result; the flight continues.
    mutating func answerWaitersEarly(_ id: FlightID) -> Few<FlightWaiter> {
        self.answerWaitersEarly(id, self.currentTickets, isOver: false).waiters
    }

    /// Gives all waiters or the first waiter a result; the flight is over if no waiter remains.
    mutating func answeredEnough(_ id: FlightID, all: Bool) -> EarlyEnd {
        let tickets = all ? self.currentTickets : Array(self.currentTickets.prefix(1))
        let (waiters, isOver) = self.answerWaitersEarly(id, tickets, isOver: true)
        return EarlyEnd(waiters: waiters, isOver: isOver)
    }
}
