/// Identifies one flight; unique within its engine.
@usableFromInline package typealias FlightID = UInt64

/// Identifies one caller; unique within its engine.
@usableFromInline package typealias Ticket = UInt64

/// The flights and waiters of one key.
///
/// - At most one flight is *current*: new callers join the current flight, and the end of the current flight
///   usually commits the outcome.
/// - After a *fence*, the current flight is no longer current, so the next caller starts another flight. A
///   fenced flight with waiters is *detached*: the flight still answers the waiters, but does not commit the
///   outcome. When the work begins, ``beginWork(_:)`` ends the effect of earlier fences on the flight.
/// - A current flight that is cancelled after the departure of its waiters stays current until the work ends,
///   so the next flight starts afterwards; only a fence or the deadline removes the flight earlier.
/// - Callers may join a cancelled flight, which may still succeed. After a failure of this flight, another
///   flight serves these callers.
///
/// The engine draws tickets and flight identifiers from one counter.
@usableFromInline
package struct FlightStateMachine: Sendable, Hashable {
    /// The effect of the departures of callers on a flight.
    private enum Phase: Sendable, Hashable {
        /// The flight has callers, or continues without callers.
        case wanted
        /// The flight has no callers: its linger began when the caller with this ticket left.
        case lingering(since: Ticket)
        /// The flight was cancelled at the departure of its last caller, or at the end of the linger; callers
        /// may have joined since.
        case cancelled
    }

    private struct Flight: Sendable, Hashable {
        let id: FlightID
        var phase: Phase = .wanted
        var waiters = WaiterQueue()
        /// Whether the flight continues after the departure of its last caller, unless fenced.
        var mustFinish = false
    }

    /// The flight that callers join.
    private var current: Flight?

    /// Fenced flights with callers.
    private var detached: [Flight] = []

    @usableFromInline
    package init() {}

    /// Whether no flight is left: an idle machine can be removed.
    @usableFromInline
    package var isIdle: Bool { self.currentFlight == nil && self.detached.isEmpty }

    /// The number of waiting callers of all flights.
    package var waiterCount: Int { self.detached.reduce(self.current?.waiters.count ?? 0) { $0 + $1.waiters.count } }

    /// The flight that a new caller would join.
    @usableFromInline
    package var currentFlight: FlightID? { self.current?.id }

    /// Fenced flights with callers.
    @usableFromInline
    package var fencedFlights: [FlightID] { self.detached.map(\.id) }

    /// The tickets of the callers of the current flight.
    @usableFromInline
    package var currentTickets: [Ticket] { self.current?.waiters.tickets ?? [] }

    /// The flight that the caller with this ticket waits for; `nil` if the caller does not wait.
    func flight(of ticket: Ticket) -> FlightID? {
        if self.current?.waiters.contains(ticket) ?? false { return self.current?.id }
        return self.detached.first { $0.waiters.contains(ticket) }?.id
    }

    /// The flight with the smallest identifier, usually the oldest flight.
    package var firstFlight: FlightID? { (self.detached.map(\.id) + [self.current?.id].compactMap(\.self)).min() }

    private func detachedIndex(of id: FlightID) -> Int? { self.detached.firstIndex { $0.id == id } }

    /// Removes a flight; `nil` if the machine no longer has the flight.
    private mutating func remove(_ id: FlightID) -> Flight? {
        if self.currentFlight == id { return self.current.take() }
        return self.detachedIndex(of: id).map { self.detached.remove(at: $0) }
    }

    /// Adds waiters of another flight to the current flight; `false`, with no change, without a current
    /// flight.
    ///
    /// If the other flight must finish, the current flight must finish, too.
    private mutating func joinCurrent(_ others: WaiterQueue, mustFinish: Bool) -> Bool {
        guard self.currentFlight != nil else { return false }
        self.current?.waiters.merge(others)
        self.endCurrentLinger(mustFinish: mustFinish)
        return true
    }

    // MARK: - Arriving

    @usableFromInline
    package enum RequestAction: Sendable, Equatable {
        /// Start this flight; the caller waits for the flight.
        case start(FlightID)
        /// The caller waits for this running flight.
        case join(FlightID)
        /// The caller waits for this flight, which lingered without callers; stop the timer of the linger.
        case adopt(FlightID)
    }

    /// Adds a waiting caller; the identifier of a new flight is the caller's ticket.
    ///
    /// - Parameters:
    ///   - waiter: The caller.
    ///   - mustFinish: `true` if the departure of all callers must not cancel the flight, unless the flight
    ///     is fenced; `false` does not change a running flight.
    /// - Returns: The flight for which the caller waits.
    @usableFromInline
    package mutating func addWaiter(_ waiter: FlightWaiter, mustFinish: Bool = false) -> RequestAction {
        guard let id = self.current?.id, let phase = self.current?.phase else {
            var flight = Flight(id: waiter.ticket, mustFinish: mustFinish)
            flight.waiters.add(waiter)
            self.current = flight
            return .start(flight.id)
        }
        // In place: a copy of the flight would copy the queue on every arrival.
        self.current?.waiters.add(waiter)
        if mustFinish { self.current?.mustFinish = true }
        guard case .lingering = phase else { return .join(id) }
        self.current?.phase = .wanted
        return .adopt(id)
    }

    /// Starts a flight without callers, which must finish.
    ///
    /// - Returns: `false`, with no change, if another flight is current.
    @usableFromInline
    package mutating func startFlight(_ id: FlightID) -> Bool {
        guard self.currentFlight == nil else { return false }
        self.current = Flight(id: id, mustFinish: true)
        return true
    }

    /// Starts a flight without callers, or makes the current flight finish, for a caller with a stale value.
    ///
    /// - Returns: Whether to start the flight `id`.
    @usableFromInline
    package mutating func startOrKeepFlight(_ id: FlightID) -> Bool {
        guard !self.startFlight(id) else { return true }
        self.endCurrentLinger(mustFinish: true)
        return false
    }

    /// For a cancelled caller: makes the current flight, or a new flight, finish without this caller.
    ///
    /// - Returns: Whether to start a new flight, whose identifier is the caller's ticket.
    @usableFromInline
    package mutating func keepFlight(without waiter: FlightWaiter) -> Bool {
        let action = self.addWaiter(waiter, mustFinish: true)
        _ = self.removeWaiter(waiter.ticket, abandonment: .finish)
        return action == .start(waiter.ticket)
    }

    /// Removes callers of the current flight, to be answered before the work begins.
    ///
    /// - Parameters:
    ///   - id: The flight.
    ///   - tickets: The callers to answer.
    ///   - isOver: `true` to end the flight, unless other callers wait or the flight must finish; `false` to
    ///     make the flight finish even without callers, if a caller is answered.
    ///   - isRenewed: Whether `isOver` also ends a flight that must finish.
    /// - Returns: The removed callers, and whether the flight has ended.
    @usableFromInline
    package mutating func answerWaitersEarly(
        _ id: FlightID,
        _ tickets: [Ticket],
        isOver: Bool,
        isRenewed: Bool = false
    ) -> (waiters: Few<FlightWaiter>, isOver: Bool) {
        guard var flight = self.current, flight.id == id else { return ([], false) }
        let waiters = Few(tickets.compactMap { flight.waiters.remove($0) })
        if isOver, flight.waiters.isEmpty, !flight.mustFinish || isRenewed {
            self.current = nil
            return (waiters, true)
        }
        self.current = flight
        // Without an answered caller, no caller depends on the end of the flight.
        if !isOver, !waiters.isEmpty { self.endCurrentLinger(mustFinish: true) }
        return (waiters, false)
    }

    /// Ends the linger of the current flight; with `mustFinish`, the flight also finishes without callers.
    ///
    /// If the flight is cancelled and must finish, another flight follows.
    private mutating func endCurrentLinger(mustFinish: Bool) {
        if mustFinish { self.current?.mustFinish = true }
        if case .lingering = self.current?.phase { self.current?.phase = .wanted }
    }

    // MARK: - Leaving

    /// The effect on the current flight when its last caller leaves, unless the flight must finish.
    ///
    /// A fenced flight is cancelled at once in all cases.
    package enum Abandonment: Sendable {
        /// The flight continues without callers.
        case finish
        /// The flight is cancelled at once.
        case cancel
        /// The flight is cancelled unless a caller joins within the linger.
        case linger
    }

    package enum LeaveAction: Sendable, Equatable {
        /// The caller has not arrived yet, or is answered already.
        case ignore
        /// Resume the caller.
        case resume(FlightWaiter)
        /// Resume the caller, and cancel the flight, which has no callers left.
        case resumeAndCancel(FlightWaiter, FlightID)
        /// Resume the caller, and start the linger of the flight, which has no callers left.
        case resumeAndLinger(FlightWaiter, FlightID)
    }

    /// Removes the caller with this ticket, which is cancelled or has reached its wait limit.
    package mutating func removeWaiter(_ ticket: Ticket, abandonment: Abandonment) -> LeaveAction {
        if let waiter = self.current?.waiters.remove(ticket) {
            return self.currentWasLeft(by: waiter, abandonment: abandonment)
        }
        for index in self.detached.indices {
            guard let waiter = self.detached[index].waiters.remove(ticket) else { continue }
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

    /// Whether the linger that began when the caller with this ticket left still runs.
    package func isLingering(since ticket: Ticket) -> Bool { self.current?.phase == .lingering(since: ticket) }

    /// Ends the linger that began when the caller with this ticket left.
    ///
    /// - Returns: The flight to cancel; `nil` if the linger has ended before, such as by a new caller.
    package mutating func endLinger(since ticket: Ticket) -> FlightID? {
        guard self.isLingering(since: ticket) else { return nil }
        self.current?.phase = .cancelled
        return self.currentFlight
    }

    /// Removes callers of a flight, which continues.
    ///
    /// If a fenced flight may lose all callers, ``expireFlight(_:)`` must follow: a fenced flight without
    /// callers must not stay in the machine.
    package mutating func removeWaiters(_ tickets: [Ticket], from id: FlightID) -> Few<FlightWaiter> {
        if self.currentFlight == id { return Few(tickets.compactMap { self.current?.waiters.remove($0) }) }
        guard let index = self.detachedIndex(of: id) else { return [] }
        return Few(tickets.compactMap { self.detached[index].waiters.remove($0) })
    }

    // MARK: - Beginning and ending

    /// Reports that the work of a flight begins: only later fences affect the flight.
    ///
    /// Before the work begins, a fenced flight is equivalent to a new flight. A fenced flight with callers
    /// therefore becomes current again. If another flight is current, the callers move to the current flight
    /// instead, and the fenced flight ends.
    ///
    /// - Returns: Whether to begin the work; otherwise the flight has ended.
    @usableFromInline
    package mutating func beginWork(_ id: FlightID) -> Bool {
        if self.currentFlight == id { return true }
        guard let flight = self.remove(id) else { return false }
        if self.joinCurrent(flight.waiters, mustFinish: flight.mustFinish) { return false }
        self.current = flight
        return true
    }

    @usableFromInline
    package enum EndAction: Sendable, Equatable {
        /// The machine no longer has this flight; or the flight failed after a cancellation, and either its
        /// callers have moved to the current flight, or the flight has no callers and need not finish.
        case ignore
        /// Keep the outcome, then resume these callers with the outcome.
        case commit(Few<FlightWaiter>)
        /// Resume these callers with the outcome, and do not keep the outcome.
        case answer(Few<FlightWaiter>)
        /// Resume these callers with the outcome, do not keep the outcome, and start this flight for the
        /// callers that must not get the outcome; `nil` if these callers have moved to the current flight.
        case answerAndRestart(Few<FlightWaiter>, FlightID?)
        /// The flight failed after a cancellation, but callers have joined, or the flight must finish: start
        /// this flight instead.
        case restart(FlightID)
    }

    /// Ends a flight.
    ///
    /// - Parameters:
    ///   - id: The flight.
    ///   - failed: Whether the work failed.
    ///   - next: The identifier of a new flight that replaces a cancelled or outdated flight.
    ///   - late: For an outdated outcome, the smallest ticket of the callers that must not get the outcome;
    ///     otherwise `nil`. Ignored after a failure.
    /// - Returns: The effect on the callers.
    @usableFromInline
    package mutating func endFlight(_ id: FlightID, failed: Bool, next: FlightID, late: Ticket? = nil) -> EndAction {
        let isCurrent = self.currentFlight == id
        guard var flight = self.remove(id) else { return .ignore }
        guard failed, flight.phase == .cancelled else {
            if let late, !failed {
                let later = flight.waiters.split(from: late)
                let answered = flight.waiters.drain()
                guard !later.isEmpty else { return .answer(answered) }
                if self.joinCurrent(later, mustFinish: flight.mustFinish) { return .answerAndRestart(answered, nil) }
                self.current = Flight(id: next, waiters: later, mustFinish: flight.mustFinish)
                return .answerAndRestart(answered, next)
            }
            return isCurrent ? .commit(flight.waiters.drain()) : .answer(flight.waiters.drain())
        }
        let mustFinish = flight.mustFinish
        if flight.waiters.isEmpty ? !mustFinish : self.joinCurrent(flight.waiters, mustFinish: mustFinish) {
            return .ignore
        }
        self.current = Flight(id: next, waiters: flight.waiters, mustFinish: mustFinish)
        return .restart(next)
    }

    /// Ends a flight for its callers at the deadline, although the work still runs.
    ///
    /// - Returns: The callers to answer; `nil` if the machine no longer has the flight.
    package mutating func expireFlight(_ id: FlightID) -> Few<FlightWaiter>? {
        guard var flight = self.remove(id) else { return nil }
        return flight.waiters.drain()
    }

    // MARK: - Fencing

    package struct FenceAction: Sendable, Equatable {
        /// Callers to answer now.
        package var answer: Few<FlightWaiter> = []
        /// Flights to cancel; no caller waits for these flights.
        package var cancel: [FlightID] = []

        package init(answer: Few<FlightWaiter> = [], cancel: [FlightID] = []) {
            self.answer = answer
            self.cancel = cancel
        }
    }

    /// Sets a fence: the outcome of a flight whose work began before the fence is not kept.
    ///
    /// - Parameter dismissing: Whether the callers of all flights are answered now; otherwise the callers
    ///   wait for the outcome of their flight.
    /// - Returns: The callers to answer, and the flights to cancel.
    package mutating func fenceFlights(dismissing: Bool) -> FenceAction {
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

    /// A broken invariant; `nil` for a valid value.
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
