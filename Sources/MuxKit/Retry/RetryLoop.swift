/// What a retry goes by, and the decisions that its two shells, the function and the operation, have in common.
package struct RetryLoop: Sendable {
    package var policy: RetryPolicy
    package var host: RetryHost?
    package var wakeUps: [RetryWakeUp]
    package var providers: [RetryProvider]
    package var log: RetryLog
    package var time: TimeSource
    package var random: @Sendable () -> Double
    package var spawn: TaskLauncher

    package init(
        _ policy: RetryPolicy,
        host: RetryHost? = nil,
        wakeUps: [RetryWakeUp] = [],
        providers: [RetryProvider] = [],
        log: RetryLog = .silent,
        time: TimeSource,
        random: @escaping @Sendable () -> Double = { .random(in: 0..<1) },
        spawn: TaskLauncher = TaskLauncher()
    ) {
        self.policy = policy
        self.host = host
        self.wakeUps = wakeUps
        self.providers = providers
        self.log = log
        self.time = time
        self.random = random
        self.spawn = spawn
    }

    package var context: RetryWakeUp.Context { RetryWakeUp.Context(time: self.time, spawn: self.spawn) }

    /// What is to follow a failure, and what may end the wait for it besides time.
    func verdict(on failure: RetryFailure, plan: RetryPlan = .pass) -> (RetryStateMachine.Verdict, [RetryWakeUp]) {
        guard !(failure.error is CancellationError) else { return (.never, []) }
        let advice = RetryAdvice.of(failure.error)
        switch self.decisive(plan, failure) {
        case .never: return (.never, [])
        case .after(let delay): return (.after(delay), self.wakeUps)
        case .wakingOn(let wakeUps): return (.whenWoken, wakeUps)
        case .retry: return (.retry(retryAfter: advice.retryAfter), self.wakeUps)
        case .pass:
            guard self.policy.permits(advice) else { return (.never, []) }
            return (.retry(retryAfter: advice.retryAfter), self.wakeUps)
        }
    }

    private func decisive(_ plan: RetryPlan, _ failure: RetryFailure) -> RetryPlan {
        guard case .pass = plan else { return plan }
        for provider in self.providers {
            let plan = provider.plan(failure)
            guard case .pass = plan else { return plan }
        }
        return .pass
    }

    /// What races to end a wait; the time is first, so that it wins where all are due.
    func racers(of wait: RetryStateMachine.Wait, _ wakeUps: [RetryWakeUp]) -> [RetryWakeUp] {
        guard let end = wait.end else { return wakeUps }
        return [.after(end.duration(since: self.time.now))] + (wait.isSettling ? [] : wakeUps)
    }

    func tellWaiting(_ wait: RetryStateMachine.Wait) {
        self.log(.waiting(wait.deadline.map { max($0.duration(since: self.time.now), .zero) }))
    }
}

extension RetryLoop {
    /// Makes attempts until one succeeds or there is to be no other.
    ///
    /// - Throws: What the last attempt threw, as if there had been no other.
    package nonisolated(nonsending) func runPlainly<Output>(
        _ operation: (RetryAttempt) async throws -> Output
    ) async throws -> Output {
        do {
            return try await self.run { .output(try await operation($0)) }
        } catch let error as RetryError {
            throw error.lastError ?? error
        }
    }

    /// Makes attempts until one succeeds or there is to be no other.
    ///
    /// - Throws: ``RetryError``, or `CancellationError`.
    package nonisolated(nonsending) func run<Output>(
        _ operation: (RetryAttempt) async throws -> RetryResult<Output>
    ) async throws -> Output {
        var machine = RetryStateMachine(self.policy)
        var history = RetryHistory()
        try Task.checkCancellation()
        _ = machine.started(at: self.time.now)
        while true {
            let began = machine.elapsed(at: self.time.now)
            let failure: RetryFailure
            let pass = try self.admit(&machine, history)
            do {
                self.log(.attempt(machine.index))
                let previous = history.attempts.last?.error
                let attempt = RetryAttempt(index: machine.index, elapsed: began, previousError: previous)
                switch try await operation(attempt) {
                case .output(let output):
                    pass?.succeeded()
                    self.log(.succeeded(attempts: machine.index + 1))
                    return output
                case .retry:
                    pass?.succeeded()
                    failure = RetryFailure(
                        error: nil,
                        attempt: machine.index,
                        elapsed: machine.elapsed(at: self.time.now)
                    )
                }
            } catch {
                failure = RetryFailure(
                    error: error,
                    attempt: machine.index,
                    elapsed: machine.elapsed(at: self.time.now)
                )
                if Task.isCancelled || error is CancellationError {
                    pass?.cancelled()
                    self.log(.cancelled(attempts: machine.index + 1))
                    throw CancellationError()
                }
                pass?.failed(error)
            }
            history.add(failure, began: began)
            try await self.wait(after: failure, &machine, history)
        }
    }

