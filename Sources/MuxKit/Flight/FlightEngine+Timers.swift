extension FlightEngine {
    // MARK: - Lingering

    func startLinger(of flight: FlightID, _ key: Key, since ticket: Ticket) {
        guard let linger = self.options.linger else { return }
        let time = self.time
        let timer = self.spawn(name: "mux.linger") { [weak self] in
            guard (try? await time.sleep(for: linger)) != nil else { return }
            self?.lingerPassed(key, since: ticket)
        }
        let former = self.board.withLock { board -> Task<Void, Never>? in
            // Somebody may have come, and even left again, since: then this timer is not the one that counts.
            guard let running = board.running[flight], board.machines[key]?.isLingering(since: ticket) ?? false
            else { return timer }
            board.running[flight]?.linger = timer
            return running.linger
        }
        former?.cancel()
    }

    private func lingerPassed(_ key: Key, since ticket: Ticket) {
        let flight = self.board.withLock { board in board.withMachine(of: key) { $0.lingerPassed(since: ticket) } }
        if let flight { self.cancel([flight]) }
    }

    // MARK: - Patience

    /// Gives the caller what there is instead if it still waits after `duration`; the flight goes on.
    @usableFromInline
    func startPatience(
        of ticket: Ticket,
        _ key: Key,
        _ duration: Duration,
        _ instead: @escaping Instead
    ) -> Task<Void, Never> {
        self.startPatience(of: [(ticket, key)], duration) { state, _, _, now in instead(&state, now) }
    }

    /// Gives those of the callers who still wait after `duration` what there is instead; the flights go on.
    func startPatience(
        of callers: [(Ticket, Key)],
        _ duration: Duration,
        _ instead: @escaping @Sendable (inout State, Key, Ticket, Moment) -> Result<Output, any Error>?
    ) -> Task<Void, Never> {
        let time = self.time
        return self.spawn(name: "mux.patience") { [weak self] in
            guard (try? await time.sleep(for: duration)) != nil else { return }
            for (ticket, key) in callers { self?.patienceEnded(of: ticket, key) { instead(&$0, key, ticket, $1) } }
        }
    }

    private func patienceEnded(of ticket: Ticket, _ key: Key, _ instead: Instead) {
        let now = self.time.now
        let (action, result) = self.board.withLock {
            board -> (FlightStateMachine<Waiter>.LeaveAction, Result<Output, any Error>?) in
            guard let output = instead(&board.state, now) else { return (.ignore, nil) }
            FlightGraph.end(FlightGraph.WaitID(self, ticket))
            return (board.withMachine(of: key) { $0.left(ticket, abandonment: .finish) }, output)
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
        let (isFirst, forgotten) = self.board.withLock { board -> (Bool, any Sendable) in
            let forgotten = board.deadlines.takeForgotten()
            guard !board.deadlines.isWatched, !board.deadlines.isEmpty else { return (false, forgotten) }
            board.deadlines.isWatched = true
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
        self.board.withLock { $0.watch = watch }
    }

    /// The deadline to sleep for; `nil` if there is none, and then nobody watches any more.
    private func nextDeadline() -> Moment? {
        let (next, forgotten) = self.board.withLock { board in
            let running = board.running
            let next = board.deadlines.next { running[$0] != nil }
            if next == nil { board.deadlines.isWatched = false }
            return (next, board.deadlines.takeForgotten())
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

    private func expire(at now: Moment, _ due: (inout Board) -> [(FlightID, Key)]) {
        let (waiters, stuck, flights) = self.board.withLock { board in
            var waiters: [Waiter] = []
            var stuck: [Waiter] = []
            var flights: [FlightID] = []
            for (flight, key) in due(&board) {
                let circle = FlightGraph.ticketsInCircle(with: self.node(key, flight))
                if !circle.isEmpty { stuck += board.withMachine(of: key) { $0.taken(circle, from: flight) } }
                guard let late = board.withMachine(of: key, { $0.deadlinePassed(flight) }) else { continue }
                self.options.whenTimedOut?(&board.state, now)
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
