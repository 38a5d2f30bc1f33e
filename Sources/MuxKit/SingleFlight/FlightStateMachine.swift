/// Identifies one piece of running work; never used twice by one engine.
@usableFromInline package typealias FlightID = UInt64

/// Identifies one waiting caller; never used twice by one engine.
@usableFromInline package typealias Ticket = UInt64

/// Decides who waits for which piece of work of one key, and when work is started, adopted, cancelled or fenced off.
///
/// At most one flight is *current*: callers join it, and its outcome is the one to keep. A fence moves the current
/// flight aside: it still answers those who joined it before, and the next caller starts another. A flight that was
/// cancelled because nobody waited any more stays current until it has really ended, so that the next one never
/// overlaps it: whoever arrives in between gets its value if there is one after all, and a new flight if not.
///
/// `Waiter` is whatever the shell needs to wake a caller. Identifiers come from the shell, and none comes twice.
@usableFromInline
package struct FlightStateMachine<Waiter: Sendable>: Sendable {
    /// Why a flight keeps running.
    fileprivate enum Phase: Sendable, Hashable {
        /// Somebody waits, or the flight runs to its end in any case.
        case wanted
        /// Nobody waits; the flight is cancelled when the linger that began with this ticket has passed.
        case lingering(since: Ticket)
        /// The flight was told to stop and has not ended yet.
        case cancelled
    }

    /// One running piece of work.
    fileprivate struct Flight: Sendable {
        let id: FlightID
        var phase: Phase = .wanted
        var waiters = WaiterQueue<Waiter>()
        /// Whether it runs to its end though nobody waits.
        var mustFinish = false
    }

    /// The flight that callers join.
    private var current: Flight?

    /// Flights from before a fence that have not ended yet and whose callers still wait.
    private var detached: [Flight] = []

    package init() {}

    /// Nothing runs, so nothing more can happen to what happened so far.
    package var isIdle: Bool { self.current == nil && self.detached.isEmpty }

    /// How many callers wait, for all flights together.
    package var waiterCount: Int { self.detached.reduce(self.current?.waiters.count ?? 0) { $0 + $1.waiters.count } }

    /// The flight that a caller would join now.
    package var currentFlight: FlightID? { self.current?.id }

    /// The flight that was named first of all; `nil` if there is none.
    package var firstFlight: FlightID? { (self.detached.map(\.id) + [self.current?.id].compactMap(\.self)).min() }

    // MARK: - Arriving

    /// What to do for a caller who wants the outcome.
    @usableFromInline
    package enum RequestAction: Sendable, Equatable {
        /// Start this flight; the caller waits for it.
        case start(FlightID)
        /// The caller waits for this flight, which runs already.
        case join(FlightID)
        /// The caller waits for this flight, which nobody waited for any more; the linger is off.
        case adopt(FlightID)
    }

    /// A caller asks for the outcome and waits under `ticket`, which also names the flight if one has to start.
    package mutating func requested(by waiter: Waiter, ticket: Ticket) -> RequestAction {
        guard let id = self.current?.id, let phase = self.current?.phase else {
            var flight = Flight(id: ticket)
            flight.waiters.park(waiter, ticket: ticket)
            self.current = flight
            return .start(ticket)
        }
        // In place: a copy of the flight would copy all who wait, for each who comes.
        self.current?.waiters.park(waiter, ticket: ticket)
        switch phase {
        case .wanted, .cancelled:
            return .join(id)
        case .lingering:
            self.current?.phase = .wanted
            return .adopt(id)
        }
    }

    /// A flight starts that nobody waits for yet, and that runs to its end in any case.
    ///
    /// - Returns: `false`, and nothing has changed, if a flight is running.
    package mutating func begun(_ id: FlightID) -> Bool {
        guard self.current == nil else { return false }
        self.current = Flight(id: id, mustFinish: true)
        return true
    }

    /// The tickets of those who wait for the current flight.
    package var currentTickets: [Ticket] { self.current?.waiters.tickets ?? [] }

    /// There are answers, before the work of a flight begins, for those who wait under `tickets`.
    ///
    /// - Parameters:
    ///   - id: The flight.
    ///   - tickets: Who is answered.
    ///   - isOver: Whether the flight is over with that, if nobody else waits; otherwise it runs to its end in any case.
    /// - Returns: Who is answered, and whether the flight is over.
    package mutating func answeredEarly(
        _ id: FlightID,
        _ tickets: [Ticket],
        isOver: Bool
    ) -> (waiters: [Waiter], isOver: Bool) {
        guard var flight = self.current, flight.id == id else { return ([], false) }
        let waiters = tickets.compactMap { flight.waiters.leave($0) }
        if isOver, flight.waiters.isEmpty, !flight.mustFinish {
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

    /// What becomes of work that nobody waits for any more.
    package enum Abandonment: Sendable {
        /// It runs to its end and its outcome is kept.
        case finish
        /// It is cancelled at once.
        case cancel
        /// It is cancelled if nobody joins it for a while.
        case linger
    }

    /// What to do for a caller that leaves.
    package enum LeaveAction: Sendable {
        /// The caller is already answered.
        case ignore
        /// Tell the caller that it has left.
        case resume(Waiter)
        /// Tell the caller that it has left, and cancel the flight: nobody is left.
        case resumeAndCancel(Waiter, FlightID)
        /// Tell the caller that it has left, and start the linger of the flight: nobody is left.
        case resumeAndLinger(Waiter, FlightID)
    }

    /// The caller with this ticket does not want to wait any longer.
    package mutating func left(_ ticket: Ticket, abandonment: Abandonment) -> LeaveAction {
        if let waiter = self.current?.waiters.leave(ticket) {
            return self.currentWasLeft(by: waiter, ticket: ticket, abandonment: abandonment)
        }
        for index in self.detached.indices {
            guard let waiter = self.detached[index].waiters.leave(ticket) else { continue }
            guard self.detached[index].waiters.isEmpty else { return .resume(waiter) }
            return .resumeAndCancel(waiter, self.detached.remove(at: index).id)
        }
        return .ignore
    }

    private mutating func currentWasLeft(
        by waiter: Waiter,
        ticket: Ticket,
        abandonment: Abandonment
    ) -> LeaveAction {
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
            self.current?.phase = .lingering(since: ticket)
            return .resumeAndLinger(waiter, flight.id)
        }
    }

    /// Whether nobody has come since the caller with this ticket left.
    package func isLingering(since ticket: Ticket) -> Bool { self.current?.phase == .lingering(since: ticket) }

    /// The linger that began when the caller with this ticket left has passed.
    ///
    /// - Returns: The flight to cancel, or `nil` if somebody joined it in the meantime or it is over.
    package mutating func lingerPassed(since ticket: Ticket) -> FlightID? {
        guard let flight = self.current, flight.phase == .lingering(since: ticket) else { return nil }
        self.current?.phase = .cancelled
        return flight.id
    }

    // MARK: - Beginning

    /// The work of a flight is about to begin, which is what fences are about, after a look at the disk.
    ///
    /// A flight that a fence has passed before that is as good as a new one: it is current again, or, if there is another
    /// by now, its callers wait for that one.
    ///
    /// - Returns: Whether the work is to begin; otherwise the flight is over.
    package mutating func workBegins(_ id: FlightID) -> Bool {
        if self.current?.id == id { return true }
        guard let index = self.detached.firstIndex(where: { $0.id == id }) else { return false }
        let flight = self.detached.remove(at: index)
        guard var current = self.current else {
            self.current = flight
            return true
        }
        current.waiters.merge(flight.waiters)
        if case .lingering = current.phase { current.phase = .wanted }
        self.current = current
        return false
    }

    /// Takes out those of a flight who wait under `tickets`; the flight goes on.
    package mutating func taken(_ tickets: [Ticket], from id: FlightID) -> [Waiter] {
        if self.current?.id == id { return tickets.compactMap { self.current?.waiters.leave($0) } }
        guard let index = self.detached.firstIndex(where: { $0.id == id }) else { return [] }
        return tickets.compactMap { self.detached[index].waiters.leave($0) }
    }

    // MARK: - Ending

    /// What to do with the outcome of a flight.
    @usableFromInline
    package enum EndAction: Sendable {
        /// The flight was fenced off or cancelled, and nobody waits for it any more.
        case ignore
        /// Keep the outcome, then give it to these callers.
        case commit([Waiter])
        /// Give the outcome to these callers, and keep nothing of it.
        case answer([Waiter])
        /// The flight failed because it was cancelled, but callers came since: start this one for them.
        case restart(FlightID)
    }

    /// A flight has ended; `next` names the one to start if callers came after it was cancelled.
    package mutating func ended(_ id: FlightID, failed: Bool, next: FlightID) -> EndAction {
        if var flight = self.current, flight.id == id {
            self.current = nil
            guard failed, flight.phase == .cancelled else { return .commit(flight.waiters.drain()) }
            guard !flight.waiters.isEmpty else { return .ignore }
            self.current = Flight(id: next, waiters: flight.waiters)
            return .restart(next)
        }
        guard let index = self.detached.firstIndex(where: { $0.id == id }) else { return .ignore }
        var flight = self.detached.remove(at: index)
        // Whoever came after the cancellation, and before the fence, was not cancelled.
        guard failed, flight.phase == .cancelled, !flight.waiters.isEmpty else {
            return .answer(flight.waiters.drain())
        }
        guard var current = self.current else {
            self.current = Flight(id: next, waiters: flight.waiters)
            return .restart(next)
        }
        current.waiters.merge(flight.waiters)
        if case .lingering = current.phase { current.phase = .wanted }
        self.current = current
        return .ignore
    }

    /// A flight ran out of time: it is over for its callers, and the slot is free, whether or not the work obeys.
    ///
    /// - Returns: The callers to tell, or `nil` if the flight is over already.
    package mutating func deadlinePassed(_ id: FlightID) -> [Waiter]? {
        if self.current?.id == id {
            defer { self.current = nil }
            return self.current?.waiters.drain()
        }
        guard let index = self.detached.firstIndex(where: { $0.id == id }) else { return nil }
        var flight = self.detached.remove(at: index)
        return flight.waiters.drain()
    }

    // MARK: - Fencing

    /// What to do to the flights that began before a fence.
    package struct FenceAction: Sendable {
        /// Callers to answer now.
        package var answer: [Waiter] = []
        /// Flights to cancel: nobody waits for them any more.
        package var cancel: [FlightID] = []

        package init(answer: [Waiter] = [], cancel: [FlightID] = []) {
            self.answer = answer
            self.cancel = cancel
        }
    }

    /// From now on no flight that began before may have its outcome kept; its callers wait on and get it nevertheless.
    package mutating func detachedByFence() -> FenceAction {
        guard let flight = self.current else { return FenceAction() }
        self.current = nil
        guard !flight.waiters.isEmpty else { return FenceAction(cancel: [flight.id]) }
        self.detached.append(flight)
        return FenceAction()
    }

    /// See ``detachedByFence()`` and ``dismissedByFence()``.
    package mutating func fenced(dismissing: Bool) -> FenceAction {
        dismissing ? self.dismissedByFence() : self.detachedByFence()
    }

    /// From now on no flight that began before may have its outcome kept, and its callers do not wait for it any longer.
    package mutating func dismissedByFence() -> FenceAction {
        var action = FenceAction()
        for var flight in self.detached + [self.current].compactMap(\.self) {
            action.answer += flight.waiters.drain()
            action.cancel.append(flight.id)
        }
        self.current = nil
        self.detached = []
        return action
    }

    /// What contradicts the machine's own rules; `nil` if nothing does.
    package func violation() -> String? {
        let flights = self.detached + [self.current].compactMap(\.self)
        if Set(flights.map(\.id)).count != flights.count { return "two flights have one name" }
        if self.detached.contains(where: \.waiters.isEmpty) { return "a fenced flight is kept though nobody waits" }
        if case .lingering = self.current?.phase, self.current?.waiters.isEmpty == false {
            return "a flight lingers though somebody waits"
        }
        return flights.lazy.compactMap { $0.waiters.violation() }.first
    }
}

extension FlightStateMachine.LeaveAction: Equatable where Waiter: Equatable {}
extension FlightStateMachine.EndAction: Equatable where Waiter: Equatable {}
extension FlightStateMachine.FenceAction: Equatable where Waiter: Equatable {}

extension FlightStateMachine: Equatable, Hashable where Waiter: Hashable {}
extension FlightStateMachine.Flight: Equatable, Hashable where Waiter: Hashable {}

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
