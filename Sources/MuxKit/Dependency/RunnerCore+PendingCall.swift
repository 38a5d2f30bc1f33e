/// The way of a call that has to wait, to ask, or to note something.
extension RunnerCore {
    /// A call that has to go the long way.
    ///
    /// An object, for what is on the stack of an asynchronous function takes several times its memory while it waits.
    @usableFromInline
    package final class PendingCall {
        @usableFromInline let core: RunnerCore
        @usableFromInline var state: Machine.Call
        /// Whether the call does an update itself that it is the first to need.
        @usableFromInline var leads = false
        /// The call's name in the wait that is next, or present.
        @usableFromInline var ticket: Ticket = 0
        /// What is to be undone after that wait.
        @usableFromInline var loose: FlightWaiter.WaitCleanup?

        @usableFromInline
        init(_ core: RunnerCore, _ state: Machine.Call) {
            self.core = core
            self.state = state
        }

        @inlinable
        func arrive(_ waiter: FlightWaiter) { self.core.arrive(waiter, self) }
    }

    @usableFromInline
    func begun(_ timeout: Duration?) -> PendingCall {
        let now = self.time.now
        var call = self.engine.withState { $0.machine.call(at: now) }
        call.deadline = timeout.map { now.advanced(by: $0) }
        return PendingCall(self, call)
    }

    /// What a call does for itself whose closure is the update.
    @usableFromInline typealias Lead = (FlightID, PendingCall) async throws -> VersionedDependency?

    /// Waits for the dependency and runs `task` with it, until the task accepts it.
    ///
    /// All but the wait is elsewhere, each step in a function of its own: what is on the stack of an asynchronous function
    /// takes memory while it waits, and a caller that waits with more than a thousand bytes of it is given another thousand.
    ///
    /// - Parameters:
    ///   - long: The call.
    ///   - task: Accepts or refuses the dependency.
    ///   - leads: Whether the call does an update itself that it is the first to need.
    ///   - lead: Does that update; returns `nil` if the call has to look again.
    /// - Returns: What the task returned.
    /// - Throws: What the task threw that is not about the dependency, or why there is none.
    @inlinable
    nonisolated(nonsending) func loop<Output: Sendable>(
        _ long: PendingCall,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>,
        leads: Bool,
        _ lead: Lead
    ) async throws -> Output {
        long.leads = leads
        while true {
            try self.checkPatience(long)
            let (engine, ticket) = (self.engine, self.engine.nextID())
            long.ticket = ticket
            // A closure that captures one object and nothing else takes no memory of its own.
            let answer = await FlightWaiter.answer {
                long.arrive($0)
            } onCancel: {
                engine.leave(ticket, .sole)
            }
            guard let held = try await self.received(answer, long, lead) else { continue }
            if let output = try await self.attempt(task, held, long) { return output }
        }
    }

