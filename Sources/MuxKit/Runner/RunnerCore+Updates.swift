import Foundation

/// How updates begin and end.
extension RunnerCore {
    func updateStarts() {
        self.tell(.updateStarted)
        self.watchers.tell(.updateStarted, number: self.engine.withState { $0.machine.nextEvent() })
    }

    /// Ends a flight.
    ///
    /// What it brings after its time is kept, too, if nothing has changed since it began: a token that came late is a token.
    ///
    /// - Returns: What its callers got, or would have got in time; `nil` if a fence had passed it, so that its outcome did not
    ///   count.
    @discardableResult
    func land(
        _ flight: FlightID,
        _ outcome: Result<Updated, any Error>,
        since beginning: Beginning
    ) -> Result<VersionedDependency, any Error>? {
        let result = self.checked(outcome, insteadOf: beginning.failed)
        var value: (Dependency, Machine.Expiry?, updated: Updated)?
        if case .success(let updated) = result, case .updatedDependency(let new) = updated.result {
            value = (new, self.expiry(of: new, lifetime: updated.lifetime, isNew: true), updated)
        }
        let now = self.time.now
        var event = RunnerEvent.updateDropped
        var number: UInt64?
        var landed: Result<VersionedDependency, any Error>?
        func settle(_ state: inout Machine) -> Result<VersionedDependency, any Error> {
            number = state.nextEvent()
            event = .updateFailed
            if let (value, expiry, updated) = value {
                let held = state.updated(
                    to: value,
                    parentEpoch: updated.parentEpoch,
                    expiry: expiry,
                    isFound: updated.isFound,
                    at: now,
                    policy: self.policy
                )
                event = .updated(epoch: held.epoch)
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
            state.failed(error, until: now.advanced(by: self.policy.coolDown))
            return .failure(error)
        }
        self.engine.land(flight, of: .sole, failed: value == nil) { state, mayKeep in
            // Whoever fences a runner off also answers its callers, so an outcome that may not be kept has none.
            guard mayKeep else { return .failure(RunnerError.reset) }
            let result = settle(&state.machine)
            landed = result
            return result
        }
        if number == nil {
            self.engine.withState { state in
                guard state.machine.isAsItWas(beginning.epoch, in: beginning.session) else {
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
        self.tell(value == nil ? .updateFailed : .updated, self.time.now.duration(since: beginning.time))
        self.watchers.tell(event, number: number ?? self.engine.withState { $0.machine.nextEvent() })
        return landed
    }

    /// The outcome, or a failure if the update brought what had been refused and the policy minds.
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

    /// Ends all calls of the present session, if it is that of `call`, because of what its task threw.
    ///
    /// - Returns: What the call itself ends with.
    func raise(_ cause: any Error, _ call: Machine.Call) -> any Error {
        let critical = RaisedCritical(cause)
        let own = critical.claimed()
        let number: UInt64? = self.engine.dismissAll(cancelling: false) { state in
            guard state.machine.raised(critical, by: call) else { return (nil, nil) }
            return (.failure(critical), state.machine.nextEvent())
        }
        if let number { self.watchers.tell(.critical, number: number) }
        return own
    }

    @usableFromInline
    func tell(_ kind: MuxEvent.Kind, _ duration: Duration? = nil) {
        self.observer?.tell(MuxEvent(kind, duration: duration))
    }

    // MARK: - Ends of values

    func expiry(of value: Dependency, lifetime: Duration?, isNew: Bool) -> Machine.Expiry? {
        Self.expiry(
            of: value,
            lifetime: lifetime,
            isNew: isNew,
            self.policy,
            at: self.time.now,
            wallTime: self.wallTime
        )
    }

    /// When the value ends, if it or somebody else knows.
    static func expiry(
        of value: Dependency,
        lifetime: Duration?,
        isNew: Bool,
        _ policy: RunnerPolicy,
        at now: Moment,
        wallTime: @Sendable () -> Date
    ) -> Machine.Expiry? {
        var known = lifetime
        if known == nil {
            known = Date(expiryOf: value).map { .saturating(seconds: $0.timeIntervalSince(wallTime())) }
        }
        guard let known else { return nil }
        // One that is over when it comes is not: the clock is wrong, and the value is used until a task refuses it. One that
        // was kept somewhere is renewed first, and used if that fails.
        guard known > .zero else { return isNew ? nil : Machine.Expiry(renewal: now, end: .distantFuture) }
        let end = now.advanced(by: known)
        let leeway = max(.zero, isNew ? min(policy.leeway, known / 2) : policy.leeway)
        return Machine.Expiry(renewal: end.advanced(by: .zero - min(leeway, .longest)), end: end)
    }
}

/// Whether two values that may be `Equatable` are, and are equal.
private func areEqual(_ a: Any, _ b: Any) -> Bool {
    func isEqual<Value: Equatable>(_ a: Value) -> Bool { b as? Value == a }
    guard let a = a as? any Equatable else { return false }
    return isEqual(a)
}