    /// Asks the host whether an attempt may be made.
    private func admit(_ machine: inout RetryStateMachine, _ history: RetryHistory) throws -> RetryHost.Pass? {
        guard let host = self.host else { return nil }
        if let pass = host.admit(isRetry: machine.index > 0) { return pass }
        _ = machine.ended()
        self.log(.gaveUp(.hostDown, attempts: machine.index))
        throw history.error(.hostDown)
    }

    /// Waits for the next attempt.
    private nonisolated(nonsending) func wait(
        after failure: RetryFailure,
        _ machine: inout RetryStateMachine,
        _ history: RetryHistory
    ) async throws {
        self.log(.failed(failure.attempt, errorType: failure.error.map { "\(type(of: $0))" }))
        let (verdict, wakeUps) = self.verdict(on: failure)
        var wait: RetryStateMachine.Wait
        switch machine.failed(verdict, at: self.time.now, random: self.random()) {
        case .ignore: throw CancellationError()  // an attempt was being made, so this does not happen
        case .stop(let reason): throw self.gaveUp(reason, failure.attempt, history)
        case .wait(let first): wait = first
        }
        if let host = self.host, !host.permitsRetry() {
            _ = machine.ended()
            throw self.gaveUp(.budgetExhausted, failure.attempt, history)
        }
        while true {
            self.tellWaiting(wait)
            let wake: RetryStateMachine.Wake
            do {
                wake = try await self.wake(wait, wakeUps)
                try Task.checkCancellation()
            } catch {
                self.log(.cancelled(attempts: failure.attempt + 1))
                throw error
            }
            switch machine.woken(wait.id, by: wake, at: self.time.now, random: self.random()) {
            case .ignore: throw CancellationError()  // nobody else ends this wait, so this does not happen
            case .attempt: return
            case .stop(let reason): throw self.gaveUp(reason, failure.attempt, history)
            case .settle(let next): wait = next
            }
        }
    }

    private nonisolated(nonsending) func wake(
        _ wait: RetryStateMachine.Wait,
        _ wakeUps: [RetryWakeUp]
    ) async throws -> RetryStateMachine.Wake {
        if let end = wait.end, end <= self.time.now { return .time }
        let winner = try await firstWakeUp(of: self.racers(of: wait, wakeUps), self.context)
        self.log(.woken(by: winner.name))
        return winner.wake
    }

    private func gaveUp(_ reason: RetryError.Reason, _ attempt: Int, _ history: RetryHistory) -> RetryError {
        self.log(.gaveUp(reason, attempts: attempt + 1))
        return history.error(reason)
    }
}

/// What the attempts of one retry met: bounded, so that an endless retry does not fill the memory.
struct RetryHistory: Sendable {
    static let limit = 100

    private(set) var attempts: [RetryError.Attempt] = []
    private(set) var lastError: (any Error)?

    mutating func add(_ failure: RetryFailure, began: Duration) {
        self.add(
            RetryError.Attempt(index: failure.attempt, began: began, ended: failure.elapsed, error: failure.error)
        )
    }

    private mutating func add(_ attempt: RetryError.Attempt) {
        if self.attempts.count == Self.limit { self.attempts.removeFirst() }
        self.attempts.append(attempt)
        self.lastError = attempt.error ?? self.lastError
    }

    func error(_ reason: RetryError.Reason) -> RetryError {
        RetryError(reason, attempts: self.attempts, lastError: self.lastError)
    }
}
