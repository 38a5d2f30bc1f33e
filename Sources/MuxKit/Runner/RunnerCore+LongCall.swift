/// The way of a call that has to wait, to ask, or to note something.
extension RunnerCore {
    /// A call that has to go the long way.
    ///
    /// An object, for what is on the stack of an asynchronous function takes several times its memory while it waits.
    @usableFromInline
    package final class LongCall {
        @usableFromInline var state: Machine.Call

        @usableFromInline
        init(_ state: Machine.Call) { self.state = state }
    }

    @usableFromInline
    func begun(_ timeout: Duration?) -> LongCall {
        let now = self.time.now
        var call = self.engine.withState { $0.machine.call(at: now) }
        call.deadline = timeout.map { now.advanced(by: $0) }
        return LongCall(call)
    }

    /// Waits for the dependency and runs `task` with it, until the task accepts it.
    ///
    /// All but the wait is elsewhere, each step in a function of its own: what is on the stack of an asynchronous function
    /// takes memory while it waits, and a caller that waits with more than a thousand bytes of it is given another thousand.
    ///
    /// - Parameters:
    ///   - long: The call.
    ///   - leads: Whether the call does an update itself that it is the first to need.
    ///   - task: Accepts or refuses the dependency.
    ///   - receive: What an arrival that was answered brings; `nil` if the call has to look again.
    /// - Returns: What the task returned.
    /// - Throws: What the task threw that is not about the dependency, or why there is none.
    @inlinable
    nonisolated(nonsending) func loop<Output: Sendable>(
        _ long: LongCall,
        leads: Bool,
        _ task: (Held, LongCall) async throws -> RunResult<Output>,
        receive: (FlightVisit, FlightCallerState.Answer?, LongCall) async throws -> Held?
    ) async throws -> Output {
        while true {
            let visit = try self.arrive(&long.state, leads: leads)
            let answer = await self.engine.answer(to: visit, .sole)
            if let output = try await self.attempt(task, visit, answer, long, receive) { return output }
        }
    }

    /// What an arrival brought, if that is a dependency, and notes why if it is not.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func received(
        _ visit: FlightVisit,
        _ answer: FlightCallerState.Answer?,
        _ long: LongCall,
        _ receive: (FlightVisit, FlightCallerState.Answer?, LongCall) async throws -> Held?
    ) async throws -> Held? {
        do {
            return try await receive(visit, answer, long)
        } catch {
            try self.passOver(error, &long.state)
            return nil
        }
    }

    /// Runs `task` with the dependency, if there is one now, and notes why if it returns nothing.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func attempt<Output: Sendable>(
        _ task: (Held, LongCall) async throws -> RunResult<Output>,
        _ visit: FlightVisit,
        _ answer: FlightCallerState.Answer?,
        _ long: LongCall,
        _ receive: (FlightVisit, FlightCallerState.Answer?, LongCall) async throws -> Held?
    ) async throws -> Output? {
        guard let held = try await self.received(visit, answer, long, receive) else { return nil }
        return try await self.attempt(task, held, long)
    }

    /// Runs `task` with the dependency, and notes why if it returns nothing.
    @inlinable
    @inline(never)
    nonisolated(nonsending) func attempt<Output: Sendable>(
        _ task: (Held, LongCall) async throws -> RunResult<Output>,
        _ held: Held,
        _ long: LongCall
    ) async throws -> Output? {
        do {
            if case .output(let output) = try await task(held, long) { return output }
            long.state.lastError = nil
        } catch {
            long.state.lastError = try self.report(error, long.state)
        }
        long.state.badEpoch = held.epoch
        return nil
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

    /// Has a call look again that obtained nothing.
    ///
    /// - Throws: What it ends with, if it cannot go on.
    @usableFromInline
    func passOver(_ error: any Error, _ call: inout Machine.Call) throws {
        if error is LookAgain { return }
        if let critical = error as? RaisedCritical { throw critical.claimed() }
        // The old value, which was to be renewed early, is better than none.
        let now = self.time.now
        guard call.isEarly, !(error is CancellationError), self.engine.withState({ $0.machine.isGood(at: now) }) else {
            throw error
        }
        call.takesEnding = true
    }

    /// Ends a call that cannot or may not go on: for the runner's reason, the task's cancellation, or the call's time.
    @usableFromInline
    func checkPatience(_ call: Machine.Call) throws {
        let isCancelled = Task.isCancelled
        let timedOut = call.deadline.map { self.time.now >= $0 } ?? false
        guard isCancelled || timedOut else { return }
        switch self.engine.withState({ $0.machine.standing(call) }) {
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
    ///
    /// - Throws: What the call ends with, if it cannot or may not go on.
    @inlinable
    @inline(never)
    func arrive(_ call: inout Machine.Call, leads: Bool) throws -> FlightVisit {
        try self.checkPatience(call)
        let parentEpoch = self.parentEpoch
        let now = self.time.now
        let canUpdate = leads || self.hasStoredUpdate
        var waits = false
        return self.engine.arrive(
            .sole,
            at: now,
            leads: leads,
            isCancelled: leads && Task.isCancelled,  // others were looked at just now, and can leave
            decide: { self.decision(&$0, &call, parentEpoch: parentEpoch, canUpdate: canUpdate, at: now) },
            joined: { _, _, _ in waits = true },
            arrived: { if waits { self.tell(.dependencyAwaited) } }
        )
    }

    @inlinable
    func decision(
        _ state: inout RunnerState<Dependency>,
        _ call: inout Machine.Call,
        parentEpoch: UInt64,
        canUpdate: Bool,
        at now: Moment
    ) -> Engine.Decision {
        switch state.answer(to: &call, parentEpoch: parentEpoch, policy: self.policy, at: now) {
        case .use(let held): return .answer(held)
        case .fail(let error): return .fail(error)
        case .update:
            guard canUpdate else { return .fail(RunnerError.noUpdate) }
            guard let deadline = call.deadline else { return .fly }
            let timeout = self.timeout(of: call)
            return .flyNoLonger(than: deadline.duration(since: now)) { _, _, _ in .failure(timeout) }
        }
    }
}

@available(*, unavailable)
extension RunnerCore.LongCall: Sendable {}
