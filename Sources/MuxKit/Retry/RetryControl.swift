/// The state of one run of a ``RetryLoop``, shared with other code that demands an attempt or cancels the
/// run.
///
/// The state changes are synchronous: a demand or a cancellation takes effect before the call returns.
package final class RetryControl: Sendable {
    /// The end of a wait.
    enum WaitEnd: Sendable {
        /// The next attempt is due.
        case attempt
        /// The retry ends without another attempt.
        case stop(RetryError.Reason)
        /// The retry was cancelled; the cancellation is already logged.
        case cancelled
    }

    private struct State: Sendable {
        var machine: RetryStateMachine
        var history = RetryHistory()
        /// The race of the current wait.
        var race: RetryRace?
        /// Receives the end of the current wait.
        var waitEnd = FirstValue<WaitEnd>()
    }

    private let loop: RetryLoop
    private let state: Locked<State>

    package init(_ loop: RetryLoop) {
        self.loop = loop
        self.state = Locked(State(machine: RetryStateMachine(loop.policy)))
    }

    /// The failed attempts so far.
    var history: RetryHistory { self.state.withLock { $0.history } }

    /// The index of the current or last attempt.
    var index: Int { self.state.withLock { $0.machine.index } }

    /// The attempt that is about to begin.
    var attempt: RetryPolicy.Attempt {
        let now = self.loop.time.now
        return self.state.withLock { state in
            RetryPolicy.Attempt(
                index: state.machine.index,
                elapsed: state.machine.elapsed(at: now),
                previousError: state.history.attempts.last?.error
            )
        }
    }

    // MARK: - Events of the loop

    /// Begins the first attempt.
    ///
    /// - Returns: `false` if the retry has begun or ended before.
    func start() -> Bool {
        let now = self.loop.time.now
        return self.state.withLock { $0.machine.start(at: now) }
    }

    /// Adds a failed attempt to the history, and returns the attempt with its failure.
    func recordFailure(_ attempt: RetryPolicy.Attempt, _ error: (any Error)?) -> RetryPolicy.Attempt {
        let now = self.loop.time.now
        let (failure, former) = self.state.withLock { state in
            let failure = attempt.failed(error, elapsed: state.machine.elapsed(at: now))
            let former = state.history
            state.history.add(failure)
            return (failure, former)
        }
        withExtendedLifetime(former) {}  // the errors of the previous history are released outside the lock
        return failure
    }

    /// Ends the current attempt, and begins the wait for the next attempt, if permitted.
    func beginWait(_ verdict: RetryStateMachine.Verdict) -> RetryStateMachine.FailureAction {
        let now = self.loop.time.now
        let random = self.loop.random()
        return self.state.withLock { state in
            // Set here: a demand may end the wait before ``wait(_:_:)`` suspends.
            state.waitEnd = FirstValue()
            return state.machine.recordFailure(verdict, at: now, random: random)
        }
    }

    /// Suspends until the end of `wait`, or of a wait that replaces `wait`.
    nonisolated(nonsending) func wait(_ wait: RetryStateMachine.Wait, _ wakeUps: [RetrySignal.WakeUp]) async -> WaitEnd
    {
        let waitEnd = self.state.withLock { $0.waitEnd }
        return await withTaskCancellationHandler {
            self.startRace(wait, wakeUps)
            return await waitEnd.wait()
        } onCancel: {
            self.cancel()
        }
    }

    /// Ends the retry, and the current race of wake-ups.
    ///
    /// - Returns: `false` if the retry had already ended.
    @discardableResult
    func end() -> Bool {
        let (action, race) = self.state.withLock { state in (state.machine.end(), state.race.take()) }
        race?.callOff()
        return action != .ignore
    }

    // MARK: - Waiting

    /// Starts the race between the end of `wait` and the wake-ups.
    ///
    /// Has no effect if a demand or a cancellation has ended `wait` before.
    private func startRace(_ wait: RetryStateMachine.Wait, _ wakeUps: [RetrySignal.WakeUp]) {
        let race = RetryRace { winner in
            self.loop.log(.woken(by: winner.name))
            self.endWait(wait, by: winner.wake, wakeUps)
        }
        let isCurrent = self.state.withLock { state in
            guard state.machine.isWaiting(wait) else { return false }
            state.race = race
            return true
        }
        guard isCurrent else { return }
        let now = self.loop.time.now
        self.loop.log(.waiting(wait.deadline.map { max($0.duration(since: now), .zero) }))
        let left = wait.end.map { $0.duration(since: now) }
        if let left, left <= .zero { return self.endWait(wait, by: .time, wakeUps) }
        // The timer starts first, so that slow set-ups of other wake-ups do not delay the deadline.
        race.start((left.map { [.after($0)] } ?? []) + wakeUps, self.loop)
    }

    private func endWait(
        _ wait: RetryStateMachine.Wait,
        by wake: RetryStateMachine.Wake,
        _ wakeUps: [RetrySignal.WakeUp]
    ) {
        let now = self.loop.time.now
        let random = self.loop.random()
        // A further wait is a random delay or the rest of a `Retry-After`: only demands end such a wait
        // early.
        self.change(wakeUps.filter { $0.wake == .demand }) { $0.endWait(wait.id, by: wake, at: now, random: random) }
    }

    /// Changes the current wait.
    ///
    /// - Parameters:
    ///   - wakeUps: The wake-ups of the next wait.
    ///   - change: Called under the lock.
    /// - Returns: The result of `change`, which this function has carried out.
    @discardableResult
    private func change(
        _ wakeUps: [RetrySignal.WakeUp],
        _ change: (inout RetryStateMachine) -> RetryStateMachine.WaitAction
    ) -> RetryStateMachine.WaitAction {
        let (action, former, waitEnd) = self.state.withLock { state in
            let action = change(&state.machine)
            if case .ignore = action { return (action, nil as RetryRace?, state.waitEnd) }
            return (action, state.race.take(), state.waitEnd)
        }
        former?.callOff()
        switch action {
        case .ignore: break
        case .attempt: waitEnd.give(.attempt)
        case .wait(let wait): self.startRace(wait, wakeUps)
        case .stop(let reason): waitEnd.give(.stop(reason))
        }
        return action
    }

    // MARK: - Events of other code

    /// Ends the current wait, and starts the next attempt or, after the policy's maximum duration, ends the
    /// retry; without a wait, only logs the ignored demand.
    func retryNow() {
        let now = self.loop.time.now
        self.demand([]) { $0.demandAttempt(at: now) }
    }

    /// Replaces the current wait; without a wait, only logs the ignored demand.
    ///
    /// If the new wait would end after the policy's maximum duration, the retry ends.
    ///
    /// - Parameters:
    ///   - delay: The length of the new wait; `nil` for a wait without a deadline.
    ///   - wakeUps: The wake-ups of the new wait.
    func reschedule(_ delay: Duration?, _ wakeUps: [RetrySignal.WakeUp]) {
        let now = self.loop.time.now
        self.demand(wakeUps) { $0.reschedule(delay, at: now) }
    }

    private func demand(
        _ wakeUps: [RetrySignal.WakeUp],
        _ change: (inout RetryStateMachine) -> RetryStateMachine.WaitAction
    ) {
        guard case .ignore(let phase) = self.change(wakeUps, change) else { return }
        self.loop.log(.ignoredDemand(while: phase.rawValue))
    }

    /// Ends the current wait and the retry; after a wait that has already ended, one attempt still begins.
    ///
    /// - Parameter beforeResuming: Called if a wait was cancelled, before the loop resumes.
    package func cancel(_ beforeResuming: () -> Void = {}) {
        let (action, race, waitEnd, attempts) = self.state.withLock { state in
            (state.machine.end(), state.race.take(), state.waitEnd, state.machine.index + 1)
        }
        guard action == .stopWaiting else { return }
        race?.callOff()
        self.loop.log(.cancelled(attempts: attempts))
        beforeResuming()
        waitEnd.give(.cancelled)
    }
}

