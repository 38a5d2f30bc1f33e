import Foundation

/// How updates begin and end.
///
/// A change keeps the former state until the lock is released: the `deinit` of a value or an error may call this runner.
extension RunnerCore {
    func updateStarts() {
        self.tell(.updateStarted)
        self.watchers.tell(.updateStarted, number: self.engine.withState { $0.machine.nextEvent() })
    }

    /// Ends a flight with the outcome of its update.
    ///
    /// A value that comes after the flight timed out is kept if nothing has changed since it began.
    ///
    /// - Returns: What its callers got, or would have got in time; `nil` if a fence had passed it, so that it was dropped.
    @discardableResult
    func land(
        _ flight: FlightID,
        _ outcome: Result<Updated, any Error>,
        since beginning: Beginning
    ) -> Result<VersionedDependency, any Error>? {
        // An update without callers keeps no cancellation.
        let result = self.checked(outcome.mapError(\.ofUncancelledWork), insteadOf: beginning.failed)
        var value: (Dependency, EarlyRenewal?, updated: Updated)?
        if case .success(let updated) = result, case .updatedDependency(let new) = updated.result {
            value = (new, self.renewal(of: new, lifetime: updated.lifetime, isNew: true), updated)
        }
        let now = self.time.now
        var event = RunnerEvent.updateDropped
        var number: UInt64?
        var landed: Result<VersionedDependency, any Error>?
        var former: RunnerState<Dependency>?
        defer { withExtendedLifetime(former) {} }
        func settle(_ state: inout Machine) -> Result<VersionedDependency, any Error> {
            number = state.nextEvent()
            event = .updateFailed
            if let (value, renewal, updated) = value {
                let held = state.updated(
                    to: value,
                    parentEpoch: updated.parentEpoch,
                    renewal: renewal,
                    isFound: updated.isFound,
                    at: now,
                    policy: self.policy
                )
                event = .updated(epoch: held.epoch)
                if let failure = updated.failure {
                    // The renewal failed, and the former value is used: a refusal of that value obeys the server's pause.
                    let end = now.advanced(by: self.policy.coolDown)
                    state.failed(failure, until: end, pausing: self.pausing(after: failure), at: now)
                }
                return .success(held)
            }
            guard case .failure(let error) = result, !error.saysBadDependency else {
                var cause: (any Error)?
                if case .failure(let error) = result { cause = error }
                let refusal = RunnerError.updateFailed(underlying: cause)
                state.refused(refusal)
                return .failure(refusal)
            }
            if let cause = error.criticalCause {
                let critical = RaisedCritical(cause)
                state.raised(critical)
                event = .critical
                return .failure(critical)
            }
            let end = now.advanced(by: self.policy.coolDown)
            state.failed(error, until: end, pausing: self.pausing(after: error), at: now)
            return .failure(error)
        }
        let hasTimedOut = self.engine.land(flight, of: .sole, failed: value == nil) { state, mayKeep in
            // A fence answers the callers of the flights it passes, so this error reaches none.
            guard mayKeep else { return .failure(RunnerError.reset) }
            former = state
            let result = settle(&state.machine)
            landed = result
            return result
        }
        if number == nil {
            self.engine.withState { state in
                former = state
                guard state.machine.isUnchanged(since: beginning.epoch, of: beginning.session) else {
                    guard case .success(let updated) = result else { return }
                    return state.machine.parentContinued(from: updated.formerParentEpoch, to: updated.parentEpoch)
                }
                guard value == nil else {
                    landed = settle(&state.machine)
                    return
                }
                landed = result.flatMap { _ in .failure(RunnerError.updateFailed(underlying: nil)) }
            }
        }
        let duration = self.time.now.duration(since: beginning.time)
        if let value, value.updated.failure == nil {
            self.tell(.updated, duration)
        } else if self.observer != nil {
            var reason = value?.updated.failure.map { MuxEvent.Reason(of: $0) } ?? .refused
            if case .failure(let error) = result { reason = MuxEvent.Reason(of: error) }
            self.tell(.updateFailed, duration, because: hasTimedOut ? .timeOut : reason)
        }
        self.watchers.tell(event, number: number ?? self.engine.withState { $0.machine.nextEvent() })
        return landed
    }

