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
