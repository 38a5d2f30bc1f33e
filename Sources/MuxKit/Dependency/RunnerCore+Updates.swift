import Foundation

/// The ends of updates, and other changes of the state.
///
/// A change that can release a value or an error retains the previous state until after the release of the
/// lock: the `deinit` of the value or error may call this runner.
extension RunnerCore {
    private func change<R: Sendable>(_ change: (inout Machine) -> R) -> R {
        let (result, former) = self.engine.withState { state in
            let former = state
            return (change(&state.machine), former)
        }
        withExtendedLifetime(former) {}
        return result
    }

    /// Changes the machine; if `change` returns an answer, all waiting callers leave their flights with this
    /// answer.
    ///
    /// See ``FlightEngine/dismissCallers(cancelling:where:_:)``.
    private func changeAndDismissCallers<R: Sendable>(
        cancelling: Bool,
        _ change: (inout Machine) -> (Result<VersionedDependency, any Error>?, R)
    ) -> (R, resumeWaiters: @Sendable () -> Void) {
        let ((result, former), resumeWaiters) = self.engine.dismissCallers(cancelling: cancelling) { state in
            let former = state
            let (answer, result) = change(&state.machine)
            return (answer, (result, former))
        }
        // The callers resume before the release of the former state, which may run code of the app.
        return (result, { withExtendedLifetime(former) { resumeWaiters() } })
    }

    /// Ends a flight with the outcome of its update.
    ///
    /// ``DependencyStateMachine/acceptsLateValue(since:)`` decides whether the runner keeps the value of a
    /// flight that has already ended.
    ///
    /// - Returns: The result for the caller that ran the update, even if the flight has timed out; `nil` if
    ///   the outcome was dropped.
    @discardableResult
    func land(
        _ flight: FlightID,
        _ outcome: Result<UpdateOutcome, any Error>,
        since beginning: Beginning
    ) -> Result<VersionedDependency, any Error>? {
        // A cancellation of the update is not a cancellation of the waiting callers: the callers get
        // ``MuxError/fetchCancelled``.
        let result = self.refuseSameDependency(outcome.mapError(\.ofUncancelledWork), insteadOf: beginning.replaced)
        var value: (Dependency, EarlyRenewal?, updated: UpdateOutcome)?
        if case .success(let updated) = result, case .updatedDependency(let new) = updated.result {
            value = (new, self.renewal(of: new, lifetime: updated.lifetime, isNew: true), updated)
        }
        let failure: (any Error)?
        switch result {
        case .success(let updated): failure = updated.failure
        case .failure(let error): failure = error
        }
        // Read before the lock, because the properties of an error may be code of the app.
        let isRefusal = failure?.saysBadDependency ?? false
        let pause = failure.flatMap { self.pausing(after: $0) }
        let now = self.time.now
        let coolDownEnd = now.advanced(by: self.policy.coolDown)
        var event = RunnerEvent.updateDropped
        var number: UInt64?
        var landed: Result<VersionedDependency, any Error>?
        var former: RunnerState<Dependency>?
        defer { withExtendedLifetime(former) {} }
        func storeOutcome(_ state: inout Machine) -> Result<VersionedDependency, any Error> {
            number = state.nextEvent()
            event = .updateFailed
            if let (value, renewal, updated) = value {
                let held = state.setUpdatedValue(
                    value,
                    parentEpoch: updated.parentEpoch,
                    renewal: renewal,
                    isFound: updated.isFound,
                    at: now,
                    policy: self.policy
                )
                event = .updated(epoch: held.epoch)
                // After a failed renewal, an existing value stays in use. The failure is recorded, so that a
                // refusal starts no update before the end of the cool-down and the pause.
                if let failure { state.recordFailure(failure, until: coolDownEnd, pausing: pause, at: now) }
                return .success(held)
            }
            guard let failure, !isRefusal else {
                let refusal = RunnerError.updateFailed(underlying: failure)
                state.recordRefusedUpdate(refusal)
                return .failure(refusal)
            }
            if let cause = failure.criticalCause {
                let critical = RaisedCritical(cause)
                state.recordCriticalError(critical)
                event = .critical
                return .failure(critical)
            }
            state.recordFailure(failure, until: coolDownEnd, pausing: pause, at: now)
            return .failure(failure)
        }
        let hasTimedOut = self.engine.land(flight, of: .sole, failed: value == nil) { state, mayKeep in
            // A reset or another change has removed all callers from the flight, so no caller gets this
            // error.
            guard mayKeep else { return .failure(RunnerError.reset) }
            former = state
            let result = storeOutcome(&state.machine)
            landed = result
            return result
        }
        if number == nil {
            self.engine.withState { state in
                former = state
                guard state.machine.acceptsLateValue(since: beginning.epoch) else {
                    // The result is dropped. But the update may have rotated the parent's refresh token, and
                    // a value that was set in the meantime must stay valid.
                    guard case .success(let updated) = result else { return }
                    return state.machine.recordParentSuccessor(from: updated.formerParentEpoch, to: updated.parentEpoch)
                }
                guard value == nil else {
                    landed = storeOutcome(&state.machine)
                    return
                }
                // The update made no value, and its flight has ended: the failure is not recorded.
                landed = result.flatMap { _ in .failure(RunnerError.updateFailed(underlying: nil)) }
            }
        }
        let duration = self.time.now.duration(since: beginning.time)
        if let value, value.updated.failure == nil {
            self.tell(.updated, duration)
        } else if self.observer != nil {
            let reason = failure.map { MuxEvent.Reason(of: $0) } ?? .refused
            self.tell(.updateFailed, duration, because: hasTimedOut ? .timeOut : reason)
        }
        self.watchers.tell(event, number: number ?? self.engine.withState { $0.machine.nextEvent() })
        return landed
    }

