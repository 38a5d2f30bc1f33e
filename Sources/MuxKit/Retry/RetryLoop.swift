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
