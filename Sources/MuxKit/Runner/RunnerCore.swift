/// One layer of dependency: its state, its flights, and the loop that runs a task until it accepts the dependency.
package final class RunnerCore<Dependency: Sendable>: Sendable {
    package typealias Machine = DependencyStateMachine<Dependency>
    package typealias Held = Machine.Held

    /// What a stored update brings.
    package struct Updated: Sendable {
        let result: UpdateResult<Dependency>
        /// The epoch of the parent's value that it was made with.
        let parentEpoch: UInt64

        package init(_ result: UpdateResult<Dependency>, parentEpoch: UInt64 = 0) {
            self.result = result
            self.parentEpoch = parentEpoch
        }
    }

    /// Makes a value; receives the one that was refused, `nil` if there is none.
    package typealias StoredUpdate = @Sendable (Held?) async throws -> Updated

    /// Has a caller look again: the update that it waits for, or was to do itself, was called off.
    private struct LookAgain: Error {}

    private let engine: FlightEngine<SoleKey, Held, Machine>
    private let policy: RunnerPolicy
    private let time: TimeSource
    private let parentEpoch: @Sendable () -> UInt64
    private let storedUpdate: StoredUpdate?
    private let observer: (any MuxObserver)?

    package init(
        _ value: Dependency? = nil,
        policy: RunnerPolicy,
        observer: (any MuxObserver)?,
        time: TimeSource,
        spawn: Spawn,
        parentEpoch: @escaping @Sendable () -> UInt64 = { 0 },
        update: StoredUpdate? = nil
    ) {
        self.policy = policy
        self.time = time
        self.parentEpoch = parentEpoch
        self.storedUpdate = update
        self.observer = observer
        // No linger: an update is never cancelled because nobody waits.
        let options = FlightEngine<SoleKey, Held, Machine>.Options(
            linger: nil,
            wouldDeadlock: RunnerError.wouldDeadlock
        )
        self.engine = FlightEngine(Machine(value), options, time: time, spawn: spawn)
    }

    // MARK: - Running

    /// Runs `task` with the dependency; the stored update runs in a task of its own that no caller owns.
    package nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Held) async throws -> RunResult<Output>
    ) async throws -> Output {
        try await self.loop(task) { call in
            // First of all, for what an update needs is made in vain if there is none to be made.
            if let held = self.usable(in: call) { return held }
            let update = self.storedUpdate
            let launch = FlightEngine<SoleKey, Held, Machine>.Launch.spawned(name: "mux.update") { [weak self] flight in
                guard let update else { return }  // no flight starts without one
                // A flight that was dismissed before its turn came must not meet the next one's update.
                guard self?.engine.workBegins(flight, of: .sole, { _, _ in }) ?? true else { return }
                self?.tell(.updateStarted)
                let start = self?.time.now
                let failed = self?.held
                let result: Result<Updated, any Error>
                do {
                    result = .success(try await update(failed))
                } catch {
                    result = .failure(error)
                }
                self?.land(flight, result, since: start)
            }
            do {
                guard case .output(let held) = try await self.enter(&call, launch, canUpdate: update != nil) else {
                    return nil
                }
                return held
            } catch is LookAgain {
                return nil
            }
        }
    }

    /// Runs `task` with the dependency; the first caller to need it runs `update`, and stays until that has ended.
    package nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Held) async throws -> RunResult<Output>,
        update: (Dependency?) async throws -> UpdateResult<Dependency>
    ) async throws -> Output {
        try await self.loop(task) { call in
            if let held = self.usable(in: call) { return held }
            let flight: FlightID
            switch try await self.enter(&call, .byCaller, canUpdate: true) {
            case .output(let held): return held
            case .lead(let id): flight = id
            }
            let start = self.time.now
            let result: Result<Updated, any Error>
            do {
                // Whoever this call works for waits for the update, as it would for one in a task of its own.
                let node = self.engine.node(.sole)
                let caller = FlightNode.current
                if let caller { _ = FlightGraph.begin(caller, waitsFor: node) }
                defer { if let caller { FlightGraph.end(caller, waitsFor: node) } }
                let updated = try await shieldedFromCancellation(for: node) {
                    // The way here may have taken a while: the value to replace is the one of now.
                    guard self.engine.workBegins(flight, of: .sole, { _, _ in }) else { throw LookAgain() }
                    self.tell(.updateStarted)
                    return try await update(self.refusedValue)
                }
                result = .success(Updated(updated))
            } catch is LookAgain {
                try Task.checkCancellation()
                return nil
            } catch {
                result = .failure(error)
            }
            let isKept = self.land(flight, result, since: start)
            try Task.checkCancellation()
            if isKept, case .failure(let error) = result, !error.saysBadDependency { throw error }
            return nil  // look again: the update has left a value or a refusal, or a fence has passed it
        }
    }

    private nonisolated(nonsending) func loop<Output: Sendable>(
        _ task: (Held) async throws -> RunResult<Output>,
        obtain: (inout Machine.Call) async throws -> Held?
    ) async throws -> Output {
        try Task.checkCancellation()
        var call = self.engine.withState { $0.call(at: self.time.now) }
        while true {
            guard let held = try await obtain(&call) else { continue }
            do {
                if case .output(let output) = try await task(held) { return output }
                call.lastError = nil
            } catch  where error.saysBadDependency {
                call.lastError = error
            }
            call.badEpoch = held.epoch
            try Task.checkCancellation()
        }
    }

    /// The value, if the call can use it as it is.
    private func usable(in call: Machine.Call) -> Held? {
        let parentEpoch = self.parentEpoch()
        return self.engine.withState { $0.usable(in: call, parentEpoch: parentEpoch) }
    }

    private nonisolated(nonsending) func enter(
        _ call: inout Machine.Call,
        _ launch: FlightEngine<SoleKey, Held, Machine>.Launch,
        canUpdate: Bool
    ) async throws -> FlightEngine<SoleKey, Held, Machine>.Landing {
        let parentEpoch = self.parentEpoch()
        let now = self.time.now
        var waits = false
        return try await self.engine.enter(
            .sole,
            launch: launch,
            decide: { state in
                switch state.answer(to: &call, parentEpoch: parentEpoch, policy: self.policy, at: now) {
                case .use(let held): .answer(held)
                case .fail(let error): .fail(error)
                case .update: canUpdate ? .fly : .fail(RunnerError.noUpdate)
                }
            },
            joined: { _, _, _ in waits = true },
            arrived: { if waits { self.tell(.dependencyAwaited) } }
        )
    }

    /// The value that an update which starts now is to replace.
    private var refusedValue: Dependency? { self.held?.value }

    /// Ends a flight.
    ///
    /// - Returns: Whether its outcome counted: no fence had passed it.
    @discardableResult
    private func land(_ flight: FlightID, _ result: Result<Updated, any Error>, since start: Moment?) -> Bool {
        var isKept = false
        let hasValue =
            if case .success(let updated) = result, case .updatedDependency = updated.result { true } else { false }
        self.engine.land(flight, of: .sole, failed: !hasValue) { state, mayKeep in
            // Whoever fences a runner off also answers its callers, so an outcome that may not be kept has none.
            guard mayKeep else { return .failure(RunnerError.reset) }
            isKept = true
            switch result {
            case .success(let updated):
                guard case .updatedDependency(let value) = updated.result else {
                    let error = RunnerError.updateFailed(underlying: nil)
                    state.refused(error)
                    return .failure(error)
                }
                return .success(state.changed(to: value, parentEpoch: updated.parentEpoch))
            case .failure(let error):
                guard error.saysBadDependency else { return .failure(error) }
                let refusal = RunnerError.updateFailed(underlying: error)
                state.refused(refusal)
                return .failure(refusal)
            }
        }
        if !isKept, case .success(let updated) = result {
            self.engine.withState { $0.parentContinued(epoch: updated.parentEpoch) }
        }
        self.tell(hasValue ? .updated : .updateFailed, start.map { self.time.now.duration(since: $0) })
        return isKept
    }

    private func tell(_ kind: MuxEvent.Kind, _ duration: Duration? = nil) {
        self.observer?.observe(MuxEvent(kind, duration: duration))
    }

    // MARK: - From outside

    /// The value with its epochs, if there is one that may be used.
    package var held: Held? {
        let parentEpoch = self.parentEpoch()
        return self.engine.withState { $0.current(parentEpoch: parentEpoch) }
    }

    /// Raised with every change of the value.
    package var epoch: UInt64 { self.engine.withState { $0.epoch } }

    /// Raised when a session ends.
    package var session: UInt64 { self.engine.withState { $0.session } }

    /// Sets the value; who waits for an update gets it now, and the update's own value is dropped.
    ///
    /// - Returns: The value with its epochs.
    @discardableResult
    package func set(_ value: Dependency, cancellingUpdate: Bool = false) -> Held {
        let parentEpoch = self.parentEpoch()
        return self.engine.dismissAll(cancelling: cancellingUpdate) { state in
            let held = state.changed(to: value, parentEpoch: parentEpoch)
            return (.success(held), held)
        }
    }

    /// Has everybody who waits look again: the parent's value was replaced, and the running update's is for nothing.
    package func parentReplaced() {
        self.engine.dismissAll(cancelling: false) { _ in (.failure(LookAgain()), ()) }
    }

    /// Notes something about the value of `held`, unless more has become known meanwhile.
    package func note(_ held: Held, as value: Dependency) {
        self.engine.withState { $0.noted(held, as: value) }
    }

    /// Exchanges the value of `held` for one that continues it.
    package func continued(_ held: Held, with value: Dependency, raisesEpoch: Bool) -> Held? {
        self.engine.withState { $0.continued(held, with: value, raisesEpoch: raisesEpoch) }
    }

    /// Ends the session: calls that are under way end, and an update that runs is cancelled to no effect.
    package func end(_ end: Machine.End) {
        self.engine.dismissAll(cancelling: true) { state in
            state.ended(end)
            return (.failure(end.error), ())
        }
    }

    /// How many callers wait and how many updates run: zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.engine.occupancy }
}

extension Error {
    /// Whether the error reports a dependency that is no good.
    var saysBadDependency: Bool { (self as? any BadDependencyError)?.isBadDependency ?? false }
}
