import MuxKit

/// What decides about the flights of one key: the machine, or the machine with a bug planted in it.
protocol FlightDecider: Hashable, Sendable {
    typealias Machine = FlightStateMachine<Int>

    mutating func requested(by waiter: Int, ticket: Ticket) -> Machine.RequestAction
    mutating func begun(_ id: FlightID) -> Bool
    mutating func answeredEarly(_ id: FlightID) -> [Int]
    mutating func left(_ ticket: Ticket, abandonment: Machine.Abandonment) -> Machine.LeaveAction
    mutating func lingerPassed(since ticket: Ticket) -> FlightID?
    mutating func workBegins(_ id: FlightID) -> Bool
    mutating func ended(_ id: FlightID, failed: Bool, next: FlightID) -> Machine.EndAction
    mutating func deadlinePassed(_ id: FlightID) -> [Int]?
    mutating func detachedByFence() -> Machine.FenceAction
    mutating func dismissedByFence() -> Machine.FenceAction
    var waiterCount: Int { get }
    var isIdle: Bool { get }
    func violation() -> String?
}

extension FlightStateMachine<Int>: FlightDecider {
    /// All who wait are answered, and the flight runs to its end.
    mutating func answeredEarly(_ id: FlightID) -> [Int] {
        self.answeredEarly(id, self.currentTickets, isOver: false).waiters
    }
}
