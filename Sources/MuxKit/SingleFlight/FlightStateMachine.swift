/// Identifies one flight; unique within its engine.
@usableFromInline package typealias FlightID = UInt64

/// Identifies one waiting caller; unique within its engine.
@usableFromInline package typealias Ticket = UInt64

/// Decides, for one key, when a flight is started, joined, adopted, cancelled or fenced, and which callers its end answers.
///
/// At most one flight is *current*: new callers join it, and its outcome is kept. A fence detaches the current flight: it
/// still answers the callers it has, and the next caller starts another flight. A flight that was cancelled because its last
/// caller left stays current until it has ended, so that its successor never overlaps it. Callers that join it meanwhile get its
/// value if it has one after all, and a new flight otherwise.
///
/// Tickets and flight identifiers are drawn by the engine.
@usableFromInline
package struct FlightStateMachine: Sendable, Hashable {
    /// Why a flight keeps running.
    private enum Phase: Sendable, Hashable {
        /// It has callers, or runs to its end in any case.
        case wanted
        /// It has no callers and is cancelled when the linger that began with this ticket has passed.
        case lingering(since: Ticket)
        /// It was cancelled and has not ended yet.
        case cancelled
    }

    private struct Flight: Sendable, Hashable {
        let id: FlightID
        var phase: Phase = .wanted
        var waiters = WaiterQueue()
        /// Whether it runs to its end even without callers.
        var mustFinish = false
    }

    /// The flight that callers join.
    private var current: Flight?

    /// Fenced flights that have not ended and still have callers.
    private var detached: [Flight] = []

    @usableFromInline
    package init() {}

    /// No flight is left, so the machine can be dropped.
    @usableFromInline
    package var isIdle: Bool { self.current == nil && self.detached.isEmpty }

    /// The number of waiting callers of all flights.
    package var waiterCount: Int { self.detached.reduce(self.current?.waiters.count ?? 0) { $0 + $1.waiters.count } }

    /// The flight that a caller would join now.
    @usableFromInline
    package var currentFlight: FlightID? { self.current?.id }

    /// Fenced flights that still have callers.
    @usableFromInline
    package var fencedFlights: [FlightID] { self.detached.map(\.id) }

    /// The tickets of the callers of the current flight.
    @usableFromInline
    package var currentTickets: [Ticket] { self.current?.waiters.tickets ?? [] }

    /// The flight that the caller with this ticket waits for; `nil` if the caller waits for none.
    func flight(of ticket: Ticket) -> FlightID? {
        if self.current?.waiters.contains(ticket) ?? false { return self.current?.id }
        return self.detached.first { $0.waiters.contains(ticket) }?.id
    }

    /// The oldest flight.
    package var firstFlight: FlightID? { (self.detached.map(\.id) + [self.current?.id].compactMap(\.self)).min() }

    private func detachedIndex(of id: FlightID) -> Int? { self.detached.firstIndex { $0.id == id } }

    /// Lets the callers of another flight wait for the current one; `false`, with no change, if there is none.
    private mutating func joinCurrent(_ others: WaiterQueue) -> Bool {
        guard self.current != nil else { return false }
        self.current?.waiters.merge(others)
        if case .lingering = self.current?.phase { self.current?.phase = .wanted }
        return true
    }

    // MARK: - Arriving

    @usableFromInline
    package enum RequestAction: Sendable, Equatable {
        /// Start this flight; the caller waits for it.
        case start(FlightID)
        /// The caller waits for this flight, which runs already.
        case join(FlightID)
        /// The caller waits for this flight, which had no callers; cancel its linger.
        case adopt(FlightID)
    }

    /// A caller waits for the outcome; its ticket also names the flight if one has to start.
    @usableFromInline
    package mutating func requested(by waiter: FlightWaiter) -> RequestAction {
        guard let id = self.current?.id, let phase = self.current?.phase else {
            var flight = Flight(id: waiter.ticket)
            flight.waiters.park(waiter)
            self.current = flight
            return .start(flight.id)
        }
        // In place: copying the flight would copy its queue on every arrival.
        self.current?.waiters.park(waiter)
        guard case .lingering = phase else { return .join(id) }
        self.current?.phase = .wanted
        return .adopt(id)
    }

    /// A flight starts without callers and runs to its end in any case.
    ///
    /// - Returns: `false`, with no change, if there is a current flight.
    @usableFromInline
    package mutating func begun(_ id: FlightID) -> Bool {
        guard self.current == nil else { return false }
        self.current = Flight(id: id, mustFinish: true)
        return true
    }

    /// Some callers of the current flight have their answer before its work begins.
    ///
    /// - Parameters:
    ///   - id: The flight.
    ///   - tickets: The callers that are answered.
    ///   - isOver: Whether the flight ends here if no other caller waits; otherwise it runs to its end in any case.
    ///   - isRenewed: Whether it ends then even if it was to run to its end.
    /// - Returns: The answered callers, and whether the flight has ended.
    @usableFromInline
    package mutating func answeredEarly(
        _ id: FlightID,
        _ tickets: [Ticket],
        isOver: Bool,
        isRenewed: Bool = false
    ) -> (waiters: [FlightWaiter], isOver: Bool) {
        guard var flight = self.current, flight.id == id else { return ([], false) }
        let waiters = tickets.compactMap { flight.waiters.leave($0) }
        if isOver, flight.waiters.isEmpty, !flight.mustFinish || isRenewed {
            self.current = nil
            return (waiters, true)
        }
        if !isOver {
            flight.mustFinish = true
            if case .lingering = flight.phase { flight.phase = .wanted }
        }
        self.current = flight
        return (waiters, false)
    }

    // MARK: - Leaving

    /// What becomes of the current flight when its last caller leaves.
    package enum Abandonment: Sendable {
        /// It runs to its end and its outcome is kept.
        case finish
        /// It is cancelled at once.
        case cancel
        /// It is cancelled unless a caller joins it within the linger.
        case linger
    }

    package enum LeaveAction: Sendable, Equatable {
        /// The caller is answered already.
        case ignore
        /// Resume the caller.
        case resume(FlightWaiter)
        /// Resume the caller, and cancel the flight, which has no callers left.
        case resumeAndCancel(FlightWaiter, FlightID)
        /// Resume the caller, and start the linger of the flight, which has no callers left.
        case resumeAndLinger(FlightWaiter, FlightID)
    }

    /// The caller with this ticket stops waiting.
    package mutating func left(_ ticket: Ticket, abandonment: Abandonment) -> LeaveAction {
        if let waiter = self.current?.waiters.leave(ticket) {
            return self.currentWasLeft(by: waiter, abandonment: abandonment)
        }
        for index in self.detached.indices {
            guard let waiter = self.detached[index].waiters.leave(ticket) else { continue }
            guard self.detached[index].waiters.isEmpty else { return .resume(waiter) }
            return .resumeAndCancel(waiter, self.detached.remove(at: index).id)
        }
        return .ignore
    }

    private mutating func currentWasLeft(by waiter: FlightWaiter, abandonment: Abandonment) -> LeaveAction {
        guard let flight = self.current, flight.waiters.isEmpty, flight.phase != .cancelled, !flight.mustFinish else {
            return .resume(waiter)
        }
        switch abandonment {
        case .finish:
            return .resume(waiter)
        case .cancel:
            self.current?.phase = .cancelled
            return .resumeAndCancel(waiter, flight.id)
        case .linger:
            self.current?.phase = .lingering(since: waiter.ticket)
            return .resumeAndLinger(waiter, flight.id)
        }
    }

    /// Whether the linger that began when the caller with this ticket left still counts.
    package func isLingering(since ticket: Ticket) -> Bool { self.current?.phase == .lingering(since: ticket) }

    /// The linger that began when the caller with this ticket left has passed.
    ///
    /// - Returns: The flight to cancel; `nil` if a caller joined it meanwhile, or it has ended.
    package mutating func lingerPassed(since ticket: Ticket) -> FlightID? {
        guard self.isLingering(since: ticket) else { return nil }
        self.current?.phase = .cancelled
        return self.currentFlight
    }

    /// Removes callers of a flight, which goes on.
    package mutating func taken(_ tickets: [Ticket], from id: FlightID) -> [FlightWaiter] {
        if self.currentFlight == id { return tickets.compactMap { self.current?.waiters.leave($0) } }
        guard let index = self.detachedIndex(of: id) else { return [] }
        return tickets.compactMap { self.detached[index].waiters.leave($0) }
    }

    // MARK: - Beginning and ending

    /// The work of a flight is about to begin, after the look at the disk; fences count from here on.
    ///
    /// A flight that was fenced before is as good as a new one: it becomes current again, or its callers move to the flight
    /// that is current by now.
    ///
    /// - Returns: Whether the work is to begin; otherwise the flight has ended.
    @usableFromInline
    package mutating func workBegins(_ id: FlightID) -> Bool {
        if self.currentFlight == id { return true }
        guard let index = self.detachedIndex(of: id) else { return false }
        let flight = self.detached.remove(at: index)
        if self.joinCurrent(flight.waiters) { return false }
        self.current = flight
        return true
    }

    @usableFromInline
    package enum EndAction: Sendable, Equatable {
        /// The flight was fenced or cancelled, and has no callers.
        case ignore
        /// Keep the outcome, then give it to these callers.
        case commit([FlightWaiter])
        /// Give the outcome to these callers, and do not keep it.
        case answer([FlightWaiter])
        /// The flight failed because it was cancelled, but callers came since: start this flight for them.
        case restart(FlightID)
    }

    /// A flight has ended; `next` names the flight to start if callers came after it was cancelled.
    @usableFromInline
    package mutating func ended(_ id: FlightID, failed: Bool, next: FlightID) -> EndAction {
        var flight: Flight
        let isCurrent = self.currentFlight == id
        if isCurrent, let current {
            flight = current
            self.current = nil
        } else if let index = self.detachedIndex(of: id) {
            flight = self.detached.remove(at: index)
        } else {
            return .ignore
        }
        guard failed, flight.phase == .cancelled else {
            return isCurrent ? .commit(flight.waiters.drain()) : .answer(flight.waiters.drain())
        }
        if flight.waiters.isEmpty || self.joinCurrent(flight.waiters) { return .ignore }
        self.current = Flight(id: next, waiters: flight.waiters)
        return .restart(next)
    }

    /// A flight ran out of time: it has ended for its callers, whether or not its work obeys the cancellation.
    ///
    /// - Returns: The callers to answer; `nil` if the flight has ended already.
    package mutating func deadlinePassed(_ id: FlightID) -> [FlightWaiter]? {
        if self.currentFlight == id {
            defer { self.current = nil }
            return self.current?.waiters.drain()
        }
        guard let index = self.detachedIndex(of: id) else { return nil }
        var flight = self.detached.remove(at: index)
        return flight.waiters.drain()
    }

    // MARK: - Fencing

    package struct FenceAction: Sendable, Equatable {
        /// Callers to answer now.
        package var answer: [FlightWaiter] = []
        /// Flights to cancel: they have no callers left.
        package var cancel: [FlightID] = []

        package init(answer: [FlightWaiter] = [], cancel: [FlightID] = []) {
            self.answer = answer
            self.cancel = cancel
        }
    }

    /// A fence: the outcome of no earlier flight is kept.
    ///
    /// - Parameter dismissing: Whether the callers of those flights are answered now; otherwise they wait for their outcome.
    /// - Returns: What has to be done.
    package mutating func fenced(dismissing: Bool) -> FenceAction {
        defer { self.current = nil }
        guard dismissing else {
            guard let flight = self.current else { return FenceAction() }
            if flight.waiters.isEmpty { return FenceAction(cancel: [flight.id]) }
            self.detached.append(flight)
            return FenceAction()
        }
        var action = FenceAction()
        for var flight in self.detached + [self.current].compactMap(\.self) {
            action.answer += flight.waiters.drain()
            action.cancel.append(flight.id)
        }
        self.detached = []
        return action
    }

    /// A broken invariant; `nil` if there is none.
    package func violation() -> String? {
        let flights = self.detached + [self.current].compactMap(\.self)
        if Set(flights.map(\.id)).count != flights.count { return "two flights have one identifier" }
        if self.detached.contains(where: \.waiters.isEmpty) { return "a fenced flight without callers is kept" }
        if case .lingering = self.current?.phase, self.current?.waiters.isEmpty == false {
            return "a flight with callers lingers"
        }
        return flights.lazy.compactMap { $0.waiters.violation() }.first
    }
}