    /// The pause after an update that threw; `nil` if the error says nothing about a server.
    ///
    /// Where no server has replied, as without a network, the pause stays short: the next call may succeed. An error of an app's own
    /// counts as a reply of the server if the update is known to ask one.
    private func pausing(after error: any Error) -> UpdatePauses.Failure? {
        if let error = error as? RunnerError {
            // An update that timed out took its time already, and may bring a value late.
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

    /// The outcome, or a failure if the update brought a value equal to the refused one and the policy does not allow that.
    private func checked(
        _ outcome: Result<Updated, any Error>,
        insteadOf failed: VersionedDependency?
    ) -> Result<Updated, any Error> {
        guard self.policy.refusesSameDependency, let failed, case .success(let updated) = outcome,
            case .updatedDependency(let value) = updated.result,
            self.engine.withState({ $0.machine.wasRefused(failed) }), areEqual(failed.value, value)
        else { return outcome }
        return .failure(RunnerError.sameDependency)
    }

    /// Ends all calls of the session of `call` with a critical error, unless that session has ended.
    ///
    /// - Returns: The error of the call itself.
    func raise(_ cause: any Error, _ call: Machine.Call) -> any Error {
        let critical = RaisedCritical(cause)
        let own = critical.claimed()
        let (number, former): (UInt64?, RunnerState<Dependency>) = self.engine.dismissAll(cancelling: false) { state in
            let former = state
            guard state.machine.raised(critical, by: call) else { return (nil, (nil, former)) }
            return (.failure(critical), (state.machine.nextEvent(), former))
        }
        withExtendedLifetime(former) {}
        if let number { self.watchers.tell(.critical, number: number) }
        return own
    }

    @usableFromInline
    func tell(_ kind: MuxEvent.Kind, _ duration: Duration? = nil, because reason: MuxEvent.Reason? = nil) {
        guard let observer else { return }
        observer.tell(
            MuxEvent(kind, name: self.policy.name ?? "\(Dependency.self)", duration: duration, reason: reason)
        )
    }

    /// When the value is renewed; `nil` if its end is not known.
    func renewal(of value: Dependency, lifetime: Duration? = nil, isNew: Bool) -> EarlyRenewal? {
        EarlyRenewal(
            lifetime: lifetime ?? Duration(lifetimeOf: value, at: self.wallTime()),
            isNew: isNew,
            leeway: self.policy.leeway,
            at: self.time.now
        )
    }
}

/// Whether two values that may be `Equatable` are, and are equal.
private func areEqual(_ a: Any, _ b: Any) -> Bool {
    func isEqual<Value: Equatable>(_ a: Value) -> Bool { b as? Value == a }
    guard let a = a as? any Equatable else { return false }
    return isEqual(a)
}

/// Mutations and state for the runners' public types.
extension RunnerCore {
    /// The present value; `nil` if there is none, or if the parent's value was replaced.
    package var held: VersionedDependency? {
        let parentEpoch = self.parentEpoch
        return self.engine.withState { $0.machine.current(parentEpoch: parentEpoch) }
    }

    /// Whether there is a value that no task has refused and that has not ended.
    var isUsable: Bool {
        guard let held = self.held else { return false }
        let wasRefused = self.engine.withState { $0.machine.wasRefused(held) }
        return !wasRefused && held.renewal.map { self.time.now < $0.end } ?? true
    }

    /// Raised with every change of the value.
    package var epoch: UInt64 { self.engine.withState { $0.machine.epoch } }

    /// Raised when a session ends.
    package var session: UInt64 { self.engine.withState { $0.machine.session } }

    /// Sets the value; callers that wait for an update get it now, and the update's own value is dropped.
    @discardableResult
    package func set(_ value: Dependency, cancellingUpdate: Bool = false) -> VersionedDependency {
        let parentEpoch = self.parentEpoch
        let renewal = self.renewal(of: value, isNew: false)
        let (held, number, former) = self.engine.dismissAll(cancelling: cancellingUpdate) { state in
            let former = state
            let held = state.machine.changed(to: value, parentEpoch: parentEpoch, renewal: renewal)
            return (.success(held), (held, state.machine.nextEvent(), former))
        }
        withExtendedLifetime(former) {}
        self.watchers.tell(.set(epoch: held.epoch), number: number)
        return held
    }

    /// The parent's value was replaced: the running update is dropped, and its callers ask again.
    package func parentReplaced() {
        let parentEpoch = self.parentEpoch
        let former = self.engine.dismissAll(cancelling: false) { state in
            let former = state
            return (state.machine.parentReplaced(parentEpoch: parentEpoch) ? .failure(AskAgain()) : nil, former)
        }
        withExtendedLifetime(former) {}
    }

    /// Lets calls try again that would fail because of earlier failures.
    package func clearFailures() {
        let former = self.engine.withState { state in
            let former = state
            state.machine.failuresCleared()
            return former
        }
        withExtendedLifetime(former) {}
    }

    /// Replaces the value of `held` by the same with more known about it; `nil`, with no change, if `held` is outdated.
    @discardableResult
    package func note(_ held: VersionedDependency, as value: Dependency) -> VersionedDependency? {
        let (noted, former) = self.engine.withState { state in
            let former = state
            return (state.machine.noted(held, as: value), former)
        }
        withExtendedLifetime(former) {}
        return noted
    }

    /// Exchanges the value of `held` for one that continues it; `nil`, with no change, if `held` was replaced.
    package func continued(_ held: VersionedDependency, with value: Dependency, raisesEpoch: Bool)
        -> VersionedDependency?
    {
        let (continued, former) = self.engine.withState { state in
            let former = state
            return (state.machine.continued(held, with: value, raisesEpoch: raisesEpoch), former)
        }
        withExtendedLifetime(former) {}
        return continued
    }

    /// Ends the session: running calls fail, and a running update is cancelled and dropped.
    package func end(_ end: Machine.End) { self.ended(end)() }

    /// Ends the session as ``end(_:)`` does.
    ///
    /// - Returns: Answers the callers and reports the event; to be run when other layers and participants have ended, too.
    package func ended(_ end: Machine.End, isTold: Bool = true) -> @Sendable () -> Void {
        let (ended, answerWaiters) = self.engine.dismissed(cancelling: true) { state in
            let former = state
            state.machine.ended(end)
            return (.failure(end.error), (number: isTold ? state.machine.nextEvent() : nil, former: former))
        }
        let number = ended.number
        withExtendedLifetime(ended.former) {}
        return {
            answerWaiters()
            if let number { self.watchers.tell(end == .reset ? .reset : .signedOut, number: number) }
        }
    }

    /// How many callers wait and how many updates run: zero at rest.
    package var occupancy: (waiters: Int, tasks: Int, keys: Int) { self.engine.occupancy }
}
