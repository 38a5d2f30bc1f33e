/// The slow path: calls that may wait for an update.
extension RunnerCore {
    /// A call on the slow path.
    ///
    /// A class, because a local variable of a suspended asynchronous function takes several times the memory
    /// of the variable.
    @usableFromInline
    package final class PendingCall {
        @usableFromInline let core: RunnerCore
        @usableFromInline var state: Machine.Call
        /// Whether the call can run an update.
        @usableFromInline var leads = false
        /// Whether the call has requested the dependency at least once.
        @usableFromInline var hasArrived = false
        /// The cleanup after the wait.
        @usableFromInline var cleanup: FlightWaiter.WaitCleanup?

        @usableFromInline
        init(_ core: RunnerCore, _ state: Machine.Call) {
            self.core = core
            self.state = state
        }

        /// Resumes the call with the dependency or an error, makes the call run the update (only with
        /// ``leads``), or lets the call wait for an update.
        @inlinable
        @inline(never)
        func arrive(_ waiter: FlightWaiter) {
            let core = self.core
            let leastValid = core.leastValidParentEpoch
            let now = core.time.now
            let mayWait = core.mayWait?() ?? true
            // The error of the call if the call needs an update.
            var impediment = mayWait ? nil : RunnerError.wouldDeadlock
            if !self.leads, !core.hasStoredUpdate { impediment = .noUpdate }
            var waits = false
            self.hasArrived = true
            self.cleanup = core.engine.arrive(
                waiter,
                at: .sole,
                now: now,
                leads: self.leads,
                decide: { [impediment] in
                    core.decide(&$0, &self.state, parentEpoch: leastValid, impediment, at: now)
                },
                joined: { _, _ in waits = true },
                arrived: { if waits { core.tell(.dependencyAwaited) } }
            )
        }
    }

    @usableFromInline
    func makeCall(_ timeout: Duration?) -> PendingCall {
        let now = self.time.now
        var call = self.engine.withState { $0.machine.makeCall(at: now) }
        call.deadline = timeout.map { now.advanced(by: $0) }
        return PendingCall(self, call)
    }

    /// Runs the update of a call; returns `nil` if the call must request the dependency again.
    @usableFromInline typealias Lead = (FlightID, PendingCall) async throws -> VersionedDependency?

    /// Waits for the dependency and runs `task`, until the task accepts the dependency.
    ///
    /// Each step, except the wait, is a separate function, so that the locals of the step take no memory
    /// during the wait. The locals of `loop` must stay below about a thousand bytes: otherwise each waiting
    /// caller takes another thousand bytes.
    ///
    /// - Parameters:
    ///   - call: The call.
    ///   - task: Accepts or refuses the dependency.
    ///   - leads: Whether the call can run an update.
    ///   - lead: Runs the update.
    /// - Returns: The output of the task.
    /// - Throws: An error of the task that is not a refusal, or the reason why the call gets no dependency.
    @inlinable
    nonisolated(nonsending) func loop<Output: Sendable>(
        _ call: PendingCall,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>,
        leads: Bool,
        _ lead: Lead
    ) async throws -> Output {
        call.leads = leads
        while true {
            try self.checkLimits(call)
            let caller = Engine.Caller(self.engine, .sole)
            let answer = await FlightWaiter.answer(to: caller) { call.arrive($0) }
            guard let held = try await self.receiveDependency(answer, call, lead) else { continue }
            if let output = try await self.attempt(task, held, call) { return output }
        }
    }