    /// The pause after a failed update; `nil` if the error gives no information about a server.
    ///
    /// The longest pause is ``FailurePause/longest`` only after a response of a server. Without a response,
    /// for example without a network, the longest pause is short or zero, because the next call may succeed.
    /// An error of an unknown type counts as a response if ``asksServer`` is `true`.
    private func pausing(after error: any Error) -> UpdatePauses.Failure? {
        if let error = error as? RunnerError {
            // A timed-out update has already delayed the callers, and may still return a value.
            return error.code == .updateTimedOut ? UpdatePauses.Failure() : nil
        }
        let retryAfter = RetryAdvice.of(error).retryAfter
        switch MuxEvent.Reason(of: error) {
        case .cancellation: return nil
        case .status, .decoding: return UpdatePauses.Failure(longest: FailurePause.longest, retryAfter: retryAfter)
        case .connection, .timeOut, .refused,
            .other where SilenceableError.isSilenceable(error):
            return UpdatePauses.Failure(longest: self.asksServer ? .seconds(4) : .zero, retryAfter: retryAfter)
        case .other:
            return UpdatePauses.Failure(longest: self.asksServer ? FailurePause.longest : .zero, retryAfter: retryAfter)
        }
    }

    /// The outcome; ``RunnerError/sameDependency`` if the value equals the refused value, and the policy
    /// refuses such a value.
    private func refuseSameDependency(
        _ outcome: Result<UpdateOutcome, any Error>,
        insteadOf replaced: VersionedDependency?
    ) -> Result<UpdateOutcome, any Error> {
        guard self.policy.refusesSameDependency, let replaced, case .success(let updated) = outcome,
            case .updatedDependency(let value) = updated.result,
            self.engine.withState({ $0.machine.wasRefused(replaced) }), areEqual(replaced.value, value)
        else { return outcome }
        return .failure(RunnerError.sameDependency)
    }

    /// Raises a critical error for all calls, unless the session of `call` has ended or another critical
    /// error is in force.
    ///
    /// - Returns: The error for `call`.
    func raiseCritical(_ cause: any Error, _ call: Machine.Call) -> any Error {
        let critical = RaisedCritical(cause)
        let own = critical.claimError()
        let ((number, wasCritical), resumeWaiters) = self.changeAndDismissCallers(cancelling: false) { machine in
            // The originator of the earlier critical error is another caller.
            let wasCritical = machine.standingError(for: call) is RaisedCritical
            guard machine.recordCriticalError(critical, by: call) else { return (nil, (nil as UInt64?, wasCritical)) }
            return (.failure(critical), (machine.nextEvent(), wasCritical))
        }
        resumeWaiters()
        if let number { self.watchers.tell(.critical, number: number) }
        return wasCritical ? RunnerError.critical(underlying: cause, isOriginator: false) : own
    }

    @usableFromInline
    func tell(_ kind: MuxEvent.Kind, _ duration: Duration? = nil, because reason: MuxEvent.Reason? = nil) {
        guard let observer else { return }
        observer.tell(
            MuxEvent(kind, name: self.policy.name ?? "\(Dependency.self)", duration: duration, reason: reason)
        )
    }

