package import Foundation

/// The implementation of a runner, or of one of the two layers of an ``OAuthSession``: the state, the flights
/// and the loop of calls.
@usableFromInline
package final class RunnerCore<Dependency: Sendable>: Sendable {
    @usableFromInline package typealias Machine = DependencyStateMachine<Dependency>
    @usableFromInline package typealias VersionedDependency = Machine.VersionedDependency
    @usableFromInline typealias Engine = FlightEngine<SoleKey, VersionedDependency, RunnerState<Dependency>>

    /// The outcome of an update.
    package struct UpdateOutcome: Sendable {
        let result: UpdateResult<Dependency>
        /// The parent's epoch to which the value belongs; 0 without a parent.
        let parentEpoch: UInt64
        /// The epoch of the parent's value at the beginning of the update.
        ///
        /// Differs from ``parentEpoch`` if a successor, such as a rotated refresh token, replaced the
        /// parent's value during the update.
        let formerParentEpoch: UInt64
        /// The remaining lifetime of the value; `nil` to use the expiry of the value, if known.
        let lifetime: Duration?
        /// Whether the update found an existing value, for example in a store; a forced renewal then requests
        /// another update.
        let isFound: Bool
        /// The error of the renewal if the renewal failed, and the value is an existing value; otherwise
        /// `nil`.
        let failure: (any Error)?

        package init(
            _ result: UpdateResult<Dependency>,
            parentEpoch: UInt64 = 0,
            continuing formerParentEpoch: UInt64? = nil,
            lifetime: Duration? = nil,
            isFound: Bool = false,
            failure: (any Error)? = nil
        ) {
            self.result = result
            self.isFound = isFound
            self.failure = failure
            self.parentEpoch = parentEpoch
            self.formerParentEpoch = formerParentEpoch ?? parentEpoch
            self.lifetime = lifetime
        }
    }

    /// Makes a value; receives the value to replace, `nil` if absent, and the session.
    package typealias StoredUpdate = @Sendable @concurrent (VersionedDependency?, UInt64) async throws -> UpdateOutcome

    /// Makes a caller request the dependency again.
    ///
    /// The update was dropped or is not necessary, or the parent's value was replaced.
    struct AskAgain: Error {}

    @usableFromInline let engine: Engine
    /// The state of ``engine``, stored here to save an indirection in each hit.
    @usableFromInline let engineState: Locked<Engine.EngineState>
    @usableFromInline let policy: RunnerPolicy
    @usableFromInline let time: TimeSource
    @usableFromInline let coarseClock: CoarseClock
    let wallTime: @Sendable () -> Date
    /// The epochs of the layer above; `nil` for the uppermost layer.
    @usableFromInline let parent: RunnerEpochs?
    /// The epochs of this layer.
    package let epochs: RunnerEpochs
    let observer: (any MuxObserver)?
    let watchers = RunnerEvents()
    /// Whether the runner has a stored update; otherwise only a call with an update closure can start an
    /// update.
    @usableFromInline let hasStoredUpdate: Bool
    /// Whether updates send requests to a token endpoint: if so, errors without a response, and errors of an
    /// unknown type, also cause a pause of updates.
    let asksServer: Bool
    /// Whether the current task may wait for an update: `false` if the update would wait for the task.
    ///
    /// `nil` if any task may wait.
    @usableFromInline let mayWait: (@Sendable () -> Bool)?

    package init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy,
        observer: (any MuxObserver)?,
        time: TimeSource,
        wallTime: @escaping @Sendable () -> Date = { Date() },
        spawn: TaskLauncher = TaskLauncher(),
        parent: RunnerEpochs? = nil,
        asksServer: Bool = false,
        mayWait: (@Sendable () -> Bool)? = nil,
        update: StoredUpdate? = nil
    ) {
        self.asksServer = asksServer
        self.policy = policy
        self.time = time
        self.coarseClock = CoarseClock(time)
        self.wallTime = wallTime
        self.parent = parent
        self.epochs = RunnerEpochs(parent: parent)
        self.hasStoredUpdate = update != nil
        self.mayWait = mayWait
        self.observer = observer
        let options = Engine.Options(
            name: "mux.update",
            linger: policy.cancelsUnwantedUpdates ? .zero : nil,
            deadline: policy.updateTimeout,
            timedOut: RunnerError.updateTimedOut(after: policy.updateTimeout ?? .zero),
            whenTimedOut: { state, _, _, now in
                let former = state
                let error = RunnerError.updateTimedOut(after: policy.updateTimeout ?? .zero)
                state.machine.recordFailure(error, until: now.advanced(by: policy.coolDown), pausing: .init(), at: now)
                return former
            },
            wouldDeadlock: RunnerError.wouldDeadlock
        )
        let renewal = EarlyRenewal(
            lifetime: value.flatMap { Duration(lifetimeOf: $0, at: wallTime()) },
            isNew: false,
            leeway: policy.leeway,
            at: time.now
        )
        // As for ``set(_:)``, the value belongs to the parent's present value.
        let machine = Machine(value, parentEpoch: parent?.leastValidEpochForChildren ?? 0, renewal: renewal)
        let state = RunnerState(machine, self.epochs)
        self.engine = FlightEngine(state, options, time: time, spawn: spawn)
        self.engineState = self.engine.engineState
        guard let update else { return }
        self.engine.setWork { [weak self] _, flight in
            guard let beginning = self?.beginUpdate(flight) else { return }
            let result = await Result<_, any Error> { try await update(beginning.replaced, beginning.session) }
            self?.land(flight, result, since: beginning)
        }
    }

    /// The state at the beginning of an update.
    struct Beginning: Sendable {
        /// The value to replace.
        var replaced: VersionedDependency?
        /// The session of the update.
        var session: UInt64 = 0
        /// The epoch of the runner.
        var epoch: UInt64 = 0
        var time: Moment
    }

    // MARK: - Running

    /// Runs `task` with the dependency; the stored update runs in a separate unstructured task.
    package nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration? = nil,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run(from: self.makeCall(timeout), task)
    }

    /// Runs `task` with the dependency for a call that has begun; uses the stored update if necessary.
    @inlinable
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: PendingCall,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.loop(call, task, leads: false) { _, _ in nil }
    }

    /// Renews the dependency with the stored update, even if the dependency is valid.
    ///
    /// - Returns: A dependency that arrived after the start of this call, and that no update found in a
    ///   store.
    package nonisolated(nonsending) func renew() async throws -> VersionedDependency {
        let call = self.makeCall(nil)
        call.state.isForced = true
        call.state.badEpoch = self.held?.epoch
        return try await self.run(from: call) { held, _ in held.isFound ? .badDependency : .output(held) }
    }

    /// Marks the beginning of an update in its flight.
    ///
    /// - Returns: The state at the beginning; `nil` if the flight has ended. This function ends the flight
    ///   with ``AskAgain`` if the update is no longer necessary.
    private func beginUpdate(_ flight: FlightID) -> Beginning? {
        let leastValid = self.leastValidParentEpoch
        var beginning = Beginning(time: self.time.now)
        var isNeeded = true
        let begins = self.engine.beginWork(flight, of: .sole) { state, _, _, _ in
            isNeeded = state.machine.needsUpdate(parentEpoch: leastValid)
            beginning.replaced = state.machine.current(parentEpoch: leastValid)
            beginning.session = state.machine.session
            beginning.epoch = state.machine.epoch
        }
        guard begins else { return nil }
        guard isNeeded else {
            // An earlier update whose flight had ended, such as a timed-out update, has stored a value since
            // the last request for an update.
            self.engine.land(flight, of: .sole, failed: false) { _, _ in .failure(AskAgain()) }
            return nil
        }
        self.tell(.updateStarted)
        self.watchers.tell(.updateStarted, number: self.engine.withState { $0.machine.nextEvent() })
        return beginning
    }

    /// The value; `nil` if the parent's value was replaced: the caller must request the dependency again.
    @inlinable
    func ifCurrent(_ held: VersionedDependency) -> VersionedDependency? {
        held.parentEpoch >= self.leastValidParentEpoch ? held : nil
    }

    /// Runs `task` with the dependency; if the call starts an update, the call runs `update` and waits for
    /// the end of `update`.
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: PendingCall,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>,
        update: (Dependency?, PendingCall) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.loop(call, task, leads: true) { flight, call in
            guard let (result, beginning) = await self.runCallersUpdate(flight, by: call, update) else { return nil }
            let landed = self.land(flight, result, since: beginning)
            try self.checkLimits(call)
            // Without a result, the outcome was dropped: the caller must request the dependency again.
            guard let landed else { return nil }
            return self.ifCurrent(try landed.get())
        }
    }

    /// Runs the update of the caller.
    ///
    /// - Returns: The outcome of the update and the state at its beginning; `nil` if the flight ended before
    ///   the update began, or the update is no longer necessary.
    private nonisolated(nonsending) func runCallersUpdate(
        _ flight: FlightID,
        by call: PendingCall,
        _ update: (Dependency?, PendingCall) async throws -> UpdateResult<Dependency>
    ) async -> (Result<UpdateOutcome, any Error>, Beginning)? {
        let limit = self.policy.updateTimeout
        var beginning = Beginning(time: self.time.now)
        var parentEpoch: UInt64 = 0
        let engine = self.engine
        do {
            // If this call runs inside a flight, the enclosing flight waits for the update. With a record of
            // this wait, the graph detects a cycle of waits.
            let node = self.engine.node(flight)
            let wait = WaitForGraph.WaitID(self.engine.number, flight)
            if let caller = FlightContext.current {
                _ = WaitForGraph.begin(wait, of: caller, isCertain: caller.isAwaited, for: node)
            }
            defer { WaitForGraph.end(wait) }
            let updated = try await shieldedFromCancellation(for: node, limit: limit.map { (self.time, $0) }) {
                // Read here, because the parent's epoch and the value may have changed since the request of
                // the call.
                let epoch = self.leastValidParentEpoch
                guard let begun = self.beginUpdate(flight) else { throw AskAgain() }
                (beginning, parentEpoch) = (begun, epoch)
                return try await update(begun.replaced?.value, call)
            } whenTooLong: {
                // Resumes the other callers; this caller waits for the end of `update`.
                engine.expire(flight, of: .sole)
            }
            return (.success(UpdateOutcome(updated, parentEpoch: parentEpoch)), beginning)
        } catch is AskAgain {
            return nil
        } catch {
            // A transport may report a cancellation with an error other than `CancellationError`.
            let isCancelled = MuxEvent.Reason.known(of: error) == .cancellation
            guard isCancelled, let limit, self.time.now >= beginning.time.advanced(by: limit) else {
                return (.failure(error), beginning)
            }
            return (.failure(RunnerError.updateTimedOut(after: limit)), beginning)
        }
    }

    /// The least ``VersionedDependency/parentEpoch`` of a valid value; 0 without a parent.
    @inlinable var leastValidParentEpoch: UInt64 { self.parent?.leastValidEpochForChildren ?? 0 }
}
