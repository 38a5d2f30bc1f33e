/// The configuration of a retry, and the loop of attempts (``run(_:_:)``).
///
/// ``RetryControl`` holds the state of one run.
package struct RetryLoop: Sendable {
    package let policy: RetryPolicy
    package let host: RetryPolicy.Host?
    package var wakeUps: [RetrySignal.WakeUp]
    package var providers: [RetryProvider]
    package var log: RetryLog
    package let time: TimeSource
    /// Returns a number from 0 to 1, which selects a random delay.
    package let random: @Sendable () -> Double
    package let spawn: TaskLauncher

    package init(
        _ policy: RetryPolicy,
        host: RetryPolicy.Host? = nil,
        wakeUps: [RetrySignal.WakeUp] = [],
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

    /// Makes attempts until a success, or until no further attempt is permitted.
    ///
    /// - Throws: The last error, not wrapped in a ``RetryError``; ``RetryError`` without such an error;
    ///   `CancellationError`.
    package nonisolated(nonsending) func runPlainly<Output>(
        _ operation: (RetryPolicy.Attempt) async throws -> Output
    ) async throws -> Output {
        do {
            return try await self.run { .output(try await operation($0)) }
        } catch let error as RetryError {
            throw error.lastError ?? error
        }
    }

    /// Makes attempts until a success, or until no further attempt is permitted.
    ///
    /// - Parameters:
    ///   - control: The state of this run, not shared with another run; `nil` if no other code needs the
    ///     state.
    ///   - operation: Makes one attempt. A thrown error is a ``RetryResult/failure(_:_:)`` with
    ///     ``RetryProvider/Plan/pass``.
    /// - Returns: The output of the last attempt.
    /// - Throws: ``RetryError``, or `CancellationError`.
    package nonisolated(nonsending) func run<Output>(
        _ control: RetryControl? = nil,
        _ operation: (RetryPolicy.Attempt) async throws -> RetryResult<Output>
    ) async throws -> Output {
        let control = control ?? RetryControl(self)
        defer { control.end() }
        guard !Task.isCancelled, control.start() else {
            self.log(.cancelled(attempts: 0))
            throw CancellationError()
        }
        while true {
            let attempt = control.attempt
            let pass = try self.admit(attempt, control)
            self.log(.attempt(attempt.index))
            let result: RetryResult<Output>
            do { result = try await operation(attempt) } catch { result = .failure(error, .pass) }
            if let error = result.error, Task.isCancelled || error.isCancellation {
                pass?.cancelled()
                throw self.cancelled(attempt)
            }
            let plan: RetryProvider.Plan
            switch result {
            case .output(let output):
                pass?.succeeded()
                self.log(.succeeded(attempts: attempt.index + 1))
                return output
            case .retry:
                pass?.succeeded()
                plan = .pass
            case .failure(let error, let next):
                pass?.failed(error)
                plan = next
            case .impossible:
                pass?.cancelled()
                plan = .never
            }
            let failure = control.recordFailure(attempt, result.error)
            self.log(.failed(attempt.index, errorType: failure.error.map { "\(type(of: $0))" }))
            if case .impossible(let reason, _) = result { throw self.gaveUp(reason, attempt.index + 1, control) }
            try await self.wait(after: failure, plan, control)
        }
    }

    private func admit(_ attempt: RetryPolicy.Attempt, _ control: RetryControl) throws -> RetryPolicy.Host.Admission? {
        guard let host = self.host else { return nil }
        if let pass = host.admit(isRetry: attempt.index > 0) { return pass }
        throw self.gaveUp(.hostDown, attempt.index, control)
    }

    /// Suspends until the next attempt is due; throws if no further attempt is permitted.
    private nonisolated(nonsending) func wait(
        after failure: RetryPolicy.Attempt,
        _ plan: RetryProvider.Plan,
        _ control: RetryControl
    ) async throws {
        let (verdict, wakeUps) = self.verdict(on: failure, plan: plan)
        switch control.beginWait(verdict) {
        case .ignore: throw self.cancelled(failure)
        case .stop(let reason): throw self.gaveUp(reason, failure.index + 1, control)
        case .wait(let wait):
            // If other code has ended the retry, `end()` returns `false`, and `control.wait` below returns
            // the cause.
            if let host = self.host, !host.permitsRetry(), control.end() {
                throw self.gaveUp(.budgetExhausted, failure.index + 1, control)
            }
            switch await control.wait(wait, wakeUps) {
            case .attempt: if Task.isCancelled { throw self.cancelled(failure) }
            case .stop(let reason): throw self.gaveUp(reason, failure.index + 1, control)
            case .cancelled: throw CancellationError()
            }
        }
    }

    private func gaveUp(_ reason: RetryError.Reason, _ attempts: Int, _ control: RetryControl) -> RetryError {
        self.log(.gaveUp(reason, attempts: attempts))
        return control.history.error(reason)
    }

    private func cancelled(_ attempt: RetryPolicy.Attempt) -> CancellationError {
        self.log(.cancelled(attempts: attempt.index + 1))
        return CancellationError()
    }

    /// Decides the next step after a failure, and the wake-ups of a wait.
    private func verdict(on failure: RetryPolicy.Attempt, plan: RetryProvider.Plan) -> (
        RetryStateMachine.Verdict, [RetrySignal.WakeUp]
    ) {
        let advice = RetryAdvice.of(failure.error)
        // The first plan other than `pass` counts: first from the attempt, then from the providers in order.
        var plan = plan
        for provider in self.providers {
            guard case .pass = plan else { break }
            plan = provider.plan(failure)
        }
        switch plan {
        case .never: return (.never, [])
        case .after(let delay): return (.after(delay), self.wakeUps)
        case .wakingOn(let wakeUps): return (.whenWoken, wakeUps)
        case .pass where !self.policy.permits(advice): return (.never, [])
        case .pass, .retry: return (.retry(retryAfter: advice.retryAfter), self.wakeUps)
        }
    }
}

/// The result of one attempt.
package enum RetryResult<Output> {
    /// The final output.
    case output(Output)

    /// The output of the attempt requests another attempt.
    case retry

    /// The attempt failed.
    case failure(any Error, RetryProvider.Plan)

    /// The attempt could not be made; the retry ends with the reason.
    case impossible(RetryError.Reason, (any Error)?)

    var error: (any Error)? {
        switch self {
        case .output, .retry: nil
        case .failure(let error, _): error
        case .impossible(_, let error): error
        }
    }
}

extension RetryResult: Sendable where Output: Sendable {}