    /// The early renewal of the value, computed from `lifetime` or else from the expiry of the value; `nil`
    /// without an early renewal.
    func renewal(of value: Dependency, lifetime: Duration? = nil, isNew: Bool) -> EarlyRenewal? {
        EarlyRenewal(
            lifetime: lifetime ?? Duration(lifetimeOf: value, at: self.wallTime()),
            isNew: isNew,
            leeway: self.policy.leeway,
            at: self.time.now
        )
    }
}

/// Whether two values have the same `Equatable` type and are equal.
private func areEqual(_ a: Any, _ b: Any) -> Bool {
    func isEqual<Value: Equatable>(_ a: Value) -> Bool { b as? Value == a }
    guard let a = a as? any Equatable else { return false }
    return isEqual(a)
}

/// The reads and changes of a runner's state by the public types of runners.
extension RunnerCore {
    /// The current value; `nil` without a value, or if the parent's value was replaced.
    package var held: VersionedDependency? {
        let leastValid = self.leastValidParentEpoch
        return self.engine.withState { $0.machine.current(parentEpoch: leastValid) }
    }

    /// Whether a current value exists that is neither refused nor past its end.
    var isUsable: Bool {
        guard let held = self.held else { return false }
        let wasRefused = self.engine.withState { $0.machine.wasRefused(held) }
        return !wasRefused && held.renewal.map { self.time.now < $0.end } ?? true
    }

    package var epoch: UInt64 { self.engine.withState { $0.machine.epoch } }

    package var session: UInt64 { self.engine.withState { $0.machine.session } }

    /// Sets the value; waiting callers get `value` at once, and the outcome of a running update is dropped.
    @discardableResult
    package func set(
        _ value: Dependency,
        lifetime: Duration? = nil,
        cancellingUpdate: Bool = false
    ) -> VersionedDependency {
        let leastValid = self.leastValidParentEpoch
        let renewal = self.renewal(of: value, lifetime: lifetime, isNew: lifetime != nil)
        let ((held, number), resumeWaiters) = self.changeAndDismissCallers(cancelling: cancellingUpdate) { machine in
            let held = machine.setValue(value, parentEpoch: leastValid, renewal: renewal)
            return (.success(held), (held, machine.nextEvent()))
        }
        resumeWaiters()
        self.watchers.tell(.set(epoch: held.epoch), number: number)
        return held
    }

    /// Records a replacement of the parent's value.
    ///
    /// A value that belongs to the parent's present value stays. Otherwise the value and the outcome of a
    /// running update are dropped, and the waiting callers request the dependency again.
    package func recordParentReplacement() {
        let leastValid = self.leastValidParentEpoch
        let (_, resumeWaiters) = self.changeAndDismissCallers(cancelling: false) { machine in
            (machine.recordParentReplacement(parentEpoch: leastValid) ? .failure(AskAgain()) : nil, ())
        }
        resumeWaiters()
    }

    /// Clears earlier failures, refused updates and critical errors, so that the next call can start an
    /// update.
    package func clearFailures() { self.change { $0.clearFailures() } }

    /// See ``DependencyStateMachine/updateData(of:to:)``.
    @discardableResult
    package func updateData(of held: VersionedDependency, to value: Dependency) -> VersionedDependency? {
        self.change { $0.updateData(of: held, to: value) }
    }

    /// See ``DependencyStateMachine/setSuccessor(of:to:raisesEpoch:)``.
    package func setSuccessor(of held: VersionedDependency, to value: Dependency, raisesEpoch: Bool)
        -> VersionedDependency?
    {
        self.change { $0.setSuccessor(of: held, to: value, raisesEpoch: raisesEpoch) }
    }

    /// Ends the session: waiting calls fail, and running calls fail if their task refuses the dependency.
    ///
    /// The outcome of a running update is dropped; a running stored update is also cancelled.
    package func end(_ end: Machine.End) { self.endWithoutResuming(end)() }

    /// Ends the session like ``end(_:)``, but does not resume the callers yet.
    ///
    /// - Parameters:
    ///   - end: The reason.
    ///   - sendsEvent: Whether the closure reports the end of the session as an event.
    /// - Returns: A closure that resumes the callers, cancels stored updates and reports the event. Call the
    ///   closure after the end of the session in all other layers and participants, because a resumed caller
    ///   may use another layer at once.
    package func endWithoutResuming(_ end: Machine.End, sendsEvent: Bool = true) -> @Sendable () -> Void {
        let (number, resumeWaiters) = self.changeAndDismissCallers(cancelling: true) { machine in
            machine.endSession(end)
            return (.failure(end.error), sendsEvent ? machine.nextEvent() : nil)
        }
        return {
            resumeWaiters()
            if let number { self.watchers.tell(end == .reset ? .reset : .signedOut, number: number) }
        }
    }
}
