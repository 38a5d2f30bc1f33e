/// The machine as the engine's inlined code uses it: what is not generic is compiled here, once.
extension FlightStateMachine<FlightWaiter> {
    @usableFromInline
    static var idle: Self { Self() }

    @usableFromInline var isOver: Bool { self.isIdle }

    @usableFromInline var flight: FlightID? { self.currentFlight }

    @usableFromInline
    mutating func arrives(_ waiter: FlightWaiter, ticket: Ticket) -> RequestAction {
        self.requested(by: waiter, ticket: ticket)
    }

    @usableFromInline
    mutating func starts(_ flight: FlightID) -> Bool { self.begun(flight) }

    @usableFromInline
    mutating func worksNow(_ flight: FlightID) -> Bool { self.workBegins(flight) }

    @usableFromInline
    mutating func ends(_ flight: FlightID, failed: Bool, next: FlightID) -> EndAction {
        self.ended(flight, failed: failed, next: next)
    }
}
