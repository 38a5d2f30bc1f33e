package import Foundation

/// The implementation of a runner, or of one layer of one: its state, its flights and the loop that runs tasks.
@usableFromInline
package final class RunnerCore<Dependency: Sendable>: Sendable {
    @usableFromInline package typealias Machine = DependencyStateMachine<Dependency>
    @usableFromInline package typealias VersionedDependency = Machine.VersionedDependency
    @usableFromInline typealias Engine = FlightEngine<SoleKey, VersionedDependency, RunnerState<Dependency>>

    /// The outcome of a stored update.
    package struct Updated: Sendable {
        let result: UpdateResult<Dependency>
        /// The epoch of the parent's value that it was made with.
        let parentEpoch: UInt64
        /// The former epoch, if the parent's value was exchanged meanwhile for one that continues it.
        let formerParentEpoch: UInt64
        /// How long the value will live, if that is known.
        let lifetime: Duration?
        /// Whether the value was found ready instead of made: a forced renewal has to ask again.
        let isFound: Bool
        /// Why no new value was made, if this is the former one, which is used to its end.
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

    /// Makes a value; receives the one to replace, `nil` if there is none, and the session.
    package typealias StoredUpdate = @Sendable @concurrent (VersionedDependency?, UInt64) async throws -> Updated

    /// Makes a caller ask again: the update that it waits for, or was to do itself, was dropped.
    struct AskAgain: Error {}

    @usableFromInline let engine: Engine
    /// That of the engine, kept here to save a hit one indirection.
    @usableFromInline let engineState: Locked<Engine.EngineState>
    @usableFromInline let policy: RunnerPolicy
    @usableFromInline let time: TimeSource
    @usableFromInline let coarseClock: CoarseClock
    let wallTime: @Sendable () -> Date
    /// The epochs of the layer above; `nil` if there is none.
    @usableFromInline let parent: RunnerEpochs?
    /// The epochs of this layer.
    package let epochs: RunnerEpochs
    let observer: (any MuxObserver)?
    let watchers = RunnerEvents()
    /// Whether the runner has its own update.
    @usableFromInline let hasStoredUpdate: Bool
    /// Whether updates ask a token endpoint, which is left alone while it fails.
    let asksServer: Bool
    /// Whether the present task may wait for an update: `false` if the update would wait for it; `nil` if any task may.
    @usableFromInline let mayWait: (@Sendable () -> Bool)?

    package init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy,
        observer: (any MuxObserver)?,
        time: TimeSource,
        wallTime: @escaping @Sendable () -> Date = { Date() },
        spawn: TaskLauncher,
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
            whenTimedOut: { state, now in
                let former = state
                let error = RunnerError.updateTimedOut(after: policy.updateTimeout ?? .zero)
                state.machine.failed(error, until: now.advanced(by: policy.coolDown), pausing: .init(), at: now)
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
        let state = RunnerState(Machine(value, renewal: renewal), self.epochs)
        self.engine = FlightEngine(state, options, time: time, spawn: spawn)
        self.engineState = self.engine.engineState
        guard let update else { return }
        self.engine.flies { [weak self] _, flight in
            guard let beginning = self?.updateBegins(flight) else { return }
            let result: Result<Updated, any Error>
            do {
                result = .success(try await update(beginning.failed, beginning.session))
            } catch {
                result = .failure(error)
            }
            self?.land(flight, result, since: beginning)
        }
    }

    /// The state when an update began.
    struct Beginning: Sendable {
        /// The value that the update is to replace.
        var failed: VersionedDependency?
        /// The session that needs it.
        var session: UInt64 = 0
        /// The epoch of the runner, with or without a value.
        var epoch: UInt64 = 0
        var time: Moment
    }

    // MARK: - Running

    /// Runs `task` with the dependency; the stored update runs in a task of its own that no caller owns.
    package nonisolated(nonsending) func run<Output: Sendable>(
        timeout: Duration? = nil,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.run(from: self.begun(timeout), task)
    }

    /// Continues a call, as ``run(timeout:_:)`` does.
    @inlinable
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: PendingCall,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.loop(call, task, leads: false) { _, _ in nil }
    }

    /// Renews the dependency, by a running update or a new one.
    package nonisolated(nonsending) func renewed() async throws -> VersionedDependency {
        let call = self.begun(nil)
        call.state.isForced = true
        call.state.badEpoch = self.held?.epoch
        return try await self.run(from: call) { held, _ in held.isFound ? .badDependency : .output(held) }
    }

    /// A flight of the runner's own update begins.
    ///
    /// - Returns: The present state; `nil` if the flight was dismissed before it began, or is not needed any more.
    private func updateBegins(_ flight: FlightID) -> Beginning? {
        let parentEpoch = self.parentEpoch
        var beginning = Beginning(time: self.time.now)
        var isNeeded = true
        let begins = self.engine.workBegins(flight, of: .sole) { state, _, _ in
            isNeeded = state.machine.needsUpdate(parentEpoch: parentEpoch)
            beginning.failed = state.machine.current(parentEpoch: parentEpoch)
            beginning.session = state.machine.session
            beginning.epoch = state.machine.epoch
        }
        guard begins else { return nil }
        guard isNeeded else {
            // An earlier update, for which no caller waits any more, has brought a value since the callers asked.
            self.engine.land(flight, of: .sole, failed: false) { _, _ in .failure(AskAgain()) }
            return nil
        }
        self.updateStarts()
        return beginning
    }

    /// The value; `nil` if the parent's was replaced meanwhile, so that the caller has to ask again.
    @inlinable
    func unlessVoid(_ held: VersionedDependency) -> VersionedDependency? {
        held.parentEpoch >= self.parentEpoch ? held : nil
    }

    /// Runs `task` with the dependency; the first caller to need it runs `update`, and stays until that has ended.
    nonisolated(nonsending) func run<Output: Sendable>(
        from call: PendingCall,
        _ task: (VersionedDependency, PendingCall) async throws -> RunResult<Output>,
        update: (Dependency?, PendingCall) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.loop(call, task, leads: true) { flight, call in
            guard let (result, beginning) = await self.led(flight, by: call, update) else { return nil }
            let landed = self.land(flight, result, since: beginning)
            try self.checkLimits(call)
            // If a fence has passed the update, ask again.
            guard let landed else { return nil }
            return self.unlessVoid(try landed.get())
        }
    }

    /// Does the caller's own update.
    ///
    /// - Returns: Its outcome and the state when it began; `nil` if it was dropped before.
    private nonisolated(nonsending) func led(
        _ flight: FlightID,
        by call: PendingCall,
        _ update: (Dependency?, PendingCall) async throws -> UpdateResult<Dependency>
    ) async -> (Result<Updated, any Error>, Beginning)? {
        let limit = self.policy.updateTimeout
        var beginning = Beginning(time: self.time.now)
        var parentEpoch: UInt64 = 0
        let engine = self.engine
        do {
            // A flight that made this call waits for the update, as for one in a task of its own.
            let node = self.engine.node(flight)
            let wait = WaitForGraph.WaitID(self.engine.number, flight)
            if let caller = FlightContext.current {
                _ = WaitForGraph.begin(wait, of: caller, isCertain: caller.isAwaited, for: node)
            }
            defer { WaitForGraph.end(wait) }
            let updated = try await shieldedFromCancellation(for: node, limit: limit.map { (self.time, $0) }) {
                // The value to replace is the present one; it may have changed since the call asked.
                let epoch = self.parentEpoch
                guard let begun = self.updateBegins(flight) else { throw AskAgain() }
                (beginning, parentEpoch) = (begun, epoch)
                return try await update(begun.failed?.value, call)
            } whenTooLong: {
                // Answers the other callers; this one stays until its closure has ended.
                engine.expire(flight, of: .sole)
            }
            return (.success(Updated(updated, parentEpoch: parentEpoch)), beginning)
        } catch is AskAgain {
            return nil
        } catch {
            // A transport says in its own words that it was cancelled.
            let isCancelled = MuxEvent.Reason.known(of: error) == .cancellation
            guard isCancelled, let limit, self.time.now >= beginning.time.advanced(by: limit) else {
                return (.failure(error), beginning)
            }
            return (.failure(RunnerError.updateTimedOut(after: limit)), beginning)
        }
    }

    /// The least epoch of the parent that the value may have been made with.
    @inlinable var parentEpoch: UInt64 { self.parent?.forChildren ?? 0 }
}
