extension FlightEngine {
    // MARK: - Lingering

    func startLinger(of flight: FlightID, _ key: Key, since ticket: Ticket) {
        guard let linger = self.options.linger else { return }
        let time = self.time
        let timer = self.spawn(name: "mux.linger") { [weak self] in
            guard (try? await time.sleep(for: linger)) != nil else { return }
            self?.lingerPassed(key, since: ticket)
        }
        let former = self.engineState.withLock { engineState -> Task<Void, Never>? in
            // Somebody may have come, and even left again, since: then this timer is not the one that counts.
            guard let running = engineState.running[flight],
                engineState.machines[key]?.isLingering(since: ticket) ?? false
            else { return timer }
            engineState.running[flight]?.linger = timer
            return running.linger
        }
        former?.cancel()
    }

    private func lingerPassed(_ key: Key, since ticket: Ticket) {
        let flight = self.engineState.withLock { engineState in
            engineState.withMachine(of: key) { $0.lingerPassed(since: ticket) }
        }
        if let flight { self.cancel([flight]) }
    }

    // MARK: - Patience

    /// Gives the caller what there is instead if it still waits after `duration`; the flight goes on.
    @usableFromInline
    func startWaitLimit(
        of ticket: Ticket,
        _ key: Key,
        _ duration: Duration,
        _ instead: @escaping Instead
    ) -> Task<Void, Never> {
        self.startWaitLimit(of: [(ticket, key)], duration) { state, _, _, now in instead(&state, now) }
    }

    /// Gives those of the callers who still wait after `duration` what there is instead; the flights go on.
    func startWaitLimit(
        of callers: [(Ticket, Key)],
        _ duration: Duration,
        _ instead: @escaping @Sendable (inout State, Key, Ticket, Moment) -> Result<Output, any Error>?
    ) -> Task<Void, Never> {
        let time = self.time
        return self.spawn(name: "mux.patience") { [weak self] in
            guard (try? await time.sleep(for: duration)) != nil else { return }
            for (ticket, key) in callers { self?.waitLimitPassed(of: ticket, key) { instead(&$0, key, ticket, $1) } }
        }
    }

    private func waitLimitPassed(of ticket: Ticket, _ key: Key, _ instead: Instead) {
        let now = self.time.now
        let (action, result) = self.engineState.withLock {
            engineState -> (FlightStateMachine<Waiter>.LeaveAction, Result<Output, any Error>?) in
            guard let output = instead(&engineState.state, now) else { return (.ignore, nil) }
            WaitForGraph.end(WaitForGraph.WaitID(self, ticket))
            return (engineState.withMachine(of: key) { $0.left(ticket, abandonment: .finish) }, output)
        }
        guard let result else { return }
        switch action {
        case .ignore: break
        case .resume(let waiter), .resumeAndLinger(let waiter, _):
            waiter.resume(with: Answer(result.map(Landing.output)))
        case .resumeAndCancel(let waiter, let flight):
            waiter.resume(with: Answer(result.map(Landing.output)))
            self.cancel([flight])
        }
    }

    // MARK: - Deadlines

    /// Sees to it that deadlines are kept, by one task for all flights, which ends when there are none left.
    @inlinable
    func watchDeadlines() {
        guard self.options.deadline != nil else { return }
        let (isFirst, forgotten) = self.engineState.withLock { engineState -> (Bool, any Sendable) in
            let forgotten = engineState.deadlines.takeForgotten()
            guard !engineState.deadlines.isWatched, !engineState.deadlines.isEmpty else { return (false, forgotten) }
            engineState.deadlines.isWatched = true
            return (true, forgotten)
        }
        withExtendedLifetime(forgotten) {}  // let go of outside the lock
        if isFirst { self.beginWatch() }
    }

    @usableFromInline
    func beginWatch() {
        let time = self.time
        let watch = self.spawn(name: "mux.deadlines") { [weak self] in
            while let next = self?.nextDeadline() {
                guard (try? await time.sleep(for: next.duration(since: time.now))) != nil else { return }
                self?.deadlinesPassed(at: time.now)
            }
        }
        self.engineState.withLock { $0.watch = watch }
    }

    /// The deadline to sleep for; `nil` if there is none, and then nobody watches any more.
    private func nextDeadline() -> Moment? {
        let (next, forgotten) = self.engineState.withLock { engineState in
            let running = engineState.running
            let next = engineState.deadlines.next { running[$0] != nil }
            if next == nil { engineState.deadlines.isWatched = false }
            return (next, engineState.deadlines.takeForgotten())
        }
        withExtendedLifetime(forgotten) {}  // let go of outside the lock
        return next
    }

    private func deadlinesPassed(at now: Moment) {
        self.expire(at: now) { $0.deadlines.takeDue(at: now) }
    }

    /// Answers those who wait for a flight that takes too long, and leaves it to itself.
    package func expire(_ flight: FlightID, of key: Key) {
        self.expire(at: self.time.now) { _ in [(flight, key)] }
    }

    private func expire(at now: Moment, _ due: (inout EngineState) -> [(FlightID, Key)]) {
        let (waiters, stuck, flights) = self.engineState.withLock { engineState in
            var waiters: [Waiter] = []
            var stuck: [Waiter] = []
            var flights: [FlightID] = []
            for (flight, key) in due(&engineState) {
                let circle = WaitForGraph.ticketsInCircle(with: self.node(key, flight))
                if !circle.isEmpty { stuck += engineState.withMachine(of: key) { $0.taken(circle, from: flight) } }
                guard let late = engineState.withMachine(of: key, { $0.deadlinePassed(flight) }) else { continue }
                self.options.whenTimedOut?(&engineState.state, now)
                waiters += late
                flights.append(flight)
            }
            return (waiters, stuck, flights)
        }
        self.tellStuck(stuck)
        Self.wake(waiters, with: .failure(self.options.timedOut))
        self.cancel(flights)
    }
}