    /// The dependency of a call that was answered; `nil` if the call has to look again.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func received(
        _ answer: FlightWaiter.Answer,
        _ long: PendingCall,
        _ lead: Lead
    ) async throws -> VersionedDependency? {
        do {
            switch try self.engine.landing(answer, long.loose.take()) {
            case .output(let held): return self.unlessVoid(held)
            case .lead(let flight): return try await lead(flight, long)
            }
        } catch {
            return try self.instead(of: error, long)
        }
    }

    /// Runs `task` with the dependency, and notes why if it returns nothing.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func attempt<Output: Sendable>(
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>,
        _ held: VersionedDependency,
        _ long: PendingCall
    ) async throws -> Output? {
        var refusal: (any Error)?
        do {
            if case .output(let output) = try await task(held, long) {
                // What only wants a new value has not tried it.
                if !long.state.isForced { self.accepted(held.epoch) }
                return output
            }
        } catch {
            refusal = error
        }
        try self.refused(held, refusal, long)
        return nil
    }

    /// Notes that the task of a call has refused the dependency.
    ///
    /// - Throws: `error`, if it is none about the dependency.
    @usableFromInline
    func refused(_ held: VersionedDependency, _ error: (any Error)?, _ long: PendingCall) throws {
        long.state.lastError = try error.map { try self.report($0, long.state) }
        long.state.badEpoch = held.epoch
    }

    /// The error, if it is a report that the dependency is no good.
    ///
    /// - Throws: The error as it is, otherwise; a critical one ends the calls of others, too.
    @usableFromInline
    func report(_ error: any Error, _ call: Machine.Call) throws -> any Error {
        guard !error.saysBadDependency else { return error }
        guard let cause = error.criticalCause else { throw error }
        throw self.raise(cause, call)
    }

    /// The dependency of a call that did not obtain a new one; `nil` if the call has to look again.
    ///
    /// - Throws: What the call ends with, if there is none.
    @usableFromInline
    func instead(of error: any Error, _ long: PendingCall) throws -> VersionedDependency? {
        if error is LookAgain { return nil }
        if let critical = error as? RaisedCritical { throw critical.claimed() }
        guard long.state.isEarly else { throw error }
        if Task.isCancelled { throw CancellationError() }
        let now = self.time.now
        let old = self.engine.withState { $0.machine.fallback(for: long.state, at: now) }
        guard let old else { throw error }
        return self.unlessVoid(old)
    }

    /// Ends a call that cannot or may not go on: for the runner's reason, the task's cancellation, or the call's time.
    @usableFromInline
    func checkPatience(_ long: PendingCall) throws {
        let call = long.state
        let isCancelled = Task.isCancelled
        let timedOut = call.deadline.map { self.time.now >= $0 } ?? false
        guard isCancelled || timedOut else { return }
        switch self.engine.withState({ $0.machine.standingError(for: call) }) {
        case let critical as RaisedCritical: throw critical.claimed()
        case let error?: throw error
        case nil: throw isCancelled ? CancellationError() : self.timeout(of: call)
        }
    }

    @usableFromInline
    func timeout(of call: Machine.Call) -> any Error {
        RunnerError.timedOut(after: call.deadline?.duration(since: call.startedAt) ?? .zero)
    }

    /// Looks for the dependency, and joins or starts an update if there is none that the call can use.
    @inlinable
    @inline(never)
    func arrive(_ waiter: FlightWaiter, _ long: PendingCall) {
        let parentEpoch = self.parentEpoch
        let now = self.time.now
        let mayWait = self.mayWait?() ?? true
        var impediment = mayWait ? nil : RunnerError.wouldDeadlock
        if !long.leads, !self.hasStoredUpdate { impediment = .noUpdate }
        var waits = false
        long.loose = self.engine.arrive(
            waiter,
            long.ticket,
            at: .sole,
            now: now,
            leads: long.leads,
            decide: { [impediment] in
                self.decision(&$0, &long.state, parentEpoch: parentEpoch, impediment, at: now)
            },
            joined: { _, _ in waits = true },
            arrived: { if waits { self.tell(.dependencyAwaited) } }
        )
    }

    @inlinable
    func decision(
        _ state: inout RunnerState<Dependency>,
        _ call: inout Machine.Call,
        parentEpoch: UInt64,
        _ impediment: RunnerError?,
        at now: Moment
    ) -> Engine.Decision {
        switch state.requested(by: &call, parentEpoch: parentEpoch, policy: self.policy, at: now) {
        case .use(let held): return .answer(held)
        case .fail(let error): return .fail(error)
        case .update:
            if let impediment { return .fail(impediment) }
            let waitLimit = state.waitLimit(of: call, at: now)
            guard let limit = call.deadline.map({ min($0, waitLimit ?? $0) }) ?? waitLimit else { return .fly }
            let (timeout, call) = (self.timeout(of: call), call)
            return .flyNoLonger(than: limit.duration(since: now)) { state, now in
                state.outcome(of: call, orElse: timeout, at: now)
            }
        }
    }
}

@available(*, unavailable)
extension RunnerCore.PendingCall: Sendable {}

/// The way of a call whose dependency is there and good, specialised in the caller's module.
extension RunnerCore {
    /// How a first try ends that is not over with an error.
    @usableFromInline
    enum FirstTry<Output: Sendable> {
        /// The task accepted the dependency.
        case output(Output)
        /// The call has to go the long way, which begins here.
        case unfinished(PendingCall)
    }

    /// Runs `task` with the dependency if there is no need to wait, to ask, or to note anything before.
    ///
    /// Specialised, but not inlined: a caller that has to wait after all does not keep what this one needed.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func firstTry<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> FirstTry<Output> {
        let now = self.coarseClock.now ?? self.time.now
        guard let ready = self.ready(at: now) else { return .unfinished(self.begun(nil)) }
        do {
            if case .output(let output) = try await task(ready.value) {
                if ready.isUnproven { self.accepted(ready.epoch) }
                return .output(output)
            }
        } catch {
            return .unfinished(try self.reported(error, of: ready, since: now))
        }
        return .unfinished(try self.reported(nil, of: ready, since: now))
    }

    /// The dependency, if a call that begins now can use it.
    @inlinable
    func ready(at now: Moment) -> ReadyDependency<Dependency>? {
        guard !Task.isCancelled else { return nil }
        // First the parent's epoch: a value that belongs to it cannot be older than this look.
        let parentEpoch = self.parent?.forChildren ?? 0
        let ready = self.engineState.withLock { $0.state.ready }
        guard let ready, ready.parentEpoch >= parentEpoch, now < ready.until else { return nil }
        return ready
    }

    /// Notes that a task accepted the value of `epoch`: refusals of earlier ones do not count any more.
    @usableFromInline
    func accepted(_ epoch: UInt64) { self.engine.withState { $0.accepted(epoch) } }

    /// The call whose task has refused the dependency of its first try.
    ///
    /// - Throws: `error`, if it is none about the dependency.
    @usableFromInline
    func reported(_ error: (any Error)?, of ready: ReadyDependency<Dependency>, since start: Moment) throws
        -> PendingCall
    {
        var call = Machine.Call(session: ready.session, startedAt: start)
        call.badEpoch = ready.epoch
        call.lastError = try error.map { try self.report($0, call) }
        return PendingCall(self, call)
    }
}

@available(*, unavailable)
extension RunnerCore.FirstTry: Sendable {}
