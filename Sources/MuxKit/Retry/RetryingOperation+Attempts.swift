import Foundation

extension RetryingOperation {
    /// Makes the attempt with this index, if the host is not to be left alone.
    func makeAttempt(_ index: Int) {
        let pass: RetryHost.Pass?
        if let host = self.course.host {
            guard let admitted = host.admit(isRetry: index > 0) else { return self.giveUp(.hostDown) }
            pass = admitted
        } else {
            pass = nil
        }
        let now = self.course.time.now
        let (attempt, isCancelled) = self.state.withLock { state -> (RetryAttempt, Bool) in
            let began = state.machine.elapsed(at: now)
            let attempt = RetryAttempt(
                index: index,
                elapsed: began,
                previousError: state.history.attempts.last?.error
            )
            state.open = Open(index: index, began: began, pass: pass)
            return (attempt, state.machine.phase == .finished)
        }
        guard !isCancelled else {
            pass?.cancelled()
            return self.finish(.failure(CancellationError()))
        }
        self.course.log(.attempt(index))
        let run = Run(attempt: attempt, operation: self)
        self.onQueue { [base] in base(run) }
    }

    /// Calls `handler` when the operation is cancelled during that attempt, or now if it is.
    func onCancel(of index: Int, _ handler: @escaping @Sendable () -> Void) {
        let isCancelled = self.state.withLock { state -> Bool in
            guard state.open?.index == index else { return false }
            if state.machine.phase == .finished { return true }
            state.open?.onCancel = handler
            return false
        }
        if isCancelled { handler() }
    }

    /// The attempt with this index has ended.
    ///
    /// Only the first word on an attempt counts.
    func ended(_ index: Int, _ result: Result<Output, any Error>, _ plan: RetryPlan, reason: RetryError.Reason? = nil) {
        let now = self.course.time.now
        let (open, elapsed) = self.state.withLock { state -> (Open?, Duration) in
            guard let open = state.open, open.index == index else { return (nil, .zero) }
            state.open = nil
            return (open, state.machine.elapsed(at: now))
        }
        guard let open else { return }
        switch result {
        case .success:
            open.pass?.succeeded()
            self.finish(result)
        case .failure(let error):
            if error is CancellationError || self.isCancelled {
                open.pass?.cancelled()
                self.finish(.failure(CancellationError()))
            } else {
                let failure = RetryFailure(error: error, attempt: index, elapsed: elapsed)
                self.state.withLock { $0.history.add(failure, began: open.began) }
                self.course.log(.failed(index, errorType: "\(type(of: error))"))
                if let reason {
                    open.pass?.cancelled()
                    self.giveUp(reason)
                } else {
                    open.pass?.failed(error)
                    self.follow(failure, plan)
                }
            }
        }
    }

    private func follow(_ failure: RetryFailure, _ plan: RetryPlan) {
        let (verdict, wakeUps) = self.course.verdict(on: failure, plan: plan)
        let now = self.course.time.now
        let random = self.course.random()
        switch self.state.withLock({ $0.machine.failed(verdict, at: now, random: random) }) {
        case .ignore: self.finish(.failure(CancellationError()))  // cancelled meanwhile
        case .stop(let reason): self.giveUp(reason)
        case .wait(let wait):
            if let host = self.course.host, !host.permitsRetry() { return self.giveUp(.budgetExhausted) }
            self.wait(wait, wakeUps)
        }
    }

    private func giveUp(_ reason: RetryError.Reason) {
        self.finish(.failure(self.state.withLock { $0.history.error(reason) }))
    }

    // MARK: - Waiting

    private func wait(_ wait: RetryStateMachine.Wait, _ wakeUps: [RetryWakeUp]) {
        let race = RetryRace()
        let isWanted = self.state.withLock { state -> Bool in
            guard state.machine.isWaiting(wait) else { return false }
            state.race = race
            return true
        }
        guard isWanted else { return }
        self.course.tellWaiting(wait)
        race.start(self.course.racers(of: wait, wakeUps), self.course.context) { winner in
            if let winner { self.woken(wait, by: winner) }
        }
    }

    private func woken(_ wait: RetryStateMachine.Wait, by winner: RetryWakeUp) {
        self.course.log(.woken(by: winner.name))
        let now = self.course.time.now
        let random = self.course.random()
        let action = self.state.withLock { $0.machine.woken(wait.id, by: winner.wake, at: now, random: random) }
        switch action {
        case .ignore: break
        case .attempt(let index): self.makeAttempt(index)
        case .settle(let next): self.wait(next, [])
        case .stop(let reason): self.giveUp(reason)
        }
    }

    // MARK: - Told from outside

    /// Makes the next attempt now, if one is waited for; otherwise it does nothing, and the log says so.
    ///
    /// After the policy's ``RetryPolicy/maximumDuration`` it ends the operation instead.
    public func retryNow() {
        let now = self.course.time.now
        self.follow(demand: { $0.demanded(at: now) }, wakeUps: [])
    }

    /// Has the next attempt wait for this long from now, and for nothing else; does nothing where none is waited for.
    ///
    /// If the policy's ``RetryPolicy/maximumDuration`` is over by then, the operation ends now, with
    /// ``RetryError/Reason/timeExhausted``.
    public func retry(in delay: Duration) {
        let now = self.course.time.now
        self.follow(demand: { $0.rescheduled(delay, at: now) }, wakeUps: [])
    }

    /// Has the next attempt wait for the first of these, and for nothing else; does nothing where none is waited for.
    ///
    /// The operation ends with ``RetryError/Reason/timeExhausted`` if none of them has come when the policy's
    /// ``RetryPolicy/maximumDuration`` is over.
    ///
    /// - Parameter wakeUps: What may end the wait; if there are none, the operation is parked until it is told.
    public func retry(wakingOn wakeUps: [RetryWakeUp]) {
        let now = self.course.time.now
        self.follow(demand: { $0.rescheduled(nil, at: now) }, wakeUps: wakeUps)
    }

    private func follow(
        demand: (inout RetryStateMachine) -> RetryStateMachine.DemandAction,
        wakeUps: [RetryWakeUp]
    ) {
        let (action, former) = self.state.withLock { state -> (RetryStateMachine.DemandAction, RetryRace?) in
            let action = demand(&state.machine)
            if case .ignore = action { return (action, nil) }
            defer { state.race = nil }
            return (action, state.race)
        }
        former?.callOff()
        switch action {
        case .ignore(let phase): self.course.log(.ignoredDemand(while: phase.rawValue))
        case .attempt(let index): self.makeAttempt(index)
        case .wait(let wait): self.wait(wait, wakeUps)
        case .stop(let reason): self.giveUp(reason)
        }
    }
}
