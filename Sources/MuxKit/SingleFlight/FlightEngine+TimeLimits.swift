extension FlightEngine {
    // MARK: - Linger

    /// Starts the timer that cancels a flight without callers; called outside the lock.
    func startLinger(of flight: FlightID, _ key: Key, since ticket: Ticket) {
        guard let linger = self.options.linger else { return }
        let time = self.time
        let timer = self.spawn(name: "mux.linger") { [weak self] in
            guard (try? await time.sleep(for: linger)) != nil else { return }
            self?.endLinger(key, since: ticket)
        }
        let former = self.engineState.withLock { engineState -> Task<Void, Never>? in
            // If this linger has ended in the meantime, this timer is cancelled. For a later linger, a later
            // timer is responsible.
            guard let running = engineState.running[flight],
                engineState.machines[key]?.isLingering(since: ticket) ?? false
            else { return timer }
            engineState.running[flight]?.linger = timer
            return running.linger
        }
        former?.cancel()
    }

    private func endLinger(_ key: Key, since ticket: Ticket) {
        let flight = self.withEngineState { engineState in
            engineState.withMachine(of: key) { $0.endLinger(since: ticket) }
        }
        if let flight { self.cancel([flight]) }
    }

    // MARK: - Wait limit

    /// Starts a timer that answers callers that still wait after `duration`, if `instead` returns an answer.
    ///
    /// A flight that loses its last caller in this way continues, unless the flight is fenced.
    @usableFromInline
    func startWaitLimit(
        of callers: [(Ticket, Key)],
        _ duration: Duration,
        _ instead: @escaping AnswerAtLimit
    ) -> Task<Void, Never> {
        let time = self.time
        return self.spawn(name: "mux.patience") { [weak self] in
            guard (try? await time.sleep(for: duration)) != nil else { return }
            for (ticket, key) in callers { self?.waitLimitPassed(of: ticket, key, instead) }
        }
    }

    private func waitLimitPassed(of ticket: Ticket, _ key: Key, _ instead: AnswerAtLimit) {
        let now = self.time.now
        let (action, result) = self.withEngineState {
            engineState -> (FlightStateMachine.LeaveAction, Result<Output, any Error>?) in
            guard let result = instead(&engineState.state, key, ticket, now) else { return (.ignore, nil) }
            WaitForGraph.end(WaitForGraph.WaitID(self.number, ticket))
            return (engineState.withMachine(of: key) { $0.removeWaiter(ticket, abandonment: .finish) }, result)
        }
        if let result { self.carryOut(action, answering: result.map(Landing.output), key, ticket) }
    }

    // MARK: - Deadlines

    /// Starts the task that watches the deadlines of all flights.
    ///
    /// The task ends after a deadline if no other running flight has a deadline. The task also ends on
    /// cancellation, and after the release of the engine.
    @usableFromInline
    func watchDeadlines(from first: Moment) -> Task<Void, Never> {
        let time = self.time
        return self.spawn(name: "mux.deadlines") { [weak self] in
            var next: Moment? = first
            while let deadline = next {
                guard (try? await time.sleep(for: deadline.duration(since: time.now))) != nil else { return }
                next = self?.deadlinesPassed(at: time.now)
            }
        }
    }

    /// Ends the flights with a passed deadline.
    ///
    /// - Returns: The next deadline of a running flight; `nil` to end the watch.
    private func deadlinesPassed(at now: Moment) -> Moment? {
        self.expire(at: now) { $0.deadlines.takeDue(at: now) }
        let (next, forgotten) = self.engineState.withLock { engineState in
            let running = engineState.running
            let forgotten = engineState.deadlines.removeEnded { running[$0] != nil }
            let next = engineState.deadlines.next
            if next == nil { engineState.deadlines.isWatched = false }
            return (next, forgotten)
        }
        withExtendedLifetime(forgotten) {}  // released outside the lock
        return next
    }

    /// Answers the callers that wait for a flight with a leading caller, at the time limit of the work.
    ///
    /// Such a flight has no deadline in the engine, and the leading caller cancels the work.
    package func expire(_ flight: FlightID, of key: Key) {
        let now = self.time.now
        self.expire(at: now) { _ in [.init(moment: now, flight: flight, key: key)] }
    }

    /// Ends the flights of the deadlines that `due` returns under the lock.
    ///
    /// Callers in a cycle of waits get the error for a deadlock; all other callers get the time-out.
    private func expire(at now: Moment, _ due: (inout EngineState) -> [FlightDeadlines<Key>.Deadline]) {
        let (waiters, stuck, flights, released) = self.withEngineState { engineState in
            let due = due(&engineState)
            var released: [any Sendable] = [due]
            var waiters: Few<Waiter> = []
            var stuck: Few<Waiter> = []
            var flights: [FlightID] = []
            let cycles = WaitForGraph.ticketsInCycles(with: due.map { self.node($0.flight) })
            for deadline in due {
                let (flight, key) = (deadline.flight, deadline.key)
                let ticketsInCycle = cycles[self.node(flight)] ?? []
                if !ticketsInCycle.isEmpty {
                    stuck += engineState.withMachine(of: key) { $0.removeWaiters(ticketsInCycle, from: flight) }
                }
                let isCurrent = engineState.machines[key]?.currentFlight == flight
                guard let late = engineState.withMachine(of: key, { $0.expireFlight(flight) }) else { continue }
                if let former = self.options.whenTimedOut?(&engineState.state, key, isCurrent, now) {
                    released.append(former)
                }
                engineState.running[flight]?.hasTimedOut = true
                waiters += late
                flights.append(flight)
            }
            return (waiters, stuck, flights, released)
        }
        withExtendedLifetime(released) {}  // released outside the lock
        self.failStuck(stuck)
        Self.wake(waiters, with: .failure(self.options.timedOut))
        self.cancel(flights)
    }
}