/// A race of wake-ups; the first wake-up ends the race.
///
/// The race tears down each wake-up exactly once: before the report of the end, or directly after the set-up
/// of the wake-up if the race ended during the set-up.
package final class RetryRace: Sendable {
    private struct State: Sendable {
        let ended: @Sendable (RetrySignal.WakeUp) -> Void
        /// The closures that end the listening of the wake-ups that were set up so far.
        var tearDowns: [@Sendable () -> Void] = []
    }

    /// `nil` after the end.
    private let state: Locked<State?>

    /// Makes a race; `ended` is called with the first wake-up, unless the race is called off.
    package init(ended: @escaping @Sendable (RetrySignal.WakeUp) -> Void) { self.state = Locked(State(ended: ended)) }

    /// Sets up the wake-ups in order; to be called at most once.
    package func start(_ wakeUps: [RetrySignal.WakeUp], _ loop: RetryLoop) {
        for wakeUp in wakeUps {
            guard self.state.withLock({ $0 != nil }) else { return }
            let tearDown = wakeUp.setUp(loop) { self.end()?(wakeUp) }
            let isLate = self.state.withLock { state -> Bool in
                state?.tearDowns.append(tearDown)
                return state == nil
            }
            if isLate { tearDown() }
        }
    }

    /// Ends the race, or prevents its start.
    package func callOff() { _ = self.end() }

    /// Ends the race.
    ///
    /// - Returns: The receiver of the first wake-up; `nil` if the race had ended before.
    private func end() -> (@Sendable (RetrySignal.WakeUp) -> Void)? {
        guard let former = self.state.withLock({ $0.take() }) else { return nil }
        for tearDown in former.tearDowns { tearDown() }
        return former.ended
    }
}

/// The last 100 failed attempts of one retry, and the last error of any attempt.
struct RetryHistory: Sendable {
    static let limit = 100

    private(set) var attempts: [RetryPolicy.Attempt] = []
    private(set) var lastError: (any Error)?

    mutating func add(_ failure: RetryPolicy.Attempt) {
        if self.attempts.count == Self.limit { self.attempts.removeFirst() }
        self.attempts.append(failure)
        self.lastError = failure.error ?? self.lastError
    }

    func error(_ reason: RetryError.Reason) -> RetryError {
        RetryError(reason, attempts: self.attempts, lastError: self.lastError)
    }
}