    /// The dependency after a wait; `nil` if the call must request the dependency again.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func receiveDependency(
        _ answer: FlightWaiter.Answer,
        _ call: PendingCall,
        _ lead: Lead
    ) async throws -> VersionedDependency? {
        do {
            switch try self.engine.unwrap(answer, call.cleanup.take()) {
            case .output(let held): return self.ifCurrent(held)
            case .lead(let flight): return try await lead(flight, call)
            }
        } catch {
            return try self.fallback(after: error, call)
        }
    }

    /// Runs `task` with the dependency.
    ///
    /// - Returns: The output; `nil` if the task refused the dependency: the refusal is then recorded in
    ///   `call`.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func attempt<Output: Sendable>(
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>,
        _ held: VersionedDependency,
        _ call: PendingCall
    ) async throws -> Output? {
        var refusal: (any Error)?
        do {
            if case .output(let output) = try await task(held, call) {
                // The task of a forced renewal does not use the value, so its output is not an acceptance.
                if !call.state.isForced { self.recordAcceptance(held.epoch) }
                return output
            }
        } catch {
            refusal = error
        }
        try self.recordRefusal(held.epoch, refusal, call)
        return nil
    }

    /// Records in `call` that the task has refused the value of `epoch`.
    ///
    /// - Throws: The error of ``throwUnlessRefusal(_:_:)`` if `error` is not a refusal.
    @usableFromInline
    func recordRefusal(_ epoch: UInt64, _ error: (any Error)?, _ call: PendingCall) throws {
        call.state.badEpoch = epoch
        call.state.lastError = try error.map { try self.throwUnlessRefusal($0, call.state) }
    }

    /// Returns `error` if `error` is a refusal.
    ///
    /// - Throws: Any other error; a critical error as ``RunnerError/critical(underlying:isOriginator:)``,
    ///   after ``raiseCritical(_:_:)``.
    private func throwUnlessRefusal(_ error: any Error, _ call: Machine.Call) throws -> any Error {
        guard !error.saysBadDependency else { return error }
        guard let cause = error.criticalCause else { throw error }
        throw self.raiseCritical(cause, call)
    }

    /// Handles the error of a wait: a call that waited only for an early renewal uses the current dependency.
    ///
    /// - Returns: The dependency; `nil` if the call must request the dependency again.
    /// - Throws: `error`, a critical error as ``RunnerError/critical(underlying:isOriginator:)``; or
    ///   `CancellationError` if the call waited only for an early renewal and is cancelled.
    @usableFromInline
    func fallback(after error: any Error, _ call: PendingCall) throws -> VersionedDependency? {
        if error is AskAgain { return nil }
        if let critical = error as? RaisedCritical { throw critical.claimError() }
        guard call.state.isEarly else { throw error }
        if Task.isCancelled { throw CancellationError() }
        let now = self.time.now
        let old = self.engine.withState { $0.machine.fallback(for: call.state, at: now) }
        guard let old else { throw error }
        return self.ifCurrent(old)
    }

    /// Throws if the call's task is cancelled, or if the call has timed out and has already requested the
    /// dependency.
    ///
    /// At the first request, ``decide(_:_:parentEpoch:_:at:)`` applies the time limit, and only if the call
    /// needs an update.
    ///
    /// - Throws: The error of the runner's state, if any; otherwise `CancellationError` or the time-out.
    @usableFromInline
    func checkLimits(_ call: PendingCall) throws {
        let (call, hasArrived) = (call.state, call.hasArrived)
        let isCancelled = Task.isCancelled
        let timedOut = hasArrived && call.deadline.map { self.time.now >= $0 } ?? false
        guard isCancelled || timedOut else { return }
        switch self.engine.withState({ $0.machine.standingError(for: call) }) {
        case let critical as RaisedCritical: throw critical.claimError()
        case let error?: throw error
        case nil: throw isCancelled ? CancellationError() : self.timeoutError(of: call)
        }
    }

    @usableFromInline
    func timeoutError(of call: Machine.Call) -> any Error {
        RunnerError.timedOut(after: call.deadline?.duration(since: call.startedAt) ?? .zero)
    }

    /// Decides, under the engine's lock, about a request of the call.
    ///
    /// The time-out and `impediment` apply only if the call needs an update.
    @inlinable
    func decide(
        _ state: inout RunnerState<Dependency>,
        _ call: inout Machine.Call,
        parentEpoch: UInt64,
        _ impediment: RunnerError?,
        at now: Moment
    ) -> Engine.Decision {
        switch state.decideAction(of: &call, parentEpoch: parentEpoch, policy: self.policy, at: now) {
        case .use(let held): return .answer(held)
        case .fail(let error): return .fail(error)
        case .update:
            if let deadline = call.deadline, now >= deadline { return .fail(self.timeoutError(of: call)) }
            if let impediment { return .fail(impediment) }
            let waitLimit = state.waitLimit(of: call, at: now)
            guard let limit = call.deadline.map({ min($0, waitLimit ?? $0) }) ?? waitLimit else { return .fly }
            let (timeout, call) = (self.timeoutError(of: call), call)
            return .flyNoLonger(than: limit.duration(since: now)) { state, _, _, now in
                state.outcome(of: call, orElse: timeout, at: now)
            }
        }
    }
}

@available(*, unavailable)
extension RunnerCore.PendingCall: Sendable {}

/// The fast path: calls that need no update. Specialised in the caller's module.
extension RunnerCore {
    /// The result of a first try.
    @usableFromInline
    enum FirstTry<Output: Sendable> {
        /// The task accepted the dependency.
        case output(Output)
        /// The call continues on the slow path.
        case unfinished(PendingCall)
    }

    /// Runs `task` with the dependency if the call needs no update.
    ///
    /// Not inlined, so that a waiting caller does not keep the locals of this function.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func firstTry<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> FirstTry<Output> {
        let now = self.coarseClock.now ?? self.time.now
        guard let ready = self.ready(at: now) else { return .unfinished(self.makeCall(nil)) }
        do {
            if case .output(let output) = try await task(ready.value) {
                if ready.isUnproven { self.recordAcceptance(ready.epoch) }
                return .output(output)
            }
        } catch {
            return .unfinished(try self.makeRefusedCall(error, of: ready, since: now))
        }
        return .unfinished(try self.makeRefusedCall(nil, of: ready, since: now))
    }

    /// The dependency for the fast path; `nil` if the call must take the slow path, for example because the
    /// call is cancelled.
    @inlinable
    func ready(at now: Moment) -> ReadyDependency<Dependency>? {
        guard !Task.isCancelled else { return nil }
        // The parent's epoch is read before the value: if the value has at least this parent epoch, the value
        // was valid at the time of the first read.
        let leastValid = self.parent?.leastValidEpochForChildren ?? 0
        let ready = self.engineState.withLock { $0.state.ready }
        guard let ready, ready.parentEpoch >= leastValid, now < ready.until else { return nil }
        return ready
    }

    /// Records that a task accepted the value of `epoch`, and clears the records of earlier refusals.
    @usableFromInline
    func recordAcceptance(_ epoch: UInt64) { self.engine.withState { $0.recordAcceptance(epoch) } }

    /// Makes the call of the slow path after the task has refused the dependency, with or without an error.
    ///
    /// - Throws: The error of ``throwUnlessRefusal(_:_:)`` if `error` is not a refusal.
    @usableFromInline
    func makeRefusedCall(_ error: (any Error)?, of ready: ReadyDependency<Dependency>, since start: Moment) throws
        -> PendingCall
    {
        let call = PendingCall(self, Machine.Call(session: ready.session, startedAt: start))
        try self.recordRefusal(ready.epoch, error, call)
        return call
    }
}

@available(*, unavailable)
extension RunnerCore.FirstTry: Sendable {}
